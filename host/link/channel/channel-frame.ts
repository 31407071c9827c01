/**
 * How packets lie in a message of a datagram channel:
 * ```
 *  0      1       2          4      6
 *  | kind | flags | sequence | seen | length | packet | length | packet | …
 *      1      1        2         2       2                                  bytes, little-endian
 * ```
 * `sequence` counts the messages with packets, modulo 65536; `seen` is the latest one that came from
 * the other side. A message with no packets is an acknowledgement and takes no number. Several
 * packets share a message because a channel's price is per message, not per byte.
 *
 * Where several channels carry to one peer, each has a sequence of its own, and behind the packets
 * of a message there is what puts them together again (`message-order.ts`); a flag marks it:
 * ```
 *  | order | previous |
 *      2        2        bytes, little-endian
 * ```
 */
export const HEADER_BYTES = 6;
/** Before every packet. */
export const LENGTH_BYTES = 2;
/** Behind the packets, where the flag says so. */
export const ORDER_BYTES = 4;
/** Kinds: the first byte. Any other is no message of ours. */
export const Kind = { PACKETS: 0x56, ACKNOWLEDGE: 0x57 } as const;
/** Bits of the second byte. */
export const FrameFlag = {
  /** The sender wants to know what came, at once. */
  ASK: 1,
  /** `seen` means something. */
  SEEN: 2,
  /** The message ends with its place among those of all channels to this peer. */
  ORDERED: 4,
} as const;

/** How far `a` is ahead of `b` on the circle of sequence numbers: -32768 to 32767. */
export function sequenceDistance(a: number, b: number): number {
  return ((a - b) << 16) >> 16;
}

/** A message under construction; its buffer is used again. */
export class Frame {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  /** Bytes so far, header included. */
  length = HEADER_BYTES;

  /** `size`: of the longest message, without its place. */
  constructor(size: number) {
    this.bytes = new Uint8Array(size + ORDER_BYTES);
    this.#view = new DataView(this.bytes.buffer);
  }

  get isEmpty(): boolean {
    return this.length === HEADER_BYTES;
  }

  /** True if a packet of `packetBytes` bytes fits. */
  fits(packetBytes: number): boolean {
    return this.length + LENGTH_BYTES + packetBytes + ORDER_BYTES <= this.bytes.length;
  }

  add(packet: Uint8Array): void {
    this.#view.setUint16(this.length, packet.length, true);
    this.bytes.set(packet, this.length + LENGTH_BYTES);
    this.length += LENGTH_BYTES + packet.length;
  }

  /** Fills in the header. The message, valid until the frame is changed. */
  finish(kind: number, flags: number, sequence: number, seen: number): Uint8Array {
    this.bytes[0] = kind;
    this.bytes[1] = flags;
    this.#view.setUint16(2, sequence, true);
    this.#view.setUint16(4, seen, true);
    return this.bytes.subarray(0, this.length);
  }

  /** Says the place of the message, once no more packets are added. */
  place(order: number, previous: number): void {
    this.#view.setUint16(this.length, order, true);
    this.#view.setUint16(this.length + 2, previous, true);
    this.length += ORDER_BYTES;
  }

  reset(): void {
    this.length = HEADER_BYTES;
  }
}

/**
 * Hands on the packets of a message, as far as they are whole. False: it is malformed. The header
 * was looked at before.
 */
export function readPackets(message: Uint8Array, packet: (bytes: Uint8Array) => void): boolean {
  let at = HEADER_BYTES;
  while (at < message.length) {
    if (at + LENGTH_BYTES > message.length) return false;
    const length = message[at]! | (message[at + 1]! << 8);
    at += LENGTH_BYTES;
    if (at + length > message.length) return false;
    packet(message.subarray(at, at + length));
    at += length;
  }
  return true;
}
