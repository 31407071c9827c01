/**
 * Memory of a device that outlives it: a file's bytes, mapped over it, or read at open and written
 * at every flush.
 */
import { readSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Device } from '../device/device.js';
import type { DurableStore, DurableStoreModule } from '../device/durable-store.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { loadPosix, type Posix } from '../link/posix.js';
import { placeOf, type Durability } from './place.js';
import { PmemFile } from './pmem-file.js';
import { SyncStore } from './sync-store.js';
import type { SyncTask } from './sync.js';

export interface PmemOptions {
  /** Of the region: where the file is made, and at least, where it is there. Default: as it is. */
  readonly bytes?: number;
  /**
   * `mapped`: the file's pages are the memory (Linux with koffi). `file`: read at open, written and
   * synced by flushes; needs nothing. Default: `mapped` where it can be.
   */
  readonly store?: 'mapped' | 'file';
  /** Also where a power cut takes everything (tmpfs): to survive processes only. Default false. */
  readonly volatile?: boolean;
}

/** @internal What the layer above has to say about its end. */
export interface PmemOwner {
  /** Nobody can be using it any more. Rejects with RefusalError EBUSY while somebody may be. */
  leave(): Promise<void>;
  closed(): void;
}

/** A range of the device's memory begins on a page of any size that Linux has. */
const ALIGNMENT = 65536;
const BYTES_MAX = 2 ** 32 - ALIGNMENT;

export class PersistentMemory {
  /** Memory of the device: what `pd.regMr` takes, also with FLUSH_PERSISTENT. */
  readonly buffer: Uint8Array;
  /** What it is known by, wherever its file is moved. */
  readonly id: bigint;
  readonly path: string;
  readonly kind: 'mapped' | 'file';
  /** What a flush protects from: `none` from the end of processes only. */
  readonly durability: Durability;
  /** @internal What makes it durable for the device: offsets are those of `buffer`. */
  readonly durable: DurableStore | DurableStoreModule;
  /** @internal */
  owner: PmemOwner | undefined;
  readonly #store: SyncStore;
  readonly #file: PmemFile;
  readonly #release: () => void;
  #closing: Promise<void> | undefined;

  private constructor(
    buffer: Uint8Array,
    file: PmemFile,
    kind: 'mapped' | 'file',
    durability: Durability,
    store: SyncStore,
    durable: DurableStore | DurableStoreModule,
    release: () => void,
  ) {
    this.buffer = buffer;
    this.id = file.header.id;
    this.path = file.path;
    this.kind = kind;
    this.durability = durability;
    this.durable = durable;
    this.#store = store;
    this.#file = file;
    this.#release = release;
  }

