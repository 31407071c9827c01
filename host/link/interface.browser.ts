/** Stands in for interface.ts in a browser, which hides the machine's interfaces. */
import { RefusalError } from '../errors/errors.js';

/** A page has no addresses to lose. */
export function lostAddress(): undefined {}

export function localAddressTowards(address: string): Promise<string> {
  const sentence = `open device: a browser opens none towards ${address}; pass context`;
  return Promise.reject(new RefusalError('EOPNOTSUPP', sentence));
}
