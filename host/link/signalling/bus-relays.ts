/**
 * Exchanges on their way to members of other processes. A bus may lose messages (Redis restarts, a
 * connection is opened again), and nothing else repeats an offer: each is published again until the
 * process of its addressee confirms it.
 */
import { timerMillis } from '../../base/timer.js';
import type { ExchangeMessage } from './room-protocol.js';

/** Wait for a confirmation, doubled after each repetition. */
const REPEAT_MILLIS = 200;
/** The last wait: 12.6 seconds after the first message. */
const REPEAT_MILLIS_MAX = 6400;
/** Messages that wait for their confirmation; beyond, a message is published once. */
const WAITING_MAX = 256;
/** Numbers of each process by which repetitions are recognized. */
const SEEN_MAX = 512;

/** `absent`: the member `from` did not come back for the offer `id` of `to`. */
export type RelayMessage = Omit<ExchangeMessage, 'kind'> & {
  readonly kind: ExchangeMessage['kind'] | 'absent';
};

/** A message, and the proof of the member that sent it. */
export interface Proven {
  readonly message: RelayMessage;
  readonly proof: string;
}

/** As published. `number`: of its process. */
export interface Relay extends Proven {
  readonly number: number;
}

/** Of all rooms: a room that was empty meanwhile must not repeat the numbers of its former life. */
let lastNumber = 0;

/** Messages that this process sends. */
export class SentRelays {
  readonly #publish: (relay: Relay) => void;
  readonly #isPresent: (name: string) => boolean;
  readonly #absent: (relay: Proven) => void;
  readonly #idle: () => void;
  readonly #timers = new Map<number, ReturnType<typeof setTimeout>>();

  /**
   * `absent` is called when the addressee has left its process before that confirmed, `idle` when
   * no message waits for its confirmation any more.
   */
  constructor(
    publish: (relay: Relay) => void,
    isPresent: (name: string) => boolean,
    absent: (relay: Proven) => void,
    idle: () => void,
  ) {
    this.#publish = publish;
    this.#isPresent = isPresent;
    this.#absent = absent;
    this.#idle = idle;
  }

  /** True: no message waits for its confirmation. */
  get isIdle(): boolean {
    return this.#timers.size === 0;
  }

  send(proven: Proven): void {
    const relay = { number: ++lastNumber, ...proven };
    if (this.#timers.size < WAITING_MAX) this.#repeat(relay, REPEAT_MILLIS);
    else this.#publish(relay);
  }

  confirmed(number: number): void {
    clearTimeout(this.#timers.get(number));
    if (this.#timers.delete(number) && this.isIdle) this.#idle();
  }

  close(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  #repeat(relay: Relay, millis: number): void {
    this.#publish(relay);
    const timer = setTimeout(() => {
      this.#timers.delete(relay.number);
      if (!this.#isPresent(relay.message.to!)) this.#absent(relay);
      else if (millis < REPEAT_MILLIS_MAX) this.#repeat(relay, 2 * millis);
      if (this.isIdle) this.#idle();
    }, timerMillis(millis));
    timer.unref();
    this.#timers.set(relay.number, timer);
  }
}

/** Messages of other processes that were taken. */
export class TakenRelays {
  readonly #numbers = new Map<string, Set<number>>();

  /** True: the message is not a repetition. */
  take(server: string, number: number): boolean {
    const numbers = this.#numbers.get(server) ?? new Set();
    this.#numbers.set(server, numbers);
    if (numbers.has(number)) return false;
    numbers.add(number);
    if (numbers.size > SEEN_MAX) numbers.delete(numbers.values().next().value!);
    return true;
  }

  /** The process is gone. */
  forget(server: string): void {
    this.#numbers.delete(server);
  }
}
