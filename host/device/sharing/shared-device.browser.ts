/** Replaces shared-device.ts in a browser, where processes cannot share a file. */
import { RefusalError } from '../../errors/errors.js';

export class SharedDevice {
  static open(): Promise<never> {
    const sentence = 'openDevice: pages cannot share a device; leave name out';
    return Promise.reject(new RefusalError('EOPNOTSUPP', sentence));
  }
}