  /** @internal Use `context.openPmem()`. `newId`: of a file that is made. */
  static async open(
    device: Device,
    path: string,
    options: PmemOptions,
    newId: bigint,
  ): Promise<PersistentMemory> {
    const { bytes } = options;
    if (typeof path !== 'string' || path === '') throw new MisuseError('path', 'must name a file');
    if (bytes !== undefined && !(Number.isInteger(bytes) && bytes > 0 && bytes <= BYTES_MAX)) {
      throw new MisuseError('bytes', `must be a whole number from 1 to ${BYTES_MAX}, got ${bytes}`);
    }
    if (device.shared) {
      const sentence = 'openPmem: a device that several processes share has no persistent memory';
      throw new RefusalError('EOPNOTSUPP', `${sentence}: open one without a name`);
    }
    const { posix, reason } = await loadPosix();
    const kind = options.store ?? (posix ? 'mapped' : 'file');
    if (kind !== 'mapped' && kind !== 'file') {
      throw new MisuseError('store', `must be 'mapped' or 'file', got '${String(kind)}'`);
    }
    if (kind === 'mapped' && !posix) {
      throw new RefusalError('EOPNOTSUPP', `store 'mapped': ${reason}; 'file' needs nothing`);
    }
    const durability = durabilityOf(path, options.volatile ?? false);
    const file = await PmemFile.open(path, bytes, newId, posix);
    try {
      return PersistentMemory.#place(device, file, kind, durability, posix);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  static #place(
    device: Device,
    file: PmemFile,
    kind: 'mapped' | 'file',
    durability: Durability,
    posix: Posix | undefined,
  ): PersistentMemory {
    const { heap, memory } = device.arena;
    const { length, dataOffset } = file.header;
    const rounded = Math.ceil(length / ALIGNMENT) * ALIGNMENT;
    const start = heap.alloc(rounded, ALIGNMENT);
    const buffer = memory.bytes.subarray(start, start + length);
    const mappedAt = kind === 'mapped' ? posix!.addressOf(memory.buffer) + start : undefined;
    try {
      if (mappedAt === undefined) fill(buffer, file);
      else posix!.mapFile(file.fd, mappedAt, length, dataOffset);
    } catch (error) {
      heap.free(start);
      throw new RefusalError('EIO', `${file.path}: ${(error as Error).message}`, { cause: error });
    }
    const { buffer: whole } = memory;
    const shared = whole instanceof ArrayBuffer ? undefined : whole;
    const failed = new Int32Array(new SharedArrayBuffer(4));
    const task: SyncTask = { fd: file.fd, dataOffset, mappedAt, memory: shared, start, failed };
    const isPrivate = mappedAt === undefined && shared === undefined;
    const store = new SyncStore(task, isPrivate ? buffer : undefined);
    // A device with a thread of its own has a thread for the store as well (device/durables.ts).
    const module = new URL('./durable.js', import.meta.url);
    const durable = device.link ? store : { module, data: task };
    return new PersistentMemory(buffer, file, kind, durability, store, durable, () => {
      // A range that is zero again, as the heap has it.
      if (mappedAt !== undefined) posix!.unmapFile(mappedAt, rounded);
      heap.free(start);
    });
  }

  /** Bytes. */
  get length(): number {
    return this.buffer.length;
  }

  /** The system's error, after which nothing of the region is made durable until it is reopened. */
  get failure(): Error | undefined {
    return this.#store.failure;
  }

  /** Syncs so far; flushes that come together share one. */
  get syncs(): number {
    return this.#store.syncs;
  }

  /**
   * What this process wrote to these bytes is durable when it resolves; default: all of it. Throws
   * MisuseError; rejects with the system's error, and from then on with the same.
   */
  flush(offset = 0, length = this.buffer.length - offset): Promise<void> {
    const isWithin =
      Number.isInteger(offset) &&
      Number.isInteger(length) &&
      offset >= 0 &&
      length >= 0 &&
      length <= this.buffer.length - offset;
    if (!isWithin) {
      throw new MisuseError('offset', `${offset} and ${length} bytes lie outside of the region`);
    }
    return this.#store.flush([{ offset, length }]);
  }

  /**
   * Makes everything durable and gives the memory back. Rejects with RefusalError EBUSY while it is
   * registered, and with the system's error when it cannot be made durable: it is closed then, too.
   */
  async close(): Promise<void> {
    this.#closing ??= this.#close();
    await this.#closing;
  }

  async #close(): Promise<void> {
    try {
      await this.owner?.leave();
    } catch (error) {
      this.#closing = undefined;
      throw error;
    }
    try {
      if (!this.failure) await this.flush();
    } finally {
      await this.#store.close();
      this.#file.close();
      this.#release();
      this.owner?.closed();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function fill(buffer: Uint8Array, file: PmemFile): void {
  const { dataOffset } = file.header;
  for (let done = 0; done < buffer.length;) {
    const count = readSync(file.fd, buffer, done, buffer.length - done, dataOffset + done);
    if (count === 0) throw new Error('the file ended while it was read');
    done += count;
  }
}

/** Throws RefusalError EOPNOTSUPP: nothing survives there, and nobody said that this is meant. */
function durabilityOf(path: string, isVolatileMeant: boolean): Durability {
  let place;
  try {
    place = placeOf(dirname(path));
  } catch {
    // That there is no such directory is told when the file is opened.
    return 'disk';
  }
  if (place.durability === 'none' && !isVolatileMeant) {
    const sentence = `${path} lies on ${place.fileSystem}, which a power cut empties`;
    const remedy = 'name a file on a disk, or say `volatile: true`';
    throw new RefusalError('EOPNOTSUPP', `${sentence}: ${remedy}`);
  }
  return place.durability;
}
