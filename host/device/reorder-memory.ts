/**
 * Memory of the reorder buffers, which all queue pairs of the device share
 * (assembly/transport/shared/reorder-pool.ts). It doubles when half is full, up to the device's
 * `reorderBytes`. The last queue pair that keeps packets frees it. Where the device has no memory
 * left it stays as it is: packets without a place count as lost.
 */
import { ContextLayout } from '#build/abi.js';
import type { ArenaMemory } from '../engine/arena.js';
import { structAt, type Struct } from '../engine/struct.js';
import { RefusalError } from '../errors/errors.js';

/** Packets that fit at first, but not more than this share of the memory. */
const FIRST_PACKETS = 256;
const FIRST_SHARE = 1 / 32;
/** Default limit: 8,192 packets of 1,480 bytes, but not more than this share of the free memory. */
const BYTES_MAX = 12 * 2 ** 20;
const SHARE_MAX = 1 / 4;

export class ReorderMemory {
  readonly #state: Readonly<Struct<typeof ContextLayout>>;
  /** Of the device, when it was opened. */
  readonly #bytesFree: number;
  readonly #packetBytes: number;
  /** Packets that all queue pairs keep together at most. */
  readonly packetsMax: number;
  readonly #blocks: number[] = [];

  constructor(
    readonly arena: ArenaMemory,
    readonly context: number,
    reorderBytes: number,
  ) {
    this.#bytesFree = arena.heap.bytesFree;
    const limit = reorderBytes || Math.min(BYTES_MAX, this.#bytesFree * SHARE_MAX);
    this.#state = structAt(arena.memory, ContextLayout, context);
    this.#packetBytes = arena.exports.contextReorderSlotBytes(context);
    this.packetsMax = Math.floor(limit / this.#packetBytes);
  }

  /** Bytes of the device's memory that it has now. */
  get bytes(): number {
    return this.#state.reorderSlots * this.#packetBytes;
  }

  /** For a queue pair that keeps `packets`. */
  begin(packets: number): void {
    if (packets === 0 || this.#state.reorderSlots > 0) return;
    const share = (this.#bytesFree * FIRST_SHARE) / this.#packetBytes;
    this.#add(Math.floor(Math.min(FIRST_PACKETS, share)));
  }

  /** Half of the places are taken. */
  grow(): void {
    const { reorderSlots, reorderDemand } = this.#state;
    this.#add(Math.min(reorderDemand - reorderSlots, reorderSlots));
  }

  #add(packets: number): void {
    const bytes = Math.min(packets, this.packetsMax - this.#state.reorderSlots) * this.#packetBytes;
    if (bytes <= 0) return;
    try {
      const block = this.arena.heap.alloc(bytes);
      this.#blocks.push(block);
      this.arena.exports.attachReorderBytes(this.context, block, bytes);
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
    }
  }

  /** A queue pair was destroyed: if it was the last that keeps packets, the memory is free. */
  shrink(): void {
    if (this.#state.reorderDemand !== 0) return;
    for (const block of this.#blocks.splice(0)) this.arena.heap.free(block);
  }
}
