/**
 * Whether a store waits before its next turn. A disk is waited for anyway: so for those who were
 * just told and go on, until such a part of how long the last turn took has passed since it ended.
 * Should they take longer to come back than that, they are worked on in two groups by turns. Who
 * waited in vain does not wait again for as many turns, or twice as many as last time.
 */
const SHARE = 1 / 4;
const VAIN_TURNS_MAX = 64;

export class Gathering {
  /** Of the last turn: FLUSHes that were under way until its end. */
  #company = 0;
  /** When waiting for them is over. */
  #until = 0;
  /** Turns that are begun without waiting. */
  #alone = 0;
  #vain = 0;

  /** So many are waited for. */
  get company(): number {
    return this.#company;
  }

  /** Before a turn: how long to wait for them, in microseconds; 0: begin. `pending`: are there. */
  micros(pending: number, now: number): number {
    if (this.#alone > 0) {
      this.#alone--;
      return 0;
    }
    return pending < this.#company ? Math.max(0, this.#until - now) : 0;
  }

  /** After the wait: did they come in time? */
  waited(came: boolean): void {
    this.#vain = came ? 0 : Math.min(2 * this.#vain + 1, VAIN_TURNS_MAX);
    this.#alone = this.#vain;
  }

  /** After a turn. */
  ended(start: number, end: number, company: number): void {
    this.#company = company;
    this.#until = end + (end - start) * SHARE;
  }
}
