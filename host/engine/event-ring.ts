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
const RING_TAIL = 64;

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
      const at = this.#at(words[tail]!);
      const kind = words[at + (EVENT.kind[0] >>> 2)];
      const event = words[at + (EVENT.event[0] >>> 2)]!;
      const object = words[at + (EVENT.object[0] >>> 2)]!;
      Atomics.store(words, tail, (words[tail]! + 1) >>> 0);
      if (kind === EventKind.COMPLETION) this.#output.completion(object);
      else if (kind === EventKind.ASYNC) this.#output.asyncEvent(event, object);
      else this.#output.reorderShort();
    }
  }

  /**
   * Events of a destroyed object that wait are dropped, as `ibv_destroy_qp` does it: the next object
   * at its address would get them.
   */
  forget(object: number): void {
    const words = this.#words;
    const address = EVENT.object[0] >>> 2;
    for (
      let one = words[(this.#ring + RING_TAIL) >>> 2]!;
      one !== this.head;
      one = (one + 1) >>> 0
    ) {
      const at = this.#at(one);
      if (words[at + address] !== object) continue;
      // No queue is at address 0.
      words[at + (EVENT.kind[0] >>> 2)] = EventKind.COMPLETION;
      words[at + address] = 0;
    }
  }

  /** The first word of an entry. */
  #at(position: number): number {
    const index = position & this.#mask;
    return (this.#ring + RING_HEADER_SIZE + index * ENGINE_EVENT_SIZE) >>> 2;
  }
}
