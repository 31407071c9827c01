/** The misuse of a value in place of an object of the library. */
import { MisuseError } from './errors.js';

/** Throws MisuseError unless `value` has the method; `what` names the object and its source. */
export function checkMember(argument: string, value: unknown, method: string, what: string): void {
  const members = value as { readonly [name: string]: unknown } | null | undefined;
  if (typeof members?.[method] === 'function') return;
  throw new MisuseError(argument, `must be ${what}, got ${value === null ? 'null' : typeof value}`);
}
