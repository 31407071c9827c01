/** Stands in for thread-progress.ts in a browser: there the engine runs where its channels are. */
import { LinkError } from '../../errors/errors.js';

export function startThread(): Promise<never> {
  return ThreadProgress.open();
}

/** Nothing sleeps in a system call. */
export function eventCalls(): Promise<undefined> {
  return Promise.resolve(undefined);
}

export class ThreadProgress {
  static open(): Promise<never> {
    const sentence = 'openDevice: a browser has no UDP; pass link';
    return Promise.reject(new LinkError('EOPNOTSUPP', sentence));
  }
}
