/** The misuse of a value that is no bytes. */
import { MisuseError } from './errors.js';
import { isBytes } from './type-tag.js';

/** Throws MisuseError unless `value` is a Uint8Array. */
export function checkBytes(argument: string, value: unknown): void {
  if (isBytes(value)) return;
  const found = value === null ? 'null' : typeof value;
  throw new MisuseError(argument, `must be a Uint8Array, got ${found}`);
}
