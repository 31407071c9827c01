/** Memory that a tab of a mesh has in use. Its page is isolated, and Chromium measures at once. */
import type * as Library from '../../host/browser/mesh.js';
import type { Tab } from './browser.js';

/** Flags of Chromium: without them a measurement waits for its own collection, up to 20 s. */
export const MEASURE_AT_ONCE = ['--enable-blink-features=ForceEagerMeasureMemory'];

/** Bytes. */
export interface TabMemory {
  /** JavaScript of page and Workers, after a collection. */
  readonly script: number;
  /** Device memory that is allocated, without the reorder buffers. */
  readonly engine: number;
  /** Reorder buffers, which double when half is full, and stay. */
  readonly reorder: number;
  /** The most that they can have. */
  readonly reorderMax: number;
}

/** `mesh`: a member of the tab's state. */
export async function memoryOf(tab: Tab): Promise<TabMemory> {
  const measured = await tab.page.evaluate<{ bytes: number }>(
    'performance.measureUserAgentSpecificMemory()',
  );
  const allocated = await tab.run((_verbena, { mesh }: { mesh: Library.Mesh }) => {
    const { arena, reorderMemory } = mesh.context.device;
    const { bytes: reorder, packetsMax, context } = reorderMemory;
    return {
      engine: arena.memory.bytes.length - arena.heap.bytesFree - reorder,
      reorder,
      reorderMax: packetsMax * arena.exports.contextReorderSlotBytes(context),
    };
  });
  return { script: measured.bytes, ...allocated };
}
