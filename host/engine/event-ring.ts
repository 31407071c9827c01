/** The consumer's side of a context's event ring: completion queues that called, and asynchronous events. */
import {
  ContextLayout,
  ENGINE_EVENT_SIZE,
  EngineEventLayout,
  EventKind,
  RING_HEADER_SIZE,
} from '#build/abi.js';
import type { EngineMemory } from './memory.js';
import { structAt } from './struct.js';

const EVENT = EngineEventLayout.fields;
/** From the ring's address to the reader's word. */
export const RING_TAIL = 64;

export interface EventOutput {
  /** An armed completion queue has something. */
  completion(cq: number): void;
  /** An AsyncEvent that concerns the object at this address. */
  asyncEvent(event: number, object: number): void;
  /** Reorder buffers could use more memory. */
  reorderShort(): void;
}

export class EventRing {
  readonly #words: Uint32Array;
  readonly #ring: number;
  readonly #mask: number;
  readonly #output: EventOutput;

  /** `context`: its address. */
  constructor(memory: EngineMemory, context: number, output: EventOutput) {
    const struct = structAt(memory, ContextLayout, context);
    this.#words = memory.words;
    this.#ring = struct.events;
    this.#mask = struct.eventsMax - 1;
    this.#output = output;
  }

  /** Moves whenever there is a new event. */
  get head(): number {
    return Atomics.load(this.#words, this.#ring >>> 2);
  }

  /** Are there events that were not drained? */
  get pending(): boolean {
    return this.#words[(this.#ring + RING_TAIL) >>> 2] !== this.head;
  }

  drain(): void {
    const words = this.#words;
    const tail = (this.#ring + RING_TAIL) >>> 2;
    while (words[tail] !== this.head) {
      const index = words[tail]! & this.#mask;
      const at = (this.#ring + RING_HEADER_SIZE + index * ENGINE_EVENT_SIZE) >>> 2;
      const kind = words[at + (EVENT.kind[0] >>> 2)];
      const event = words[at + (EVENT.event[0] >>> 2)]!;
      const object = words[at + (EVENT.object[0] >>> 2)]!;
      Atomics.store(words, tail, (words[tail]! + 1) >>> 0);
      if (kind === EventKind.COMPLETION) this.#output.completion(object);
      else if (kind === EventKind.ASYNC) this.#output.asyncEvent(event, object);
      else this.#output.reorderShort();
    }
  }
}
