/**
 * Memory of a device that the application allocated, with the number of regions on each allocation.
 */
import type { Key } from './key.js';

export interface Allocation {
  readonly start: number;
  /** Bytes. */
  readonly length: number;
  regions: number;
  /** Its key as an area that REG_MR takes from, once there was one. */
  area?: Key;
  /** The function that must free the memory in place of `free`. */
  readonly keeper?: string;
  /** Ranges that queues live in (a parent domain's allocators), by address. */
  readonly lent: Map<number, number>;
  /** Registrations that last only so as not to be made again: they end when this is wanted back. */
  readonly spares: Set<SpareRegistration>;
}

/** A registration that ends when it is in the way. */
export interface SpareRegistration {
  /** Ends it, unless it is in use. */
  giveWay(): void;
}

/** All that stands on an allocation and need not. */
export function clearSpares({ spares }: Allocation): void {
  for (const spare of [...spares]) spare.giveWay();
}

export class Allocations {
  /** By address. */
  readonly #sorted: Allocation[] = [];

  add(start: number, length: number, keeper?: string): void {
    const [lent, spares] = [new Map<number, number>(), new Set<SpareRegistration>()];
    const allocation = { start, length, regions: 0, lent, spares };
    const kept = keeper === undefined ? allocation : { ...allocation, keeper };
    this.#sorted.splice(this.#indexAfter(start), 0, kept);
  }

  /** The allocation that holds all of [address, address + length). */
  find(address: number, length: number): Allocation | undefined {
    const found = this.#sorted[this.#indexAfter(address) - 1];
    return found && address + length <= found.start + found.length ? found : undefined;
  }

  /**
   * Lends [address, address + length) to a queue. False: it lies in no allocation, in one that is
   * registered, or where something is lent already.
   */
  lend(address: number, length: number): boolean {
    const allocation = this.find(address, length);
    if (allocation) clearSpares(allocation);
    if (!allocation || allocation.regions > 0) return false;
    for (const [start, bytes] of allocation.lent) {
      if (address < start + bytes && start < address + length) return false;
    }
    allocation.lent.set(address, length);
    return true;
  }

  giveBack(address: number): void {
    this.find(address, 1)?.lent.delete(address);
  }

  remove(allocation: Allocation): void {
    this.#sorted.splice(this.#indexAfter(allocation.start) - 1, 1);
  }

  /** Index of the first allocation that begins after `address`. */
  #indexAfter(address: number): number {
    let low = 0;
    let high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#sorted[middle]!.start <= address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
