/** A page has no file descriptors. */
import { RefusalError } from '../errors/errors.js';

export class EventDescriptor {
  async open(): Promise<number> {
    throw new RefusalError('EOPNOTSUPP', 'getFd: a page has no descriptors; await the events');
  }

  set(): void {}

  close(): void {}
}
