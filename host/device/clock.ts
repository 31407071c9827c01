/**
 * The clock of a device. The engine receives `now` from it and reads no other clock. With a virtual
 * clock a run of several devices is a pure function of its inputs.
 */
import { timerMillis } from '../base/timer.js';
import { nextTurn } from '../link/next-turn.js';
import { originMicros } from './clock-origin.js';

/** Cancels a timer that has not fired; does nothing otherwise. */
export type CancelTimer = () => void;

/** Time as a device takes it: the real one, or one that a test moves. */
export interface Clock {
  /** Monotonic microseconds. */
  now(): number;
  /**
   * Calls `fire` once, when `micros` on this clock have come, not before. `mayBeLate`: by a
   * millisecond or two, so the processor does not spin for the last millisecond. `keepsAlive`,
   * default true: the timer keeps the process alive.
   */
  at(micros: number, fire: () => void, mayBeLate?: boolean, keepsAlive?: boolean): CancelTimer;
  /**
   * Nanoseconds since 1970 of a moment of this clock. Without it the clock counts from 1970, as
   * time that does not pass outside may well do.
   */
  wallclockNanos?(micros: number): bigint;
}

/** Below this many microseconds a timer of the event loop is too coarse. */
const SPIN_MICROS = 1000;

/**
 * Every thread counts `performance.now` from its own beginning; with this it is one clock for all
 * threads and processes of a machine.
 */
const ORIGIN_MICROS = originMicros();

/** The machine's monotonic clock, with the event loop's timers. */
export class RealClock implements Clock {
  readonly #keepsAlive: boolean;

  /** `keepsAlive`: does a timer that waits keep the process from ending? Default true. */
  constructor({ keepsAlive = true }: { readonly keepsAlive?: boolean } = {}) {
    this.#keepsAlive = keepsAlive;
  }

  now(): number {
    return performance.now() * 1000 + ORIGIN_MICROS;
  }

  wallclockNanos(micros: number): bigint {
    // The machine's clock may have been set since this process began: its offset is read anew.
    const offset = Date.now() * 1000 - this.now();
    return BigInt(Math.round(micros + offset)) * 1000n;
  }

  at(micros: number, fire: () => void, mayBeLate = false, keepsAlive = true): CancelTimer {
    let cancelled = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const wait = (): void => {
      if (cancelled) return;
      const left = micros - this.now();
      if (left <= 0) fire();
      else sleep(left);
    };
    // Timers count whole milliseconds and may come early: the last is waited out in turns of the
    // event loop. And whatever is late goes through one: packets that came while this thread was
    // busy are read before a timeout says that they did not.
    const sleep = (left: number): void => {
      if (left < SPIN_MICROS && !mayBeLate) nextTurn(wait);
      else {
        const millis = mayBeLate ? Math.ceil(left / 1000) : Math.floor(left / 1000);
        // A deadline may have passed already; beyond the timer's range the clock is read again.
        timer = setTimeout(() => nextTurn(wait), timerMillis(millis));
        if (!this.#keepsAlive || !keepsAlive) timer.unref?.();
      }
    };
    sleep(micros - this.now());
    return () => {
      cancelled = true;
      clearTimeout(timer);
    };
  }
}

interface Timer {
  readonly micros: number;
  readonly order: number;
  readonly fire: () => void;
}

/** Time that moves by `advance`. Timers of the same moment fire in the order they were set. */
export class VirtualClock implements Clock {
  #now: number;
  #order = 0;
  #timers: Timer[] = [];

  constructor(startMicros = 1_000_000) {
    this.#now = startMicros;
  }

  now(): number {
    return this.#now;
  }

  at(micros: number, fire: () => void): CancelTimer {
    const timer = { micros, order: this.#order++, fire };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Time of the next timer; undefined: no timer is set. */
  nextMicros(): number | undefined {
    return this.#earliest()?.micros;
  }

  /** Advances to the next timer and fires it. False: no timer is set. */
  step(): boolean {
    const timer = this.#earliest();
    if (!timer) return false;
    this.#timers = this.#timers.filter((other) => other !== timer);
    this.#now = Math.max(this.#now, timer.micros);
    timer.fire();
    return true;
  }

  /** Moves on by `micros` and fires what falls due, in order. */
  advance(micros: number): void {
    const target = this.#now + micros;
    for (let next = this.nextMicros(); next !== undefined && next <= target;) {
      this.step();
      next = this.nextMicros();
    }
    this.#now = target;
  }

  #earliest(): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) {
      const earlier =
        !first ||
        timer.micros < first.micros ||
        (timer.micros === first.micros && timer.order < first.order);
      if (earlier) first = timer;
    }
    return first;
  }
}
