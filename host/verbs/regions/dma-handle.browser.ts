/** Stands in for dma-handle.ts in a page: hints for the bus of an adapter have no meaning there. */
import { RefusalError } from '../../errors/errors.js';

export class DmaHandle {
  /** Throws RefusalError EOPNOTSUPP. */
  constructor() {
    const sentence = 'allocDmah: hints for a bus are not in verbena/browser; leave dmah out';
    throw new RefusalError('EOPNOTSUPP', sentence);
  }
}
