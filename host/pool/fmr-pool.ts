/**
 * `ib_fmr_pool`: regions that all connections of a ULP share (seed 002). The arena records the
 * holder of each (pool-table.ts); this file has the monitor, and this process's users.
 */
import { Errno, PoolTake } from '#build/abi.js';
import { checkKeys } from '../base/options.js';
import { checkOpen } from '../device/device.js';
import { checkWhole } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { FastMemoryRegion } from '../verbs/regions/fast-memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { FmrDesc } from './fmr-desc.js';
import type { CheckedParams, FmrPoolEvent } from './params.js';
import { PoolRegions } from './pool-regions.js';
import { ITS_OWN, NO_BUCKET, PoolTable, type UserPlace } from './pool-table.js';

/** Interval at which the monitor reads other processes' needs and publishes its own. */
const WATCH_MILLIS = 20;

/** Counters since the pool was created. */
export interface FmrPoolStats {
  /** All regions of all processes, users' own included. */
  readonly total: number;
  /** Regions in the global pool. */
  readonly free: number;
  /** Regions in the buckets. */
  readonly inBuckets: number;
  /** Of all processes, as the next two counters. */
  readonly users: number;
  readonly created: number;
  readonly freed: number;
  /** Lent by users of this process. */
  readonly reclaimed: number;
  /** Exceptions of callbacks. */
  readonly callbackErrors: number;
  /** Regions that the device could not create. */
  readonly refused: number;
}

/** A bucket as the monitor saw it last. */
interface Bucket {
  version: number;
  sinceMicros: number;
}

/** `struct ib_fmr_pool`: memory regions that connections share (`createFmrPool`, seed 002). */
export class FmrPool {
  readonly params: Readonly<CheckedParams>;
  readonly #table: PoolTable;
  readonly #users = new Set<FmrPoolUser>();
  readonly #buckets: Bucket[] = [];
  readonly #regions: PoolRegions;
  readonly #forget: () => void;
  #leastSince = 0;
  /** The last attempt to create a region failed. */
  #isFull = false;
  /** The EXHAUSTED event was reported. */
  #isExhausted = false;
  #cancelTimer: (() => void) | undefined;
  #watch: ReturnType<typeof setInterval> | undefined;
  #destroyed = false;
  #reclaimed = 0;
  #callbackErrors = 0;

