/** `ib_fmr_pool_user`: a connection that takes regions from a pool, and has some of its own. */
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { FmrDesc } from './fmr-desc.js';
import type { FmrPool } from './fmr-pool.js';

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
  /** @internal Shared regions that it holds. */
  borrowed = 0;
  /** @internal */
  lent = 0;
  /** @internal */
  hitsL2 = 0;
  /** @internal */
  hitsGlobal = 0;
  readonly #own: FmrDesc[];
  #inUse = 0;
  #peak = 0;
  #hitsL1 = 0;
  #misses = 0;
  #destroyed = false;

  /** @internal Use `pool.createUser()`. */
  constructor(pool: FmrPool, own: FmrDesc[], bucket: number, options: FmrPoolUserOptions) {
    this.pool = pool;
    this.numMr = own.length;
    this.#own = own;
    this.bucket = bucket;
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
    let desc = this.#own.pop();
    if (desc !== undefined) this.#hitsL1++;
    else {
      desc = this.pool.borrow(this);
      if (desc === undefined) {
        this.#misses++;
        return undefined;
      }
      this.borrowed++;
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
    this.borrowed--;
    if (this.lent > 0) {
      this.lent--;
      this.takeBack(desc);
    } else this.pool.giveBack(this, desc);
  }

  /**
   * `ib_destroy_fmr_pool_user`: its regions go to the pool. Throws RefusalError EBUSY while it holds
   * any, or one of its own is registered still.
   */
  destroy(): void {
    if (this.#destroyed) throw new MisuseError('user', 'is destroyed already');
    if (this.#inUse > 0) {
      throw new RefusalError('EBUSY', `destroy: ${this.#inUse} regions are not given back`);
    }
    if (this.#own.some(({ mr }) => mr.registered)) {
      throw new RefusalError('EBUSY', 'destroy: a region is registered; invalidate it first');
    }
    this.#destroyed = true;
    this.pool.userGone(this, this.#own.splice(0));
  }

  /** @internal Own regions that nobody uses and no peer can reach, at most so many. */
  lend(count: number): FmrDesc[] {
    const lent: FmrDesc[] = [];
    // From the end that was used longest ago.
    for (let index = 0; index < this.#own.length && lent.length < count;) {
      const desc = this.#own[index]!;
      if (desc.mr.registered) index++;
      else lent.push(...this.#own.splice(index, 1));
    }
    for (const desc of lent) desc.home = undefined;
    this.lent += lent.length;
    return lent;
  }

  /** @internal A region in place of one that was lent. */
  takeBack(desc: FmrDesc): void {
    desc.home = this;
    this.#own.push(desc);
  }

  #release(desc: FmrDesc): void {
    desc.holder = undefined;
    desc.mr.holder = this.pool;
    this.#inUse--;
  }
}
