/** The misuse of a value that is no bytes. */
import { MisuseError } from './errors.js';

/** Throws MisuseError unless `value` is a Uint8Array (a Buffer is one). */
export function checkBytes(argument: string, value: unknown): void {
  if (value instanceof Uint8Array) return;
  const found = value === null ? 'null' : typeof value;
  throw new MisuseError(argument, `must be a Uint8Array, got ${found}`);
}
