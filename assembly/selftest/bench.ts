/**
 * Common part of the micro-benchmarks: time, medians, and a line of JSON. They run inside
 * WebAssembly, since a call from JavaScript costs about as much as what is measured.
 *
 * Every loop that is measured is a function with two callers, the rounds and a first warm-up: asc
 * would inline it into its only caller, and a function that runs once never leaves V8's first,
 * slow tier.
 */

/** Rounds that count, and the ones before them in which the compiler warms up. */
export const ROUNDS: i32 = 9;
export const WARM_UP: i32 = 2;

/** Collects the nanoseconds of one figure, round by round. */
export class Samples {
  private values: StaticArray<f64> = new StaticArray<f64>(ROUNDS);
  private count: i32 = 0;

  /** `count` operations from `start` to now took, each: nanoseconds. Early rounds are forgotten. */
  add(round: i32, start: u64, count: u32): void {
    const nanos = <f64>(process.hrtime() - start) / <f64>count;
    if (round >= WARM_UP) this.values[this.count++] = nanos;
  }

  median(): f64 {
    this.values.sort();
    return this.values[ROUNDS >> 1];
  }
}

let line = '';
let consumed: u64 = 0;

/** One more member of the object that `printFigures` prints. Three decimals. */
export function figure(name: string, value: f64): void {
  const rounded = Math.round(value * 1000) / 1000;
  line += `${line.length ? ',' : ''}"${name}":${rounded.toString()}`;
}

/** Unused results would be optimised away. */
export function consume(value: u64): void {
  consumed = (consumed << 1) ^ value;
}

/** Prints all figures as one line of JSON. */
export function printFigures(): void {
  figure('checksum', <f64>(consumed & 0xffff));
  console.log(`{${line}}`);
}
