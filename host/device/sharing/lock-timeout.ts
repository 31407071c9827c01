/**
 * The timeout of a wait for a lock that another process or thread holds. Only time in which the
 * waiting process runs counts: while it is stopped (SIGSTOP, a debugger, a closed lid) the lock may
 * have been free.
 */
const NAP_MILLIS = 0.2;
/** A nap that takes longer counts as this long: the process was stopped meanwhile. */
const NAP_MILLIS_MAX = 100;
/**
 * A running holder keeps the lock for a few milliseconds at most; on an overloaded machine it may
 * not run for a second or two. The wait blocks the waiter's event loop.
 */
const WAIT_MILLIS_MAX = 5000;

/** A word that never changes: a wait on it ends by its timeout. */
const PILLOW =
  typeof SharedArrayBuffer === 'undefined' ? undefined : new Int32Array(new SharedArrayBuffer(4));

export class LockTimeout {
  readonly #waitMillisMax: number;
  readonly #now: () => number;
  #spentMillis = 0;

  /** `now`: a monotonic clock in milliseconds. */
  constructor(waitMillisMax = WAIT_MILLIS_MAX, now: () => number = () => performance.now()) {
    this.#waitMillisMax = waitMillisMax;
    this.#now = now;
  }

  /** Blocks the thread for a nap. False: `waitMillisMax` has passed, give up. */
  nap(): boolean {
    const before = this.#now();
    block(this.#now);
    this.#spentMillis += Math.min(this.#now() - before, NAP_MILLIS_MAX);
    return this.#spentMillis <= this.#waitMillisMax;
  }

  /** Resets the timeout for the next wait. */
  renew(): void {
    this.#spentMillis = 0;
  }
}

/** The main thread of a page must not block in Atomics.wait: it spins. */
function block(now: () => number): void {
  try {
    if (PILLOW) Atomics.wait(PILLOW, 0, 0, NAP_MILLIS);
  } catch {
    for (const end = now() + NAP_MILLIS; now() < end;);
  }
}
