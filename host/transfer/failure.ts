/** An error that no code of a receiver expects, as the client receives it. */
import { VerbenaError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';

export function failureOf(error: unknown): VerbenaError {
  // The sentence of the system, without the paths of the server.
  if (error instanceof Error && 'syscall' in error) return fileRefusal('the server failed', error);
  return new VerbenaError(`the server failed: ${String(error)}`, { cause: error });
}
