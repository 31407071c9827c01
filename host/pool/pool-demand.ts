/**
 * Recent demand of this thread: the most shared regions that its users wanted within one interval
 * of the monitor. The pool keeps as many free, so that the same burst finds them.
 */

/** The device's clock. */
interface Clock {
  /** Microseconds. */
  now(): number;
}

/** Calls between two readings of the clock. */
const READ_EVERY = 16;

export class PoolDemand {
  /** The largest burst, as it was when it was seen. */
  peak = 0;
  #peakMicros = 0;
  /** Of this interval: taken and not returned, the most of these, and calls without a region. */
  #net = 0;
  #most = 0;
  #misses = 0;
  #calls = 0;
  #sinceMicros: number;
  readonly #clock: Clock;
  readonly #halfLifeMicros: number;
  readonly #intervalMicros: number;

  /** After `halfLifeMicros` half of a burst is forgotten. */
  constructor(clock: Clock, halfLifeMicros: number, intervalMicros: number) {
    this.#clock = clock;
    this.#halfLifeMicros = halfLifeMicros;
    this.#intervalMicros = intervalMicros;
    this.#sinceMicros = clock.now();
  }

  /** The largest recent burst, reduced by its age. */
  get mark(): number {
    if (this.peak === 0) return 0;
    const age = (this.#clock.now() - this.#peakMicros) / Math.max(1, this.#halfLifeMicros);
    const left = Math.floor(this.peak * 2 ** -age);
    if (left === 0) this.peak = 0;
    return left;
  }

  took(): void {
    if (++this.#net > this.#most) this.#most = this.#net;
    this.#count();
  }

  gave(): void {
    this.#net--;
  }

  missed(): void {
    this.#misses++;
    this.#count();
  }

  /**
   * The monitor looks: what was wanted since its last look is one burst. Did a call miss?
   */
  look(): boolean {
    const burst = this.#most + this.#misses;
    const isMissing = this.#misses > 0;
    const now = this.#clock.now();
    if (burst > 0 && burst >= this.mark) {
      this.peak = burst;
      this.#peakMicros = now;
    }
    this.#net = this.#most = this.#misses = 0;
    this.#sinceMicros = now;
    return isMissing;
  }

  /** Without shortage the monitor sleeps: takes of different intervals are no burst. */
  #count(): void {
    if ((++this.#calls & (READ_EVERY - 1)) !== 0) return;
    if (this.#clock.now() - this.#sinceMicros >= this.#intervalMicros) this.look();
  }
}
