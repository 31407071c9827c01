/**
 * Whether a store waits before its next turn, and for how many that one is. A disk is waited for
 * anyway: so for those who were just told and go on, until such a part of how long the last turn
 * took has passed since it ended. Who waited in vain does not wait again for as many turns, or
 * twice as many as last time.
 *
 * Should they take longer to come back than that, a turn is for half of them: then two groups
 * alternate, one on its way while the other is synced, and the disk waits for neither.
 */
const SHARE = 1 / 4;
/** Who comes back later than so many turns after the last one has not just been told. */
const LATE_TURNS = 2;
const VAIN_TURNS_MAX = 64;

export class GroupCommit {
  /** FLUSHes that were under way until the end of a turn, of late. */
  #company = 0;
  #start = 0;
  #end = 0;
  /** Turns that are begun without waiting. */
  #alone = 0;
  #vain = 0;
  #halves = false;

  /** So many are waited for. */
  get company(): number {
    return this.#company;
  }

  /** The turn is for so many at most. */
  get most(): number {
    return this.#halves ? Math.ceil(this.#company / 2) : Infinity;
  }

  /** Before a turn: how long to wait for them, in microseconds; 0: begin. `pending`: are there. */
  micros(pending: number, now: number): number {
    const took = this.#end - this.#start;
    const left = this.#end + took * SHARE - now;
    if (left <= 0) this.#halves = now < this.#end + took * LATE_TURNS;
    if (this.#alone > 0) {
      this.#alone--;
      return 0;
    }
    return pending < this.#company ? Math.max(0, left) : 0;
  }

  /** After the wait: did they come in time? */
  waited(came: boolean): void {
    this.#halves = !came;
    this.#vain = came ? 0 : Math.min(2 * this.#vain + 1, VAIN_TURNS_MAX);
    this.#alone = this.#vain;
  }

  /** After a turn; `company`: how many were under way until then. */
  ended(start: number, end: number, company: number): void {
    // Some are always on their way.
    this.#company = Math.max(company, this.#company - 1);
    this.#start = start;
    this.#end = end;
  }
}
