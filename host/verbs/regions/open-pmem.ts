/** Persistent memory of a context: an allocation that ends with `pmem.close`. */
import { checkKeys } from '../../base/options.js';
import type { KeptSegment } from '../../device/durable/durables.js';
import { RefusalError } from '../../errors/errors.js';
import { PersistentMemory, type PmemOptions } from '../../pmem/persistent-memory.js';
import { clearSpares } from './allocations.js';
import type { ContextInternals } from '../internals.js';
import { randomId } from '../refuse.js';

export async function openPmem(
  context: ContextInternals,
  path: string,
  options: PmemOptions,
): Promise<PersistentMemory> {
  checkKeys('openPmem', options, 'bytes store volatile');
  const { allocations, device } = context;
  const pmem = await PersistentMemory.open(device, path, options, randomId());
  const { byteOffset, length } = pmem.buffer;
  let segment: KeptSegment;
  try {
    // The context may have been closed meanwhile, before this region was registered with it.
    context.checkOpen();
    segment = await device.durables.add({ address: byteOffset, length, store: pmem.durable });
    context.checkOpen();
  } catch (error) {
    await pmem.close();
    throw error;
  }
  allocations.add(byteOffset, length, 'persistent memory: it ends with pmem.close()');
  const allocation = allocations.find(byteOffset, length)!;
  pmem.owner = {
    async leave() {
      if (device.closed) return;
      clearSpares(allocation);
      if (allocation.regions > 0) {
        throw new RefusalError('EBUSY', 'close: the memory is registered; dereg its regions first');
      }
      allocation.area?.release('close', 'a REG_MR has registered the memory; invalidate it first');
      if (allocation.lent.size > 0) {
        throw new RefusalError('EBUSY', 'close: the memory holds queues; destroy them first');
      }
      await segment.remove();
    },
    closed() {
      allocations.remove(allocation);
      context.pmems.delete(pmem);
    },
  };
  context.pmems.add(pmem);
  return pmem;
}
