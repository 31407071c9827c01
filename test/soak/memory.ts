/**
 * Trend of memory over time: its slope, and the growth at the end. The engine's is judged in quiet
 * times, at its least: memory for a dead peer stays until its death is noticed, an extra file while
 * it is open; a leak is there at all times.
 */
import type { Sample } from './coordinator.js';
import type { MemoryUse } from './messages.js';

/** Measurement of one member at one time. */
export type Measured<Name extends string> = Readonly<Record<Name | 'seconds' | 'member', number>>;

export interface Trend {
  /** By least squares, of the time after the first quarter. */
  readonly bytesPerMinute: number;
  /** Medians of the second and of the last quarter. */
  readonly before: number;
  readonly after: number;
}

export function trendOf<Name extends string>(
  samples: readonly Measured<Name>[],
  of: Name,
  member = 0,
): Trend {
  const own = samples.filter((sample) => sample.member === member);
  const end = Math.max(...own.map(({ seconds }) => seconds));
  const late = own.filter(({ seconds }) => seconds > end / 4);
  const between = (from: number, to: number): number =>
    median(late.filter(({ seconds }) => seconds > from && seconds <= to).map((one) => one[of]));
  return {
    bytesPerMinute: slope(late.map((one) => [one.seconds / 60, one[of]])),
    before: between(end / 4, end / 2),
    after: between((end * 3) / 4, end),
  };
}

/** The same, but before and after are the least of either quiet time; NaN: nothing was heard. */
export function settledTrendOf(samples: readonly Sample[], of: keyof MemoryUse, member = 0): Trend {
  const least = (when: Sample['settled']): number => {
    const own = samples.filter((sample) => sample.member === member && sample.settled === when);
    return own.length === 0 ? NaN : Math.min(...own.map((sample) => sample[of]));
  };
  return { ...trendOf(samples, of, member), before: least('first'), after: least('last') };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

function slope(points: readonly (readonly [x: number, y: number])[]): number {
  const mean = (at: 0 | 1): number =>
    points.reduce((sum, point) => sum + point[at], 0) / points.length;
  const [meanX, meanY] = [mean(0), mean(1)];
  let [over, under] = [0, 0];
  for (const [x, y] of points) {
    over += (x - meanX) * (y - meanY);
    under += (x - meanX) ** 2;
  }
  return under === 0 ? 0 : over / under;
}
