/**
 * Hands out ranges of linear memory: user memory, queues, tables. First fit over a sorted list of
 * free ranges that are joined again when they meet; all sizes are multiples of 64 bytes, so every
 * range begins on a cache line.
 */
import { MisuseError, RefusalError } from '../errors/errors.js';

const UNIT = 64;

/** Memory for applications. */
export interface UserHeap {
  readonly bytesFree: number;
  /** `size` zero bytes at a multiple of 64. Throws RefusalError ENOMEM. */
  alloc(size: number): number;
  /** Throws MisuseError for what `alloc` did not return. */
  free(address: number): void;
}

interface Range {
  address: number;
  size: number;
}

/** RefusalError ENOMEM of an operation that needs `size` bytes of the device's memory. */
export function tooLittleMemory(
  size: number,
  bytesFree: number,
  operation = 'alloc',
  remedy = 'open it with a larger memoryBytes',
): RefusalError {
  return new RefusalError(
    'ENOMEM',
    `${operation}: no ${size} bytes in a row are left in the device's memory ` +
      `(${bytesFree} free in all); ${remedy}`,
  );
}

export class Heap implements UserHeap {
  readonly #free: Range[];
  readonly #taken = new Map<number, number>();
  readonly #bytes: Uint8Array;
  #bytesFree: number;
  /** From here on nothing was ever handed out: it is zero as the system gave it, and untouched. */
  #fresh: number;

  /** Manages [start, end) of `bytes`, which are zero. */
  constructor(bytes: Uint8Array, start: number, end: number) {
    const first = Math.ceil(start / UNIT) * UNIT;
    const size = Math.floor((end - first) / UNIT) * UNIT;
    this.#bytes = bytes;
    this.#free = size > 0 ? [{ address: first, size }] : [];
    this.#bytesFree = size;
    this.#fresh = first;
  }

  /** Bytes that are not handed out; the largest range may be smaller. */
  get bytesFree(): number {
    return this.#bytesFree;
  }

  /**
   * `size` zero bytes at a multiple of `alignment` (a power of two, at least 64). Throws
   * RefusalError ENOMEM.
   */
  alloc(size: number, alignment = UNIT): number {
    const wanted = Math.max(UNIT, Math.ceil(size / UNIT) * UNIT);
    for (let index = 0; index < this.#free.length; index++) {
      const range = this.#free[index]!;
      const address = Math.ceil(range.address / alignment) * alignment;
      const before = address - range.address;
      if (before + wanted > range.size) continue;
      this.#cut(index, range, before, wanted);
      this.#taken.set(address, wanted);
      this.#bytesFree -= wanted;
      const end = address + wanted;
      this.#bytes.fill(0, address, Math.min(end, Math.max(this.#fresh, address)));
      this.#fresh = Math.max(this.#fresh, end);
      return address;
    }
    throw tooLittleMemory(size, this.#bytesFree);
  }

  /** Did `alloc` return that address, and is it not free again? */
  has(address: number): boolean {
    return this.#taken.has(address);
  }

  /** Gives back what `alloc` returned. Throws MisuseError for any other address. */
  free(address: number): void {
    const size = this.#taken.get(address);
    if (size === undefined) {
      throw new MisuseError(
        'address',
        `0x${address.toString(16)} was not allocated, or freed before`,
      );
    }
    this.#taken.delete(address);
    this.#bytesFree += size;
    const index = this.#indexAfter(address);
    const before = this.#free[index - 1];
    const after = this.#free[index];
    const joinsBefore = before !== undefined && before.address + before.size === address;
    const joinsAfter = after !== undefined && address + size === after.address;
    if (joinsBefore && joinsAfter) {
      before.size += size + after.size;
      this.#free.splice(index, 1);
    } else if (joinsBefore) {
      before.size += size;
    } else if (joinsAfter) {
      after.address = address;
      after.size += size;
    } else {
      this.#free.splice(index, 0, { address, size });
    }
  }

  #cut(index: number, range: Range, before: number, wanted: number): void {
    const after = range.size - before - wanted;
    const rest: Range[] = [];
    if (before > 0) rest.push({ address: range.address, size: before });
    if (after > 0) rest.push({ address: range.address + before + wanted, size: after });
    this.#free.splice(index, 1, ...rest);
  }

  /** Index of the first free range that begins after `address`. */
  #indexAfter(address: number): number {
    let low = 0;
    let high = this.#free.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#free[middle]!.address < address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
