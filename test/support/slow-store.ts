/**
 * A store for a thread of its own: copies ranges to a file and syncs it, or fails, as configured;
 * counts in shared memory.
 */
import { fdatasyncSync, openSync, writeSync } from 'node:fs';
import type { DurableStoreOpener } from '../../host/device/durable/durable-store.js';

export interface SlowStoreData {
  readonly path: string;
  /** How long every flush takes beside the disk's time; it blocks its thread. */
  readonly millis: number;
  /** [flushes so far, flushes until one fails (0: none does)]. */
  readonly counts: Int32Array;
}

export const openDurableStore: DurableStoreOpener = (data, bytes) => {
  const { path, millis, counts } = data as SlowStoreData;
  if (path === '') throw new Error('ENOENT: no such store');
  const file = openSync(path, 'w');
  return {
    async flush(ranges) {
      if (millis > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis);
      const count = Atomics.add(counts, 0, 1) + 1;
      const limit = Atomics.load(counts, 1);
      if (limit !== 0 && count >= limit) throw new Error('EIO: the disk is gone');
      for (const { offset, length } of ranges) {
        writeSync(file, bytes, offset, length, offset);
      }
      fdatasyncSync(file);
    },
  };
};
