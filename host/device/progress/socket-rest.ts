/** How often a device that exchanges messages with other contexts looks at its socket. */

/** Looks without the socket after messages of other contexts have arrived, */
const RESTS = 64;
/** and at most, however many arrive. */
const RESTS_MAX = 256;

/** A look at the socket takes ten times as long as one at messages of other contexts. */
export class SocketRest {
  #left = 0;
  #count = 0;

  /** Messages have arrived. */
  begin(): void {
    this.#left = RESTS;
  }

  /** Shall this look leave the socket out? */
  leavesOut(): boolean {
    if (this.#left === 0 || this.#count === RESTS_MAX) {
      this.#count = 0;
      return false;
    }
    this.#left--;
    this.#count++;
    return true;
  }
}
