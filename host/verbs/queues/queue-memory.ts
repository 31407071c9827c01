/** Where the memory of queues comes from: the device's heap, or a parent domain's allocators. */
import type { Heap } from '../../engine/heap.js';

/** Purpose of an allocation. */
export type ResourceType = 'QP' | 'CQ' | 'SRQ';

export interface QueueMemory {
  /** Address of `bytes` zero bytes at a multiple of 64. Throws RefusalError ENOMEM. */
  take(bytes: number, resourceType: ResourceType): number;
  giveBack(address: number, resourceType: ResourceType): void;
}

export function heapMemory(heap: Heap): QueueMemory {
  return {
    take: (bytes) => heap.alloc(bytes),
    giveBack: (address) => heap.free(address),
  };
}
