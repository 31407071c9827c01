/** Tracks the invalidations that queue pairs post for regions of pools (FmrPool). */
import { WrOpcode } from '#build/abi.js';
import type { FastMemoryRegion, Invalidator } from '../regions/fast-memory-region.js';
import type { AnyWorkRequest } from './work-request.js';

/**
 * Returns the regions of pools that the requests invalidate; the caller notes them after posting. A
 * region that is still registered can be registered again only by the queue pair that invalidates
 * it before. Throws RefusalError EBUSY. `pooled`: regions by the upper bits of their keys.
 */
export function checkPooled(
  queuePair: Invalidator,
  pooled: ReadonlyMap<number, FastMemoryRegion>,
  requests: AnyWorkRequest | readonly AnyWorkRequest[],
): FastMemoryRegion[] {
  const invalidated: FastMemoryRegion[] = [];
  if (pooled.size === 0) return invalidated;
  for (const { opcode, invalidateRkey = 0, regMr } of [requests].flat()) {
    const mr = opcode === WrOpcode.LOCAL_INV ? pooled.get(invalidateRkey >>> 8) : undefined;
    if (mr) invalidated.push(mr);
    if (opcode !== WrOpcode.REG_MR || !regMr || invalidated.includes(regMr.mr)) continue;
    regMr.mr.checkPost(queuePair);
  }
  return invalidated;
}
