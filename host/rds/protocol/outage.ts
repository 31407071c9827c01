/**
 * The outage of a path: since when a connection that the path needs is down, and the failure that
 * follows if it does not come up in time. Times are in microseconds.
 *
 *              begin(since)                    fail(until)
 *     UP ─────────────────────> BROKEN ───────────────────────> FAILED
 *     ^ <──────── end() ────────┘   ^│                            │
 *     │                             └┘ begin(an earlier time)     │
 *     └────────────────── retry(now), from `until` on ────────────┘
 *
 * A path in FAILED refuses sends. A connection that breaks in FAILED begins another outage, which
 * leaves `until` as it is.
 */
export class Outage {
  #since = 0;
  #failedUntil = 0;

  get isBroken(): boolean {
    return this.#since !== 0;
  }

  get isFailed(): boolean {
    return this.#failedUntil !== 0;
  }

  /** The earliest beginning counts. */
  begin(since: number): void {
    this.#since = Math.min(this.#since || since, since);
  }

  end(): void {
    this.#since = 0;
  }

  fail(until: number): void {
    this.#since = 0;
    this.#failedUntil = until;
  }

  /** Ends the failure if its time is over; returns false while sends must be refused. */
  retry(now: number): boolean {
    if (now < this.#failedUntil) return false;
    this.#failedUntil = 0;
    return true;
  }

  /** When the path fails, `timeout` after the outage began; Infinity without an outage. */
  deadline(timeout: number): number {
    return this.#since === 0 ? Infinity : this.#since + timeout;
  }
}
