/** Replaces shared-heap.ts in a page: only devices that processes share have such a heap. */
export class SharedHeap {}
