/** The error of collective operations: it names the member that caused it. */
import { RefusalError, type ErrnoName } from '../errors/errors.js';

/** A barrier or all-reduce did not complete. */
export class MeshError extends RefusalError {
  override readonly name = 'MeshError';
  /** Identifiers of the members that left, did not arrive, or made another call. */
  readonly members: readonly string[];

  /** @internal */
  constructor(code: ErrnoName, sentence: string, members: readonly string[], cause?: unknown) {
    super(code, sentence, cause === undefined ? {} : { cause });
    this.members = members;
  }
}

/** Error with which all calls of a closed mesh reject. */
export function closedError(operation: string, self: string): MeshError {
  return new MeshError('ECONNRESET', `${operation}: the mesh was closed; join again`, [self]);
}
