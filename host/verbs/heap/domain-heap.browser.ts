/** Stands in for domain-heap.ts in a page, whose library is kept small: heaps are Node's. */
import { RefusalError } from '../../errors/errors.js';

export class DomainHeap {
  /** Throws RefusalError EOPNOTSUPP. */
  static open(): DomainHeap {
    const sentence = 'heap: heaps are not in verbena/browser; use context.alloc and pd.regMr';
    throw new RefusalError('EOPNOTSUPP', sentence);
  }
}

/** There is no heap to check or end. */
export function checkHeaps(): void {}
export function endHeaps(): void {}

/** Throws RefusalError EOPNOTSUPP. */
export function limitHeaps(): void {
  DomainHeap.open();
}
