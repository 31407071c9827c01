/**
 * The heap that all processes of a device share (assembly/memory/heap.ts): an allocation has the
 * same address in each of them and stays until the last holder has freed it or died.
 */
import { BlockParametersLayout, Errno } from '#build/abi.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { ArenaMemory } from './arena.js';
import type { UserHeap } from './heap.js';
import { refusedAllocation } from './refused-allocation.js';
import { structAt, type Struct } from './struct.js';
import { releaseUnheld, type FileStorage } from './unheld-storage.js';

const ALIGNMENT = 64;

export class SharedHeap implements UserHeap {
  readonly #storage: FileStorage | undefined;
  readonly #arena: ArenaMemory;
  readonly #context: number;
  readonly #parameters: number;
  readonly #struct: Struct<typeof BlockParametersLayout>;
  /**
   * Held memory of other contexts: address of their block by the address that this context uses.
   */
  readonly #held = new Map<number, number>();

  /**
   * `context`: the address of the one that holds what is handed out. `storage`: undefined: all
   * memory has storage, always.
   */
  constructor(arena: ArenaMemory, context: number, storage?: FileStorage) {
    this.#storage = storage;
    this.#arena = arena;
    this.#context = context;
    this.#parameters = arena.heap.alloc(BlockParametersLayout.size);
    this.#struct = structAt(arena.memory, BlockParametersLayout, this.#parameters);
  }

  get bytesFree(): number {
    return this.#arena.exports.arenaBytesFree(this.#arena.address) >>> 0;
  }

  alloc(size: number): number {
    const address = this.#take(size, 'alloc');
    const { dirty } = this.#struct;
    this.#commitOrFree(address, size);
    this.#arena.memory.bytes.fill(0, address, address + dirty);
    return address;
  }

  /**
   * The same without storage: the caller gives each part storage before it is used (`commit`).
   * Bytes that were in use before are zero. Throws RefusalError ENOMEM, of a heap.
   */
  reserve(size: number): number {
    const address = this.#take(size, 'heap');
    const { dirty } = this.#struct;
    this.#commitOrFree(address, dirty);
    this.#arena.memory.bytes.fill(0, address, address + dirty);
    return address;
  }

  /** Gives a range storage, where memory has none before. Throws RefusalError ENOSPC. */
  commit(address: number, bytes: number): void {
    if (bytes > 0 && this.#storage?.isSparse) this.#storage.commit(address, bytes);
  }

  /** Gives storage back, of a device that grows: the memory is zero, `commit` before its use. */
  release(address: number, bytes: number): void {
    if (this.#storage?.isSparse) this.#storage.release(address, bytes);
  }

  /** `releaseUnheld` of this heap, with the lock of the tables. */
  releaseUnheld(): boolean {
    return this.#storage !== undefined && releaseUnheld(this.#arena, this.#storage);
  }

  /**
   * As `commit`; if the file system is full, with the storage of memory that no process holds. The
   * caller has the lock of the device's tables or none. Throws RefusalError ENOSPC.
   */
  commitOrRelease(address: number, bytes: number): void {
    try {
      this.commit(address, bytes);
    } catch (error) {
      const isFull = error instanceof RefusalError && error.code === 'ENOSPC';
      if (!isFull || !this.#storage!.locked(() => this.releaseUnheld())) throw error;
      this.commit(address, bytes);
    }
  }

  #commitOrFree(address: number, bytes: number): void {
    try {
      this.commitOrRelease(address, bytes);
    } catch (error) {
      this.free(address);
      throw error;
    }
  }

  #take(size: number, operation: 'alloc' | 'heap'): number {
    const struct = this.#struct;
    struct.length = size;
    struct.alignment = ALIGNMENT;
    const fits = size < 2 ** 32;
    if (!fits || this.#arena.exports.allocBlock(this.#context, this.#parameters) !== Errno.OK) {
      throw refusedAllocation(size, this.bytesFree, operation, this.#arena);
    }
    return struct.address;
  }

  /**
   * Holds bytes that another process allocated: they stay until `free(address)`. Throws
   * RefusalError ENOENT (not allocated), EBUSY (this context holds them already).
   */
  hold(address: number, length: number): void {
    const struct = this.#struct;
    struct.address = address;
    struct.length = length;
    const errno = this.#arena.exports.attachBlock(this.#context, this.#parameters);
    if (errno === Errno.OK) {
      this.#held.set(address, struct.address);
      return;
    }
    const what = `${length} bytes at 0x${address.toString(16)}`;
    if (errno === Errno.EBUSY) {
      throw new RefusalError('EBUSY', `attach: this process holds the ${what} already; use that`);
    }
    throw new RefusalError(
      'ENOENT',
      `attach: no process has allocated the ${what}; allocate it first`,
    );
  }

  free(address: number): void {
    const block = this.#held.get(address) ?? address;
    this.#held.delete(address);
    if (this.#arena.exports.deallocBlock(this.#context, block) === Errno.OK) return;
    throw new MisuseError(
      'address',
      `0x${address.toString(16)} is not held by this process, or was freed before`,
    );
  }
}
