/** Private data of the examples: a description of memory, and text. */
import type { MemoryRegion } from '../index.js';

/** Description of memory that a peer may access. */
export interface Description {
  readonly remoteAddr: bigint;
  readonly rkey: number;
}

/** Where a peer may read and write, as 16 bytes of private data. */
export function describe({
  mr,
}: {
  readonly mr: Pick<MemoryRegion, 'addr' | 'rkey' | 'length'>;
}): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(16));
  bytes.setBigUint64(0, mr.addr);
  bytes.setUint32(8, mr.rkey);
  bytes.setUint32(12, mr.length);
  return new Uint8Array(bytes.buffer);
}

export function parseDescription(privateData: Uint8Array): Description {
  const bytes = new DataView(privateData.buffer, privateData.byteOffset);
  return { remoteAddr: bytes.getBigUint64(0), rkey: bytes.getUint32(8) };
}

export const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
/** Up to the first zero byte. */
export function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes.slice()).replace(/\0.*$/s, '');
}
