/**
 * Spins before sleeping, because a sleep and a wake-up cost more than most work. Between two looks
 * it yields the processor: often the thread that produces the work runs then, without a wake-up.
 *
 * With few processors a spinning thread takes one from the other threads of its process, so it
 * sleeps at once while they work.
 *
 * Programs that compute without a pause keep a yielded processor for a time slice. A thread that
 * gets its processor back late therefore does not spin for a while: a sleeping thread runs as soon
 * as an event arrives.
 *
 * A thread whose waits are long spins in vain: it sleeps at once, unless most of them are short.
 */
import type { Clock } from '../clock.js';

/** So few, and threads that work and threads that look do not all have one. */
const PROCESSORS_FEW = 2;

/** Others have the processor for so long only if they have more to do than to answer us. */
const LOST_MICROS = 500;
/** Length of the pause without spinning, in such delays; doubled if it soon happens again. */
const PAUSE_FACTOR = 1;
const PAUSE_FACTOR_MAX = 160;

/** A wait that spins does so between two turns of the event loop: one costs several looks. */
export const LOOKS_MICROS = 20;
/** A wait that is longer than this number of spins is a long one: longer than a wake-up, too. */
const LONG_FACTOR = 3;
/** A long wait counts as two short ones: a question and its answer are a long and a short wait. */
const LONG_WEIGHT = 2;
const LONG_MAX = 2 * LONG_WEIGHT;

export class Spin {
  readonly #micros: number;
  readonly #clock: Clock;
  readonly #yieldProcessor: () => void;
  readonly #keptMicros: number;
  readonly #isCrowded: boolean;
  #since = 0;
  #pauseEnds = -Infinity;
  #pauseMicros = 0;
  #pauseFactor = PAUSE_FACTOR;
  /** Long waits, less the short ones since. */
  #long = 0;

  /**
   * `micros`: longest spin. `yieldProcessor`: sched_yield(2). `keptMicros`: time before the first
   * yield. `processors`: number of processors.
   */
  constructor(
    micros: number,
    clock: Clock,
    yieldProcessor: () => void,
    keptMicros = 0,
    processors = Infinity,
  ) {
    this.#isCrowded = processors <= PROCESSORS_FEW;
    this.#micros = micros;
    this.#keptMicros = Math.min(keptMicros, micros);
    this.#clock = clock;
    this.#yieldProcessor = yieldProcessor;
  }

  /**
   * When to go to sleep if nothing comes from `now` on; `now` itself: at once. `othersWork`: the
   * application or a store, which what was just done has given work, or has come from.
   */
  until(now: number, othersWork = false): number {
    this.#since = now;
    if (this.#long >= LONG_WEIGHT || (othersWork && this.#isCrowded)) return now;
    return now + (now < this.#pauseEnds ? this.#keptMicros : this.#micros);
  }

  /** A wait has ended after this time. */
  waited(micros: number): void {
    const isLong = micros > LONG_FACTOR * this.#micros;
    this.#long = isLong
      ? Math.min(this.#long + LONG_WEIGHT, LONG_MAX)
      : Math.max(this.#long - 1, 0);
  }

  /** After a look in vain, before the next one. */
  yield(): void {
    const before = this.#clock.now();
    if (before - this.#since < this.#keptMicros) return;
    this.#yieldProcessor();
    const lost = this.#clock.now() - before;
    if (lost < LOST_MICROS) return;
    const isAgain = before - this.#pauseEnds < this.#pauseMicros;
    this.#pauseFactor = isAgain ? Math.min(2 * this.#pauseFactor, PAUSE_FACTOR_MAX) : PAUSE_FACTOR;
    this.#pauseMicros = this.#pauseFactor * lost;
    this.#pauseEnds = before + lost + this.#pauseMicros;
  }
}
