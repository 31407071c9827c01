/** How a region comes to be in Node: a file mapped over the device's memory, or read into it. */
import { readSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Device } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { systemRefusal } from '../errors/system-refusal.js';
import { loadPosix, type Posix } from '../link/posix.js';
import type { OpenRegion, PmemOptions } from './persistent-memory.js';
import { placeOf, type Durability } from './place.js';
import { PmemFile } from './pmem-file.js';
import { SyncStore } from './sync-store.js';
import { syncWorkerFor } from './sync-worker.js';
import type { SyncTask } from './sync.js';

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
  const kind = options.store ?? (posix ? 'mapped' : 'file');
  if (kind !== 'mapped' && kind !== 'file') {
    throw new MisuseError('store', `must be 'mapped' or 'file', got '${String(kind)}'`);
  }
  if (kind === 'mapped' && !posix) {
    throw new RefusalError('EOPNOTSUPP', `store 'mapped': ${reason}; 'file' needs nothing`);
  }
  const durability = durabilityOf(path, options.volatile ?? false);
  const file = await PmemFile.open(path, options.bytes, newId, posix);
  try {
    return place(device, file, kind, durability, posix);
  } catch (error) {
    file.close();
    throw error;
  }
}

function place(
  device: Device,
  file: PmemFile,
  kind: 'mapped' | 'file',
  durability: Durability,
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
  const failed = new Int32Array(new SharedArrayBuffer(4));
  const task: SyncTask = { fd: file.fd, dataOffset, mappedAt, memory: shared, start, failed };
  const isPrivate = mappedAt === undefined && shared === undefined;
  const store = new SyncStore(syncWorkerFor(task), failed, isPrivate ? buffer : undefined);
  // A device with a thread of its own has a thread for the store as well (device/durables.ts).
  const module = new URL('./durable.js', import.meta.url);
  const durable = device.link ? store : { module, data: task };
  const close = (): void => {
    try {
      file.close();
    } finally {
      // A range that is zero again, as the heap has it; if it cannot be, it stays taken.
      if (mappedAt !== undefined) posix!.unmapFile(mappedAt, rounded);
      heap.free(start);
    }
  };
  return { buffer, id, path: file.path, kind, durability, store, durable, close };
}

function fill(buffer: Uint8Array, file: PmemFile): void {
  const { dataOffset } = file.header;
  for (let done = 0; done < buffer.length;) {
    const count = readSync(file.fd, buffer, done, buffer.length - done, dataOffset + done);
    if (count === 0) throw new RefusalError('EIO', `${file.path} ended while it was read`);
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
