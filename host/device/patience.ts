/**
 * How long a process waits for another that has what both share: by its own time. One that is
 * stopped (SIGSTOP, a debugger, a closed lid) while it waits has not waited meanwhile, and what it
 * waits for may have been free all along.
 */
const NAP_MILLIS = 0.2;
/** No nap lasts as long on a machine that has anything to spare. */
const NAP_MILLIS_MAX = 100;
/** Nobody has what is shared for longer than a few milliseconds, unless it is stopped. */
const WAIT_MILLIS_MAX = 20_000;

/** Nobody changes it or wakes who sleeps on it. */
const PILLOW = new Int32Array(new SharedArrayBuffer(4));

export class Patience {
  readonly #now: () => number;
  #spentMillis = 0;

  /** `now`: milliseconds that never go back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Blocks the thread for a moment. False after 20 s of that: do not look once more. */
  nap(): boolean {
    const before = this.#now();
    Atomics.wait(PILLOW, 0, 0, NAP_MILLIS);
    this.#spentMillis += Math.min(this.#now() - before, NAP_MILLIS_MAX);
    return this.#spentMillis <= WAIT_MILLIS_MAX;
  }

  /** What was waited for has come. */
  renew(): void {
    this.#spentMillis = 0;
  }
}
