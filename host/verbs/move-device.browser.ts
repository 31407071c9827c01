/** Stands in for move-device.ts in a browser: the address of a device is a certificate. */
import { LinkError } from '../errors/errors.js';

export function moveDevice(): Promise<void> {
  return Promise.reject(
    new LinkError('EOPNOTSUPP', 'moveTo: a page has one address; connect again'),
  );
}
