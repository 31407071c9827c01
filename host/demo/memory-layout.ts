/** What lies where in the memory that a peer of the demo registers, and that the others reach. */

/** The picture: a byte a point, row by row. */
export const SIDE = 256;
export const PICTURE_BYTES = SIDE * SIDE;

/** Behind it 64-bit little-endian words; peers READ them with the picture. */
export const Word = {
  /** Counted up by compare and swap, by whoever likes. */
  CELL: PICTURE_BYTES,
  /** How often WRITEs, READs and atomics of a peer made this application run: never. */
  CALLBACKS: PICTURE_BYTES + 8,
  /** Messages that this application has taken. */
  MESSAGES: PICTURE_BYTES + 16,
  /** Milliseconds that it takes for each of them; peers WRITE it. */
  PACE_MILLIS: PICTURE_BYTES + 24,
} as const;

export const WORDS_BYTES = 32;
/** What the wrong key would have hit. */
export const TARGET = PICTURE_BYTES + WORDS_BYTES;
export const TARGET_BYTES = 32;
export const STATION_BYTES = TARGET + TARGET_BYTES;

/** The picture as a matrix of eight-byte elements: half a line of it is a row. */
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
