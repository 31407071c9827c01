/** The interface of a store, which keeps memory beyond its process. */

/** Bytes of a segment, from its start. */
export interface DurableRange {
  readonly offset: number;
  readonly length: number;
}

/**
 * Interface that makes bytes of one persistent segment durable. Offsets are relative to the
 * segment.
 */
export interface DurableStore {
  /** Resolves once all ranges are durable; rejects with the system's error, and then for ever. */
  flush(ranges: readonly { offset: number; length: number }[]): Promise<void>;
}

/**
 * A store with a thread of its own: neither a slow disk nor a busy application delays other work.
 * That thread loads `module`, which exports `openDurableStore`, a DurableStoreOpener, and may
 * block. If the device has no thread of its own, the calling thread loads the module.
 */
export interface DurableStoreModule {
  readonly module: URL;
  /** For `openDurableStore`; what can be posted to a Worker. */
  readonly data: unknown;
  /** Called in the thread that opened the device if the store's thread ends unexpectedly. */
  ended?(): void;
}

/** `bytes`: the segment itself, in the device's memory. */
export type DurableStoreOpener = (
  data: unknown,
  bytes: Uint8Array,
) => DurableStore | Promise<DurableStore>;

/** A part of the device's memory that is kept somewhere. */
export interface DurableSegment {
  /** Of its first byte in the device's memory. */
  readonly address: number;
  /** Bytes. */
  readonly length: number;
  readonly store: DurableStore | DurableStoreModule;
}

export function isModule(store: DurableStore | DurableStoreModule): store is DurableStoreModule {
  return 'module' in store;
}
