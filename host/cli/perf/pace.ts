/**
 * How a measuring loop waits: it polls as fast as it can, lets the event loop have a turn now and
 * then (signals, the connection manager), and gives up when nothing can come any more.
 */
import type { CompletionQueue, Context, WorkCompletion } from '../../index.js';
import { RefusalError } from '../../errors/errors.js';
import type { PerfControl } from './control.js';

/** A turn for the event loop costs some 10 us: rare while all goes well, often while not. */
const TURN_EVERY_MILLIS = 100;
const IDLE_TURN_EVERY_MILLIS = 2;
/** Looking at the clock costs, too. */
const LOOKS = 63;
/** After polling in vain for this time a side yields its core, which the peer may need. */
const SPIN_MILLIS = 0.2;
const NAP_MILLIS = 0.001;
/** A control message may overtake the last packets by this time. */
const LAST_PACKETS_MILLIS = 1000;
const SILENCE_MILLIS = 30_000;
const EVENT_MILLIS = 250;
const POLL = 32;

/** A completion queue that is polled, or waited for. */
export class PerfQueue {
  readonly #cq: CompletionQueue;
  #came: WorkCompletion[] = [];
  #event: Promise<void> | undefined;

  constructor(cq: CompletionQueue) {
    this.#cq = cq;
  }

  poll(): WorkCompletion[] {
    if (this.#came.length === 0) return this.#cq.poll(POLL);
    const came = this.#came;
    this.#came = [];
    return came;
  }

  /** Resolves when `poll` has something, or nothing will come. */
  event(): Promise<void> {
    this.#event ??= this.#cq.wait(POLL).then(
      (completions) => {
        this.#event = undefined;
        this.#came.push(...completions);
      },
      // The queue is destroyed when the measurement ends, although a wait may be pending.
      () => undefined,
    );
    return this.#event;
  }
}

export interface PaceOptions {
  readonly context: Context;
  readonly control: PerfControl;
  readonly signal: AbortSignal;
  /** Sleep until a completion queue calls. */
  readonly events: boolean;
  /** Nothing arrives unless the event loop turns. */
  readonly isInline: boolean;
}

export class Pace {
  readonly #options: PaceOptions;
  readonly #nap = new Int32Array(new SharedArrayBuffer(4));
  #looks = 0;
  #lastTurn = performance.now();
  #idleSince: number | undefined;

  constructor(options: PaceOptions) {
    this.#options = options;
  }

  /**
   * To be called in every round. `hasMoved`: something completed. Returns what to wait for before
   * the next round; undefined: nothing. Rejects with RefusalError when it is in vain.
   */
  next(hasMoved: boolean, ...queues: readonly PerfQueue[]): Promise<void> | undefined {
    if (hasMoved) {
      this.#idleSince = undefined;
      if ((++this.#looks & LOOKS) !== 0) return undefined;
      return performance.now() - this.#lastTurn > TURN_EVERY_MILLIS ? this.#turn() : undefined;
    }
    if (this.#options.events && queues.length > 0) return this.#sleep(queues);
    if (this.#options.isInline) {
      this.#idleSince ??= performance.now();
      return this.#turn();
    }
    if ((++this.#looks & LOOKS) !== 0) return undefined;
    const now = performance.now();
    this.#idleSince ??= now;
    if (now - this.#idleSince > SPIN_MILLIS) Atomics.wait(this.#nap, 0, 0, NAP_MILLIS);
    return now - this.#lastTurn > IDLE_TURN_EVERY_MILLIS ? this.#turn() : undefined;
  }

  /** The other side has said something: it has done its part. */
  get hasWord(): boolean {
    return this.#options.control.pending;
  }

  /** And what has not come by now is lost. */
  get isOver(): boolean {
    return this.hasWord && this.#idleMillis > LAST_PACKETS_MILLIS;
  }

  /** It goes on after something else. */
  restart(): void {
    this.#idleSince = undefined;
    this.#lastTurn = performance.now();
  }

  get #idleMillis(): number {
    return this.#idleSince === undefined ? 0 : performance.now() - this.#idleSince;
  }

  async #turn(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.#lastTurn = performance.now();
    this.#check();
  }

  async #sleep(queues: readonly PerfQueue[]): Promise<void> {
    this.#idleSince ??= performance.now();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, EVENT_MILLIS);
    });
    await Promise.race([late, ...queues.map((queue) => queue.event())]);
    clearTimeout(timer);
    this.#check();
  }

  #check(): void {
    const { context, control, signal } = this.#options;
    if (signal.aborted) throw signal.reason;
    if (context.failure) throw context.failure;
    const idle = this.#idleMillis;
    if (control.ended && idle > LAST_PACKETS_MILLIS) throw control.ended;
    if (idle > SILENCE_MILLIS) {
      throw new RefusalError(
        'ETIMEDOUT',
        `no message from the peer for ${SILENCE_MILLIS / 1000} s; check that it runs the same test`,
      );
    }
  }
}
