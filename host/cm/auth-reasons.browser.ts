/** A page has no keys (auth-option.browser.ts), so one reject reason of `auth` remains. */
import { RejectReason } from './enums.js';

/** Rule and remedy for a reject reason of `auth`; undefined for all other reasons. */
export function authReason(reason: number): string | undefined {
  return reason === RejectReason.AUTH_REQUIRED
    ? 'the listener requires authentication; a page needs one without `auth`'
    : undefined;
}
