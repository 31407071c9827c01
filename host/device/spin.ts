/**
 * Looking for work for a while before going to sleep: to sleep and be woken costs more than most
 * of what one is woken for. Between two looks the processor is offered to whoever waits for one:
 * it is often the one whose work is waited for, and it runs without being woken.
 *
 * Who computes without a pause would keep it for a slice of time, each time. So whoever got it
 * back late does not look for a while: who sleeps gets it as soon as something comes.
 */
import type { Clock } from './clock.js';

/** Others have the processor for so long only if they have more to do than to answer us. */
const LOST_MICROS = 500;
/** So long nobody looks after that; twice as long each time that it happens again at once. */
const PAUSE_MICROS = 10_000;
const PAUSE_MAX_MICROS = 160_000;

export class Spin {
  readonly #micros: number;
  readonly #clock: Clock;
  readonly #yieldProcessor: () => void;
  #pauseEnds = -Infinity;
  #pauseMicros = PAUSE_MICROS;

  /** `micros`: how long to look, when it is worth it. `yieldProcessor`: sched_yield(2). */
  constructor(micros: number, clock: Clock, yieldProcessor: () => void) {
    this.#micros = micros;
    this.#clock = clock;
    this.#yieldProcessor = yieldProcessor;
  }

  /** When to go to sleep if nothing comes from `now` on; `now` itself: at once. */
  until(now: number): number {
    return now < this.#pauseEnds ? now : now + this.#micros;
  }

  /** After a look in vain, before the next one. */
  yield(): void {
    const before = this.#clock.now();
    this.#yieldProcessor();
    const after = this.#clock.now();
    if (after - before < LOST_MICROS) return;
    const isAgain = before - this.#pauseEnds < this.#pauseMicros;
    this.#pauseMicros = isAgain ? Math.min(2 * this.#pauseMicros, PAUSE_MAX_MICROS) : PAUSE_MICROS;
    this.#pauseEnds = after + this.#pauseMicros;
  }
}
