/** `ib_fmr_pool`: regions that all connections of a ULP share (seed 002). */
import { checkOpen } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { FastMemoryRegion } from '../verbs/fast-memory-region.js';
import type { ProtectionDomain } from '../verbs/protection-domain.js';
import { FmrDesc } from './fmr-desc.js';
import { FmrPoolUser, type FmrPoolUserOptions } from './fmr-pool-user.js';
import type { CheckedParams, FmrPoolEvent } from './params.js';

/** Counters are since the pool was made. */
export interface FmrPoolStats {
  /** All regions, users' own included. */
  readonly total: number;
  /** In the global pool. */
  readonly free: number;
  /** In the buckets. */
  readonly inBuckets: number;
  readonly users: number;
  readonly created: number;
  readonly freed: number;
  /** Lent by users. */
  readonly reclaimed: number;
  /** What callbacks threw. */
  readonly callbackErrors: number;
  /** Regions that the device had no room for. */
  readonly refused: number;
}

interface Bucket {
  readonly entries: FmrDesc[];
  users: number;
  usedMicros: number;
}

export class FmrPool {
  readonly context: Context;
  readonly pd: ProtectionDomain | undefined;
  readonly params: Readonly<CheckedParams>;
  readonly #users = new Set<FmrPoolUser>();
  readonly #free: FmrDesc[] = [];
  readonly #buckets: Bucket[] = [];
  readonly #all = new Map<FastMemoryRegion, FmrDesc>();
  readonly #forget: () => void;
  /** Shared regions that nobody holds: in buckets and in the pool. */
  #sharedFree = 0;
  /** All shared ones. */
  #shared = 0;
  #weights = 0;
  /** The fewest that were free since `#leastSince`. */
  #leastFree = 0;
  #leastSince = 0;
  /** The last attempt to make one failed. */
  #isFull = false;
  /** It was told. */
  #isExhausted = false;
  #cancelTimer: (() => void) | undefined;
  #destroyed = false;
  #created = 0;
  #freed = 0;
  #reclaimed = 0;
  #callbackErrors = 0;
  #refused = 0;

  /** @internal Use `createFmrPool()`. */
  constructor(
    context: Context,
    pd: ProtectionDomain | undefined,
    params: CheckedParams,
    forget: () => void,
  ) {
    this.context = context;
    this.pd = pd;
    this.params = params;
    this.#forget = forget;
    for (let index = 0; index < params.buckets; index++) {
      this.#buckets.push({ entries: [], users: 0, usedMicros: 0 });
    }
    this.#make(params.mrsMin);
    if (this.#all.size < params.mrsMin) {
      this.#releaseAll();
      throw new RefusalError('ENOMEM', `createFmrPool: no room for ${params.mrsMin} regions`);
    }
    this.#leastFree = this.#free.length;
    this.#leastSince = this.#now;
  }

  get users(): ReadonlySet<FmrPoolUser> {
    return this.#users;
  }

  get stats(): FmrPoolStats {
    return {
      total: this.#all.size,
      free: this.#free.length,
      inBuckets: this.#sharedFree - this.#free.length,
      users: this.#users.size,
      created: this.#created,
      freed: this.#freed,
      reclaimed: this.#reclaimed,
      callbackErrors: this.#callbackErrors,
      refused: this.#refused,
    };
  }

