/** Errors of allocations that the memory of a shared device cannot hold. */
import { ArenaLayout } from '#build/abi.js';
import { RefusalError } from '../errors/errors.js';
import type { ArenaMemory } from './arena.js';
import { tooLittleMemory } from './heap.js';
import { structAt } from './struct.js';

/** Of an operation, and the remedy for too little memory. */
const REMEDIES = {
  alloc: 'open it with a larger memoryBytes',
  heap: 'pass a smaller reserve, or open the device with a larger memoryBytes',
};

/** RefusalError ENOMEM of `size` bytes: the memory or the table of allocations is full. */
export function refusedAllocation(
  size: number,
  bytesFree: number,
  operation: keyof typeof REMEDIES,
  { memory, address }: ArenaMemory,
): RefusalError {
  const { state, blocksMax } = structAt(memory, ArenaLayout, address);
  if (structAt(memory, ArenaLayout, state).blockFree !== 0) {
    return tooLittleMemory(size, bytesFree, operation, REMEDIES[operation]);
  }
  return new RefusalError(
    'ENOMEM',
    `${operation}: the device has ${blocksMax} allocations, the most there are; ` +
      'free some, or take many small ones from one heap (pd.heap)',
  );
}
