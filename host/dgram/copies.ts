/**
 * Memory of datagrams that wait. It is used again: V8 marks the whole heap for each 64 MiB of new
 * buffers, which cost a stream of long datagrams more than all else.
 */
const BYTES_LEAST = 256;
/** Of all sockets of the process. */
const KEPT_BYTES_MAX = 4 << 20;

const free = new Map<number, Uint8Array[]>();
let keptBytes = 0;

/** Copies a datagram: its pieces in order, in memory of its own. */
export function copyPieces(pieces: readonly Uint8Array[], length: number): Uint8Array {
  const bytes = Math.max(BYTES_LEAST, 2 ** Math.ceil(Math.log2(length || 1)));
  const kept = free.get(bytes)?.pop();
  if (kept) keptBytes -= bytes;
  const copy = (kept ?? new Uint8Array(bytes)).subarray(0, length);
  let at = 0;
  for (const piece of pieces) {
    copy.set(piece, at);
    at += piece.length;
  }
  return copy;
}

/** `copy`, of `copyPieces`, is used no more. */
export function giveBack(copy: Uint8Array): void {
  const bytes = copy.buffer.byteLength;
  if (keptBytes + bytes > KEPT_BYTES_MAX) return;
  keptBytes += bytes;
  const whole = new Uint8Array(copy.buffer);
  const others = free.get(bytes);
  if (others) others.push(whole);
  else free.set(bytes, [whole]);
}
