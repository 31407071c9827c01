/** Registered memory that is not needed any more. */
import { RefusalError } from '../errors/errors.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';

const AGAIN_MICROS = 1000;

/** At once, or as soon as no other thread is in it. */
export function giveBack(mr: MemoryRegion, memory: Uint8Array): void {
  const { context } = mr.pd;
  if (context.device.closed) return;
  try {
    mr.dereg();
    context.free(memory);
  } catch (error) {
    if (!(error instanceof RefusalError)) throw error;
    const { clock } = context.device;
    clock.at(clock.now() + AGAIN_MICROS, () => giveBack(mr, memory));
  }
}
