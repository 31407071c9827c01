/** Replaces open-shared.ts in a browser, where processes cannot share a file. */
import { RefusalError } from '../../errors/errors.js';

export function openShared(): Promise<never> {
  const sentence = 'openDevice: pages cannot share a device; leave name out';
  return Promise.reject(new RefusalError('EOPNOTSUPP', sentence));
}
