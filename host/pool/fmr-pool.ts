/**
 * `ib_fmr_pool`: regions that all connections of a ULP share (seed 002). This file is the handle of
 * one context; pool-member.ts has what all contexts of a thread share.
 */
import { Errno } from '#build/abi.js';
import { checkKeys, checkObject } from '../base/options.js';
import { checkOpen } from '../device/device.js';
import { checkWhole, mustBe } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { FastMemoryRegion } from '../verbs/regions/fast-memory-region.js';
import type { FmrDesc } from './fmr-desc.js';
import { checkPositive, type CheckedParams, type FmrPoolStats } from './params.js';
import type { UserDemand } from './pool-demand.js';
import type { PoolMember } from './pool-member.js';
import type { UserPlace } from './pool-table.js';

/** `struct ib_fmr_pool`: memory regions that connections share (`createFmrPool`, seed 002). */
export class FmrPool {
  readonly params: Readonly<CheckedParams>;
  readonly #member: PoolMember;
  readonly #users = new Set<FmrPoolUser>();
  /** Regions of `addMr`. */
  readonly #added = new Set<FastMemoryRegion>();
  readonly #forget: () => void;
  #destroyed = false;

  /** @internal Use `createFmrPool()`. `forget` ends the member if this is its last handle. */
  constructor(
    readonly context: Context,
    readonly pd: ProtectionDomain | undefined,
    params: CheckedParams,
    member: PoolMember,
    forget: () => void,
  ) {
    const { onEvent } = params;
    this.params = { ...member.params, ...(onEvent && { onEvent }) };
    this.#member = member;
    this.#forget = forget;
    member.observers.set(this, onEvent);
  }

