/**
 * Blocks in a region of persistent memory: data go there straight from the host, and a flush means
 * what a flush of that region means (host/pmem).
 */
import type { PersistentMemory, PmemOptions } from '../pmem/persistent-memory.js';
import type { Durability } from '../pmem/place.js';
import type { Context } from '../verbs/context.js';
import type { NvmeStore } from './store.js';

const BLOCK_BYTES = 512;

/** A namespace made of persistent memory: a flush means durable. */
export class PmemStore implements NvmeStore {
  readonly memory: Uint8Array;
  readonly isVolatile = true;
  /** Range of the bytes written since the last flush; empty while `#from` is not below `#to`. */
  #from = Infinity;
  #to = 0;

  private constructor(readonly pmem: PersistentMemory) {
    this.memory = pmem.buffer.subarray(0, pmem.length - (pmem.length % BLOCK_BYTES));
  }

  /** As `context.openPmem`. */
  static async open(context: Context, path: string, options: PmemOptions = {}): Promise<PmemStore> {
    return new PmemStore(await context.openPmem(path, options));
  }

  get length(): number {
    return this.memory.length;
  }

  /** Failures that flushed data survive, and the file's storage (host/guide/PERSISTENCE.md). */
  get durability(): Durability {
    return this.pmem.durability;
  }

  get durabilityReason(): string {
    return this.pmem.durabilityReason;
  }

  read(offset: number, into: Uint8Array): Promise<void> {
    into.set(this.memory.subarray(offset, offset + into.length));
    return Promise.resolve();
  }

  write(offset: number, from: Uint8Array): Promise<void> {
    this.memory.set(from, offset);
    this.written(offset, from.length);
    return Promise.resolve();
  }

  writeZeroes(offset: number, length: number): Promise<void> {
    this.memory.fill(0, offset, offset + length);
    this.written(offset, length);
    return Promise.resolve();
  }

  written(offset: number, length: number): void {
    this.#from = Math.min(this.#from, offset);
    this.#to = Math.max(this.#to, offset + length);
  }

  async flush(offset?: number, length?: number): Promise<void> {
    if (offset !== undefined && length !== undefined) return this.pmem.flush(offset, length);
    const [from, to] = [this.#from, this.#to];
    // Later writes belong to the next flush.
    this.#from = Infinity;
    this.#to = 0;
    // An earlier one may be under way, and have these bytes: a sync of nothing waits for it.
    await (from < to ? this.pmem.flush(from, to - from) : this.pmem.flush(0, 0));
  }

  close(): Promise<void> {
    return this.pmem.close();
  }
}
