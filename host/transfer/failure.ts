/** An error that no code of a receiver expects, as the client receives it. */
import { RefusalError } from '../errors/errors.js';
import { fileRefusal } from '../errors/file-refusal.js';

export function failureOf(error: unknown): RefusalError {
  // The sentence of the system, without the paths of the server.
  if (error instanceof Error && 'syscall' in error) return fileRefusal('the server failed', error);
  return new RefusalError('EIO', `the server failed: ${String(error)}`, { cause: error });
}
