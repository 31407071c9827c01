/**
 * Structures of sendmmsg and recvmmsg, as 64-bit Linux lays them out (socket.h, uio.h): offsets in
 * 32-bit words, little-endian, pointers as low and high word.
 *
 *     mmsghdr  name -> | namelen | iov -> | iovlen | control -> | controllen | flags | msg_len
 *     word     0         2         4        6        8            10           12      14
 *     iovec    base -> | length
 *     cmsghdr  length | level | type | data
 */
export const HEADER_BYTES = 64;
export const IOVEC_BYTES = 16;
/** Room for a sockaddr_in6. */
export const NAME_BYTES = 32;

export const HEADER = {
  name: 0,
  nameLength: 2,
  iov: 4,
  iovLength: 6,
  control: 8,
  controlLength: 10,
  flags: 12,
  length: 14,
} as const;
export const IOVEC = { base: 0, length: 2 } as const;
export const CONTROL = { length: 0, level: 2, type: 3, data: 4 } as const;
/** Bytes of a cmsghdr, and of one with data of up to 8 bytes. */
export const CONTROL_HEADER_BYTES = 16;
export const CONTROL_BYTES = 24;

export const SOCKADDR_IN_BYTES = 16;
export const SOCKADDR_IN6_BYTES = 28;

/** Writes a pointer: process addresses fit in the 53 bits of a number. */
export function writePointer(words: Uint32Array, at: number, address: number): void {
  const low = address >>> 0;
  words[at] = low;
  words[at + 1] = (address - low) / 2 ** 32;
}

/** Where the parts of one message lie, as addresses in the memory. */
export interface MessageParts {
  readonly header: number;
  readonly name: number;
  readonly iovec: number;
  readonly control: number;
}

/** Ties the parts of a message together: one iovec; lengths are still 0. */
export function linkParts(words: Uint32Array, base: number, parts: MessageParts): void {
  const at = parts.header >>> 2;
  writePointer(words, at + HEADER.name, base + parts.name);
  writePointer(words, at + HEADER.iov, base + parts.iovec);
  words[at + HEADER.iovLength] = 1;
  writePointer(words, at + HEADER.control, base + parts.control);
}

/** Byte 5 of a BTH, the upper one of the queue pair's number: which socket of the device it is for. */
export const BTH_SLOT_BYTE = 5;
