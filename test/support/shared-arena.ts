/** An arena for several processes, whose slots are all in this one: `arenaInit`, `arenaAttach`. */
import {
  ARENA_OFFSET_SIZE,
  ArenaConfigLayout,
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextConfigLayout,
  ContextSlotLayout,
  PseudoHeader,
  SlotState,
} from '#build/abi.js';
import type { ArenaMemory, SharedLimits } from '../../host/engine/arena.js';
import { Heap } from '../../host/engine/heap.js';
import { instantiate } from '../../host/engine/load.js';
import { EngineMemory } from '../../host/engine/memory.js';
import { structAt, type Layout, type Struct } from '../../host/engine/struct.js';
import { auditArena } from './arena-audit.js';

const HEADER = 2 ** 21;
const HEAP_BYTES = 2 ** 16;

export class SharedArena {
  readonly memory = EngineMemory.create(2 * HEADER, false);
  readonly exports = instantiate(this.memory);
  /** Private memory of all slots. */
  readonly heap = new Heap(this.memory.bytes, 8192, HEADER);
  readonly #config = this.heap.alloc(ArenaConfigLayout.size);
  readonly arena = HEADER + ARENA_OFFSET_SIZE;
  readonly state = this.at(ArenaLayout, this.arena);

  constructor(limits: SharedLimits) {
    const config = this.at(ArenaConfigLayout, this.#config);
    Object.assign(config, limits);
    config.heapEnd = this.arena + this.exports.arenaBytes(this.#config) + HEAP_BYTES;
    this.exports.arenaInit(this.arena, this.#config);
  }

  at<L extends Layout>(layout: L, address: number): Struct<L> {
    return structAt(this.memory, layout, address);
  }

  slot(slot: number): Struct<typeof ContextSlotLayout> {
    return this.at(ContextSlotLayout, this.state.contextSlots + slot * CONTEXT_SLOT_SIZE);
  }

  /** The arena and the context of the process of a slot. */
  attach(slot: number): { readonly local: number; readonly context: number } {
    const local = this.heap.alloc(this.exports.arenaLocalBytes());
    this.exports.arenaAttach(local, HEADER, this.#config, slot);
    const at = this.heap.alloc(ContextConfigLayout.size);
    const few = { queuePairsMax: 1, completionQueuesMax: 1, rdAtomicMax: 1, sendBuffers: 1 };
    const config = { ...few, slot, receivePackets: 1, receiveBytes: 8192, eventsMax: 16 };
    Object.assign(this.at(ContextConfigLayout, at), config, { pseudoHeader: PseudoHeader.NONE });
    const context = this.heap.alloc(this.exports.contextSize(at));
    this.exports.contextInit(context, local, at, 1);
    this.slot(slot).state = SlotState.LIVE;
    return { local, context };
  }

  /** Sentences about what is wrong with the tables. */
  audit(local: number): string[] {
    return auditArena({ memory: this.memory, address: local } as unknown as ArenaMemory);
  }
}
