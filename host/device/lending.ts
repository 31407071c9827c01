/**
 * A device whose queues another process uses (host/bridge): that process maps the device's memory,
 * posts, rings doorbells and polls there. Control verbs stay in this process.
 */
import { ftruncateSync } from 'node:fs';
import type { BackMemory } from '../engine/memory.js';
import { RefusalError } from '../errors/errors.js';
import { loadPosix } from '../link/posix.js';

/** Descriptors that both processes have. */
export interface Lending {
  /** A memory file (memfd_create), which gets the size of the device's memory. */
  readonly memoryDescriptor: number;
  /** An eventfd that wakes the device's thread; unused with a link of the caller. */
  readonly wakeDescriptor: number;
  /** A socket to the other process, if it makes turns: it hangs up when that process ends. */
  readonly programDescriptor?: number;
}

/** Maps the memory file over a new memory. Rejects with RefusalError EOPNOTSUPP without koffi. */
export async function backBy({ memoryDescriptor }: Lending): Promise<BackMemory> {
  const { posix, reason } = await loadPosix();
  if (!posix) throw new RefusalError('EOPNOTSUPP', `a lent device needs koffi: ${reason}`);
  return (buffer) => {
    ftruncateSync(memoryDescriptor, buffer.byteLength);
    posix.mapFile(memoryDescriptor, posix.addressOf(buffer), buffer.byteLength);
  };
}
