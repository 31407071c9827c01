/** The chance of DH-HMAC-CHAP: challenges, numbers and keys, from the system's generator. */
import { randomBytes, randomInt } from 'node:crypto';

/** A challenge, or the key of a secret. */
export function randomOf(bytes: number): Uint8Array {
  return randomBytes(bytes);
}

export function randomTransaction(): number {
  return randomInt(2 ** 16);
}

/** Never 0, which means that the peer is not challenged. */
export function randomSequence(): number {
  return randomInt(1, 2 ** 32);
}
