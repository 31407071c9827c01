/**
 * Ring of a writer in another member's persistent memory: numbered records, and a word with their
 * count. A record is written and flushed before the word is, so counted records are there, whole,
 * whichever process is killed; the record behind them may be partial.
 *
 * ```
 *  0  8  word: count, low 32 bits | its complement
 * 64     SLOTS records of 64 bytes: writer | number | 56 bytes made of both
 * ```
 */
export const SLOTS = 16;
export const RECORD_BYTES = 64;
export const RECORD_RING_BYTES = 64 + SLOTS * RECORD_BYTES;

export function recordAt(number: number): number {
  return 64 + (number % SLOTS) * RECORD_BYTES;
}

export function fillRecord(bytes: Uint8Array, writer: number, number: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, RECORD_BYTES);
  view.setUint32(0, writer);
  view.setUint32(4, number);
  fillPattern(bytes.subarray(8, RECORD_BYTES), Math.imul(writer + 1, 0x9e3779b1) ^ number);
}

export function putWord(bytes: Uint8Array, count: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, 8);
  view.setUint32(0, count, true);
  view.setUint32(4, ~count >>> 0, true);
}

/** Undefined: it is torn. */
export function readWord(bytes: Uint8Array): number | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, 8);
  const [count, complement] = [view.getUint32(0, true), view.getUint32(4, true)];
  if (count === 0 && complement === 0) return 0;
  return ~count >>> 0 === complement ? count : undefined;
}

/** Complaint about a ring of `writer`, of which `acknowledged` records were acknowledged. */
export function judgeLedger(
  bytes: Uint8Array,
  writer: number,
  acknowledged: number,
): { readonly count: number; readonly complaint: string | undefined } {
  const count = readWord(bytes);
  if (count === undefined) return { count: 0, complaint: 'the word is torn' };
  if (count < acknowledged) {
    return { count, complaint: `${acknowledged} were acknowledged, ${count} are there` };
  }
  const expected = new Uint8Array(RECORD_BYTES);
  // The oldest one's place may have been taken by the record behind the word.
  for (let number = Math.max(1, count - SLOTS + 2); number <= count; number++) {
    fillRecord(expected, writer, number);
    const found = bytes.subarray(recordAt(number), recordAt(number) + RECORD_BYTES);
    if (!found.every((byte, at) => byte === expected[at])) {
      return { count, complaint: `record ${number} of ${count} is not what was written` };
    }
  }
  return { count, complaint: undefined };
}

/** Bytes without a short period, the same for the same seed. */
export function fillPattern(bytes: Uint8Array, seed: number): void {
  let state = Math.imul(seed, 0x9e3779b9) | 1;
  for (let at = 0; at < bytes.length; at++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes[at] = state;
  }
}

/** Are these the bytes of `fillPattern`? */
export function hasPattern(bytes: Uint8Array, seed: number): boolean {
  const expected = new Uint8Array(bytes.length);
  fillPattern(expected, seed);
  return bytes.every((byte, at) => byte === expected[at]);
}
