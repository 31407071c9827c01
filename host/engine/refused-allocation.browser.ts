/** Stands in for refused-allocation.ts in a page, whose bundle has no room for its texts. */
export { tooLittleMemory as refusedAllocation } from './heap.js';
