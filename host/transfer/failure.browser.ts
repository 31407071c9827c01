/** As failure.ts: errors of a browser have no errno. */
import { RefusalError } from '../errors/errors.js';

export function failureOf(error: unknown): RefusalError {
  return new RefusalError('EIO', `the receiver failed: ${String(error)}`, { cause: error });
}
