/** Where the blocks of a namespace are, and when they are durable. */
import type { Durability } from '../pmem/place.js';
import { checkContext, type Context } from '../verbs/context.js';

/** Storage of a namespace: blocks that are read, written, and flushed. */
export interface NvmeStore {
  /** Bytes, a multiple of 512. */
  readonly length: number;
  /**
   * The blocks themselves, where they lie in the device's memory: then data go between it and the
   * host without a copy, and `read` and `write` are not called for them.
   */
  readonly memory?: Uint8Array;
  /** May what was written be lost, until it was flushed? */
  readonly isVolatile: boolean;
  /** Rejects with the system's error. */
  read(offset: number, into: Uint8Array): Promise<void>;
  write(offset: number, from: Uint8Array): Promise<void>;
  writeZeroes(offset: number, length: number): Promise<void>;
  /** Makes the bytes zeros and may release their storage. Default: `writeZeroes`. */
  deallocate?(offset: number, length: number): Promise<void>;
  /** Resolves when writes to the range (default: the whole store) are durable. */
  flush(offset?: number, length?: number): Promise<void>;
  /** `memory` was written to. */
  written?(offset: number, length: number): void;
  close(): Promise<void>;
}

/** One request of a store, in bytes from its begin. */
export interface StoreRequest {
  readonly kind: 'read' | 'write' | 'flush';
  readonly offset: number;
  readonly length: number;
}

/** Blocks in the device's memory, and nowhere else. */
export class RamStore implements NvmeStore {
  readonly memory: Uint8Array;
  readonly isVolatile = false;
  /** Memory does not survive a power cut. */
  readonly durability: Durability = 'none';
  readonly durabilityReason = 'memory of this process';
  readonly #context: Context;

  /** Throws RefusalError ENOMEM. */
  constructor(context: Context, length: number) {
    checkContext('NvmeRamStore', context);
    this.#context = context;
    this.memory = context.alloc(length);
  }

  get length(): number {
    return this.memory.length;
  }

  read(offset: number, into: Uint8Array): Promise<void> {
    into.set(this.memory.subarray(offset, offset + into.length));
    return Promise.resolve();
  }

  write(offset: number, from: Uint8Array): Promise<void> {
    this.memory.set(from, offset);
    return Promise.resolve();
  }

  writeZeroes(offset: number, length: number): Promise<void> {
    this.memory.fill(0, offset, offset + length);
    return Promise.resolve();
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }

  close(): Promise<void> {
    if (!this.#context.device.closed) this.#context.free(this.memory);
    return Promise.resolve();
  }
}
