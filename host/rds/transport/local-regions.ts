/**
 * Applications' memory that messages and operations use in place: each allocation is registered
 * once, as a whole, until the application frees it. A registration costs more than sending most
 * messages.
 */
import { AccessFlag } from '#build/abi.js';
import type { Allocation, SpareRegistration } from '../../verbs/regions/allocations.js';
import { checkBuffer, type MemoryRegion } from '../../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../../verbs/domains/protection-domain.js';

/** Allocations that stay registered; beyond this number idle ones are evicted. */
const REGIONS_MAX = 256;

/** A registered allocation. */
export class LocalRegion implements SpareRegistration {
  readonly lkey: number;
  readonly allocation: Allocation;
  readonly #mr: MemoryRegion;
  readonly #ended: (region: LocalRegion) => void;
  #users = 0;

  /** `ended` is called after the deregistration. */
  constructor(mr: MemoryRegion, allocation: Allocation, ended: (region: LocalRegion) => void) {
    this.lkey = mr.lkey;
    this.allocation = allocation;
    this.#mr = mr;
    this.#ended = ended;
    allocation.spares.add(this);
  }

  get isIdle(): boolean {
    return this.#users === 0;
  }

  hold(): this {
    this.#users++;
    return this;
  }

  /** A holder releases the region. */
  letGo(): void {
    this.#users--;
  }

  giveWay(): void {
    if (this.isIdle) this.end();
  }

  end(): void {
    this.#mr.dereg();
    this.allocation.spares.delete(this);
    this.#ended(this);
  }
}

/** The registrations of one protection domain. */
export class LocalRegions {
  readonly #pd: ProtectionDomain;
  /** Index of each region in `#list`. */
  readonly #places = new Map<Allocation, number>();
  readonly #list: LocalRegion[] = [];
  readonly #most: number;
  #lot = 0;

  constructor(pd: ProtectionDomain, most = REGIONS_MAX) {
    this.#pd = pd;
    this.#most = most;
  }

  /** Number of registered allocations. */
  get size(): number {
    return this.#list.length;
  }

  /**
   * Returns the region of `memory` and holds it. Throws MisuseError (memory that no device, or
   * another one, allocated), RefusalError ENOMEM, EBUSY (queues live in it).
   */
  hold(memory: Uint8Array): LocalRegion {
    const { context } = this.#pd;
    const allocation = checkBuffer(context, memory);
    const place = this.#places.get(allocation);
    if (place !== undefined) return this.#list[place]!.hold();
    this.#makeRoom();
    const { bytes } = context.device.arena.memory;
    const { start, length } = allocation;
    const mr = this.#pd.regMr(bytes.subarray(start, start + length), AccessFlag.LOCAL_WRITE);
    const region = new LocalRegion(mr, allocation, (ended) => this.#remove(ended));
    this.#places.set(allocation, this.#list.push(region) - 1);
    return region.hold();
  }

  /** Deregisters all before the domain is deallocated. */
  close(): void {
    for (const region of [...this.#list]) region.end();
  }

  #remove({ allocation }: LocalRegion): void {
    const place = this.#places.get(allocation)!;
    this.#places.delete(allocation);
    const last = this.#list.pop()!;
    if (place === this.#list.length) return;
    this.#list[place] = last;
    this.#places.set(last.allocation, place);
  }

  /**
   * Tests one random region and evicts it if it is idle; repeated calls reach all. Evicting the
   * oldest would miss on every use if the application cycles through REGIONS_MAX + 1 regions.
   */
  #makeRoom(): void {
    if (this.#list.length < this.#most) return;
    // Numerical Recipes' generator: its upper bits are good enough, and the same in every run.
    this.#lot = (Math.imul(this.#lot, 1664525) + 1013904223) >>> 0;
    const region = this.#list[Math.floor((this.#lot / 2 ** 32) * this.#list.length)]!;
    if (region.isIdle) region.end();
  }
}
