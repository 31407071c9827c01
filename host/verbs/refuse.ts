/** Turns an Errno of a control verb into what the caller is told. */
import { Errno, ErrnoName } from '#build/abi.js';
import { RefusalError, type ErrnoName as Code } from '../errors/errors.js';

/** Returns when `errno` is 0; throws RefusalError with the C errno's name otherwise. */
export function refuse(
  errno: number,
  verb: string,
  sentences: Partial<Record<Code, string>>,
): void {
  if (errno === Errno.OK) return;
  const code = (ErrnoName[errno] ?? 'EINVAL') as Code;
  throw new RefusalError(code, `${verb}: ${sentences[code] ?? 'refused'}`);
}

/** Fills `words` little-endian words at `address` from a cryptographic generator. */
export function fillRandom(bytes: Uint8Array, address: number, words: number): void {
  // Not into linear memory directly: shared memory is refused there.
  const random = new Uint8Array(words * 4);
  crypto.getRandomValues(random);
  bytes.set(random, address);
}

/** 64 bits of the same. */
export function randomId(): bigint {
  return crypto.getRandomValues(new BigUint64Array(1))[0]!;
}
