/**
 * Polls a link that delivers only in `poll` from the event loop, so that peers are served and the
 * connection manager receives its messages while the application polls no completion queue.
 */
import { timerMillis } from '../../base/timer.js';
import { nextTurn } from '../../link/next-turn.js';
import { RealClock, type Clock } from '../clock.js';
import { SocketRest } from './socket-rest.js';

/** After a packet of either direction the link is polled in each turn of the event loop. */
const BUSY_MICROS = 1000;
/** Then by the shortest timer of Node, and after so long without a packet by a longer one: */
const QUIET_MICROS = 100_000;
/** a timer of 1 ms that never rests takes 4 % of a core. */
const IDLE_MILLIS = 1;
const QUIET_MILLIS = 4;

export class LinkPoller {
  readonly #poll: () => number;
  readonly #clock: Clock;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #busyUntil = 0;
  #isTouched = false;
  #isPolled = false;
  #isStopped = false;
  readonly #rest = new SocketRest();

  /** `poll` returns the number of packets. Begins at once. */
  constructor(poll: () => number, clock: Clock) {
    this.#poll = poll;
    this.#clock = clock;
    this.#sleep();
  }

  /** Packets leave: the peer may answer soon. */
  touch(): void {
    this.#isTouched = true;
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    nextTurn(this.#turn);
  }

  /**
   * The application polls. While it polls the link, there is nothing to do here. `hasMessages`: of
   * other contexts. True: this poll leaves the link out (socket-rest.ts).
   */
  notePoll(hasMessages: boolean): boolean {
    if (hasMessages) this.#rest.begin(this.#clock.now());
    if (this.#rest.leavesOut()) return true;
    this.#isPolled = true;
    return false;
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #sleep(now = this.#clock.now()): void {
    const isQuiet = now - this.#busyUntil > QUIET_MICROS;
    this.#timer = setTimeout(this.#turn, timerMillis(isQuiet ? QUIET_MILLIS : IDLE_MILLIS));
  }

  readonly #turn = (): void => {
    this.#timer = undefined;
    if (this.#isStopped) return;
    const isPolled = this.#isPolled;
    this.#isPolled = false;
    if (isPolled) return this.#sleep();
    const found = this.#poll();
    if (this.#isStopped) return;
    const now = this.#clock.now();
    if (found > 0 || this.#isTouched) this.#busyUntil = now + BUSY_MICROS;
    this.#isTouched = false;
    if (now < this.#busyUntil) nextTurn(this.#turn);
    else this.#sleep(now);
  };
}

/** Undefined: the owner of a virtual clock calls `poll`. Returns the poller, which has begun. */
export function pollLink(poll: () => number, clock: Clock): LinkPoller | undefined {
  return clock instanceof RealClock ? new LinkPoller(poll, clock) : undefined;
}
