/**
 * Copies of bytes into shared memory, or out. V8 copies these by words (31 GB/s), and by single
 * bytes if the addresses of source and target differ in their last bits (4 GB/s); memmove reaches
 * 55 GB/s and more for both, and a call costs as much as V8's copy of 2 KiB.
 */
import { loadedPosix } from './posix.js';

const CALL_BYTES = 2048;

/** The bytes of `source` go into `target`, from the byte `at` on; the two may overlap. */
export function copyBytes(target: Uint8Array, source: Uint8Array, at: number): void {
  const { length } = source;
  const posix = length >= CALL_BYTES && at >= 0 && at + length <= target.length && loadedPosix();
  if (posix) posix.moveMemory(target.subarray(at), source);
  else target.set(source, at);
}

/** Concatenates the pieces; returns their length. */
export function copyPieces(pieces: readonly Uint8Array[], target: Uint8Array): number {
  let at = 0;
  for (const piece of pieces) {
    copyBytes(target, piece, at);
    at += piece.length;
  }
  return at;
}
