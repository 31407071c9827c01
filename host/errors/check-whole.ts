/** The rules that most numbers and flags of the API have. */
import { MisuseError } from './errors.js';

const SHOWN_MAX = 64;

/** A value of a wrong type: '64' is shown as "64", 64n as 64n, a long text by its beginning. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, SHOWN_MAX));
  // Its own toString may be absent, or throw.
  if (typeof value === 'object' && value !== null) return Object.prototype.toString.call(value);
  return typeof value === 'bigint' ? `${value}n` : String(value);
}

/** The misuse of `value`, which is not of this kind. */
export function mustBe(name: string, kind: string, value: unknown): MisuseError {
  return new MisuseError(name, `must be ${kind}, got ${shown(value)}`);
}

/** Throws MisuseError unless `value` is a whole number from `least` to `most`. */
export function checkWhole(name: string, value: number, least = 0, most = 2 ** 32 - 1): void {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  throw mustBe(name, `a whole number from ${least} to ${most}`, value);
}

/** Throws MisuseError unless `value` is made of the bits of `kind`, which are in `every`. */
export function checkBits(name: string, value: number, kind: string, every = 0xffffffff): void {
  if (Number.isInteger(value) && value >= 0 && value <= every && (value & ~every) === 0) return;
  throw mustBe(name, `made of ${kind}`, value);
}

/** Throws MisuseError unless `value` is a function, or absent. */
export function checkFunction(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'function') return;
  throw new MisuseError(name, `must be a function, got ${value === null ? 'null' : typeof value}`);
}

/** Throws MisuseError unless `value` is true or false. */
export function checkFlag(name: string, value: boolean): void {
  if (typeof value === 'boolean') return;
  throw mustBe(name, 'true or false', value);
}
