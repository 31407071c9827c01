/** The regions of a pool as this process sees them: made here, brought, or met when taken. */
import { Errno, PoolTake } from '#build/abi.js';
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import { FastMemoryRegion } from '../verbs/regions/fast-memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { FmrDesc } from './fmr-desc.js';
import { ALL, ITS_OWN, NO_BUCKET, POOLS_HAND, type PoolTable } from './pool-table.js';

/** A region that moves meanwhile is looked for again. */
const TAKE_OUT_ATTEMPTS = 8;

export class PoolRegions {
  /** Regions that the device had no room for. */
  refused = 0;
  readonly #context: Context;
  readonly #pd: ProtectionDomain | undefined;
  readonly #table: PoolTable;
  /** Holder id of free regions: only the process that took a region may register or free it. */
  readonly #holder: object;
  /** By where the arena has them. */
  readonly #descs: (FmrDesc | undefined)[];
  readonly #brought = new Set<FastMemoryRegion>();
  /** Regions to return to the pool as soon as it accepts them. */
  readonly #late: number[] = [];
  /** Regions that are no longer the pool's, and not yet deregistered. */
  readonly #leaving: FastMemoryRegion[] = [];

  constructor(
    context: Context,
    pd: ProtectionDomain | undefined,
    table: PoolTable,
    holder: object,
  ) {
    this.#context = context;
    this.#pd = pd;
    this.#table = table;
    this.#holder = holder;
    this.#descs = new Array<FmrDesc | undefined>(table.keyMask + 1).fill(undefined);
  }

