/** As failure.ts: errors of a browser have no errno. */
import { VerbenaError } from '../errors/errors.js';

export function failureOf(error: unknown): VerbenaError {
  return new VerbenaError(`the receiver failed: ${String(error)}`, { cause: error });
}
