/**
 * Module of a region, loaded by the thread that makes a device's FLUSHes durable. That thread has
 * nothing else to do, so it blocks in the sync itself.
 */
import type { DurableRange, DurableStore } from '../device/durable/durable-store.js';
import { loadPosix } from '../link/posix.js';
import { sync, type SyncTask } from './sync.js';

/** `data`: a SyncTask. */
export async function openDurableStore(data: unknown): Promise<DurableStore> {
  const task = data as SyncTask;
  const { posix } = await loadPosix();
  return {
    async flush(ranges: readonly DurableRange[]): Promise<void> {
      sync(task, ranges, posix);
    },
  };
}
