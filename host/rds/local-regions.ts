/**
 * Applications' memory that messages and operations use where it lies: each allocation is
 * registered once, with all of it, and stays so until it is freed. To register memory costs more
 * than to send most messages.
 */
import { AccessFlag } from '#build/abi.js';
import type { Allocation, SpareRegistration } from '../verbs/allocations.js';
import { checkBuffer, type MemoryRegion } from '../verbs/memory-region.js';
import type { ProtectionDomain } from '../verbs/protection-domain.js';

/** Allocations that stay registered; beyond, those that nobody uses make room. */
const REGIONS_MAX = 256;

/** An allocation that is registered. */
export class LocalRegion implements SpareRegistration {
  readonly lkey: number;
  readonly #mr: MemoryRegion;
  readonly #allocation: Allocation;
  readonly #regions: Map<Allocation, LocalRegion>;
  #users = 0;

  constructor(mr: MemoryRegion, allocation: Allocation, regions: Map<Allocation, LocalRegion>) {
    this.lkey = mr.lkey;
    this.#mr = mr;
    this.#allocation = allocation;
    this.#regions = regions;
    allocation.spares.add(this);
    regions.set(allocation, this);
  }

  get isIdle(): boolean {
    return this.#users === 0;
  }

  hold(): this {
    this.#users++;
    return this;
  }

  /** Who held it needs it no more. */
  letGo(): void {
    this.#users--;
  }

  giveWay(): void {
    if (this.isIdle) this.end();
  }

  end(): void {
    this.#mr.dereg();
    this.#allocation.spares.delete(this);
    this.#regions.delete(this.#allocation);
  }
}

/** Of one protection domain. */
export class LocalRegions {
  readonly #pd: ProtectionDomain;
  /** The one that was made first comes first. */
  readonly #regions = new Map<Allocation, LocalRegion>();
  readonly #most: number;

  constructor(pd: ProtectionDomain, most = REGIONS_MAX) {
    this.#pd = pd;
    this.#most = most;
  }

  /** Allocations that are registered. */
  get size(): number {
    return this.#regions.size;
  }

  /**
   * What `memory` lies in, until it is let go. Throws MisuseError (memory of nobody, or of another
   * device), RefusalError ENOMEM, EBUSY (queues live in it).
   */
  hold(memory: Uint8Array): LocalRegion {
    const { context } = this.#pd;
    const allocation = checkBuffer(context, memory);
    const known = this.#regions.get(allocation);
    if (known) return known.hold();
    this.#makeRoom();
    const { bytes } = context.device.arena.memory;
    const { start, length } = allocation;
    const mr = this.#pd.regMr(bytes.subarray(start, start + length), AccessFlag.LOCAL_WRITE);
    return new LocalRegion(mr, allocation, this.#regions).hold();
  }

  /** The domain is about to go. */
  close(): void {
    for (const region of [...this.#regions.values()]) region.end();
  }

  /** Looks at one: who asks again and again finds those that are idle. */
  #makeRoom(): void {
    if (this.#regions.size < this.#most) return;
    const [oldest] = this.#regions;
    if (!oldest) return;
    const [allocation, region] = oldest;
    if (region.isIdle) return region.end();
    this.#regions.delete(allocation);
    this.#regions.set(allocation, region);
  }
}
