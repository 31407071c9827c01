/**
 * Relays by HTTP: `POST relay` makes one, `POST relay?id=…&loss=0.05&delay=20` sets the share of
 * datagrams that it drops and the milliseconds that it delays each, `DELETE relay?id=…` ends it.
 * Each answers with a RelayStatus.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { networkInterfaces } from 'node:os';
import { queryOf } from '../link/channel/http-site.js';
import { SourceShares } from '../link/source-shares.js';
import type { RelayStatus } from './relayed-signalling.js';
import { Relay } from './relay.js';

/** In all, and for one source. */
const RELAYS_MAX = 64;
const RELAYS_PER_SOURCE = 32;
/** Silence after which a relay ends. A connected peer sends at least every 5 s. */
const IDLE_MILLIS = 60_000;
const LOOK_MILLIS = 10_000;
const DELAY_MILLIS_MAX = 200;
const IPV4_MAPPED = '::ffff:';

export class RelayServer {
  /** Decides which datagrams new relays lose. */
  random: () => number = Math.random;
  readonly #relays = new Map<string, { relay: Relay; giveBack: () => void }>();
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #shares: SourceShares;
  #isClosed = false;

  constructor(relaysMax = RELAYS_MAX, relaysPerSource = RELAYS_PER_SOURCE) {
    this.#shares = new SourceShares(relaysMax, relaysPerSource);
    this.#timer = setInterval(() => this.#closeIdle(), LOOK_MILLIS);
    this.#timer.unref();
  }

  /** Relays that are open. */
  get relays(): readonly Relay[] {
    return [...this.#relays.values()].map(({ relay }) => relay);
  }

  /** Is this the address of a side of a relay? */
  has(address: string, port: number): boolean {
    return this.relays.some((relay) =>
      [relay.offerer, relay.answerer].some(
        (side) => side.address === address && side.port === port,
      ),
    );
  }

  /** Answers one request, whatever it asks for: 200, 400, 404, 405, 503. Never rejects. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const say = (status: number, body: object): void => {
      response.writeHead(status, {
        'content-type': 'application/json',
        'cache-control': 'no-store',
      });
      response.end(JSON.stringify(body));
    };
    const query = queryOf(request);
    const id = query.get('id');
    const isDelete = request.method === 'DELETE';
    if (request.method !== 'POST' && !isDelete) say(405, { error: 'POST or DELETE' });
    else if (isDelete) this.#end(id ?? '', say);
    else if (id === null) await this.#make(request, say);
    else this.#change(id, query, say);
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#timer);
    for (const id of this.#relays.keys()) this.#close(id);
  }

  async #make(
    { socket }: IncomingMessage,
    say: (status: number, body: object) => void,
  ): Promise<void> {
    const giveBack = this.#shares.take(socket.remoteAddress);
    if (!giveBack) {
      say(503, { error: 'enough relays are open already' });
      return;
    }
    try {
      const { address, accepts } = placeFor((socket.localAddress ?? '').replace(IPV4_MAPPED, ''));
      const relay = await Relay.open(address, this.random, accepts);
      if (this.#isClosed) {
        relay.close();
        throw new Error('the server is closed');
      }
      const id = randomUUID();
      this.#relays.set(id, { relay, giveBack });
      say(200, statusOf(id, relay));
    } catch (error) {
      giveBack();
      say(503, { error: `no socket for a relay: ${(error as Error).message}` });
    }
  }

  #change(id: string, query: URLSearchParams, say: (status: number, body: object) => void): void {
    const relay = this.#relays.get(id)?.relay;
    const loss = Number(query.get('loss') ?? NaN);
    const delay = Number(query.get('delay') ?? 0);
    if (!relay) {
      say(404, { error: 'there is no such relay' });
    } else if (!(loss >= 0 && loss <= 1)) {
      say(400, { error: 'loss is from 0 to 1' });
    } else if (!(delay >= 0 && delay <= DELAY_MILLIS_MAX)) {
      say(400, { error: `delay is from 0 to ${DELAY_MILLIS_MAX} ms` });
    } else {
      relay.loss = loss;
      relay.delayMillis = delay;
      say(200, statusOf(id, relay));
    }
  }

  #end(id: string, say: (status: number, body: object) => void): void {
    const relay = this.#relays.get(id)?.relay;
    if (!relay) return say(404, { error: 'there is no such relay' });
    say(200, statusOf(id, relay));
    this.#close(id);
  }

  #closeIdle(): void {
    for (const [id, { relay }] of this.#relays) {
      if (performance.now() - relay.heardMillis >= IDLE_MILLIS) this.#close(id);
    }
  }

  #close(id: string): void {
    const { relay, giveBack } = this.#relays.get(id)!;
    relay.close();
    giveBack();
    this.#relays.delete(id);
  }
}

/**
 * The address that the client used for HTTP is reachable by UDP as well. But Firefox has no
 * candidate at a loopback address, and sends nothing to one: a page of this machine uses an address
 * of a network interface, if there is one, at which the relay accepts this machine alone.
 */
function placeFor(local: string): {
  readonly address: string;
  readonly accepts?: (address: string) => boolean;
} {
  if (!/^(127\.|::1$)/.test(local)) return { address: local };
  const all = Object.values(networkInterfaces()).flatMap((some) => some ?? []);
  const usable = all.filter(({ internal, scopeid }) => !internal && !scopeid);
  const found = usable.find(({ family }) => family === 'IPv4') ?? usable[0];
  const own = new Set(all.map(({ address }) => address));
  return { address: found?.address ?? local, accepts: (address) => own.has(address) };
}

function statusOf(id: string, { offerer, answerer, counters }: Relay): RelayStatus {
  return { id, offerer, answerer, ...counters };
}
