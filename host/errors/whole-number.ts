/** Numbers of work requests, checked and returned. */
import { mustBe } from './check-whole.js';

/** Returns a 32-bit number, signed or not. Throws MisuseError for another. */
export function wholeU32(name: string, value: number): number {
  // A bigint has no `>>>`.
  if (typeof value === 'number' && (value >>> 0 === value || (value | 0) === value)) return value;
  throw mustBe(name, 'a 32-bit number', value);
}

/** A whole number from 0 to 2^64 - 1, or MisuseError. */
export function wholeU64(name: string, value: number | bigint): bigint {
  const whole = typeof value === 'bigint' || Number.isSafeInteger(value);
  if (whole && value >= 0 && value < 1n << 64n) return BigInt(value);
  throw mustBe(name, 'a whole number from 0 to 2^64 - 1', value);
}
