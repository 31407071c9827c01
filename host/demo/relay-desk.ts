/**
 * Who wants a relay asks the server by HTTP: `POST relay` makes one, `POST relay?id=…&loss=0.05`
 * says how much it loses from now on. Both answer with a RelayStatus.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RelayStatus } from './relayed-signalling.js';
import { Relay } from './relay.js';

const RELAYS_MAX = 64;
/** Nothing heard for so long: nobody needs it. Who is connected says something every 5 s. */
const IDLE_MILLIS = 60_000;
const LOOK_MILLIS = 10_000;
const IPV4_MAPPED = '::ffff:';

export class RelayDesk {
  readonly #relays = new Map<string, Relay>();
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #relaysMax: number;
  #opening = 0;

  constructor(relaysMax = RELAYS_MAX) {
    this.#relaysMax = relaysMax;
    this.#timer = setInterval(() => this.#closeIdle(), LOOK_MILLIS);
    this.#timer.unref();
  }

  /** Relays that are open. */
  get relays(): readonly Relay[] {
    return [...this.#relays.values()];
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
    const { searchParams } = new URL(request.url ?? '/', 'http://server');
    const id = searchParams.get('id');
    if (request.method !== 'POST') say(405, { error: 'POST' });
    else if (id === null) await this.#make(request, say);
    else this.#change(id, Number(searchParams.get('loss') ?? NaN), say);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const relay of this.#relays.values()) relay.close();
    this.#relays.clear();
  }

  async #make(
    { socket }: IncomingMessage,
    say: (status: number, body: object) => void,
  ): Promise<void> {
    if (this.#relays.size + this.#opening >= this.#relaysMax) {
      say(503, { error: `${this.#relaysMax} relays are open already` });
      return;
    }
    this.#opening++;
    try {
      // Who reached us there by HTTP reaches us there by UDP.
      const relay = await Relay.open((socket.localAddress ?? '').replace(IPV4_MAPPED, ''));
      const id = randomUUID();
      this.#relays.set(id, relay);
      say(200, statusOf(id, relay));
    } catch (error) {
      say(503, { error: `no socket for a relay: ${(error as Error).message}` });
    } finally {
      this.#opening--;
    }
  }

  #change(id: string, loss: number, say: (status: number, body: object) => void): void {
    const relay = this.#relays.get(id);
    if (!relay) {
      say(404, { error: 'there is no such relay' });
    } else if (!(loss >= 0 && loss <= 1)) {
      say(400, { error: 'loss is from 0 to 1' });
    } else {
      relay.loss = loss;
      say(200, statusOf(id, relay));
    }
  }

  #closeIdle(): void {
    for (const [id, relay] of this.#relays) {
      if (performance.now() - relay.heardMillis < IDLE_MILLIS) continue;
      relay.close();
      this.#relays.delete(id);
    }
  }
}

function statusOf(id: string, { offerer, answerer, counters }: Relay): RelayStatus {
  return { id, offerer, answerer, ...counters };
}
