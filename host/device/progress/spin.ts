/**
 * Looking for work for a while before going to sleep: to sleep and be woken costs more than most
 * of what one is woken for. Between two looks the processor is offered to whoever waits for one:
 * it is often the one whose work is waited for, and it runs without being woken.
 *
 * With few processors whoever looks keeps one from those who work in its own process: it sleeps at
 * once while they do.
 *
 * Who computes without a pause would keep it for a slice of time, each time. So whoever got it
 * back late does not look for a while: who sleeps gets it as soon as something comes.
 */
import type { Clock } from '../clock.js';

/** So few, and threads that work and threads that look do not all have one. */
const PROCESSORS_FEW = 2;

/** Others have the processor for so long only if they have more to do than to answer us. */
const LOST_MICROS = 500;
/** After that nobody looks for so many times as long; twice that when it happens again soon. */
const PAUSE_FACTOR = 1;
const PAUSE_FACTOR_MAX = 160;

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

  /**
   * `micros`: how long to look, when it is worth it. `yieldProcessor`: sched_yield(2).
   * `keptMicros`: so long the processor is kept even by who does not look. `processors`: how many
   * there are.
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
    if (othersWork && this.#isCrowded) return now;
    return now + (now < this.#pauseEnds ? this.#keptMicros : this.#micros);
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
