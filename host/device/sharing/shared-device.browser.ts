/** Replaces shared-device.ts in a browser, where processes cannot share a file. */
import { RefusalError } from '../../errors/errors.js';

export class SharedDevice {
  static open(): Promise<never> {
    const sentence = 'a device with a name is shared by processes of one machine, not by pages';
    return Promise.reject(new RefusalError('EOPNOTSUPP', sentence));
  }
}
