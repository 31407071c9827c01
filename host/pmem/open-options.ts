/** Options of persistent memory, and the parts of an open region. */
import type { DurableStore, DurableStoreModule } from '../device/durable/durable-store.js';
import type { Durability } from './place.js';
import type { SyncStore } from './sync-store.js';

/** How persistent memory is opened or made. */
export interface PmemOptions {
  /** Of the region: where the file is made, and at least, where it is there. Default: as it is. */
  readonly bytes?: number;
  /**
   * `mapped`: the file's pages are the memory (Linux with koffi). `file`: read at open, written and
   * synced by flushes; needs nothing. Default: `mapped` where it can be, not on file systems that
   * copy what is written (btrfs): there a full disk ends a process that writes to a mapping.
   */
  readonly store?: 'mapped' | 'file';
  /** Allows storage that a power cut empties (tmpfs); data survive processes. Default false. */
  readonly volatile?: boolean;
}

/** Parts of an open region, for any storage. */
export interface OpenRegion {
  readonly buffer: Uint8Array;
  readonly id: bigint;
  readonly path: string;
  readonly kind: 'mapped' | 'file' | 'opfs';
  readonly durability: Durability;
  readonly durabilityReason: string;
  readonly store: SyncStore;
  readonly durable: DurableStore | DurableStoreModule;
  /** Gives file and memory back. */
  close(): void;
}
