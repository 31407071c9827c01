/**
 * Harness of the benches: interleaved rounds, medians, bars. A figure's unit is the end of its name
 * (`_gbps` is 10^9 bytes per second, `_mps` 10^6 operations per second, `_ns`, `_ms`).
 */

/** Numbers by name, units in the names. */
export type Figures = Record<string, number>;

/** A promise: `value` is measured against `atLeast` or `atMost`. */
export interface Bar {
  readonly what: string;
  /** null: it could not be measured, and `missing` says what to install. */
  readonly value: number | null;
  readonly atLeast?: number;
  readonly atMost?: number;
  readonly ok: boolean;
  readonly missing?: string;
}

/** Values at rising parts of all samples: `[0.5, p50], [0.99, p99]`. */
export type Distribution = readonly (readonly [part: number, value: number])[];

/** Lines of one plot by their names: both axes are logarithmic. */
export interface Curve {
  readonly title: string;
  readonly lines: Readonly<Record<string, readonly (readonly [x: number, y: number])[]>>;
}

export interface BenchResult {
  readonly figures: Figures;
  readonly bars: readonly Bar[];
  /** Unit of a comparison when figures count both. Default: bytes. */
  readonly counts?: 'messages';
  /** Figures of each round, of which the medians are taken. */
  readonly rounds?: readonly Figures[];
  /** Of the last round, by the name of what was measured, its unit at the end. */
  readonly distributions?: Readonly<Record<string, Distribution>>;
  /** Figures as a function of a parameter. */
  readonly curves?: readonly Curve[];
}

/** How much is measured. */
export interface Pace {
  readonly rounds: number;
  /** 1: as long as a figure needs to be believed. Less: a look whether everything runs. */
  readonly share: number;
}

export interface Bench {
  readonly name: string;
  /** One sentence. */
  readonly description: string;
  run(pace: Pace): BenchResult | Promise<BenchResult>;
}

/** One way to measure: returns its figures for one round. */
export type Variant = () => Figures | Promise<Figures>;

/** Medians of fewer rounds are luck. */
export const FULL: Pace = { rounds: 5, share: 1 };
/** Two rounds, and a fifth of the time for each: no figure to be quoted. */
export const QUICK: Pace = { rounds: 2, share: 0.2 };

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle]!;
  return (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** To standard error: standard output belongs to the results. */
export function progress(sentence: string): void {
  process.stderr.write(`${sentence}\n`);
}

/**
 * Runs every variant once per round, in turn, so that whatever disturbs the machine disturbs all
 * of them; an extra round comes first and does not count (compilers warm up in it). Returns the
 * rounds, each with the figures of all variants.
 */
export async function interleave(
  name: string,
  variants: readonly Variant[],
  { rounds }: Pace = FULL,
): Promise<Figures[]> {
  const results: Figures[] = [];
  for (let round = 0; round <= rounds; round++) {
    progress(round === 0 ? `${name}: warming up` : `${name}: round ${round} of ${rounds}`);
    const figures: Figures = {};
    for (const variant of variants) Object.assign(figures, await variant());
    if (round > 0) results.push(figures);
  }
  return results;
}

/** The median of every figure. */
export function medians(rounds: readonly Figures[]): Figures {
  const names = Object.keys(rounds[0] ?? {});
  return Object.fromEntries(names.map((name) => [name, medianOf(rounds, (f) => f[name]!)]));
}

/** The median of something made of one round's figures: ratios are paired per round. */
export function medianOf(rounds: readonly Figures[], pick: (figures: Figures) => number): number {
  return round(median(rounds.map(pick)));
}

/** Four digits are more than any of this repeats. */
export function round(value: number): number {
  return Number(value.toPrecision(4));
}

export function atLeast(what: string, value: number, least: number): Bar {
  return { what, value: round(value), atLeast: least, ok: value >= least };
}

export function atMost(what: string, value: number, most: number): Bar {
  return { what, value: round(value), atMost: most, ok: value <= most };
}

/** A yardstick that is there: a figure that is no number, or 0, was not measured. */
export function measured(what: string, value: number | undefined): Bar {
  const isNumber = value !== undefined && value > 0;
  return { what, value: isNumber ? round(value) : null, atLeast: 0, ok: isNumber };
}

/** A yardstick whose program is not installed. */
export function missing(what: string, aptPackage: string): Bar {
  return { what, value: null, atLeast: 0, ok: false, missing: aptPackage };
}

/** Seconds that something took: by the clock, and of this process's processor time. */
export class Stopwatch {
  readonly #start = performance.now();
  readonly #cpu = process.cpuUsage();

  /** The clock's seconds. */
  seconds(): number {
    return (performance.now() - this.#start) / 1000;
  }

  /** Processor seconds, user and system, of all threads. */
  cpuSeconds(): number {
    const { user, system } = process.cpuUsage(this.#cpu);
    return (user + system) / 1e6;
  }
}
