/** Datagrams that cannot be sent now: by destination, in order, to a bound. */
import { timerMillis } from '../base/timer.js';
import type { SendRequest } from './send-arguments.js';
import type { RdpSettings } from './settings.js';
import type { Outcome } from './local-node.js';

/** Where a datagram goes: address and port are known. */
export type Addressed = SendRequest & { readonly port: number; readonly address: string };

export interface OutboxUser {
  attempt(datagram: Addressed): Outcome;
  taken(datagram: Addressed): void;
  plain(datagram: Addressed): void;
  failed(datagram: Addressed, code: 'EWOULDBLOCK' | 'ENOBUFS'): void;
  /** The peer has no node: queued and later datagrams to it go by UDP. */
  unresolved(address: string): void;
  /** Nothing waits any more. */
  emptied(): void;
}

interface Waiting {
  readonly datagram: Addressed;
  readonly sinceMillis: number;
}

const BACKOFF_LEAST_MILLIS = 1;
const BACKOFF_MOST_MILLIS = 128;

export class Outbox {
  readonly #user: OutboxUser;
  readonly #settings: RdpSettings;
  readonly #queues = new Map<string, Waiting[]>();
  #count = 0;
  #bytes = 0;
  #backoffMillis = BACKOFF_LEAST_MILLIS;
  #timer: NodeJS.Timeout | undefined;
  #isFlushing = false;

  constructor(user: OutboxUser, settings: RdpSettings) {
    this.#user = user;
    this.#settings = settings;
  }

  get count(): number {
    return this.#count;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Does something wait for this destination, that must go first? */
  isBehind({ address, port }: Addressed): boolean {
    return this.#queues.has(`${address} ${port}`);
  }

  /** False: it is full. */
  add(datagram: Addressed): boolean {
    const { queueMessages, queueBytes } = this.#settings;
    const bytes = this.#bytes + datagram.length;
    if (this.#count >= queueMessages || (bytes > queueBytes && this.#count > 0)) return false;
    const key = `${datagram.address} ${datagram.port}`;
    const queue = this.#queues.get(key);
    const waiting = { datagram, sinceMillis: performance.now() };
    if (queue) queue.push(waiting);
    else this.#queues.set(key, [waiting]);
    this.#count++;
    this.#bytes = bytes;
    this.#plan();
    return true;
  }

  /** Retries all queued datagrams, in order for each destination. */
  flush(): void {
    // Callbacks send, too.
    if (this.#isFlushing || this.#count === 0) return;
    this.#isFlushing = true;
    const before = this.#count;
    for (const [key, queue] of this.#queues) {
      while (queue[0] && this.#leaves(queue[0])) {
        this.#bytes -= queue.shift()!.datagram.length;
        this.#count--;
      }
      if (queue.length === 0) this.#queues.delete(key);
    }
    this.#isFlushing = false;
    if (this.#count < before) this.#backoffMillis = BACKOFF_LEAST_MILLIS;
    this.#plan();
    if (this.#count === 0) this.#user.emptied();
  }

  #leaves({ datagram, sinceMillis }: Waiting): boolean {
    const outcome = this.#user.attempt(datagram);
    const waited = performance.now() - sinceMillis;
    const { resolveMillis, retryMillis } = this.#settings;
    if (outcome === 'taken') {
      this.#user.taken(datagram);
    } else if (outcome === 'plain') {
      this.#user.plain(datagram);
    } else if (outcome === 'resolving') {
      if (waited < resolveMillis) return false;
      this.#user.unresolved(datagram.address);
      this.#user.plain(datagram);
    } else {
      if (waited < retryMillis) return false;
      this.#user.failed(datagram, outcome);
    }
    return true;
  }

  #plan(): void {
    if (this.#count === 0) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      return;
    }
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#backoffMillis = Math.min(2 * this.#backoffMillis, BACKOFF_MOST_MILLIS);
      this.flush();
    }, timerMillis(this.#backoffMillis));
  }
}
