/** Cause and remedy, as errors of this level have them. */
import type { ErrnoName } from '../errors/errors.js';

/** Why an operation failed: a sentence without its end, and what to do. */
export interface Reason {
  readonly code: ErrnoName;
  readonly rule: string;
  readonly remedy: string;
}
