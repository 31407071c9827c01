/**
 * Sync of a region in the calling thread, which it blocks: so never the application's, and none of
 * libuv's pool. The Worker of a region calls it (sync-thread.ts).
 */
import { fdatasyncSync, writeSync } from 'node:fs';
import type { DurableRange } from '../device/durable/durable-store.js';
import type { Posix } from '../link/posix.js';
import { SyncError } from './sync-error.js';
import type { SyncRange } from './sync-store.js';

/** Description of a region for the thread that makes it durable. Can be sent to one. */
export interface SyncTask {
  /** Of the region's file; all threads of a process have the same. */
  readonly fd: number;
  /** Where the region begins in the file. */
  readonly dataOffset: number;
  /** A mapped region: where it lies in this process. Undefined: it is written to the file. */
  readonly mappedAt: number | undefined;
  /** A region that is written: the memory it lies in, when threads may have it, and where. */
  readonly memory: SharedArrayBuffer | undefined;
  readonly start: number;
  /** Words shared by all threads that sync the region: a sync has failed; a sync is running. */
  readonly state: Int32Array;
}

export const SYNC_STATE_BYTES = 8;
const FAILED = 0;
const BUSY = 1;
/** Interval at which a waiting thread checks whether the region has failed. */
const LOOK_MILLIS = 1000;

/** True: a sync of the region has failed. */
export function hasFailed(state: Int32Array): boolean {
  return Atomics.load(state, FAILED) !== 0;
}

/** Marks the region as failed: none of its bytes counts as durable from now on. */
export function markFailed(state: Int32Array): void {
  Atomics.store(state, FAILED, 1);
  Atomics.notify(state, BUSY);
}

/**
 * Returns when all of `ranges` are durable. Throws SyncError, and from then on for ever: the kernel
 * marks pages clean after a failed write-back.
 *
 * One thread syncs at a time: the kernel reports a failed write-back once per open file, so the
 * second of two concurrent syncs would succeed.
 */
export function sync(task: SyncTask, ranges: readonly SyncRange[], posix?: Posix): void {
  const { state } = task;
  while (!hasFailed(state) && Atomics.compareExchange(state, BUSY, 0, 1) !== 0) {
    Atomics.wait(state, BUSY, 1, LOOK_MILLIS);
  }
  if (hasFailed(state)) {
    throw new SyncError('EIO', 'a sync of this region has failed before: open it anew');
  }
  try {
    if (ranges.length === 0) return;
    if (task.mappedAt !== undefined) syncMapped(task, ranges, posix);
    else writeThenSync(task, ranges);
  } catch (error) {
    markFailed(state);
    const { code = 'EIO', message } = error as NodeJS.ErrnoException;
    throw new SyncError(code, message);
  } finally {
    Atomics.store(state, BUSY, 0);
    Atomics.notify(state, BUSY, 1);
  }
}

function syncMapped(task: SyncTask, ranges: readonly DurableRange[], posix?: Posix): void {
  const [only] = ranges;
  if (posix && ranges.length === 1 && only && task.mappedAt !== undefined) {
    // The sync covers flushed pages only, not pages that other writers have left dirty.
    const page = posix.pageBytes;
    const from = Math.floor(only.offset / page) * page;
    const to = Math.ceil((only.offset + only.length) / page) * page;
    posix.syncMemory(task.mappedAt + from, Math.max(to - from, page));
  } else fdatasyncSync(task.fd);
}

function writeThenSync(task: SyncTask, ranges: readonly SyncRange[]): void {
  for (const { offset, length, bytes } of ranges) {
    const source = bytes ?? new Uint8Array(task.memory!, task.start + offset, length);
    for (let done = 0; done < length;) {
      done += writeSync(task.fd, source, done, length - done, task.dataOffset + offset + done);
    }
  }
  fdatasyncSync(task.fd);
}
