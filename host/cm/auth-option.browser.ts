/**
 * In a page connections have no `auth`: Web Crypto has no synchronous HMAC, and data channels are
 * authenticated already, by DTLS with the certificates that the signalling names.
 */
import { RefusalError } from '../errors/errors.js';

export function copyAuth(auth: unknown): undefined {
  if (auth !== undefined) checkAuth();
}

export function checkAuth(): never {
  throw new RefusalError('EOPNOTSUPP', 'auth: a browser has DTLS in its place; leave it out');
}
