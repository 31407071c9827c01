/** Stands in for interface.ts in a browser, which hides the machine's interfaces. */
import { RefusalError } from '../errors/errors.js';

/** A page has no addresses to lose. */
export function lostAddress(): undefined {}

export function localAddressTowards(address: string): Promise<string> {
  const sentence = `a browser opens no device by itself towards ${address}: bring a context`;
  return Promise.reject(new RefusalError('EOPNOTSUPP', sentence));
}
