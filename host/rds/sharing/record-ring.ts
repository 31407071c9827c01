/**
 * A ring of records in shared memory, with one writer and one reader. The reader's process says
 * whether it sleeps; a record for one that looks costs no system call.
 * ```
 *  0      4      8        64
 *  | head | tail | asleep | records of RECORD_BYTES
 * ```
 * `head` is the writer's, `tail` the reader's; both only grow, modulo 2^32.
 */
export const RECORD_BYTES = 32;
const RECORDS = 2048;
const HEADER_BYTES = 64;
export const RING_BYTES = HEADER_BYTES + RECORDS * RECORD_BYTES;
const [HEAD, TAIL, ASLEEP] = [0, 1, 2];

export class RecordRing {
  readonly #words: Int32Array;
  readonly #bytes: Buffer;

  /** `memory`: RING_BYTES. */
  constructor(memory: Uint8Array) {
    const { buffer, byteOffset } = memory;
    this.#words = new Int32Array(buffer, byteOffset, HEADER_BYTES / 4);
    this.#bytes = Buffer.from(buffer, byteOffset + HEADER_BYTES, RECORDS * RECORD_BYTES);
  }

  /** Before either side uses it. The reader sleeps: the first record wakes it. */
  reset(): void {
    Atomics.store(this.#words, TAIL, Atomics.load(this.#words, HEAD));
    Atomics.store(this.#words, ASLEEP, 1);
  }

  /** Writer: returns where the next record goes; undefined: the ring is full. */
  get place(): Buffer | undefined {
    const head = Atomics.load(this.#words, HEAD);
    if (((head - Atomics.load(this.#words, TAIL)) | 0) >= RECORDS) return undefined;
    return this.#at(head);
  }

  /** Writer: the record at `place` is complete. Returns whether its reader has to be woken. */
  commit(): boolean {
    Atomics.add(this.#words, HEAD, 1);
    return Atomics.exchange(this.#words, ASLEEP, 0) !== 0;
  }

  /**
   * Reader: calls `take` for each record, a copy, until that returns false: the memory may be gone
   * then. Returns how many there were; -1: the writer's numbers are impossible.
   */
  drain(take: (record: Buffer) => boolean): number {
    const head = Atomics.load(this.#words, HEAD);
    let tail = Atomics.load(this.#words, TAIL);
    const count = (head - tail) >>> 0;
    if (count > RECORDS) return -1;
    for (; tail !== head; tail = (tail + 1) | 0) {
      const record = Buffer.from(this.#at(tail));
      Atomics.store(this.#words, TAIL, (tail + 1) | 0);
      if (!take(record)) break;
    }
    return count;
  }

  /** Reader: from now on `commit` says that it is to be woken. False: a record came before that. */
  fallAsleep(): boolean {
    Atomics.store(this.#words, ASLEEP, 1);
    if (Atomics.load(this.#words, HEAD) === Atomics.load(this.#words, TAIL)) return true;
    // The writer may see that as well: then it wakes a reader that looks, which does no harm.
    Atomics.store(this.#words, ASLEEP, 0);
    return false;
  }

  #at(index: number): Buffer {
    const at = (index & (RECORDS - 1)) * RECORD_BYTES;
    return this.#bytes.subarray(at, at + RECORD_BYTES);
  }
}
