/** Events of objects that end, in a context's ring that an application reads later. */
import {
  ContextLayout,
  ENGINE_EVENT_SIZE,
  EngineEventLayout,
  EventKind,
  RING_HEADER_SIZE,
} from '#build/abi.js';
import { RING_TAIL } from './event-ring.js';
import type { EngineMemory } from './memory.js';
import { structAt } from './struct.js';

/**
 * Events of a destroyed object that wait are dropped, as `ibv_destroy_qp` does it: the next object
 * at its address would get them.
 */
export function forgetEvents(memory: EngineMemory, context: number, object: number): void {
  const { events: ring, eventsMax } = structAt(memory, ContextLayout, context);
  const { words } = memory;
  const head = Atomics.load(words, ring >>> 2);
  const { fields } = EngineEventLayout;
  for (let one = words[(ring + RING_TAIL) >>> 2]!; one !== head; one = (one + 1) >>> 0) {
    const at = ring + RING_HEADER_SIZE + (one & (eventsMax - 1)) * ENGINE_EVENT_SIZE;
    const address = (at + fields.object[0]) >>> 2;
    if (words[address] !== object) continue;
    // No queue is at address 0.
    words[(at + fields.kind[0]) >>> 2] = EventKind.COMPLETION;
    words[address] = 0;
  }
}
