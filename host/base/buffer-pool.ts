/**
 * Memory of messages that wait. It is used again: V8 marks the whole heap for each 64 MiB of new
 * buffers, which cost a stream of long datagrams more than all else.
 */
const BYTES_LEAST = 256;
/** Of the process. */
const KEPT_BYTES_MAX = 4 << 20;

const free = new Map<number, Uint8Array[]>();
let keptBytes = 0;

/** Memory with any content, until `giveBuffer`. */
export function takeBuffer(length: number): Uint8Array {
  const bytes = Math.max(BYTES_LEAST, 2 ** Math.ceil(Math.log2(length || 1)));
  const kept = free.get(bytes)?.pop();
  if (kept) keptBytes -= bytes;
  return (kept ?? new Uint8Array(bytes)).subarray(0, length);
}

/** `buffer`, of `takeBuffer`, is used no more; called once for each. */
export function giveBuffer({ buffer }: Uint8Array): void {
  const bytes = buffer.byteLength;
  if (keptBytes + bytes > KEPT_BYTES_MAX) return;
  keptBytes += bytes;
  const others = free.get(bytes);
  if (others) others.push(new Uint8Array(buffer));
  else free.set(bytes, [new Uint8Array(buffer)]);
}