  /**
   * `ib_create_fmr_pool_user`: a connection, with `numMr` regions of its own, in the bucket that has
   * the fewest. Throws MisuseError; RefusalError ENOMEM when there are not so many, and none can be
   * made: nothing has changed then.
   */
  createUser(numMr: number, options: FmrPoolUserOptions = {}): FmrPoolUser {
    this.#check();
    const { mrsMax } = this.params;
    const { weight = 1 } = options;
    if (!Number.isInteger(numMr) || numMr < 0 || numMr > mrsMax) {
      throw new MisuseError('numMr', `must be a whole number from 0 to ${mrsMax}, got ${numMr}`);
    }
    if (!(weight > 0 && weight < Infinity)) {
      throw new MisuseError('weight', `must be a number above 0, got ${weight}`);
    }
    const { mrsMin } = this.params;
    if (this.#own + numMr + mrsMin > mrsMax) {
      const left = mrsMax - mrsMin - this.#own;
      const sentence = `createUser: ${numMr} regions are wanted; of ${mrsMax}, ${mrsMin} are for`;
      throw new RefusalError('ENOMEM', `${sentence} bursts, and users may have ${left} more`);
    }
    if (this.#free.length < numMr + mrsMin) this.#make(numMr + mrsMin - this.#free.length);
    if (this.#free.length < numMr) {
      const sentence = `createUser: ${numMr} regions are wanted, ${this.#free.length} are free`;
      throw new RefusalError('ENOMEM', `${sentence}, and no more can be made now`);
    }
    const own = this.#free.splice(this.#free.length - numMr, numMr);
    this.#sharedFree -= numMr;
    this.#shared -= numMr;
    const bucket = this.#buckets.reduce(
      (best, { users }, index) => (users < this.#buckets[best]!.users ? index : best),
      0,
    );
    const user = new FmrPoolUser(this, own, bucket, options);
    this.#buckets[bucket]!.users++;
    this.#users.add(user);
    this.#weights += user.weight;
    this.#note();
    return user;
  }

  /**
   * `ib_fmr_add_mr`: a region that was made elsewhere. Throws RefusalError EINVAL (of another device
   * or domain, shorter than the pool's, or in a pool already), EBUSY (registered), ENOSPC (the pool
   * has as many as it may have).
   */
  addMr(mr: FastMemoryRegion): void {
    this.#check();
    const why = this.#unfit(mr);
    if (why !== undefined) throw new RefusalError('EINVAL', `addMr: the region ${why}`);
    if (mr.registered) throw new RefusalError('EBUSY', 'addMr: invalidate the region first');
    if (this.#all.size >= this.params.mrsMax) {
      throw new RefusalError('ENOSPC', `addMr: the pool has ${this.params.mrsMax} regions already`);
    }
    this.#add(mr, false);
  }

  /**
   * `ib_fmr_remove_mr`: the region is the caller's again. Throws RefusalError EINVAL (not of this
   * pool), EBUSY (a user holds it, or it is one of a user's own).
   */
  removeMr(mr: FastMemoryRegion): void {
    this.#check();
    const desc = this.#all.get(mr);
    if (!desc) throw new RefusalError('EINVAL', 'removeMr: the region is not of this pool');
    if (desc.holder || desc.home) throw new RefusalError('EBUSY', 'removeMr: a user has it');
    for (const list of [this.#free, ...this.#buckets.map(({ entries }) => entries)]) {
      const at = list.indexOf(desc);
      if (at >= 0) list.splice(at, 1);
    }
    this.#drop(desc);
    this.#note();
  }

  /**
   * `ib_destroy_fmr_pool`: frees its regions. Throws RefusalError EBUSY while it has users.
   */
  destroy(): void {
    if (this.#destroyed) throw new MisuseError('pool', 'is destroyed already');
    if (this.#users.size > 0) {
      throw new RefusalError('EBUSY', `destroy: the pool has ${this.#users.size} users`);
    }
    this.#destroyed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#releaseAll();
    this.#forget();
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  /** @internal A shared region for `user`; undefined: none is left for it. */
  borrow(user: FmrPoolUser): FmrDesc | undefined {
    const { lowWater } = this.params;
    const isScarce = this.#sharedFree <= lowWater;
    if (isScarce) {
      this.#arm();
      const share = Math.ceil((this.#shared * user.weight) / this.#weights);
      if (user.borrowed >= share && this.#sharedFree > 0) return undefined;
    }
    const bucket = this.#buckets[user.bucket]!;
    let desc = bucket.entries.pop();
    if (desc !== undefined) {
      user.hitsL2++;
      bucket.usedMicros = 0;
    } else {
      desc = this.#free.pop() ?? this.#fromBuckets(user.bucket + 1);
      if (desc === undefined) return undefined;
      user.hitsGlobal++;
    }
    if (--this.#sharedFree < this.#leastFree) this.#leastFree = this.#sharedFree;
    return desc;
  }

  /** @internal An invalidated region of no user. */
  giveBack(user: FmrPoolUser, desc: FmrDesc): void {
    const bucket = this.#buckets[user.bucket]!;
    this.#sharedFree++;
    if (bucket.entries.length < this.params.bucketMrs) {
      bucket.entries.push(desc);
      bucket.usedMicros = 0;
    } else this.#free.push(desc);
    this.#arm();
  }

  /** @internal */
  userGone(user: FmrPoolUser, own: readonly FmrDesc[]): void {
    this.#users.delete(user);
    this.#weights -= user.weight;
    this.#buckets[user.bucket]!.users--;
    for (const desc of own) {
      desc.home = undefined;
      this.#free.push(desc);
      this.#shared++;
      this.#sharedFree++;
    }
    this.#note();
  }

  get #now(): number {
    return this.context.device.clock.now();
  }

  /** Regions of users' own. */
  get #own(): number {
    return this.#all.size - this.#shared;
  }

  #check(): void {
    if (this.#destroyed) throw new MisuseError('pool', 'is destroyed');
    checkOpen(this.context.device);
  }

  /** The global pool is empty: what buckets have, others' too, is better than none. */
  #fromBuckets(first: number): FmrDesc | undefined {
    for (let index = 0; index < this.#buckets.length; index++) {
      const other = this.#buckets[(first + index) % this.#buckets.length]!;
      const desc = other.entries.shift();
      if (desc !== undefined) return desc;
    }
    return undefined;
  }

  #unfit(mr: FastMemoryRegion): string | undefined {
    if (mr.context !== this.context) return 'is of another device';
    if (mr.pd !== this.pd) return 'is of another protection domain';
    if (mr.holder !== undefined) return 'is in a pool already';
    if (mr.maxLength < this.params.maxLength) return `takes no ${this.params.maxLength} bytes`;
    return undefined;
  }

  /** As many of `count` as there is room for. */
  #make(count: number): number {
    let made = 0;
    for (; made < count && this.#all.size < this.params.mrsMax; made++) {
      try {
        const { maxLength } = this.params;
        this.#add(this.pd ? this.pd.allocMr(maxLength) : this.context.allocMr(maxLength), true);
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        this.#refused++;
        this.#isFull = true;
        break;
      }
      this.#created++;
    }
    return made;
  }

  #add(mr: FastMemoryRegion, made: boolean): void {
    const desc = new FmrDesc(mr, made);
    mr.holder = this;
    this.#all.set(mr, desc);
    // To the end that is taken last.
    this.#free.unshift(desc);
    this.#shared++;
    this.#sharedFree++;
  }

  /** A free shared region is the pool's no longer. */
  #drop(desc: FmrDesc): void {
    this.#all.delete(desc.mr);
    desc.mr.holder = undefined;
    this.#shared--;
    this.#sharedFree--;
    if (this.#sharedFree < this.#leastFree) this.#leastFree = this.#sharedFree;
  }

  #releaseAll(): void {
    for (const desc of [...this.#all.values()]) {
      this.#drop(desc);
      if (desc.made && !this.context.device.closed) desc.mr.dereg();
    }
    this.#free.length = 0;
    for (const { entries } of this.#buckets) entries.length = 0;
  }

  /** Something has changed at once: what was free before says nothing. */
  #note(): void {
    this.#leastFree = Math.min(this.#leastFree, this.#sharedFree);
    this.#arm();
  }

  /** The monitor looks soon. */
  #arm(delay = this.params.monitorMicros): void {
    if (this.#cancelTimer || this.#destroyed || this.context.device.closed) return;
    this.#cancelTimer = this.context.device.clock.at(this.#now + delay, () => {
      this.#cancelTimer = undefined;
      if (!this.#destroyed && !this.context.device.closed) this.#look();
    });
  }

  #look(): void {
    const now = this.#now;
    const { lowWater, monitorMicros } = this.params;
    if (this.#sharedFree < lowWater) {
      this.#grow();
      this.#leastFree = this.#sharedFree;
      this.#leastSince = now;
      // Until there are enough; what users give back changes that, too, and calls us.
      if (this.#sharedFree < lowWater && !this.#isFull) this.#arm();
      this.#isFull = false;
      return;
    }
    this.#isExhausted = false;
    this.#repay();
    const next = Math.min(this.#emptyIdle(now), this.#shrink(now));
    if (next !== Infinity) this.#arm(Math.max(monitorMicros, next - now));
  }

  #grow(): void {
    const { lowWater, growBlock, mrsMax } = this.params;
    const made = this.#make(Math.min(growBlock, mrsMax - this.#all.size));
    if (made > 0) this.#tell({ kind: 'grown', count: made });
    if (this.#sharedFree >= lowWater) return;
    this.#isFull ||= this.#all.size >= mrsMax;
    if (!this.#isFull) return;
    if (!this.#isExhausted) this.#tell({ kind: 'exhausted', count: this.#sharedFree });
    this.#isExhausted = true;
    for (const user of this.#users) {
      const wanted = lowWater - this.#sharedFree;
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
    const lent = user.lend(granted);
    for (const desc of lent) {
      this.#free.unshift(desc);
      this.#shared++;
      this.#sharedFree++;
    }
    this.#reclaimed += lent.length;
    if (lent.length > 0) this.#tell({ kind: 'reclaimed', count: lent.length });
  }

  /** There are enough: who lent gets them back. */
  #repay(): void {
    for (const user of this.#users) {
      while (user.lent > 0 && this.#sharedFree > this.params.lowWater) {
        const desc = this.#free.shift() ?? this.#fromBuckets(0);
        if (!desc) return;
        this.#shared--;
        this.#sharedFree--;
        user.lent--;
        user.takeBack(desc);
      }
    }
  }

  /** Buckets that nobody used for long go back to the pool. Returns when to look again. */
  #emptyIdle(now: number): number {
    let next = Infinity;
    for (const bucket of this.#buckets) {
      if (bucket.entries.length === 0) continue;
      // A use leaves 0 behind: the clock is not read on the way of each request.
      if (bucket.usedMicros === 0) bucket.usedMicros = now;
      const due = bucket.usedMicros + this.params.idleMicros;
      if (due > now) next = Math.min(next, due);
      else this.#free.unshift(...bucket.entries.splice(0));
    }
    return next;
  }

  /** Frees a block of what was not needed for long. Returns when to look again. */
  #shrink(now: number): number {
    const { mrsMin, shrinkBlock, idleMicros, monitorMicros } = this.params;
    const due = this.#leastSince + idleMicros;
    const surplus = this.#sharedFree - mrsMin;
    if (surplus <= 0) {
      this.#leastSince = now;
      this.#leastFree = this.#sharedFree;
      return Infinity;
    }
    if (due > now) return due;
    const unused = Math.min(this.#leastFree - mrsMin, this.#free.length, shrinkBlock);
    let freed = 0;
    while (freed < unused) {
      const index = this.#free.findIndex(({ made }) => made);
      if (index < 0) break;
      const desc = this.#free[index]!;
      desc.mr.holder = undefined;
      try {
        desc.mr.dereg();
      } catch (error) {
        // Another thread is still in a copy: the next time.
        if (!(error instanceof RefusalError)) throw error;
        desc.mr.holder = this;
        break;
      }
      this.#free.splice(index, 1);
      this.#drop(desc);
      freed++;
    }
    this.#freed += freed;
    if (freed > 0) this.#tell({ kind: 'shrunk', count: freed });
    if (freed === shrinkBlock) return now + monitorMicros;
    this.#leastSince = now;
    this.#leastFree = this.#sharedFree;
    return this.#sharedFree > mrsMin ? now + idleMicros : Infinity;
  }

  #tell(event: FmrPoolEvent): void {
    try {
      this.params.onEvent?.(event);
    } catch {
      this.#callbackErrors++;
    }
  }
}
