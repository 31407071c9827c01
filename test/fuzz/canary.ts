/** Memory that must stay as it is: a copy is kept and compared. */

/** Fills memory without access rights. No packet of the fuzzer has this byte. */
export const CANARY = 0xa5;
/** This many canaries in a row are no accident. */
export const CANARY_RUN = Buffer.alloc(24, CANARY);

interface Range {
  readonly name: string;
  readonly start: number;
  readonly end: number;
  readonly copy: Buffer;
}

export class Untouchable {
  readonly #memory: Buffer;
  readonly #ranges: Range[] = [];

  constructor(memory: Uint8Array) {
    this.#memory = Buffer.from(memory.buffer, memory.byteOffset, memory.length);
  }

  /** The number of bytes that must not change. */
  get bytes(): number {
    return this.#ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  }

  /** From now on [start, end) is to stay as it is. */
  keep(name: string, start: number, end: number): void {
    if (end <= start) return;
    const copy = Buffer.from(this.#memory.subarray(start, end));
    this.#ranges.push({ name, start, end, copy });
  }

  /** Throws when a byte changed. */
  check(): void {
    for (const { name, start, end, copy } of this.#ranges) {
      if (copy.compare(this.#memory, start, end) === 0) continue;
      const at = copy.findIndex((byte, index) => this.#memory[start + index] !== byte);
      throw new Error(`${name}: byte ${at} (address ${start + at}) was written`);
    }
  }
}