  /** @internal Use `createFmrPool()`. */
  constructor(
    readonly context: Context,
    readonly pd: ProtectionDomain | undefined,
    params: CheckedParams,
    forget: () => void,
  ) {
    this.#table = PoolTable.open(context, params, pd?.handle ?? 0);
    this.params = { ...params, ...this.#table.params };
    this.#forget = forget;
    this.#regions = new PoolRegions(context, pd, this.#table, this);
    for (let index = 0; index < this.params.buckets; index++) {
      this.#buckets.push({ version: 0, sinceMicros: this.#now });
    }
    const { mrsMin } = this.params;
    if (this.#table.isNew && this.#make(mrsMin) < mrsMin) {
      this.#regions.leave(this.params.buckets);
      throw new RefusalError(
        'ENOMEM',
        `createFmrPool: the device cannot create mrsMin ${mrsMin} regions; lower it`,
      );
    }
    this.#beginAgain();
    const { shared, share, threads } = context.device;
    if (shared || share || threads.any) {
      this.#watch = setInterval(() => this.#lookAround(), WATCH_MILLIS);
      this.#watch.unref?.();
    }
  }

  get users(): ReadonlySet<FmrPoolUser> {
    return this.#users;
  }

  get stats(): FmrPoolStats {
    const { total, users, created, freed } = this.#table.struct;
    const free = this.#table.depth(0);
    return {
      total,
      free,
      inBuckets: Math.max(0, this.#table.free - free),
      users,
      created,
      freed,
      reclaimed: this.#reclaimed,
      callbackErrors: this.#callbackErrors,
      refused: this.#regions.refused,
    };
  }

  /**
   * `ib_create_fmr_pool_user`: a connection with `numMr` regions of its own, in the bucket with the
   * fewest users. Throws MisuseError; RefusalError ENOMEM if the regions cannot be had, or the
   * device has its maximum of users. A failed call changes nothing.
   */
  createUser(numMr: number, options: FmrPoolUserOptions = {}): FmrPoolUser {
    checkKeys('createUser', options, 'name weight reclaim');
    this.#check();
    const { mrsMax } = this.params;
    const { weight = 1 } = options;
    checkWhole('numMr', numMr, 0, mrsMax);
    if (!(weight > 0 && weight < Infinity)) {
      throw new MisuseError('weight', `must be a number above 0, got ${weight}`);
    }
    const table = this.#table;
    const { name = '' } = options;
    const place = table.addUser(numMr, weight, name);
    const wanted = numMr + this.params.mrsMin;
    const free = table.free;
    if (free < wanted) this.#make(wanted - free);
    const own: FmrDesc[] = [];
    while (own.length < numMr) {
      const desc = this.#regions.seen(table.take(place.index + 1, NO_BUCKET, ITS_OWN));
      if (desc === undefined) break;
      own.push(desc);
    }
    if (own.length < numMr) {
      for (const { index } of own) table.give(place.index + 1, NO_BUCKET, index);
      table.removeUser(place);
      const sentence = `createUser: ${numMr} regions are wanted, ${own.length} are free`;
      throw new RefusalError('ENOMEM', `${sentence}, and no more can be made now`);
    }
    const user = new FmrPoolUser(this, place, own, options);
    this.#users.add(user);
    this.#arm();
    return user;
  }

  /**
   * `ib_fmr_add_mr`: adds a region of the application. Throws RefusalError EINVAL (of another device
   * or domain, shorter than the pool's, or in a pool already), EBUSY (registered), ENOSPC (the pool
   * has `mrsMax` regions).
   */
  addMr(mr: FastMemoryRegion): void {
    this.#check();
    const why = this.#unfit(mr);
    if (why !== undefined) throw new RefusalError('EINVAL', `addMr: the region ${why}`);
    if (mr.registered) throw new RefusalError('EBUSY', 'addMr: invalidate the region first');
    const errno = this.#regions.add(mr, true);
    if (errno === Errno.OK) return;
    if (errno === Errno.EAGAIN) {
      const why = 'a process that shares the pool died and its regions are being reclaimed';
      throw new RefusalError('EAGAIN', `addMr: ${why}; call again`);
    }
    throw new RefusalError(
      'ENOSPC',
      `addMr: the pool has mrsMax ${this.params.mrsMax} regions; raise it`,
    );
  }

  /**
   * `ib_fmr_remove_mr`: returns the region to the caller. Throws RefusalError EINVAL (not of this
   * pool), EBUSY (a user of any process holds it, or it is in a user's L1).
   */
  removeMr(mr: FastMemoryRegion): void {
    this.#check();
    const desc = this.#regions.find(mr);
    if (!desc) throw new RefusalError('EINVAL', 'removeMr: the region is not of this pool');
    if (desc.holder || desc.home)
      throw new RefusalError('EBUSY', 'removeMr: a user holds the region; call putMr first');
    if (!this.#regions.takeOut(desc, this.params.buckets)) {
      throw new RefusalError('EBUSY', 'removeMr: a user of another process holds the region');
    }
    this.#arm();
  }

  /**
   * `ib_destroy_fmr_pool`: frees the regions; if other processes share the pool, they keep it without
   * the regions of `addMr`. Throws RefusalError EBUSY while the pool has users of this process, or
   * other processes hold regions of `addMr`.
   */
  destroy(): void {
    if (this.#destroyed) throw new MisuseError('pool', 'is destroyed already');
    if (this.#users.size > 0) {
      throw new RefusalError(
        'EBUSY',
        `destroy: the pool has ${this.#users.size} users; destroy them first`,
      );
    }
    if (!this.context.device.closed) this.#regions.leave(this.params.buckets);
    this.#destroyed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    clearInterval(this.#watch);
    this.#forget();
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  /**
   * Invalidates a region that a user of this process holds, without a queue pair: for a region of a
   * dead connection, which no LOCAL_INV or SEND_WITH_INV will reach. Returns when no engine of any
   * process uses its memory; after that the user calls `putMr` as usual. Throws RefusalError EINVAL
   * (no user of this process holds the region), EBUSY (an engine does not leave the memory: call
   * again).
   */
  revoke(desc: FmrDesc): void {
    this.#check();
    if (!desc.holder || desc.holder.pool !== this) {
      throw new RefusalError('EINVAL', 'revoke: no user of this pool holds the region');
    }
    desc.mr.revoke();
  }

  /** @internal The regions that a user holds. */
  heldBy(user: FmrPoolUser): FmrDesc[] {
    return this.#regions.heldBy(user);
  }

  /** @internal The context is closed: its users and regions end with it, in any state. */
  endWithContext(): void {
    if (this.#destroyed) return;
    const { closed } = this.context.device;
    for (const user of [...this.#users]) {
      if (closed) user.end();
      else user.abandon();
    }
    if (closed) this.#users.clear();
    this.destroy();
  }

  /** @internal Takes a shared region for `user`; undefined if it may have none. */
  borrow(user: FmrPoolUser): FmrDesc | undefined {
    const taken = this.#table.take(user.hand, user.bucket, user.borrowed);
    if (taken & PoolTake.SCARCE) this.#arm();
    if ((taken & PoolTake.INDEX) === 0) return undefined;
    if (taken & PoolTake.BUCKET) user.hitsL2++;
    else user.hitsGlobal++;
    return this.#regions.seen(taken);
  }

  /** @internal Returns an invalidated region to the pool; false: the monitor retries. */
  giveBack(user: FmrPoolUser, desc: FmrDesc): boolean {
    const errno = this.#table.give(user.hand, user.bucket, desc.index);
    this.#arm();
    return errno === Errno.OK;
  }

  /** @internal `user` lends `count` more of its own regions; a negative count returns some. */
  lent(user: FmrPoolUser, count: number): void {
    this.#table.lend(user.place, count);
  }

  /** @internal Throws RefusalError EBUSY. */
  userGone(user: FmrPoolUser, own: FmrDesc[]): void {
    while (own.length > 0) {
      const desc = own[own.length - 1]!;
      if (this.#table.give(user.hand, NO_BUCKET, desc.index) !== Errno.OK) {
        const sentence = 'destroy: regions of a dead process are being reclaimed';
        throw new RefusalError('EBUSY', `${sentence}; call again`);
      }
      desc.home = undefined;
      own.pop();
    }
    this.#users.delete(user);
    this.#table.removeUser(user.place);
    this.#arm();
  }

  get #now(): number {
    return this.context.device.clock.now();
  }

  #check(): void {
    if (this.#destroyed) throw new MisuseError('pool', 'is destroyed');
    checkOpen(this.context.device);
  }

  #unfit(mr: FastMemoryRegion): string | undefined {
    if (mr.context !== this.context) return 'is of another device';
    if (mr.pd !== this.pd) return 'is of another protection domain';
    if (mr.holder !== undefined) return 'is in a pool already';
    if (mr.maxLength < this.params.maxLength) return `takes no ${this.params.maxLength} bytes`;
    return undefined;
  }

  /** Creates up to `count` regions, within `mrsMax`. */
  #make(count: number): number {
    const { made, isFull } = this.#regions.make(count);
    this.#isFull ||= isFull;
    return made;
  }

  /** Schedules the monitor. */
  #arm(delay = this.params.monitorMicros): void {
    if (this.#cancelTimer || this.#destroyed || this.context.device.closed) return;
    this.#cancelTimer = this.context.device.clock.at(this.#now + delay, () => {
      this.#cancelTimer = undefined;
      if (!this.#destroyed && !this.context.device.closed) this.#look();
    });
  }

  /** Watches a pool of several processes: serves their needs and publishes this process's. */
  #lookAround(): void {
    if (this.#destroyed || this.context.device.closed) {
      clearInterval(this.#watch);
      return;
    }
    for (const user of this.#users) user.publish();
    if (!this.#cancelTimer) this.#look();
  }

  #look(): void {
    const now = this.#now;
    const { lowWater, monitorMicros } = this.params;
    let isLate = false;
    for (const user of this.#users) isLate = !user.giveLate() || isLate;
    isLate = !this.#regions.giveLate() || isLate;
    if (isLate) this.#arm();
    if (this.#table.free < lowWater) {
      this.#grow();
      this.#beginAgain();
      // Until enough are free; regions that users return also end the shortage, by this method.
      if (this.#table.free < lowWater && !this.#isFull) this.#arm();
      this.#isFull = false;
      return;
    }
    this.#isExhausted = false;
    this.#repay();
    const next = Math.min(this.#emptyIdle(now), this.#shrink(now));
    if (next !== Infinity) this.#arm(Math.max(monitorMicros, next - now));
  }

  /** Restarts the count of unused regions. */
  #beginAgain(): void {
    this.#leastSince = this.#now;
    this.#table.struct.least = this.#table.depth(0);
  }

  #grow(): void {
    const { lowWater, growBlock, mrsMax } = this.params;
    const made = this.#make(Math.min(growBlock, mrsMax - this.#table.struct.total));
    if (made > 0) this.#tell({ kind: 'grown', count: made });
    if (this.#table.free >= lowWater) return;
    this.#isFull ||= this.#table.struct.total >= mrsMax;
    if (!this.#isFull) return;
    if (!this.#isExhausted) this.#tell({ kind: 'exhausted', count: this.#table.free });
    this.#isExhausted = true;
    for (const user of this.#users) {
      const wanted = lowWater - this.#table.free;
      if (wanted <= 0) break;
      this.#reclaim(user, wanted);
    }
  }

  #reclaim(user: FmrPoolUser, wanted: number): void {
    if (!user.reclaim) return;
    let granted = 0;
    try {
      granted = Math.min(Math.floor(user.reclaim(wanted)) || 0, wanted);
    } catch {
      this.#callbackErrors++;
    }
    if (granted <= 0 || user.destroyed) return;
    const count = user.lend(granted, (desc) => {
      return this.#table.give(user.hand, NO_BUCKET, desc.index) === Errno.OK;
    });
    this.#reclaimed += count;
    if (count > 0) this.#tell({ kind: 'reclaimed', count });
  }

  /** Regions are plentiful: returns lent regions to their users. */
  #repay(): void {
    const table = this.#table;
    for (const user of this.#users) {
      while (user.lent > 0 && table.free > this.params.lowWater) {
        const desc = this.#regions.seen(table.take(user.hand, NO_BUCKET, ITS_OWN));
        if (!desc) return;
        user.takeBack(desc);
      }
    }
  }

  /** Moves regions of idle buckets to the pool. Returns the time of the next check. */
  #emptyIdle(now: number): number {
    let next = Infinity;
    for (const [index, bucket] of this.#buckets.entries()) {
      if (this.#table.depth(index + 1) === 0) continue;
      const version = this.#table.version(index + 1);
      if (version !== bucket.version) {
        bucket.version = version;
        bucket.sinceMicros = now;
      }
      const due = bucket.sinceMicros + this.params.idleMicros;
      if (due > now) next = Math.min(next, due);
      else this.#table.drain(index);
    }
    return next;
  }

  /** Frees a block of regions that were idle for long. Returns the time of the next check. */
  #shrink(now: number): number {
    const { mrsMin, shrinkBlock, idleMicros, monitorMicros } = this.params;
    const { shared, share } = this.context.device;
    const table = this.#table;
    const due = this.#leastSince + idleMicros;
    const surplus = table.free - mrsMin;
    if (surplus <= 0 || !table.isFirst(shared?.slot ?? share?.slot ?? 0)) {
      this.#beginAgain();
      return Infinity;
    }
    if (due > now) return due;
    const unused = Math.min(table.struct.least, surplus, shrinkBlock);
    const freed = this.#regions.free(unused);
    if (freed > 0) this.#tell({ kind: 'shrunk', count: freed });
    if (freed === shrinkBlock) return now + monitorMicros;
    this.#beginAgain();
    return table.free > mrsMin ? now + idleMicros : Infinity;
  }

  #tell(event: FmrPoolEvent): void {
    try {
      this.params.onEvent?.(event);
    } catch {
      this.#callbackErrors++;
    }
  }
}

/** Settings of a user of a pool. */
export interface FmrPoolUserOptions {
  /** For logs. */
  readonly name?: string;
  /** Its share of scarce regions, against others. Default 1. */
  readonly weight?: number;
  /**
   * The pool lacks `wanted` regions: returns how many of its own (L1) the user lends. They return
   * with the next borrowed ones that the user puts, or when enough are free. An exception is
   * counted and lends none.
   */
  readonly reclaim?: (wanted: number) => number;
}

/** Counters of a user since it was created. */
export interface FmrPoolUserStats {
  readonly inUse: number;
  readonly peak: number;
  readonly hitsL1: number;
  readonly hitsL2: number;
  readonly hitsGlobal: number;
  /** Calls of `getMr` that returned undefined. */
  readonly misses: number;
  /** Own regions that are lent at present. */
  readonly lent: number;
}

/** `struct ib_fmr_pool_user`: one connection that takes regions from a pool (`pool.createUser`). */
export class FmrPoolUser {
  readonly pool: FmrPool;
  /** Regions of its own. */
  readonly numMr: number;
  readonly name: string;
  readonly weight: number;
  /** @internal */
  readonly reclaim: ((wanted: number) => number) | undefined;
  /** @internal Index of its bucket (L2). */
  readonly bucket: number;
  /** @internal The user's entry in the arena, and the holder id of its regions. */
  readonly place: UserPlace;
  /** @internal */
  readonly hand: number;
  /** @internal Shared regions that it holds. */
  borrowed = 0;
  /** @internal */
  lent = 0;
  /** @internal */
  hitsL2 = 0;
  /** @internal */
  hitsGlobal = 0;
  readonly #own: FmrDesc[];
  /** Returned regions that the pool accepts after it has reclaimed those of a dead process. */
  readonly #late: FmrDesc[] = [];
  #inUse = 0;
  #peak = 0;
  #hitsL1 = 0;
  #misses = 0;
  #reclaimed = 0;
  #destroyed = false;

  /** @internal Use `pool.createUser()`. */
  constructor(pool: FmrPool, place: UserPlace, own: FmrDesc[], options: FmrPoolUserOptions) {
    this.pool = pool;
    this.numMr = own.length;
    this.#own = own;
    this.place = place;
    this.bucket = place.bucket;
    this.hand = place.index + 1;
    this.name = options.name ?? '';
    this.weight = options.weight ?? 1;
    this.reclaim = options.reclaim;
    for (const desc of own) desc.home = this;
  }

  get stats(): FmrPoolUserStats {
    return {
      inUse: this.#inUse,
      peak: this.#peak,
      hitsL1: this.#hitsL1,
      hitsL2: this.hitsL2,
      hitsGlobal: this.hitsGlobal,
      misses: this.#misses,
      lent: this.lent,
    };
  }

  get destroyed(): boolean {
    return this.#destroyed;
  }

  /**
   * `ib_fmr_pool_get_mr`: takes a region to register; undefined if none is free. Never waits.
   * Throws MisuseError if the user is destroyed.
   */
  getMr(): FmrDesc | undefined {
    if (this.#destroyed) throw new MisuseError('user', 'is destroyed');
    let desc = this.#takeOwn();
    if (desc !== undefined) this.#hitsL1++;
    else {
      desc = this.#late.pop();
      if (desc === undefined) {
        desc = this.pool.borrow(this);
        if (desc === undefined) {
          this.#misses++;
          return undefined;
        }
        this.borrowed++;
      }
    }
    desc.holder = this;
    desc.mr.holder = this;
    if (++this.#inUse > this.#peak) this.#peak = this.#inUse;
    return desc;
  }

  /**
   * `ib_fmr_pool_put_mr`: returns the region to the tier that it came from. Throws RefusalError
   * EINVAL (another user holds it, or it was returned before), EBUSY (a shared region that is still
   * registered). A failed call changes nothing.
   */
  putMr(desc: FmrDesc): void {
    if (desc.holder !== this) {
      const holder = desc.holder ? 'another user holds the region' : 'the region was put before';
      throw new RefusalError('EINVAL', `putMr: ${holder}; put each region once, by its holder`);
    }
    if (desc.home === this) {
      // The next REG_MR may be behind the LOCAL_INV in the same send queue.
      if (desc.mr.registered && !desc.mr.isBeingInvalidated) {
        throw new RefusalError(
          'EBUSY',
          'putMr: the region is registered, and no queue pair invalidates it; post a LOCAL_INV, wait ' +
            'for the SEND_WITH_INV, or call pool.revoke if its connection is dead',
        );
      }
      this.#release(desc);
      this.#own.push(desc);
      return;
    }
    if (desc.mr.registered) {
      throw new RefusalError(
        'EBUSY',
        'putMr: the region is registered; wait for the completion of its LOCAL_INV, or for the SEND_WITH_INV',
      );
    }
    this.#release(desc);
    if (this.lent > 0) {
      this.borrowed--;
      this.takeBack(desc);
    } else if (this.pool.giveBack(this, desc)) this.borrowed--;
    else this.#late.push(desc);
  }

  /**
   * `ib_destroy_fmr_pool_user`: its regions go to the pool. Throws RefusalError EBUSY while it holds
   * any, one of its own is still registered, or regions of a dead process are being reclaimed.
   */
  destroy(): void {
    if (this.#destroyed) throw new MisuseError('user', 'is destroyed already');
    if (this.#inUse > 0) {
      throw new RefusalError('EBUSY', `destroy: ${this.#inUse} regions are in use; put them first`);
    }
    if (this.#own.some(({ mr }) => mr.registered)) {
      throw new RefusalError('EBUSY', 'destroy: a region is registered; invalidate it first');
    }
    if (!this.giveLate()) {
      const why = 'regions of a dead process are being reclaimed';
      throw new RefusalError('EBUSY', `destroy: ${why}; call again`);
    }
    this.pool.userGone(this, this.#own);
    this.#destroyed = true;
  }

  /**
   * For a dead connection: invalidates all regions that the user holds, whatever requests its queue
   * pairs still have, returns them to the pool, and destroys the user. Returns when no engine uses
   * their memory. Throws MisuseError; RefusalError EBUSY: an engine does not leave the memory,
   * or the pool is being repaired after the death of a process; call again.
   */
  abandon(): void {
    if (this.#destroyed) throw new MisuseError('user', 'is destroyed already');
    for (const desc of this.pool.heldBy(this)) {
      desc.mr.revoke();
      this.putMr(desc);
    }
    for (const { mr } of this.#own) if (mr.registered) mr.revoke();
    this.destroy();
  }

  /** @internal The device is closed: the regions end with it. */
  end(): void {
    this.#destroyed = true;
  }

  /** Takes one of the user's own regions; invalidates it if its LOCAL_INV was flushed. */
  #takeOwn(): FmrDesc | undefined {
    const desc = this.#own.pop();
    if (desc !== undefined && desc.mr.registered && !desc.mr.isBeingInvalidated) desc.mr.revoke();
    return desc;
  }

  /**
   * @internal Passes up to `count` unused, unregistered regions of its own to `give`, which returns
   * false if the pool does not accept one. Returns their number.
   */
  lend(count: number, give: (desc: FmrDesc) => boolean): number {
    let lent = 0;
    // The least recently used ones.
    for (let index = 0; index < this.#own.length && lent < count;) {
      const desc = this.#own[index]!;
      if (desc.mr.registered || !give(desc)) {
        index++;
        continue;
      }
      desc.home = undefined;
      this.#own.splice(index, 1);
      lent++;
    }
    this.lent += lent;
    this.#reclaimed += lent;
    this.pool.lent(this, lent);
    return lent;
  }

  /** @internal A region that replaces a lent one. */
  takeBack(desc: FmrDesc): void {
    this.lent--;
    this.pool.lent(this, -1);
    desc.home = this;
    this.#own.push(desc);
  }

  /** @internal Retries delayed returns; false if some remain. */
  giveLate(): boolean {
    while (this.#late.length > 0) {
      if (!this.pool.giveBack(this, this.#late[this.#late.length - 1]!)) return false;
      this.#late.pop();
      this.borrowed--;
    }
    return true;
  }

  /** @internal Publishes its counters to other processes. */
  publish(): void {
    const { struct } = this.place;
    struct.inUse = this.#inUse;
    struct.peak = this.#peak;
    struct.hitsL1 = BigInt(this.#hitsL1);
    struct.hitsL2 = BigInt(this.hitsL2);
    struct.hitsGlobal = BigInt(this.hitsGlobal);
    struct.misses = BigInt(this.#misses);
    struct.reclaimed = BigInt(this.#reclaimed);
  }

  #release(desc: FmrDesc): void {
    desc.holder = undefined;
    desc.mr.holder = this.pool;
    this.#inUse--;
  }
}
