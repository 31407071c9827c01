/** Tracks the invalidations that queue pairs post for regions of pools (FmrPool). */
import { WrOpcode } from '#build/abi.js';

/** @internal A queue pair that executes LOCAL_INV. */
export interface Invalidator {
  /** Incarnation of the queue pair, counted at RESET; 0: it executes no work requests. */
  readonly incarnation: number;
}

/** @internal A region that a pool may have (FastMemoryRegion). */
export interface PooledRegion {
  /** Throws RefusalError EBUSY: the queue pair may not post a REG_MR of the region now. */
  checkPost(queuePair: Invalidator): void;
  /** The queue pair posts a LOCAL_INV of the region. */
  noteInvalidator(queuePair: Invalidator): void;
}

/** Fields of a work request that concern a region of a pool. */
interface RegionRequest {
  readonly opcode: number;
  readonly invalidateRkey?: number;
  readonly regMr?: { readonly mr: PooledRegion };
}

/**
 * Returns the regions of pools that the requests invalidate; the caller notes them after posting. A
 * region that is still registered can be registered again only by the queue pair that invalidates
 * it before. Throws RefusalError EBUSY. `pooled`: regions by the upper bits of their keys.
 */
export function checkPooled(
  queuePair: Invalidator,
  pooled: ReadonlyMap<number, PooledRegion>,
  requests: RegionRequest | readonly RegionRequest[],
): PooledRegion[] {
  const invalidated: PooledRegion[] = [];
  if (pooled.size === 0) return invalidated;
  for (const { opcode, invalidateRkey = 0, regMr } of [requests].flat()) {
    const mr = opcode === WrOpcode.LOCAL_INV ? pooled.get(invalidateRkey >>> 8) : undefined;
    if (mr) invalidated.push(mr);
    if (opcode !== WrOpcode.REG_MR || !regMr || invalidated.includes(regMr.mr)) continue;
    regMr.mr.checkPost(queuePair);
  }
  return invalidated;
}