  /** Users of this context. */
  get users(): ReadonlySet<FmrPoolUser> {
    for (const user of this.#users) if (user.destroyed) this.#users.delete(user);
    return this.#users;
  }

  get stats(): FmrPoolStats {
    return this.#member.stats;
  }

  /**
   * `ib_create_fmr_pool_user`: a connection with `numMr` regions of its own, in the bucket with the
   * fewest users. Throws MisuseError; RefusalError ENOMEM if the regions cannot be had, or the
   * device has its maximum of users. A failed call changes nothing.
   */
  createUser(numMr: number, options: FmrPoolUserOptions = {}): FmrPoolUser {
    checkKeys('createUser', options, 'name weight reclaim');
    this.#check();
    const { weight = 1, name = '' } = options;
    checkWhole('numMr', numMr, 0, this.params.mrsMax);
    checkPositive('weight', weight);
    if (typeof name !== 'string') throw mustBe('name', 'a string', name);
    const { reclaim } = options;
    if (reclaim !== undefined && reclaim !== 'idle' && typeof reclaim !== 'function') {
      throw mustBe('reclaim', "a function or 'idle'", reclaim);
    }
    const place = this.#member.table.addUser(numMr, weight, name);
    const own = this.#member.takeOwn(place, numMr);
    const user = new FmrPoolUser(this, this.#member, place, own, options);
    this.#users.add(user);
    this.#member.users.add(user);
    this.#member.arm();
    return user;
  }

  /**
   * `ib_fmr_add_mr`: adds a region of the application. Throws RefusalError EINVAL (of another device
   * or domain, shorter than the pool's, or in a pool already), EBUSY (registered), ENOSPC (the pool
   * has `mrsMax` regions).
   */
  addMr(mr: FastMemoryRegion): void {
    if (!(mr instanceof FastMemoryRegion)) {
      throw new MisuseError('mr', `must be a region of allocMr, got ${typeof mr}`);
    }
    this.#check();
    const why = this.#unfit(mr);
    if (why !== undefined) throw new RefusalError('EINVAL', `addMr: ${why}`);
    if (mr.registered)
      throw new RefusalError('EBUSY', 'addMr: the region is registered; invalidate it first');
    const errno = this.#member.regions.add(mr, true);
    if (errno === Errno.OK) {
      this.#added.add(mr);
      return;
    }
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
   * `ib_fmr_remove_mr`: returns the region to the caller; all others stay available. Throws
   * RefusalError EINVAL (not of this pool), EBUSY (a user of any process holds it, or it is in a
   * user's L1).
   */
  removeMr(mr: FastMemoryRegion): void {
    checkObject('removeMr', mr, 'mr');
    this.#check();
    const desc = this.#member.regions.find(mr);
    if (!desc)
      throw new RefusalError(
        'EINVAL',
        'removeMr: the region is not of this pool; pass one that is',
      );
    if (desc.holder || desc.home)
      throw new RefusalError('EBUSY', 'removeMr: a user holds the region; call putMr first');
    if (!this.#member.regions.takeOut(desc)) {
      throw new RefusalError(
        'EBUSY',
        'removeMr: a user of another thread or process holds the region; call putMr there first',
      );
    }
    this.#added.delete(mr);
    this.#member.arm();
  }

  /**
   * `ib_destroy_fmr_pool`: this context leaves the pool. The last one of the last process frees the
   * regions; others keep the pool without the regions that this context added. Throws RefusalError
   * EBUSY while the pool has users of this context, or others hold regions of `addMr`.
   */
  destroy(): void {
    if (this.#destroyed) throw new MisuseError('pool', 'is destroyed already');
    const { size } = this.users;
    if (size > 0) {
      throw new RefusalError('EBUSY', `destroy: the pool has users (${size}); destroy them first`);
    }
    const { regions, observers } = this.#member;
    if (!this.context.device.closed && observers.size > 1) {
      for (const mr of this.#added) {
        const desc = regions.find(mr);
        if (desc && (desc.holder || desc.home || !regions.takeOut(desc))) {
          const remedy = 'call again after putMr';
          throw new RefusalError('EBUSY', `destroy: a user holds a region of addMr; ${remedy}`);
        }
        this.#added.delete(mr);
      }
    }
    this.#end();
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  /**
   * Invalidates a region that a user of this context holds, without a queue pair: for a region of a
   * dead connection, which no LOCAL_INV or SEND_WITH_INV will reach. Returns when no engine of any
   * process uses its memory; after that the user calls `putMr` as usual. Throws RefusalError EINVAL
   * (no user of this context holds the region), EBUSY (an engine does not leave the memory: call
   * again).
   */
  revoke(desc: FmrDesc): void {
    checkObject('revoke', desc, 'desc');
    this.#check();
    if (!desc.holder || desc.holder.pool !== this) {
      throw new RefusalError(
        'EINVAL',
        'revoke: no user of this pool holds the region; pass one that is held',
      );
    }
    desc.mr.revoke();
  }

  /** @internal The context is closed: its users and regions end with it, in any state. */
  endWithContext(): void {
    if (this.#destroyed) return;
    const { closed } = this.context.device;
    for (const user of [...this.users]) {
      if (closed) user.end();
      else user.abandon();
    }
    const { regions, observers } = this.#member;
    if (!closed && observers.size > 1) {
      for (const mr of this.#added) {
        const desc = regions.find(mr);
        const isBusy = desc && (desc.holder || desc.home || !regions.takeOut(desc));
        // A sibling's user holds it: the pool keeps it, and frees it at its end.
        if (isBusy) regions.adopt(mr);
      }
      this.#end();
    } else this.destroy();
  }

  /** Throws RefusalError EBUSY. */
  #end(): void {
    const { observers } = this.#member;
    const own = observers.get(this);
    observers.delete(this);
    try {
      this.#forget();
    } catch (error) {
      observers.set(this, own);
      throw error;
    }
    this.#destroyed = true;
  }

  #check(): void {
    if (this.#destroyed) throw new MisuseError('pool', 'is destroyed');
    checkOpen(this.context.device);
  }

  #unfit(mr: FastMemoryRegion): string | undefined {
    if (mr.context.siblings !== this.context.siblings)
      return 'the region is of another device; use its pool';
    if (mr.pd !== this.pd) {
      return this.pd
        ? 'the region is of another protection domain; use its pool'
        : 'the pool has no protection domain; take regions of context.allocMr()';
    }
    if (mr.holder !== undefined) return 'the region is in a pool already; remove it there first';
    const { maxLength } = this.params;
    if (mr.maxLength >= maxLength) return undefined;
    return `the region must take ${maxLength} bytes, and takes ${mr.maxLength}`;
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
   * counted and lends none. `'idle'`: the user lends what its recent demand does not need, and
   * takes back what it needs again. Default: it lends none.
   */
  readonly reclaim?: 'idle' | ((wanted: number) => number);
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
  /** @internal For `reclaim: 'idle'`. */
  readonly demand: UserDemand | undefined;
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
  readonly #member: PoolMember;
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
  constructor(
    pool: FmrPool,
    member: PoolMember,
    place: UserPlace,
    own: FmrDesc[],
    options: FmrPoolUserOptions,
  ) {
    this.pool = pool;
    this.#member = member;
    this.numMr = own.length;
    this.#own = own;
    this.place = place;
    this.bucket = place.bucket;
    this.hand = place.index + 1;
    this.name = options.name ?? '';
    this.weight = options.weight ?? 1;
    if (options.reclaim === 'idle') this.demand = member.demandOfUser();
    else this.reclaim = options.reclaim;
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
        desc = this.#member.borrow(this);
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
    this.demand?.took(this.#inUse);
    return desc;
  }

  /**
   * `ib_fmr_pool_put_mr`: returns the region to the tier that it came from. Throws RefusalError
   * EINVAL (another user holds it, or it was returned before), EBUSY (a shared region that is still
   * registered). A failed call changes nothing.
   */
  putMr(desc: FmrDesc): void {
    checkObject('putMr', desc, 'desc');
    if (desc.holder !== this) {
      if (!('home' in desc)) throw mustBe('desc', 'what getMr returned', desc);
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
    } else if (this.#member.giveBack(this, desc)) this.borrowed--;
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
    this.#member.userGone(this, this.#own);
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
    for (const desc of this.#member.heldBy(this)) {
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
    this.#member.lent(this, lent);
    return lent;
  }

  /**
   * @internal Own regions that recent demand does not need; negative: lent ones that it does.
   */
  get idle(): number {
    if (!this.demand) return -this.lent;
    const needed = this.demand.recent(this.#inUse) - this.#inUse - this.#own.length;
    return -Math.min(needed, this.lent);
  }

  /** @internal A region that replaces a lent one. */
  takeBack(desc: FmrDesc): void {
    this.lent--;
    this.#member.lent(this, -1);
    desc.home = this;
    this.#own.push(desc);
  }

  /** @internal Retries delayed returns; false if some remain. */
  giveLate(): boolean {
    while (this.#late.length > 0) {
      if (!this.#member.giveBack(this, this.#late[this.#late.length - 1]!)) return false;
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
    desc.mr.holder = this.#member;
    this.#inUse--;
  }
}
