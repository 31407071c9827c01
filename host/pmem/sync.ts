/**
 * What makes bytes durable, in the thread that calls, which it blocks: so never the application's,
 * and none of libuv's pool. The Worker of a region calls it (sync-thread.ts).
 */
import { fdatasyncSync, writeSync } from 'node:fs';
import type { DurableRange } from '../device/durable-store.js';
import type { Posix } from '../link/posix.js';
import { SyncError } from './sync-error.js';
import type { SyncRange } from './sync-store.js';

/** What a thread must know of a region to make it durable. Can be sent to one. */
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
  /** One word that all who sync the region share: not 0 once a sync has failed. */
  readonly failed: Int32Array;
}

const PAGE = 4096;

/**
 * Returns when all of `ranges` are durable. Throws SyncError, and from then on for ever: the kernel
 * forgets which pages a failed sync has lost.
 */
export function sync(task: SyncTask, ranges: readonly SyncRange[], posix?: Posix): void {
  if (Atomics.load(task.failed, 0) !== 0) {
    throw new SyncError('EIO', 'a sync of this region has failed before: open it anew');
  }
  if (ranges.length === 0) return;
  try {
    if (task.mappedAt !== undefined) syncMapped(task, ranges, posix);
    else writeThenSync(task, ranges);
  } catch (error) {
    Atomics.store(task.failed, 0, 1);
    const { code = 'EIO', message } = error as NodeJS.ErrnoException;
    throw new SyncError(code, message);
  }
}

function syncMapped(task: SyncTask, ranges: readonly DurableRange[], posix?: Posix): void {
  const [only] = ranges;
  if (posix && ranges.length === 1 && only && task.mappedAt !== undefined) {
    // Pages that others write and nobody flushes are not waited for.
    const from = Math.floor(only.offset / PAGE) * PAGE;
    const to = Math.ceil((only.offset + only.length) / PAGE) * PAGE;
    posix.syncMemory(task.mappedAt + from, Math.max(to - from, PAGE));
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
