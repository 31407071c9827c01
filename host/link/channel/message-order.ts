/**
 * Restores the order of messages that arrive over several channels. A missing message delays the
 * others only until it is known to be lost.
 *
 * Each message has a number, its `order`, and names the number of the message before it on the same
 * channel, its `previous`. A channel seldom reorders its own messages, so a missing previous
 * message is lost. A gap of unknown cause is bounded: 64 messages or 2 ms, because a channel may
 * stall for seconds. A message that arrives later is delivered out of order.
 */
import { sequenceDistance } from './channel-frame.js';

/** How far ahead a message may be; a power of two. */
const AHEAD_MAX = 512;
/** Messages that wait for a missing one. */
const KEPT_MAX = 64;
/** And so long. */
const GAP_MILLIS = 2;
/** In place of a message that will not come. */
const LOST = new Uint8Array(0);

export class MessageOrder {
  readonly #deliver: (message: Uint8Array) => void;
  /** By order, modulo AHEAD_MAX. */
  readonly #kept = new Array<Uint8Array | undefined>(AHEAD_MAX).fill(undefined);
  #keptCount = 0;
  #next = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `deliver`: its bytes are valid only during the call. */
  constructor(deliver: (message: Uint8Array) => void) {
    this.#deliver = deliver;
  }

  /**
   * `message` is only valid during the call. `previous`: equal to `order` if there is no such
   * message.
   */
  receive(order: number, previous: number, message: Uint8Array): void {
    const ahead = sequenceDistance(order, this.#next);
    if (ahead < 0) {
      this.#deliver(message);
      return;
    }
    if (ahead >= AHEAD_MAX) {
      while (this.#keptCount > 0) this.#skip();
      this.#next = order;
    }
    const before = sequenceDistance(previous, this.#next);
    if (before >= 0 && before < ahead && !this.#at(previous)) this.#keep(previous, LOST);
    if (order === this.#next) {
      // It may have been taken for lost.
      this.#take();
      this.#deliver(message);
    } else {
      this.#keep(order, Uint8Array.from(message));
    }
    this.#deliverKept();
    while (this.#keptCount > KEPT_MAX) this.#skip();
    if (this.#keptCount > 0) this.#wait();
  }

  /** Forgets what waits. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#kept.fill(undefined);
    this.#keptCount = 0;
  }

  #at(order: number): Uint8Array | undefined {
    return this.#kept[order & (AHEAD_MAX - 1)];
  }

  #keep(order: number, message: Uint8Array): void {
    if (!this.#at(order)) this.#keptCount++;
    this.#kept[order & (AHEAD_MAX - 1)] = message;
  }

  /** The next one, if it is there; it is the turn of the one behind it. */
  #take(): Uint8Array | undefined {
    const message = this.#at(this.#next);
    if (message) {
      this.#kept[this.#next & (AHEAD_MAX - 1)] = undefined;
      this.#keptCount--;
    }
    this.#next = (this.#next + 1) & 0xffff;
    return message;
  }

  #deliverKept(): void {
    while (this.#at(this.#next)) {
      const message = this.#take()!;
      if (message !== LOST) this.#deliver(message);
    }
  }

  /** Stops waiting for the missing messages. Requires a message that waits behind them. */
  #skip(): void {
    while (!this.#at(this.#next)) this.#take();
    this.#deliverKept();
  }

  #wait(): void {
    const missing = this.#next;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (this.#keptCount === 0) return;
      // Else it is another one by now, which has not been missing for long.
      if (missing === this.#next) this.#skip();
      if (this.#keptCount > 0) this.#wait();
    }, GAP_MILLIS);
  }
}
