/** Memory of measurements. */
import type { Context } from '../../host/index.js';

const PAGE_BYTES = 4096;

/**
 * Device memory that begins at a page, whatever the tables before it take: where packets cross
 * pages changes the figures of memory that is in no cache by 5 %.
 */
export function allocPageAligned(context: Context, bytes: number): Uint8Array {
  const memory = context.alloc(bytes + PAGE_BYTES);
  const start = -memory.byteOffset & (PAGE_BYTES - 1);
  return memory.subarray(start, start + bytes);
}
