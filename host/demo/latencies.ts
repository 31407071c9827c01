/** A duration for people; without a figure (no sample, or a message that was not back) a dash. */
export function millis(value: number): string {
  if (!Number.isFinite(value)) return '–';
  return `${value.toFixed(value < 1 ? 2 : value < 10 ? 1 : 0)} ms`;
}

/** The last durations of something, and what most of them do not exceed. */
const KEPT = 256;

export class Latencies {
  readonly #millis = new Float64Array(KEPT);
  #count = 0;

  add(millis: number): void {
    this.#millis[this.#count++ % KEPT] = millis;
  }

  clear(): void {
    this.#count = 0;
  }

  /** Milliseconds that a `share` (0 to 1) of them do not exceed; NaN without any. */
  quantile(share: number): number {
    const kept = this.#millis.slice(0, Math.min(this.#count, KEPT)).sort();
    if (kept.length === 0) return NaN;
    // The nearest rank: of two values, p50 is the smaller one.
    return kept[Math.max(0, Math.ceil(kept.length * share) - 1)]!;
  }
}
