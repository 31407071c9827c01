/** How often a device that exchanges messages with other contexts looks at its socket. */

/** Looks without the socket after messages of other contexts have arrived, */
const RESTS = 64;
/** and at most, however many arrive; */
const RESTS_MAX = 256;
/** none when the messages take so long: those of megabytes do. */
const REST_MICROS = 50;

/** A look at the socket takes ten times as long as one at messages of other contexts. */
export class SocketRest {
  #left = 0;
  #count = 0;
  /** When the first message behind the last look at the socket arrived; 0: none has. */
  #sinceMicros = 0;

  /** Messages have arrived. */
  begin(now: number): void {
    if (this.#sinceMicros === 0) this.#sinceMicros = now;
    this.#left = now - this.#sinceMicros < REST_MICROS ? RESTS : 0;
  }

  /** Shall this look leave the socket out? */
  leavesOut(): boolean {
    if (this.#left === 0 || this.#count === RESTS_MAX) {
      this.#count = 0;
      this.#sinceMicros = 0;
      return false;
    }
    this.#left--;
    this.#count++;
    return true;
  }
}
