/** Turns an Errno of a control verb into the error that the caller receives. */
import { Errno, ErrnoName } from '#build/abi.js';
import { RefusalError, type ErrnoName as Code } from '../errors/errors.js';
import type { LinkInfo } from '../link/link.js';

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

/** Throws RefusalError EOPNOTSUPP for a link that has no multicast. */
export function checkMulticast(verb: string, { multicast, name }: LinkInfo): void {
  if (multicast) return;
  throw new RefusalError('EOPNOTSUPP', `${verb}: the ${name} link has no multicast; use UDP`);
}

/** A table of the device has no free place. */
export const taken = (what: string): string => `all ${what} are taken; free one first`;

/** Drawn at a time: to ask costs more than some bytes. */
const DRAWN_BYTES = 4096;
const drawn = new Uint8Array(DRAWN_BYTES);
let used = DRAWN_BYTES;
let generator: unknown;

/** Fills `words` little-endian words at `address` from a cryptographic generator. */
export function fillRandom(bytes: Uint8Array, address: number, words: number): void {
  const length = words * 4;
  // A simulation puts a generator of its own in this place: nothing of another one is left then.
  if (used + length > DRAWN_BYTES || generator !== crypto.getRandomValues) {
    generator = crypto.getRandomValues;
    // Not into linear memory directly: shared memory is refused there.
    crypto.getRandomValues(drawn);
    used = 0;
  }
  const bits = drawn.subarray(used, used + length);
  bytes.set(bits, address);
  // The bits of a key do not stay in memory.
  bits.fill(0);
  used += length;
}

/** 64 bits of the same. */
export function randomId(): bigint {
  return crypto.getRandomValues(new BigUint64Array(1))[0]!;
}
