/** Recent demand: of a pool in one thread, and of one user. */

/** The device's clock. */
interface Clock {
  /** Microseconds. */
  now(): number;
}

/** Calls between two readings of the clock. */
const READ_EVERY = 16;

/** The largest recent number: a half-life forgets half. */
class FadingPeak {
  /** The number as it was when it was seen. */
  value = 0;
  #seenMicros = 0;
  readonly #halfLifeMicros: number;

  constructor(halfLifeMicros: number) {
    this.#halfLifeMicros = Math.max(1, halfLifeMicros);
  }

  /** The number as it is now. */
  at(now: number): number {
    if (this.value === 0) return 0;
    const left = Math.floor(this.value * 2 ** ((this.#seenMicros - now) / this.#halfLifeMicros));
    if (left === 0) this.value = 0;
    return left;
  }

  see(count: number, now: number): void {
    if (count === 0 || count < this.at(now)) return;
    this.value = count;
    this.#seenMicros = now;
  }
}

/**
 * The most shared regions that the users of this thread wanted within one interval of the monitor.
 * The pool keeps as many free, so that the same burst finds them.
 */
export class PoolDemand {
  readonly #burst: FadingPeak;
  /** Of this interval: taken and not returned, the most of these, and calls without a region. */
  #net = 0;
  #most = 0;
  #misses = 0;
  #calls = 0;
  #sinceMicros: number;
  readonly #clock: Clock;
  readonly #intervalMicros: number;

  /** After `halfLifeMicros` half of a burst is forgotten. */
  constructor(clock: Clock, halfLifeMicros: number, intervalMicros: number) {
    this.#clock = clock;
    this.#burst = new FadingPeak(halfLifeMicros);
    this.#intervalMicros = intervalMicros;
    this.#sinceMicros = clock.now();
  }

  /** The largest burst, as it was when it was seen. */
  get peak(): number {
    return this.#burst.value;
  }

  /** The largest recent burst, reduced by its age. */
  get mark(): number {
    return this.#burst.at(this.#clock.now());
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
    const isMissing = this.#misses > 0;
    const now = this.#clock.now();
    this.#burst.see(this.#most + this.#misses, now);
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

/** The most regions that one user had in use at a time. */
export class UserDemand {
  readonly #peak: FadingPeak;
  readonly #clock: Clock;
  /** Since the clock was read. */
  #most = 0;
  #calls = 0;

  constructor(clock: Clock, halfLifeMicros: number) {
    this.#clock = clock;
    this.#peak = new FadingPeak(halfLifeMicros);
  }

  /** A region was taken; now `inUse` are. */
  took(inUse: number): void {
    if (inUse > this.#most) this.#most = inUse;
    if ((++this.#calls & (READ_EVERY - 1)) === 0) this.#look(inUse);
  }

  /** The most in use at a time recently. */
  recent(inUse: number): number {
    return this.#look(inUse);
  }

  #look(inUse: number): number {
    const now = this.#clock.now();
    this.#peak.see(this.#most, now);
    this.#most = inUse;
    return Math.max(inUse, this.#peak.at(now));
  }
}
