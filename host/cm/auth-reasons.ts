/** Texts of the reject reasons of a listener with `auth`. */
import { RejectReason } from './enums.js';

/** Reject reasons of `auth`: the broken rule, then the remedy. */
const AUTH_REASONS: ReadonlyMap<number, string> = new Map([
  [
    RejectReason.AUTH_REQUIRED,
    'the listener requires authentication, and the request had none or another key; ' +
      'set auth: { psk } to the key of the listener',
  ],
  [
    RejectReason.AUTH_UNKNOWN_KEY,
    'the listener does not have the key of `auth.psk`; use a key that the listener has',
  ],
  [
    RejectReason.AUTH_UNSUPPORTED,
    'the listener has no `auth`; give it the same `auth: { psk }`, or connect without `auth`',
  ],
]);

/** Rule and remedy for a reject reason of `auth`; undefined for all other reasons. */
export function authReason(reason: number): string | undefined {
  return AUTH_REASONS.get(reason);
}
