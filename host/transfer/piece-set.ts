/** Which pieces of a file are there: one bit each, piece 0 is bit 0 of byte 0. */
export class PieceSet {
  /** How many pieces the file has. */
  readonly pieceCount: number;
  /** The set as bytes. */
  readonly bits: Uint8Array;
  #size = 0;

  constructor(pieceCount: number) {
    this.pieceCount = pieceCount;
    this.bits = new Uint8Array(Math.ceil(pieceCount / 8));
  }

  /** How many pieces are in the set. */
  get size(): number {
    return this.#size;
  }

  has(index: number): boolean {
    return ((this.bits[index >> 3] ?? 0) & (1 << (index & 7))) !== 0;
  }

  add(index: number): void {
    if (index < 0 || index >= this.pieceCount || this.has(index)) return;
    this.bits[index >> 3]! |= 1 << (index & 7);
    this.#size++;
  }

  clear(): void {
    this.bits.fill(0);
    this.#size = 0;
  }

  /** Of any bytes; bits beyond the last piece are ignored. */
  static of(bits: Uint8Array, pieceCount: number): PieceSet {
    const set = new PieceSet(pieceCount);
    for (let index = 0; index < pieceCount; index++) {
      if (((bits[index >> 3] ?? 0) & (1 << (index & 7))) !== 0) set.add(index);
    }
    return set;
  }
}
