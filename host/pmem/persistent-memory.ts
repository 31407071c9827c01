/**
 * Memory of a device that outlives it: a file's bytes, mapped over it, or read at open and written
 * at every flush (open-region.ts; in a browser open-region.browser.ts).
 */
import type { Device } from '../device/device.js';
import { checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { systemRefusal } from '../errors/system-refusal.js';
import { openRegion } from './open-region.js';
import type { OpenRegion, PmemOptions } from './open-options.js';
import type { DurableStore, DurableStoreModule } from '../device/durable/durable-store.js';
import type { SyncStore } from './sync-store.js';
import type { Durability } from './place.js';

export type { PmemOptions };

/** @internal Callbacks of the verbs layer for the end of a region. */
export interface PmemOwner {
  /** Resolves when no registration uses the region. Rejects with RefusalError EBUSY otherwise. */
  leave(): Promise<void>;
  closed(): void;
}

const BYTES_MAX = 2 ** 32 - 65536;

/** Memory of a device that outlives it: the bytes of a file (`context.openPmem`). */
export class PersistentMemory {
  /** Memory of the device: what `pd.regMr` takes, also with FLUSH_PERSISTENT. */
  readonly buffer: Uint8Array;
  /** Identifier of the region, kept when its file is moved. */
  readonly id: bigint;
  readonly path: string;
  readonly kind: 'mapped' | 'file' | 'opfs';
  /**
   * The failures that flushed data survive. `none`: only the end of processes; `unknown`: the
   * storage under the file does not tell.
   */
  readonly durability: Durability;
  /** The storage under the file: `ext4 on vda (write cache is flushed)`. */
  readonly durabilityReason: string;
  /** @internal What makes it durable for the device: offsets are those of `buffer`. */
  readonly durable: DurableStore | DurableStoreModule;
  /** @internal */
  owner: PmemOwner | undefined;
  readonly #store: SyncStore;
  readonly #region: OpenRegion;
  #closing: Promise<void> | undefined;

  private constructor(region: OpenRegion) {
    this.buffer = region.buffer;
    this.id = region.id;
    this.path = region.path;
    this.kind = region.kind;
    this.durability = region.durability;
    this.durabilityReason = region.durabilityReason;
    this.durable = region.durable;
    this.#store = region.store;
    this.#region = region;
  }

  /** @internal Use `context.openPmem()`. `newId`: of a file that is made. */
  static async open(
    device: Device,
    path: string,
    options: PmemOptions,
    newId: bigint,
  ): Promise<PersistentMemory> {
    const { bytes } = options;
    if (typeof path !== 'string' || path === '')
      throw new MisuseError('path', `must name a file, got ${shown(path)}`);
    if (bytes !== undefined) checkWhole('bytes', bytes, 1, BYTES_MAX);
    if (device.shared) {
      const sentence = 'openPmem: a device that several processes share has no persistent memory';
      throw new RefusalError('EOPNOTSUPP', `${sentence}: open one without a name`);
    }
    return new PersistentMemory(await openRegion(device, path, options, newId));
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
   * Resolves when this process's writes to the range (default: the region) are durable. Throws
   * MisuseError; rejects with the system's error, and with the same error from then on.
   */
  flush(
    offset = 0,
    length = Number.isInteger(offset) ? this.buffer.length - offset : 0,
  ): Promise<void> {
    const isWithin =
      Number.isInteger(offset) &&
      Number.isInteger(length) &&
      offset >= 0 &&
      length >= 0 &&
      length <= this.buffer.length - offset;
    if (!isWithin) {
      throw new MisuseError(
        'offset',
        `${shown(offset)} + ${shown(length)} bytes exceed the region's ${this.buffer.length}`,
      );
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
      this.#giveBack();
    }
  }

  #giveBack(): void {
    try {
      this.#region.close();
    } catch (error) {
      throw systemRefusal(`close of ${this.path}`, error);
    } finally {
      // Called once: the context then has nothing of the region left to close.
      this.owner?.closed();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
