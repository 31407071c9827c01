/** How a region comes to be in Node: a file mapped over the device's memory, or read into it. */
import { readSync } from 'node:fs';
import type { Device } from '../device/device.js';
import { checkFlag } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { systemRefusal } from '../errors/system-refusal.js';
import { loadPosix, type Posix } from '../link/posix.js';
import type { OpenRegion, PmemOptions } from './open-options.js';
import { placeOf, type Place } from './place.js';
import { PmemFile } from './pmem-file.js';
import { SyncStore } from './sync-store.js';
import { syncWorkerFor } from './sync-worker.js';
import { SYNC_STATE_BYTES, markFailed, type SyncTask } from './sync.js';

/** A range of the device's memory begins on a page of any size that Linux has. */
const ALIGNMENT = 65536;

/** `newId`: of a file that is made. Rejects as `context.openPmem` does. */
export async function openRegion(
  device: Device,
  path: string,
  options: PmemOptions,
  newId: bigint,
): Promise<OpenRegion> {
  const { posix, reason } = await loadPosix();
  const wanted = options.store;
  if (wanted !== undefined && wanted !== 'mapped' && wanted !== 'file') {
    throw new MisuseError('store', `must be 'mapped' or 'file', got '${String(wanted)}'`);
  }
  if (wanted === 'mapped' && !posix) {
    throw new RefusalError('EOPNOTSUPP', `store 'mapped': ${reason}; 'file' needs nothing`);
  }
  const isVolatileMeant = options.volatile ?? false;
  checkFlag('volatile', isVolatileMeant);
  const file = await PmemFile.open(path, options.bytes, newId, posix, (fd) => {
    const found = placeOf(fd);
    if (found.durability === 'none' && !isVolatileMeant) throw new VolatileRefusal(path, found);
    if (wanted === 'mapped' && found.copiesOnWrite) throw copying(path, found);
    return found;
  });
  try {
    const kind = wanted ?? (posix && !file.place.copiesOnWrite ? 'mapped' : 'file');
    return place(device, file, kind, posix);
  } catch (error) {
    file.close();
    throw error;
  }
}

function place(
  device: Device,
  file: PmemFile,
  kind: 'mapped' | 'file',
  posix: Posix | undefined,
): OpenRegion {
  const { heap, memory } = device.arena;
  const { length, dataOffset, id } = file.header;
  const rounded = Math.ceil(length / ALIGNMENT) * ALIGNMENT;
  const start = heap.alloc(rounded, ALIGNMENT);
  const buffer = memory.bytes.subarray(start, start + length);
  const mappedAt = kind === 'mapped' ? posix!.addressOf(memory.buffer) + start : undefined;
  try {
    if (mappedAt === undefined) fill(buffer, file);
    else posix!.mapFile(file.fd, mappedAt, length, dataOffset);
  } catch (error) {
    heap.free(start);
    throw systemRefusal(file.path, error);
  }
  const { buffer: whole } = memory;
  const shared = whole instanceof ArrayBuffer ? undefined : whole;
  const state = new Int32Array(new SharedArrayBuffer(SYNC_STATE_BYTES));
  const task: SyncTask = { fd: file.fd, dataOffset, mappedAt, memory: shared, start, state };
  const isPrivate = mappedAt === undefined && shared === undefined;
  const store = new SyncStore(syncWorkerFor(task), state, isPrivate ? buffer : undefined);
  // A device with a thread of its own has one for the store, too (device/durable/durables.ts).
  const module = new URL('./durable.js', import.meta.url);
  const durable = device.link ? store : { module, data: task, ended: () => markFailed(state) };
  const close = (): void => {
    try {
      file.close();
    } finally {
      // A range that is zero again, as the heap has it; if it cannot be, it stays taken.
      if (mappedAt !== undefined) posix!.unmapFile(mappedAt, rounded);
      heap.free(start);
    }
  };
  const { durability, reason: durabilityReason } = file.place;
  return { buffer, id, path: file.path, kind, durability, durabilityReason, store, durable, close };
}

function fill(buffer: Uint8Array, file: PmemFile): void {
  const { dataOffset } = file.header;
  for (let done = 0; done < buffer.length;) {
    const count = readSync(file.fd, buffer, done, buffer.length - done, dataOffset + done);
    if (count === 0)
      throw new RefusalError(
        'EIO',
        `read: ${file.path} ended while it was read; close it in other programs`,
      );
    done += count;
  }
}

/** The file lies on storage that a power cut empties, and the caller did not allow it (`volatile`). */
export class VolatileRefusal extends RefusalError {
  /** For callers that have no such option, and another remedy. */
  readonly sentence: string;

  constructor(path: string, { reason }: Place) {
    const sentence = `openPmem: ${path} lies on ${reason}: a flush there survives no power cut`;
    const remedy = 'name a file on a disk, or call openPmem with `volatile: true`';
    super('EOPNOTSUPP', `${sentence}; ${remedy} (share takes its region as \`registered\`)`);
    this.sentence = sentence;
  }
}

/** Refuses a mapping on copy-on-write storage: a full disk would end the process (SIGBUS). */
function copying(path: string, { fileSystem }: Place): RefusalError {
  const sentence = `openPmem: ${path} lies on ${fileSystem}, which copies a block on write`;
  const why = 'so a full disk ends a process that writes to a mapping (SIGBUS)';
  return new RefusalError('EOPNOTSUPP', `${sentence}, ${why}: use store 'file'`);
}
