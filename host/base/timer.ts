/** Delays for the timers of the event loop. */
import { mustBe } from '../errors/check-whole.js';

/** The longest delay of a timer, 2^31 - 1 milliseconds (24.8 days). */
export const TIMER_MILLIS_MAX = 2 ** 31 - 1;

/**
 * Clamps a delay to the range of `setTimeout`. For a delay that is negative, NaN or beyond 31 bits
 * Node fires after 1 ms and prints a warning (TimeoutNegativeWarning, TimeoutNaNWarning,
 * TimeoutOverflowWarning). A deadline in the past fires at once. A deadline beyond the range fires
 * early, and the caller must read the clock again.
 */
export function timerMillis(millis: number): number {
  return millis > 0 ? Math.min(millis, TIMER_MILLIS_MAX) : 0;
}

/** Throws MisuseError unless `value` is a number of milliseconds in the range of a timer. */
export function checkMillis(name: string, value: number, least = 0): void {
  if (typeof value === 'number' && value >= least && value <= TIMER_MILLIS_MAX) return;
  const range = `from ${least} to ${TIMER_MILLIS_MAX}`;
  throw mustBe(name, `a number of milliseconds ${range}`, value);
}
