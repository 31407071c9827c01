/**
 * Group commit: how long the store's thread collects FLUSHes before the next sync, and how many the
 * sync includes. It waits for the FLUSHes of the requesters that were just answered, for at most a
 * part of the last turn's duration. After a wait in vain it does not wait for a number of turns,
 * which doubles each time.
 *
 * If the requesters take longer to return, a turn includes half of their FLUSHes: two groups
 * alternate, one in transit while the other is synced, and the disk waits for neither.
 */
const SHARE = 1 / 4;
/** A FLUSH that arrives later than this number of turns is not an answered requester's next one. */
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

  /** The number of FLUSHes to wait for. */
  get company(): number {
    return this.#company;
  }

  /** The largest number of FLUSHes in a turn. */
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
