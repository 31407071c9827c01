/** The durable segments of a device: memory of it that a store keeps. */
import type { ArenaMemory } from '../engine/arena.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { commitTo, type Commit } from './committer.js';
import { DURABLE_SEGMENTS_MAX, DurableTable } from './durable-exchange.js';
import { DURABLE_RING_BYTES, DurableRing } from './durable-ring.js';
import { isModule, type DurableSegment, type DurableStoreOpener } from './durable-store.js';
import type { Progress, StopDurable } from './progress.js';

/** A segment that was added. */
export interface KeptSegment {
  readonly address: number;
  /** Bytes. */
  readonly length: number;
  /** Has its store failed? Then no FLUSH of it succeeds any more. */
  readonly failed: boolean;
  /**
   * It is not durable any more. Rejects with RefusalError EBUSY while a FLUSH of it is under way.
   */
  remove(): Promise<void>;
}

export class Durables {
  readonly #arena: ArenaMemory;
  readonly #progress: Progress;
  readonly #table: DurableTable;
  readonly #segments = new Set<KeptSegment>();

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
  add(segment: DurableSegment): Promise<KeptSegment> {
    const { address, length } = segment;
    return this.#keep(address, length, (ring, at) => this.#start(segment, ring, at));
  }

  /** As `add`, with a store that says by a call, and perhaps at once, what is durable. */
  addCommit(address: number, length: number, commit: Commit): Promise<KeptSegment> {
    return this.#keep(address, length, (ring) => this.#progress.keepDurable(ring, commit));
  }

  async #keep(
    address: number,
    length: number,
    start: (ring: DurableRing, at: number) => Promise<StopDurable>,
  ): Promise<KeptSegment> {
    this.#check(address, length);
    const { heap, memory } = this.#arena;
    const ringAddress = heap.alloc(DURABLE_RING_BYTES);
    const ring = new DurableRing(memory, ringAddress);
    let stop: StopDurable;
    try {
      stop = await start(ring, ringAddress);
    } catch (error) {
      heap.free(ringAddress);
      throw error;
    }
    const index = this.#table.take(address, length, ringAddress);
    if (index === undefined) {
      await stop();
      heap.free(ringAddress);
      const sentence = `addDurable: all ${DURABLE_SEGMENTS_MAX} durable segments are taken`;
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
        if (!ring.idle) throw new RefusalError('EBUSY', 'remove: a FLUSH of it is under way');
        this.#segments.delete(kept);
        this.#table.release(index);
        await stop();
        // Its ring stays: another thread may be looking at it. It is little, and segments are few.
      },
    };
    this.#segments.add(kept);
    return kept;
  }

  async #start(segment: DurableSegment, ring: DurableRing, address: number): Promise<StopDurable> {
    const { store } = segment;
    const progress = this.#progress;
    if (!isModule(store)) return progress.keepDurable(ring, commitTo(store));
    if (progress.keepDurableApart) {
      const { module, data } = store;
      const { address: start, length } = segment;
      return progress.keepDurableApart({ module, data, ring: address, address: start, length });
    }
    const { openDurableStore } = (await import(store.module.href)) as {
      readonly openDurableStore: DurableStoreOpener;
    };
    const { bytes } = this.#arena.memory;
    const part = bytes.subarray(segment.address, segment.address + segment.length);
    return progress.keepDurable(ring, commitTo(await openDurableStore(store.data, part)));
  }

  #check(address: number, length: number): void {
    const whole = Number.isInteger(address) && Number.isInteger(length);
    const size = this.#arena.memory.bytes.length;
    if (!whole || address < 0 || length < 1 || address + length > size) {
      throw new MisuseError('segment', 'must be a part of the device’s memory');
    }
    for (const other of this.#segments) {
      if (address < other.address + other.length && other.address < address + length) {
        throw new MisuseError('segment', 'has bytes of another durable segment');
      }
    }
  }
}
