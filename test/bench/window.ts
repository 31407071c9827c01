/**
 * How a pump knows what is under way: the receiver says how many bytes it has had in all, so that
 * an answer that is lost or late does no harm. What is not answered for in time counts as lost.
 */
const LOST_MILLIS = 100;

export class Window {
  acknowledged = 0;
  lost = 0;
  readonly #limit: number;
  #sent = 0;
  #moved = performance.now();

  /** Bytes that may be under way. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  hasRoomFor(bytes: number): boolean {
    return this.#sent - this.acknowledged - this.lost + bytes <= this.#limit;
  }

  add(bytes: number): void {
    this.#sent += bytes;
  }

  /** `total`: what the receiver has had. */
  acknowledge(total: number, now: number): void {
    if (total <= this.acknowledged) return;
    this.acknowledged = total;
    this.lost = Math.min(this.lost, this.#sent - total);
    this.#moved = now;
  }

  /** Gives up what has been under way for too long. */
  check(now: number): void {
    if (now - this.#moved < LOST_MILLIS) return;
    this.lost = this.#sent - this.acknowledged;
    this.#moved = now;
  }
}
