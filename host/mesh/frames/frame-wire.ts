/**
 * Packets of frames: each is one SEND of an unreliable connection, at most 1024 bytes,
 * little-endian.
 * ```
 *  slice: | kind | flags | index | number | length | immediate | total | group | rtt | zero | data
 *            1      1       2       4        4        4           2       2       2     2
 *  state: | kind | flags | bytes | block | done | limit | mask | number | a bit for each slice
 *            1      1       1       1       4      4       4      4        `bytes`
 * ```
 * A slice with an index from `total` on has parity: the XOR of the slices whose index is the same
 * modulo the number of parity slices. `state` travels from the receiver to the sender. Its first
 * bit stands for the slice `block` * 128; the missing slices that do not fit follow in a later one.
 */

/** Of a packet. */
export const PACKET_BYTES_MAX = 1024;
export const SLICE_HEADER = 24;
export const STATE_HEADER = 20;
export const PacketKind = { SLICE: 0x71, STATE: 0x72 } as const;
/** Of slices: the receiver answers with its state at once. */
export const POLL = 1;
/** Of states: the missing slices of one frame follow. */
export const HAS_MISSING = 1;
/** Slices of a block, from one of which on a state names the missing ones. */
const BLOCK = 128;
/** Bytes for missing slices: 1600 of them, behind the first. */
const MISSING_BYTES_MAX = 200;
/** Frames that a mask covers, from `done` on. */
export const MASK_FRAMES = 32;

export interface SliceHeader {
  readonly flags: number;
  readonly index: number;
  /** Of the frame, modulo 2^32. */
  readonly number: number;
  /** Bytes of the frame. */
  readonly length: number;
  readonly immediate: number;
  /** Slices with data. */
  readonly total: number;
  /** Slices to one parity slice; 0: no parity. */
  readonly group: number;
  /** The sender's round-trip time, in milliseconds. */
  readonly rtt: number;
}

export interface State {
  /** All frames before it are complete, or given up. */
  readonly done: number;
  /** The sender may send frames before it. */
  readonly limit: number;
  /** Bit i: frame `done + i` is complete. */
  readonly mask: number;
  /** In their order. */
  readonly missing?: { readonly number: number; readonly slices: readonly number[] };
}

/** How far frame `a` is ahead of frame `b`. */
export function ahead(a: number, b: number): number {
  return (a - b) | 0;
}

export function paritiesOf(total: number, group: number): number {
  return group === 0 ? 0 : Math.ceil(total / group);
}

export function writeSliceHeader(view: DataView, at: number, header: SliceHeader): void {
  view.setUint8(at, PacketKind.SLICE);
  view.setUint8(at + 1, header.flags);
  view.setUint16(at + 2, header.index, true);
  view.setUint32(at + 4, header.number, true);
  view.setUint32(at + 8, header.length, true);
  view.setUint32(at + 12, header.immediate, true);
  view.setUint16(at + 16, header.total, true);
  view.setUint16(at + 18, header.group, true);
  view.setUint16(at + 20, Math.min(header.rtt, 0xffff), true);
  view.setUint16(at + 22, 0, true);
}

/** Undefined: no slice of a frame of at most `bytesMax` bytes in slices of `sliceBytes`. */
export function readSlice(
  view: DataView,
  at: number,
  bytes: number,
  bytesMax: number,
  sliceBytes: number,
): SliceHeader | undefined {
  if (bytes < SLICE_HEADER || view.getUint8(at) !== PacketKind.SLICE) return undefined;
  const header = {
    flags: view.getUint8(at + 1),
    index: view.getUint16(at + 2, true),
    number: view.getUint32(at + 4, true),
    length: view.getUint32(at + 8, true),
    immediate: view.getUint32(at + 12, true),
    total: view.getUint16(at + 16, true),
    group: view.getUint16(at + 18, true),
    rtt: view.getUint16(at + 20, true),
  };
  const { index, length, total, group } = header;
  const slices = Math.max(1, Math.ceil(length / sliceBytes));
  const isWhole =
    length <= bytesMax && total === slices && index < total + paritiesOf(total, group);
  return isWhole && bytes - SLICE_HEADER === lengthOfSlice(header, sliceBytes) ? header : undefined;
}

/** Bytes of data of a slice. A parity slice is as long as the longest slice of its group. */
export function lengthOfSlice(
  { index, length, total }: Pick<SliceHeader, 'index' | 'length' | 'total'>,
  sliceBytes: number,
): number {
  if (index >= total) return Math.min(length, sliceBytes);
  return Math.min(sliceBytes, length - index * sliceBytes);
}

export function writeState(view: DataView, at: number, state: State): number {
  const { number = 0, slices = [] } = state.missing ?? {};
  const block = Math.floor((slices[0] ?? 0) / BLOCK);
  const bits = slices
    .map((slice) => slice - block * BLOCK)
    .filter((bit) => bit >> 3 < MISSING_BYTES_MAX);
  const bytes = bits.length > 0 ? (bits.at(-1)! >> 3) + 1 : 0;
  view.setUint8(at, PacketKind.STATE);
  view.setUint8(at + 1, bytes > 0 ? HAS_MISSING : 0);
  view.setUint8(at + 2, bytes);
  view.setUint8(at + 3, block);
  view.setUint32(at + 4, state.done, true);
  view.setUint32(at + 8, state.limit, true);
  view.setUint32(at + 12, state.mask, true);
  view.setUint32(at + 16, number, true);
  for (let index = 0; index < bytes; index++) view.setUint8(at + STATE_HEADER + index, 0);
  for (const bit of bits) {
    const place = at + STATE_HEADER + (bit >> 3);
    view.setUint8(place, view.getUint8(place) | (1 << (bit & 7)));
  }
  return STATE_HEADER + bytes;
}

/** Undefined: no state. */
export function readState(view: DataView, at: number, bytes: number): State | undefined {
  if (bytes < STATE_HEADER || view.getUint8(at) !== PacketKind.STATE) return undefined;
  const length = view.getUint8(at + 2);
  if (bytes !== STATE_HEADER + length) return undefined;
  const state = {
    done: view.getUint32(at + 4, true),
    limit: view.getUint32(at + 8, true),
    mask: view.getUint32(at + 12, true),
  };
  if (!(view.getUint8(at + 1) & HAS_MISSING)) return state;
  const slices: number[] = [];
  const first = view.getUint8(at + 3) * BLOCK;
  for (let bit = 0; bit < length * 8; bit++) {
    if (view.getUint8(at + STATE_HEADER + (bit >> 3)) & (1 << (bit & 7))) slices.push(first + bit);
  }
  return { ...state, missing: { number: view.getUint32(at + 16, true), slices } };
}

/** `into ^= from`, in words of 4 bytes where both are aligned. */
export function xorInto(into: Uint8Array, from: Uint8Array): void {
  const { length } = from;
  let at = 0;
  if (((into.byteOffset | from.byteOffset) & 3) === 0) {
    const words = length >> 2;
    const target = new Uint32Array(into.buffer, into.byteOffset, words);
    const source = new Uint32Array(from.buffer, from.byteOffset, words);
    for (let word = 0; word < words; word++) target[word]! ^= source[word]!;
    at = words << 2;
  }
  for (; at < length; at++) into[at]! ^= from[at]!;
}
