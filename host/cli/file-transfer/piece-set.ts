/** Which pieces of a file are there: one bit each, piece 0 is bit 0 of byte 0. */
export class PieceSet {
  /** How many pieces the file has. */
  readonly pieceCount: number;
  readonly #bits: Uint8Array;
  #size = 0;

  constructor(pieceCount: number) {
    this.pieceCount = pieceCount;
    this.#bits = new Uint8Array(Math.ceil(pieceCount / 8));
  }

  /** How many pieces are in the set. */
  get size(): number {
    return this.#size;
  }

  has(index: number): boolean {
    return ((this.#bits[index >> 3] ?? 0) & (1 << (index & 7))) !== 0;
  }

  add(index: number): void {
    if (index < 0 || index >= this.pieceCount || this.has(index)) return;
    this.#bits[index >> 3]! |= 1 << (index & 7);
    this.#size++;
  }

  /** The empty set is the empty text. */
  toText(): string {
    return this.#size === 0 ? '' : Buffer.from(this.#bits).toString('base64');
  }

  /** Undefined when `text` is not what `toText` of such a set gives. */
  static fromText(text: string, pieceCount: number): PieceSet | undefined {
    const set = new PieceSet(pieceCount);
    if (text === '') return set;
    const bytes = Buffer.from(text, 'base64');
    if (bytes.length !== Math.ceil(pieceCount / 8)) return undefined;
    for (let index = 0; index < bytes.length * 8; index++) {
      if ((bytes[index >> 3]! & (1 << (index & 7))) === 0) continue;
      if (index >= pieceCount) return undefined;
      set.add(index);
    }
    return set;
  }
}
