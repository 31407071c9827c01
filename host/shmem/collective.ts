/** One collective operation of this PE: its name, and the limits of all its waits together. */
import { checkWait, type WaitLimits } from '../base/wait-limits.js';

export class Collective {
  readonly operation: string;
  /** Milliseconds of the whole operation. */
  readonly timeout: number | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #endMillis: number;

  /** Throws MisuseError for wrong limits. */
  constructor(operation: string, limits?: WaitLimits) {
    if (limits !== undefined) checkWait(operation, limits);
    this.operation = operation;
    this.timeout = limits?.timeout;
    this.#signal = limits?.signal;
    this.#endMillis = this.timeout === undefined ? 0 : performance.now() + this.timeout;
  }

  /** Limits of its next wait. */
  get limits(): WaitLimits | undefined {
    const signal = this.#signal;
    if (this.timeout === undefined) return signal && { signal };
    const timeout = Math.max(0, Math.ceil(this.#endMillis - performance.now()));
    return signal ? { timeout, signal } : { timeout };
  }
}
