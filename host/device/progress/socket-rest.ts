/** How often a device that exchanges messages with other contexts looks at its socket. */

/** Looks without the socket after messages of other contexts have arrived, */
const RESTS = 64;
/** and at most, however many arrive. */
const RESTS_MAX = 256;

/** A look at the socket takes ten times as long as one at messages of other contexts. */
export class SocketRest {
  #left = 0;
  #count = 0;

  /** Shall this look leave the socket out? `hasArrived`: there were messages. */
  rests(hasArrived: boolean): boolean {
    if (hasArrived) this.#left = RESTS;
    if (this.#left === 0 || this.#count === RESTS_MAX) {
      this.#count = 0;
      return false;
    }
    this.#left--;
    this.#count++;
    return true;
  }
}
