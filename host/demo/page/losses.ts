/**
 * How many packets get lost, and where: in relays of the server, below our channel and below a
 * reliable one, or without relays in our own link alone.
 */
import type { Wire } from '../acts/act.js';
import type { DemoEndpoint } from '../endpoint.js';
import { Latencies } from '../latencies.js';
import type { Impairment } from '../relayed-signalling.js';
import type { Session } from '../session.js';
import { WIDE } from '../wide-connector.js';
import type { RelayedWay } from './relayed-way.js';

const ASK_MILLIS = 100;
const TRIP_MILLIS_MAX = 5000;

interface Wanted extends Required<Impairment> {
  readonly session: Session;
}

/** Part of Opened that is used. */
export interface Lossy {
  readonly endpoint: Pick<DemoEndpoint, 'faults'>;
  readonly yardsticks: { relay(session: Session, connections: number): Promise<RelayedWay> };
}

export class Losses {
  /** Milliseconds of 64 bytes there and back on the reliable channel, while packets get lost. */
  readonly reliable = new Latencies();
  readonly #opened: Lossy;
  #wanted: Wanted | undefined;
  #applied: Wanted | undefined;
  #applying: Promise<Wire> | undefined;
  #way: RelayedWay | undefined;
  #missing = '';
  #connections = 1;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(opened: Lossy) {
    this.#opened = opened;
  }

  /**
   * Sets the loss (percent) and the delay (milliseconds) of datagrams to and from that peer; a
   * request during another one runs after it. A delay needs a relay; our own link has none.
   */
  set(session: Session, percent: number, delay = 0): Promise<Wire> {
    this.#wanted = { session, loss: percent / 100, delay };
    this.#applying ??= this.#applyAll().finally(() => (this.#applying = undefined));
    return this.#applying;
  }

  async #applyAll(): Promise<Wire> {
    for (let wanted = this.#wanted; wanted !== this.#applied; wanted = this.#wanted) {
      await this.#apply(wanted!);
      this.#applied = wanted;
    }
    return this.#wire();
  }

  async #apply({ session, loss, delay }: Wanted): Promise<void> {
    const { faults } = this.#opened.endpoint;
    const isOther = session !== this.#applied?.session;
    const isImpaired = loss > 0 || delay > 0;
    // Delay applies to frames, over connections side by side.
    const connections = delay > 0 ? WIDE : 1;
    if (isOther || !isImpaired || connections !== this.#connections) await this.#leave();
    this.#connections = connections;
    if (isImpaired) await this.#enter(session);
    try {
      await this.#way?.impair({ loss, delay });
    } catch (error) {
      // The relay is gone, and the way through it.
      await this.#leave();
      this.#missing = (error as Error).message;
    }
    faults.change({ loss: this.#way ? 0 : loss });
  }

  async #enter(session: Session): Promise<void> {
    if (this.#way || this.#missing) return;
    try {
      const way = (this.#way = await this.#opened.yardsticks.relay(session, this.#connections));
      void session.over.then(() => {
        if (this.#way === way) void this.#leave();
      });
      this.#timer = setInterval(() => {
        void way.reliable.trip(TRIP_MILLIS_MAX).then((millis) => {
          // Messages of a way that was left never come back.
          if (this.#way === way) this.reliable.add(millis);
        });
      }, ASK_MILLIS);
    } catch (error) {
      this.#missing = (error as Error).message;
    }
  }

  async #leave(): Promise<void> {
    clearInterval(this.#timer);
    this.reliable.clear();
    const way = this.#way;
    this.#way = undefined;
    this.#missing = '';
    // A peer or a server that is gone by now loses nothing any more.
    await way?.leave().catch(() => undefined);
  }

  #wire(): Wire {
    const { endpoint } = this.#opened;
    const way = this.#way;
    if (!way) return { missing: this.#missing, lost: async () => endpoint.faults.counters.lost };
    const { loss = 0, delay = 0 } = this.#applied ?? {};
    return { reliable: way.reliable, lost: () => way.impair({ loss, delay }) };
  }
}
