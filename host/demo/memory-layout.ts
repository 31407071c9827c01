/** Layout of the memory that a peer of the demo registers and that the other peers access. */

/** The picture: a byte a point, row by row. 0 is empty; else a colour and a brightness. */
export const SIDE = 256;
export const PICTURE_BYTES = SIDE * SIDE;

/** Behind it 64-bit little-endian words; peers READ them with the picture. */
export const Word = {
  /** Counted up by compare and swap of any peer. */
  CELL: PICTURE_BYTES,
  /** How often WRITEs, READs and atomics of a peer made this application run: never. */
  CALLBACKS: PICTURE_BYTES + 8,
  /** Messages that this application has taken. */
  MESSAGES: PICTURE_BYTES + 16,
  /** Milliseconds that it takes for each of them; peers WRITE it. */
  PACE_MILLIS: PICTURE_BYTES + 24,
  /** Not 0: a peer measures, and asks for quiet on the wire; peers WRITE it. */
  QUIET: PICTURE_BYTES + 32,
} as const;

const WORDS_BYTES = 40;
/** Bytes that a WRITE with a wrong key aims at. */
export const TARGET = PICTURE_BYTES + WORDS_BYTES;
export const TARGET_BYTES = 32;
export const ENDPOINT_BYTES = TARGET + TARGET_BYTES;

/** Of a frame in a race. */
export const FRAME_BYTES = 65536;

/** The line in the middle of the picture: a peer WRITEs it on request. */
const STAMP = (SIDE / 2) * SIDE;
export const STAMP_BYTES = SIDE;

export function stampOf(memory: Uint8Array): Uint8Array {
  return memory.subarray(STAMP, STAMP + STAMP_BYTES);
}

/** Persistent memory: the number of the record that counts, and two places for records, in turn. */
export const RECORD_BYTES = 16384;
const FIRST_RECORD = 64;
export const RECORDS_BYTES = FIRST_RECORD + 2 * RECORD_BYTES;

/** Where a record lies: beside the one before. */
export function placeOf(record: number): number {
  return FIRST_RECORD + (record % 2) * RECORD_BYTES;
}

/** A record is its number, again and again. */
export function recordAt(memory: Uint8Array, at: number): Uint32Array {
  return new Uint32Array(memory.buffer, memory.byteOffset + at, RECORD_BYTES / 4);
}

/** The picture as a matrix of eight-byte elements: a row is half a line. */
export const MATRIX = {
  rows: 512,
  columns: 16,
  elementBytes: 8,
  rowBytes: PICTURE_BYTES / 512,
} as const;
export const COLUMN_BYTES = MATRIX.rows * MATRIX.elementBytes;

/** A column's bytes, copied out one by one: what its layout has to agree with. */
export function columnOf(memory: Uint8Array, column: number): Uint8Array {
  const { elementBytes, rowBytes } = MATRIX;
  return Uint8Array.from({ length: COLUMN_BYTES }, (_, at) => {
    const row = Math.floor(at / elementBytes);
    return memory[row * rowBytes + column * elementBytes + (at % elementBytes)]!;
  });
}

export function readWord(memory: Uint8Array, at: number): number {
  return Number(viewOf(memory).getBigUint64(at, true));
}

export function writeWord(memory: Uint8Array, at: number, value: number): void {
  viewOf(memory).setBigUint64(at, BigInt(value), true);
}

function viewOf(memory: Uint8Array): DataView {
  return new DataView(memory.buffer, memory.byteOffset, memory.length);
}
