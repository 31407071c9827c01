/**
 * This thread's part in a pool: its regions, and the monitor that creates, frees and moves regions.
 * All contexts of the device in this thread use it (`FmrPool` is the handle of one).
 */
import { Errno, PoolTake } from '#build/abi.js';
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { FmrDesc } from './fmr-desc.js';
import type { CheckedParams, FmrPoolEvent, FmrPoolStats } from './params.js';
import { PoolDemand, UserDemand } from './pool-demand.js';
import { PoolRegions } from './pool-regions.js';
import { ITS_OWN, NO_BUCKET, PoolTable, type UserPlace } from './pool-table.js';

/** Interval at which the monitor reads other processes' needs and publishes its own. */
const WATCH_MILLIS = 20;
/** Regions that one look creates at most: about a millisecond of the thread. */
const GROW_SLICE = 256;

/** A user of this thread as the monitor sees it. */
export interface MemberUser {
  readonly place: UserPlace;
  readonly hand: number;
  readonly bucket: number;
  readonly borrowed: number;
  readonly lent: number;
  readonly destroyed: boolean;
  readonly reclaim: ((wanted: number) => number) | undefined;
  /** Own regions that it does not need; negative: lent ones that it takes back. */
  readonly idle: number;
  hitsL2: number;
  hitsGlobal: number;
  lend(count: number, give: (desc: FmrDesc) => boolean): number;
  takeBack(desc: FmrDesc): void;
  giveLate(): boolean;
  publish(): void;
}

/** A bucket as the monitor saw it last. */
interface Bucket {
  /** It had no regions. */
  wasEmpty: boolean;
  sinceMicros: number;
}

export class PoolMember {
  readonly params: Readonly<CheckedParams>;
  readonly table: PoolTable;
  readonly regions: PoolRegions;
  readonly users = new Set<MemberUser>();
  /** Receivers of events, by handle. */
  readonly observers = new Map<object, ((event: FmrPoolEvent) => void) | undefined>();
  readonly #buckets: Bucket[] = [];
  readonly #demand: PoolDemand;
  #leastSince = 0;
  /** Regions to create at a time: doubles from look to look while users miss. */
  #block: number;
  /** The last attempt to create a region failed. */
  #isFull = false;
  /** The EXHAUSTED event was reported. */
  #isExhausted = false;
  #cancelTimer: (() => void) | undefined;
  #timerMicros = 0;
  #watch: ReturnType<typeof setInterval> | undefined;
  #isOver = false;
  /** Users that `createUser` refused, while the pool was repaired: their regions return later. */
  readonly #leaving: { readonly place: UserPlace; readonly own: FmrDesc[] }[] = [];
  #reclaimed = 0;
  #callbackErrors = 0;

