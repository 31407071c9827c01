/** How long something takes that is done again and again, one at a time. */
import { Stopwatch, type Distribution, type Figures } from './harness.js';
import type { Partner } from './partner.js';

/** Parts of all samples at which a distribution is kept: more where it is steep. */
const PARTS = [
  ...Array.from({ length: 50 }, (_, index) => index / 50),
  ...[0.99, 0.995, 0.999, 0.9999],
].sort((a, b) => a - b);
const FORGOTTEN_MILLIS = 20_000;
const LOST_MILLIS = 100;

export interface TripOptions {
  readonly bytes: number;
  readonly count: number;
}

export interface Trips {
  readonly p50Micros: number;
  readonly p99Micros: number;
  readonly distribution: Distribution;
  readonly count: number;
  /** Processor seconds of both processes; warming up is not in them. */
  readonly cpuSeconds: number;
}

export function tripFigures(name: string, trips: Trips): Figures {
  return {
    [`${name}_p50_us`]: trips.p50Micros,
    [`${name}_p99_us`]: trips.p99Micros,
    [`${name}_cpu_s_per_million`]: trips.cpuSeconds / (trips.count / 1e6),
  };
}

/** Takes the time of each, after some for warming up: a tenth, unless told. */
export class TripTimer {
  /** Below 0: warming up. */
  trip: number;
  readonly #micros: Float64Array;
  readonly #partner: Partner<unknown>;
  #begin = 0;
  #watch = new Stopwatch();
  #before = 0;

  constructor(count: number, partner: Partner<unknown>, warmUp = Math.ceil(count / 10)) {
    this.#micros = new Float64Array(count);
    this.trip = -warmUp;
    this.#partner = partner;
  }

  get done(): boolean {
    return this.trip === this.#micros.length;
  }

  begin(): void {
    if (this.trip === 0) {
      this.#before = this.#partner.cpuSeconds();
      this.#watch = new Stopwatch();
    }
    this.#begin = performance.now();
  }

  end(): void {
    const elapsed = performance.now() - this.#begin;
    if (this.trip >= 0) this.#micros[this.trip] = elapsed * 1000;
    this.trip++;
  }

  result(): Trips {
    const cpuSeconds = this.#watch.cpuSeconds() + this.#partner.cpuSeconds() - this.#before;
    return { ...percentiles(this.#micros), count: this.#micros.length, cpuSeconds };
  }
}

export function percentiles(
  micros: Float64Array,
): Pick<Trips, 'p50Micros' | 'p99Micros' | 'distribution'> {
  const sorted = Float64Array.from(micros).sort();
  const at = (part: number): number => sorted[Math.floor(sorted.length * part)]!;
  const distribution = PARTS.map((part) => [part, at(part)] as const);
  return { p50Micros: at(0.5), p99Micros: at(0.99), distribution };
}

export interface RoundTrip {
  send(trip: number): void;
  /** Asks once whether this one, and no earlier one, has come back. */
  isBack(trip: number): boolean;
}

/** Round trips, one after the other. Lost messages are retransmitted. */
export function roundTrips(timer: TripTimer, { send, isBack }: RoundTrip): Trips {
  for (let number = 1; !timer.done; number++) {
    timer.begin();
    const begin = performance.now();
    send(number);
    for (let again = begin; !isBack(number);) {
      const now = performance.now();
      if (now - begin > FORGOTTEN_MILLIS) throw new Error('no packet came back');
      if (now - again < LOST_MILLIS) continue;
      again = now;
      send(number);
    }
    timer.end();
  }
  return timer.result();
}

/** Keeps the distributions of the last round. */
export class TripLog {
  readonly distributions: Record<string, Distribution> = {};

  keep(name: string, trips: Trips): Figures {
    this.distributions[`${name}_us`] = trips.distribution;
    return tripFigures(name, trips);
  }
}
