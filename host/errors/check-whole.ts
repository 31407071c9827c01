/** The rule that most numbers of the API have. */
import { MisuseError } from './errors.js';

/** Throws MisuseError unless `value` is a whole number from `least` to `most`. */
export function checkWhole(name: string, value: number, least = 0, most = 2 ** 32 - 1): void {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  throw new MisuseError(name, `must be a whole number from ${least} to ${most}, got ${value}`);
}
