/** Back-off between attempts of a thread that found a lock taken. */
const LEAST_MICROS = 2000;
const MOST_MICROS = 1_000_000;

/** The first try comes at once, the next ones within spans that double, as Linux has it. */
export class Backoff {
  #spanMicros = 0;

  /** `random`: 32 bits. */
  next(random: number): number {
    const span = Math.max(this.#spanMicros, 1);
    this.#spanMicros = Math.min(Math.max(this.#spanMicros * 2, LEAST_MICROS), MOST_MICROS);
    return 1 + (random % span);
  }

  reset(): void {
    this.#spanMicros = 0;
  }
}