  /** `context` lives at least as long as the pool in this thread. Throws RefusalError. */
  constructor(
    readonly context: Context,
    readonly pd: ProtectionDomain | undefined,
    params: CheckedParams,
  ) {
    this.table = PoolTable.open(context, params, pd?.handle ?? 0);
    this.params = { ...params, ...this.table.params };
    this.regions = new PoolRegions(context, pd, this.table, this);
    const { buckets, mrsMin, growBlock, demandMicros, monitorMicros } = this.params;
    this.#block = growBlock;
    this.#demand = new PoolDemand(context.device.clock, demandMicros, monitorMicros);
    for (let index = 0; index < buckets; index++) {
      this.#buckets.push({ wasEmpty: true, sinceMicros: this.#now });
    }
    if (this.table.isNew && this.make(mrsMin) < mrsMin) {
      this.regions.leave(buckets);
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

  get stats(): FmrPoolStats {
    const { total, users, created, freed } = this.table.struct;
    const free = this.table.depth(0);
    return {
      total,
      free,
      inBuckets: Math.max(0, this.table.free - free),
      users,
      created,
      freed,
      reclaimed: this.#reclaimed,
      callbackErrors: this.#callbackErrors,
      refused: this.regions.refused,
      mark: this.#mark,
    };
  }

  /** Ends this thread's part. Throws RefusalError EBUSY. */
  end(): void {
    if (!this.context.device.closed) {
      this.#leave();
      this.regions.leave(this.params.buckets);
    }
    this.#isOver = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    clearInterval(this.#watch);
  }

  /** For a user that lends what it does not need. */
  demandOfUser(): UserDemand {
    return new UserDemand(this.context.device.clock, this.params.demandMicros);
  }

  /** The regions that a user holds. */
  heldBy(user: MemberUser): FmrDesc[] {
    return this.regions.heldBy(user);
  }

  /** Takes a shared region for `user`; undefined if it may have none. */
  borrow(user: MemberUser): FmrDesc | undefined {
    const taken = this.table.take(user.hand, user.bucket, user.borrowed);
    if ((taken & PoolTake.INDEX) === 0) {
      this.#demand.missed();
      this.#arm(0);
      return undefined;
    }
    this.#demand.took();
    if (taken & PoolTake.SCARCE || this.table.depth(0) < this.#demand.peak) this.arm();
    if (taken & PoolTake.BUCKET) user.hitsL2++;
    else user.hitsGlobal++;
    return this.regions.seen(taken);
  }

  /** Returns an invalidated region to the pool; false: the monitor retries. */
  giveBack(user: MemberUser, desc: FmrDesc): boolean {
    const errno = this.table.give(user.hand, user.bucket, desc.index);
    if (errno === Errno.OK) this.#demand.gave();
    this.arm();
    return errno === Errno.OK;
  }

  /** `user` lends `count` more of its own regions; a negative count returns some. */
  lent(user: MemberUser, count: number): void {
    this.table.lend(user.place, count);
  }

  /** Throws RefusalError EBUSY. */
  userGone(user: MemberUser, own: FmrDesc[]): void {
    while (own.length > 0) {
      const desc = own[own.length - 1]!;
      if (this.table.give(user.hand, NO_BUCKET, desc.index) !== Errno.OK) {
        const sentence = 'destroy: regions of a dead process are being reclaimed';
        throw new RefusalError('EBUSY', `${sentence}; call again`);
      }
      desc.home = undefined;
      own.pop();
    }
    this.users.delete(user);
    this.table.removeUser(user.place);
    this.arm();
  }

  /** Takes `numMr` regions for a new user. Throws RefusalError ENOMEM; then nothing has changed. */
  takeOwn(place: UserPlace, numMr: number): FmrDesc[] {
    const { table } = this;
    const wanted = numMr + this.params.mrsMin;
    const { free } = table;
    const made = free < wanted ? this.make(wanted - free) : 0;
    const own: FmrDesc[] = [];
    while (own.length < numMr) {
      const desc = this.regions.seen(table.take(place.index + 1, NO_BUCKET, ITS_OWN));
      if (desc === undefined) break;
      own.push(desc);
    }
    if (own.length === numMr) return own;
    this.#leaving.push({ place, own });
    this.#leave();
    this.arm();
    // Other pools and registrations of the device need them.
    this.regions.free(made);
    const sentence = `createUser: ${numMr} regions are wanted, ${own.length} are free`;
    throw new RefusalError(
      'ENOMEM',
      `${sentence}, and no more can be made now; put some back first`,
    );
  }

  /** Returns the regions of users that were not made; false if the pool refuses one now. */
  #leave(): boolean {
    for (let user = this.#leaving[0]; user; user = this.#leaving[0]) {
      const { place, own } = user;
      for (let desc = own[own.length - 1]; desc; desc = own[own.length - 1]) {
        if (this.table.give(place.index + 1, NO_BUCKET, desc.index) !== Errno.OK) return false;
        own.pop();
      }
      this.table.removeUser(place);
      this.#leaving.shift();
    }
    return true;
  }

  /** Creates up to `count` regions, within `mrsMax`. */
  make(count: number): number {
    const { made, isFull } = this.regions.make(count);
    this.#isFull ||= isFull;
    return made;
  }

  /** Schedules the monitor. */
  arm(): void {
    if (!this.#cancelTimer) this.#arm(this.params.monitorMicros);
    else if (this.#timerMicros > this.#now + this.params.monitorMicros) {
      this.#arm(this.params.monitorMicros);
    }
  }

  get #now(): number {
    return this.context.device.clock.now();
  }

  /** Free regions below which the monitor creates more. */
  get #mark(): number {
    const { lowWater, mrsMax } = this.params;
    return Math.min(mrsMax, Math.max(lowWater, this.#demand.mark));
  }

  #arm(delay: number): void {
    if (this.#isOver || this.context.device.closed) return;
    const at = this.#now + delay;
    if (this.#cancelTimer) {
      if (this.#timerMicros <= at) return;
      this.#cancelTimer();
    }
    this.#timerMicros = at;
    this.#cancelTimer = this.context.device.clock.at(at, () => {
      this.#cancelTimer = undefined;
      if (!this.#isOver && !this.context.device.closed) this.#look();
    });
  }

  /** Watches a pool of several processes: serves their needs and publishes this process's. */
  #lookAround(): void {
    if (this.#isOver || this.context.device.closed) {
      clearInterval(this.#watch);
      return;
    }
    for (const user of this.users) user.publish();
    if (!this.#cancelTimer) this.#look();
  }

  #look(): void {
    const now = this.#now;
    const { lowWater, monitorMicros } = this.params;
    let isLate = false;
    for (const user of this.users) isLate = !user.giveLate() || isLate;
    isLate = !this.regions.giveLate() || isLate;
    isLate = !this.#leave() || isLate;
    if (isLate) this.arm();
    if (!this.#demand.look()) this.#block = this.params.growBlock;
    else this.#block = Math.min(Math.max(GROW_SLICE, this.#block), 2 * this.#block);
    if (this.table.free < this.#mark) {
      this.#grow();
      this.#beginAgain();
      // Until enough are free; regions that users return also end the shortage, by this method.
      const isFull = this.#isFull;
      if (this.table.free < this.#mark && !isFull) this.arm();
      this.#isFull = false;
      if (this.table.free < lowWater || !isFull) return;
    }
    this.#isExhausted = false;
    this.#repay();
    const next = Math.min(this.#emptyIdle(now), this.#shrink(now));
    if (next !== Infinity) this.#arm(Math.max(monitorMicros, next - now));
    if (this.regions.isLeaving) this.arm();
  }

  /** Restarts the count of unused regions. */
  #beginAgain(): void {
    this.#leastSince = this.#now;
    this.table.struct.least = this.table.depth(0);
  }

  #grow(): void {
    const { lowWater, mrsMax } = this.params;
    const room = mrsMax - this.table.struct.total;
    const wanted = Math.min(GROW_SLICE, this.#mark - this.table.free);
    const made = this.make(Math.min(Math.max(this.#block, wanted), room));
    if (made > 0) this.#report({ kind: 'grown', count: made });
    this.#isFull ||= this.table.struct.total >= mrsMax;
    if (!this.#isFull) return;
    for (const user of this.users) {
      const missing = this.#mark - this.table.free;
      if (missing <= 0) return;
      this.#borrowFrom(user, Math.min(missing, user.idle));
    }
    if (this.table.free >= lowWater) return;
    if (!this.#isExhausted) this.#report({ kind: 'exhausted', count: this.table.free });
    this.#isExhausted = true;
    for (const user of this.users) {
      const missing = lowWater - this.table.free;
      if (missing <= 0) break;
      this.#reclaim(user, missing);
    }
  }

  #reclaim(user: MemberUser, wanted: number): void {
    if (!user.reclaim) return;
    let granted = 0;
    try {
      granted = Math.min(Math.floor(user.reclaim(wanted)) || 0, wanted);
    } catch {
      this.#callbackErrors++;
    }
    if (!user.destroyed) this.#borrowFrom(user, granted);
  }

  /** Up to `wanted` own regions of a user go to the pool. */
  #borrowFrom(user: MemberUser, wanted: number): void {
    if (wanted <= 0) return;
    const count = user.lend(wanted, (desc) => {
      return this.table.give(user.hand, NO_BUCKET, desc.index) === Errno.OK;
    });
    this.#reclaimed += count;
    if (count > 0) this.#report({ kind: 'reclaimed', count });
  }

  /** Regions are plentiful: returns lent regions to their users. */
  #repay(): void {
    const { table } = this;
    for (const user of this.users) {
      for (let count = -user.idle; count > 0 && table.free > this.params.lowWater; count--) {
        const desc = this.regions.seen(table.take(user.hand, NO_BUCKET, ITS_OWN));
        if (!desc) return;
        user.takeBack(desc);
      }
    }
  }

  /** Frees unused regions: the process with the lowest slot. */
  get #isFirst(): boolean {
    const { shared, share } = this.context.device;
    return this.table.isFirst(shared?.slot ?? share?.slot ?? 0);
  }

  /**
   * Moves those regions of the buckets to the pool that no user took for the idle time. Returns the
   * time of the next check.
   */
  #emptyIdle(now: number): number {
    const { idleMicros } = this.params;
    const { table } = this;
    let next = Infinity;
    if (!this.#isFirst) return next;
    for (const [index, bucket] of this.#buckets.entries()) {
      const depth = table.depth(index + 1);
      const { wasEmpty } = bucket;
      bucket.wasEmpty = depth === 0;
      if (depth === 0) continue;
      if (!wasEmpty && bucket.sinceMicros + idleMicros > now) {
        next = Math.min(next, bucket.sinceMicros + idleMicros);
        continue;
      }
      if (!wasEmpty) table.drain(index, Math.min(depth, table.leastOf(index)));
      bucket.sinceMicros = now;
      table.beginAgain(index);
      if (table.depth(index + 1) > 0) next = Math.min(next, now + idleMicros);
    }
    return next;
  }

  /** Frees a block of regions that were idle for long. Returns the time of the next check. */
  #shrink(now: number): number {
    const { mrsMin, shrinkBlock, idleMicros, monitorMicros } = this.params;
    const { table } = this;
    const due = this.#leastSince + idleMicros;
    // A region that moves between lists may be counted twice: users' own are no surplus.
    const shared = Math.min(table.free, table.struct.total - table.struct.own);
    const surplus = shared - Math.max(mrsMin, this.#mark);
    if (surplus <= 0 || !this.#isFirst) {
      this.#beginAgain();
      // The mark falls with time.
      return table.free > mrsMin && this.#isFirst ? now + idleMicros : Infinity;
    }
    if (due > now) return due;
    const unused = Math.min(table.struct.least, surplus, shrinkBlock);
    const freed = this.regions.free(unused);
    if (freed > 0) this.#report({ kind: 'shrunk', count: freed });
    if (freed === shrinkBlock) return now + monitorMicros;
    this.#beginAgain();
    return table.free > mrsMin ? now + idleMicros : Infinity;
  }

  #report(event: FmrPoolEvent): void {
    for (const onEvent of [...this.observers.values()]) {
      try {
        onEvent?.(event);
      } catch {
        this.#callbackErrors++;
      }
    }
  }
}
