/** The durable segments of a device: parts of its memory with a store. */
import type { ArenaMemory } from '../../engine/arena.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { commitTo, type Commit } from './committer.js';
import { DURABLE_SEGMENTS_MAX, DurableTable } from './durable-exchange.js';
import { DURABLE_RING_BYTES, DurableRing } from './durable-ring.js';
import {
  isModule,
  type DurableSegment,
  type DurableStore,
  type DurableStoreOpener,
} from './durable-store.js';
import type { Progress, StopDurable } from '../progress/progress.js';

/** A segment that was added. */
export interface KeptSegment {
  readonly address: number;
  /** Bytes. */
  readonly length: number;
  /** True if the store failed: then every FLUSH of the segment fails. */
  readonly failed: boolean;
  /**
   * Ends the durability of the segment. Rejects with RefusalError EBUSY while a FLUSH is pending.
   */
  remove(): Promise<void>;
}

export class Durables {
  readonly #arena: ArenaMemory;
  readonly #progress: Progress;
  readonly #table: DurableTable;
  readonly #segments = new Set<KeptSegment>();
  readonly #spareRings: number[] = [];

  constructor(arena: ArenaMemory, progress: Progress) {
    this.#arena = arena;
    this.#progress = progress;
    this.#table = new DurableTable(arena.memory, progress.durables);
  }

  /** Does all of [address, address + length) lie in one segment? */
  covers(address: number, length: number): boolean {
    for (const segment of this.#segments) {
      const offset = address - segment.address;
      if (offset >= 0 && length <= segment.length - offset) return true;
    }
    return false;
  }

  /**
   * From now on a FLUSH of these bytes goes to their store. Throws MisuseError; RefusalError ENOMEM
   * (no more segments, no memory); rejects with what the store's module throws.
   */
  async add(segment: DurableSegment): Promise<KeptSegment> {
    const { address, length } = segment;
    this.#check(address, length);
    const ring = this.#takeRing();
    let stop: StopDurable;
    try {
      stop = await this.#start(segment, ring);
    } catch (error) {
      this.#giveBack(ring);
      throw error;
    }
    try {
      this.#check(address, length);
      return this.#keep(address, length, ring, stop);
    } catch (error) {
      await stop();
      this.#giveBack(ring);
      throw error;
    }
  }

  /** As `add`, with a store that says by a call, and perhaps at once, what is durable. */
  addCommit(address: number, length: number, commit: Commit): KeptSegment {
    this.#check(address, length);
    const ring = this.#takeRing();
    const stop = this.#progress.keepDurable(new DurableRing(this.#arena.memory, ring), commit);
    return this.#keep(address, length, ring, stop);
  }

  #keep(address: number, length: number, ringAddress: number, stop: StopDurable): KeptSegment {
    const ring = new DurableRing(this.#arena.memory, ringAddress);
    const index = this.#table.take(address, length, ringAddress);
    if (index === undefined) {
      const sentence = `addDurable: all ${DURABLE_SEGMENTS_MAX} durable segments are taken; remove one first`;
      throw new RefusalError('ENOMEM', sentence);
    }
    const kept: KeptSegment = {
      address,
      length,
      get failed() {
        return ring.failed;
      },
      remove: async () => {
        if (!this.#segments.has(kept)) throw new MisuseError('segment', 'is removed already');
        if (!ring.idle)
          throw new RefusalError('EBUSY', 'remove: a FLUSH of the segment is pending; call again');
        this.#segments.delete(kept);
        this.#table.release(index);
        // Its thread may not have seen yet that it is to stop.
        const stopping = stop();
        if (stopping) await stopping;
        this.#giveBack(ringAddress);
      },
    };
    this.#segments.add(kept);
    return kept;
  }

  /** Zero bytes. */
  #takeRing(): number {
    const spare = this.#spareRings.pop();
    if (spare === undefined) return this.#arena.heap.alloc(DURABLE_RING_BYTES);
    this.#arena.memory.bytes.fill(0, spare, spare + DURABLE_RING_BYTES);
    return spare;
  }

  /** Where the engine has a thread of its own, that one may still be looking at the ring. */
  #giveBack(ring: number): void {
    if (this.#progress.keepDurableApart) this.#spareRings.push(ring);
    else this.#arena.heap.free(ring);
  }

  async #start(segment: DurableSegment, ring: number): Promise<StopDurable> {
    const { store } = segment;
    const progress = this.#progress;
    const here = (kept: DurableStore): StopDurable =>
      progress.keepDurable(new DurableRing(this.#arena.memory, ring), commitTo(kept));
    if (!isModule(store)) return here(store);
    if (progress.keepDurableApart) {
      const { address: start, length } = segment;
      return progress.keepDurableApart({ ...store, ring, address: start, length });
    }
    const { openDurableStore } = (await import(store.module.href)) as {
      readonly openDurableStore: DurableStoreOpener;
    };
    const { bytes } = this.#arena.memory;
    const part = bytes.subarray(segment.address, segment.address + segment.length);
    return here(await openDurableStore(store.data, part));
  }

  #check(address: number, length: number): void {
    const whole = Number.isInteger(address) && Number.isInteger(length);
    const size = this.#arena.memory.bytes.length;
    if (!whole || address < 0 || length < 1 || address + length > size) {
      throw new MisuseError('segment', "must be a part of the device's memory");
    }
    for (const other of this.#segments) {
      if (address < other.address + other.length && other.address < address + length) {
        throw new MisuseError('segment', 'has bytes of another durable segment');
      }
    }
  }
}
