/** `ib_fmr_pool_user`: a connection that takes regions from a pool, and has some of its own. */
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { FmrDesc } from './fmr-desc.js';
import type { FmrPool } from './fmr-pool.js';
import type { UserPlace } from './pool-table.js';

/** What a user of a pool has of its own. */
export interface FmrPoolUserOptions {
  /** For logs. */
  readonly name?: string;
  /** Its share of scarce regions, against others. Default 1. */
  readonly weight?: number;
  /**
   * The pool has too few: how many of its own regions (L1) will the user do without for a while, of
   * `wanted`? They come back with the next ones that it has borrowed and puts, or when there are
   * enough. What it throws is counted, and means none.
   */
  readonly reclaim?: (wanted: number) => number;
}

/** Of a user. Counters are since it was made. */
export interface FmrPoolUserStats {
  readonly inUse: number;
  readonly peak: number;
  readonly hitsL1: number;
  readonly hitsL2: number;
  readonly hitsGlobal: number;
  /** `getMr` that had nothing to give. */
  readonly misses: number;
  /** Own regions that others have at the moment. */
  readonly lent: number;
}

/** `struct ib_fmr_pool_user`: one connection’s part in a pool (`pool.createUser`). */
export class FmrPoolUser {
  readonly pool: FmrPool;
  /** Regions of its own. */
  readonly numMr: number;
  readonly name: string;
  readonly weight: number;
  /** @internal */
  readonly reclaim: ((wanted: number) => number) | undefined;
  /** @internal Which bucket (L2). */
  readonly bucket: number;
  /** @internal What the arena knows of it, and what holds its regions there. */
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
  /** Given back, and not taken: somebody died, and the pool is being put in order. */
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
   * `ib_fmr_pool_get_mr`: a region to register; undefined when there is none at this moment. Never
   * waits. Throws MisuseError when the user is destroyed.
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
   * `ib_fmr_pool_put_mr`: the region goes back to where it came from. Throws RefusalError EINVAL
   * (another user has it, or nobody: given back twice), EBUSY (it is not of this user's own, and is
   * registered still: others would get it). Nothing has changed then.
   */
  putMr(desc: FmrDesc): void {
    if (desc.holder !== this) {
      const who = desc.holder ? 'another user has it' : 'it was given back before';
      throw new RefusalError('EINVAL', `putMr: ${who}`);
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
   * any, one of its own is registered still, or the pool is being put in order after a death.
   */
  destroy(): void {
    if (this.#destroyed) throw new MisuseError('user', 'is destroyed already');
    if (this.#inUse > 0) {
      throw new RefusalError('EBUSY', `destroy: ${this.#inUse} regions are not given back`);
    }
    if (this.#own.some(({ mr }) => mr.registered)) {
      throw new RefusalError('EBUSY', 'destroy: a region is registered; invalidate it first');
    }
    if (!this.giveLate()) throw new RefusalError('EBUSY', 'destroy: the pool is put in order');
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
   * @internal Gives away own regions that nobody uses and no peer can reach, at most so many;
   * `give`: false when it is not taken. Returns how many.
   */
  lend(count: number, give: (desc: FmrDesc) => boolean): number {
    let lent = 0;
    // From the end that was used longest ago.
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

  /** @internal A region in place of one that was lent. */
  takeBack(desc: FmrDesc): void {
    this.lent--;
    this.pool.lent(this, -1);
    desc.home = this;
    this.#own.push(desc);
  }

  /** @internal Gives back what was not taken. False: it still is not. */
  giveLate(): boolean {
    while (this.#late.length > 0) {
      if (!this.pool.giveBack(this, this.#late[this.#late.length - 1]!)) return false;
      this.#late.pop();
      this.borrowed--;
    }
    return true;
  }

  /** @internal Others see what it has done. */
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