  /** The region that was taken (a PoolTake). */
  seen(taken: number): FmrDesc | undefined {
    const place = taken & PoolTake.INDEX;
    if (place === 0) return undefined;
    const index = place - 1;
    const desc = this.#descs[index];
    // Another region may have got the slot since we looked.
    if (desc !== undefined && (desc.firstKey ^ this.#table.keyAt(index)) >>> 8 === 0) return desc;
    return this.#meet(index);
  }

  /** The pool's region that stands behind `mr`. */
  find(mr: FastMemoryRegion): FmrDesc | undefined {
    const index = this.#table.indexOf(mr.rkey);
    const desc = this.#descs[index];
    return desc?.mr === mr && this.#table.has(index) ? desc : undefined;
  }

  /** The regions that a user holds. */
  heldBy(user: object): FmrDesc[] {
    return this.#descs.filter((desc): desc is FmrDesc => desc?.holder === user);
  }

  /** As many of `count` as there is room for. `isFull`: the device has no more. */
  make(count: number): { readonly made: number; readonly isFull: boolean } {
    const { maxLength, mrsMax } = this.#table.params;
    let made = 0;
    let isFull = false;
    for (; made < count && this.#table.struct.total < mrsMax; made++) {
      let mr: FastMemoryRegion;
      try {
        mr = (this.#pd ?? this.#context).allocMr(maxLength);
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        this.refused++;
        isFull = true;
        break;
      }
      if (this.add(mr, false) !== Errno.OK) {
        mr.dereg();
        break;
      }
      // Each by itself: a process may be killed after any of them.
      this.#table.count('created', 1);
      // Other processes may hold it when this context is closed.
      if (!this.#pd) this.#context.resources.delete(mr);
    }
    return { made, isFull };
  }

  /** Returns an Errno. `isBrought`: the application added the region and keeps it. */
  add(mr: FastMemoryRegion, isBrought: boolean): number {
    const errno = this.#table.add(mr.rkey, isBrought);
    if (errno !== Errno.OK) return errno;
    const index = this.#table.indexOf(mr.rkey);
    this.#descs[index] = new FmrDesc(mr, index);
    mr.holder = this.#holder;
    this.#context.siblings.pooled.set(mr.rkey >>> 8, mr);
    if (isBrought) this.#brought.add(mr);
    this.#give(index);
    return Errno.OK;
  }

  /**
   * Takes a free region out of the pool. False: a user holds it. At most one region is in no list
   * at a time: those above it in the global pool move to a bucket, and back.
   */
  takeOut({ mr, index: wanted }: FmrDesc): boolean {
    for (let attempt = 0; attempt < TAKE_OUT_ATTEMPTS; attempt++) {
      const place = this.#table.placeOf(wanted);
      if (place === undefined && this.#table.isHeld(wanted)) return false;
      // Others changed its list while it was read.
      if (place === undefined) continue;
      // It is then the last that the global pool got.
      if (place.list > 0) this.#table.drain(place.list - 1, place.position);
      if (!this.#uncover(wanted)) continue;
      this.#drop(mr, wanted);
      return true;
    }
    return false;
  }

  /** The application's region becomes the pool's: its context is closed. */
  adopt(mr: FastMemoryRegion): void {
    this.#brought.delete(mr);
    mr.context.resources.delete(mr);
  }

  #uncover(wanted: number): boolean {
    let moved = 0;
    let found = false;
    for (let left = this.#table.keyMask + 1; left > 0 && !found; left--) {
      const index = this.#inHand();
      if (index === undefined) break;
      found = index === wanted && this.#table.remove(index) === Errno.OK;
      if (found) break;
      if (this.#table.give(POOLS_HAND, 0, index) !== Errno.OK) {
        this.#late.push(index);
        break;
      }
      moved++;
    }
    if (moved > 0) this.#table.drain(0, moved);
    return found;
  }

  /** Frees up to `count` regions of the global pool, except those of the application. */
  free(count: number): number {
    const brought: number[] = [];
    let freed = 0;
    while (freed < count) {
      const index = this.#inHand();
      if (index === undefined) break;
      if (this.#table.isAdded(index)) brought.push(index);
      else if (this.#free(index)) freed++;
      else break;
    }
    for (const index of brought) this.#give(index);
    return freed;
  }

  /** Returns delayed regions to the pool, and frees others; false if some remain. */
  giveLate(): boolean {
    for (const index of this.#late.splice(0)) this.#give(index);
    return this.#deregister() && this.#late.length === 0;
  }

  /**
   * This process leaves the pool: what it brought is whose it was, and the last one frees the rest.
   * Throws RefusalError EBUSY.
   */
  leave(buckets: number): void {
    const busy = (): RefusalError =>
      new RefusalError(
        'EBUSY',
        'destroy: another thread or process holds a region; call again after putMr',
      );
    for (const mr of [...this.#brought]) {
      const desc = this.find(mr);
      if (desc && !this.takeOut(desc)) throw busy();
    }
    for (;;) {
      if (!this.#deregister()) throw busy();
      if (this.#table.close()) break;
      for (let bucket = 0; bucket < buckets; bucket++) this.#table.drain(bucket, ALL);
      this.giveLate();
      const index = this.#inHand();
      if (index === undefined || !this.#free(index)) throw busy();
    }
    // Users of other processes may hold regions; this process forgets them without freeing.
    for (const desc of this.#descs) if (desc) this.#forget(desc.mr);
    this.#descs.fill(undefined);
  }

  #meet(index: number): FmrDesc {
    const { maxLength } = this.#table.params;
    const key = this.#table.keyAt(index);
    const mr = new FastMemoryRegion(this.#context, this.#pd, maxLength, key);
    mr.holder = this.#holder;
    this.#context.siblings.pooled.set(key >>> 8, mr);
    return (this.#descs[index] = new FmrDesc(mr, index));
  }

  /** Takes one from the global pool. */
  #inHand(): number | undefined {
    const place = this.#table.take(POOLS_HAND, NO_BUCKET, ITS_OWN) & PoolTake.INDEX;
    return place === 0 ? undefined : place - 1;
  }

  #give(index: number): void {
    // Where it is not taken now, it stays in the pool's hand until the monitor looks.
    if (this.#table.give(POOLS_HAND, NO_BUCKET, index) !== Errno.OK) this.#late.push(index);
  }

  /** Frees a region of the pool; false if the pool reclaims a dead process's. */
  #free(index: number): boolean {
    const { mr } = this.seen(index + 1)!;
    if (this.#table.remove(index) !== Errno.OK) {
      this.#late.push(index);
      return false;
    }
    this.#drop(mr, index);
    this.#leaving.push(mr);
    this.#deregister();
    this.#table.count('freed', 1);
    return true;
  }

  /** Deregisters what left the pool; false if another thread is still in a copy: call again. */
  #deregister(): boolean {
    for (let left = this.#leaving.length; left > 0; left--) {
      const mr = this.#leaving.shift()!;
      try {
        mr[Symbol.dispose]();
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        this.#leaving.push(mr);
      }
    }
    return !this.isLeaving;
  }

  /** Are regions that left the pool not yet deregistered? */
  get isLeaving(): boolean {
    return this.#leaving.length > 0;
  }

  #drop(mr: FastMemoryRegion, index: number): void {
    this.#descs[index] = undefined;
    this.#brought.delete(mr);
    this.#forget(mr);
  }

  /** Removes the region: it no longer belongs to a pool. */
  #forget(mr: FastMemoryRegion): void {
    mr.holder = undefined;
    this.#context.siblings.pooled.delete(mr.rkey >>> 8);
  }
}
