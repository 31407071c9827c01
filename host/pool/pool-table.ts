/**
 * State of a pool in the arena (assembly/region/pool.ts): its regions and lists, so that threads
 * and processes share them, and a death loses nothing. Regions go by the index of their key's slot.
 */
import {
  ArenaLayout,
  Errno,
  KEY_NOTE_SIZE,
  KeyNoteLayout,
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  POOL_USER_SIZE,
  PoolLayout,
  PoolMark,
  PoolNodeLayout,
  PoolParametersLayout,
  PoolUserLayout,
  PoolUserParametersLayout,
} from '#build/abi.js';
import type { EngineExports } from '../engine/load.js';
import { structAt, type Struct } from '../engine/struct.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { CheckedParams } from './params.js';

/** In place of a bucket: the pool alone. */
export const NO_BUCKET = -1;
/** In place of what a user has borrowed: it takes what is its own. */
export const ITS_OWN = -1;
/** In place of a user: the pool's own hand in this process. */
export const POOLS_HAND = 0;
/** All regions of a bucket. */
export const ALL = -1;

const STRIDE = POOL_SIZE + POOL_LISTS_SIZE;
const NAME_BYTES = 24;
const ULP_BYTES = 32;

/** A user as the arena knows it; its hand is `index + 1`. */
export interface UserPlace {
  readonly index: number;
  readonly bucket: number;
  /** The part of the user's state that other processes see. */
  readonly struct: Struct<typeof PoolUserLayout>;
}

export class PoolTable {
  /** Was it made now, or is it one that others have? */
  readonly isNew: boolean;
  /** Parameters of the process that created the pool. */
  readonly params: CheckedParams;
  readonly struct: Struct<typeof PoolLayout>;
  readonly keyMask: number;
  readonly #context: Context;
  readonly #engine: number;
  readonly #index: number;
  readonly #lists: number;
  readonly #words: Uint32Array;
  readonly #keys: number;
  readonly #nodes: number;

  private constructor(context: Context, struct: Struct<typeof PoolParametersLayout>) {
    const { arena, engine } = context.device;
    const { pools, poolNodes, keyNotes, keyMask } = structAt(
      arena.memory,
      ArenaLayout,
      arena.address,
    );
    const { pool: index, isNew } = struct;
    const { maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs } = struct;
    const address = pools + index * STRIDE;
    this.#context = context;
    this.#engine = engine.context;
    this.#index = index;
    this.#lists = (address + POOL_SIZE) >>> 2;
    this.#words = new Uint32Array(arena.memory.buffer);
    this.#keys = (keyNotes + KeyNoteLayout.fields.key[0]) >>> 2;
    this.#nodes = (poolNodes + PoolNodeLayout.fields.pool[0]) >>> 2;
    this.keyMask = keyMask;
    this.isNew = isNew === 1;
    this.struct = structAt(arena.memory, PoolLayout, address);
    this.params = { maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs } as CheckedParams;
  }

  /**
   * Joins the ULP's pool, or creates it. Throws MisuseError (the ULP's name), RefusalError EEXIST,
   * EINVAL (its regions are shorter than requested), ENOMEM.
   */
  static open(context: Context, params: CheckedParams, pd: number): PoolTable {
    const { arena, engine } = context.device;
    const address = arena.heap.alloc(PoolParametersLayout.size);
    try {
      const struct = structAt(arena.memory, PoolParametersLayout, address);
      arena.memory.bytes.fill(0, address, address + PoolParametersLayout.size);
      const name = new TextEncoder().encode(params.ulp);
      if (name.length === 0 || name.length > ULP_BYTES || /\p{Surrogate}/u.test(params.ulp)) {
        const got = `got "${params.ulp}"`;
        throw new MisuseError('ulp', `must have 1 to ${ULP_BYTES} bytes of UTF-8, ${got}`);
      }
      arena.memory.bytes.set(name, address + PoolParametersLayout.fields.ulp0[0]);
      const { maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs } = params;
      Object.assign(struct, { maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs, pd });
      const errno = arena.exports.poolOpen(engine.context, address);
      if (errno === Errno.EBUSY) {
        throw new RefusalError(
          'EEXIST',
          `createFmrPool: ULP ${params.ulp} has a pool; see fmrPools`,
        );
      }
      if (errno !== Errno.OK) {
        throw new RefusalError(
          'ENOMEM',
          'createFmrPool: the device has pools of 8 ULPs, its limit; destroy one',
        );
      }
      const table = new PoolTable(context, struct);
      if (params.maxLength > table.params.maxLength) {
        const sentence = `the pool of ${params.ulp} has regions of ${table.params.maxLength} bytes`;
        table.close();
        throw new RefusalError('EINVAL', `createFmrPool: ${sentence}; lower maxLength`);
      }
      return table;
    } finally {
      arena.heap.free(address);
    }
  }

  get #exports(): EngineExports {
    return this.#context.device.arena.exports;
  }

  /** Regions without a holder. */
  get free(): number {
    return this.#exports.poolFree(this.#engine, this.#index);
  }

  /** How many a list has: 0 is the pool, then come the buckets. */
  depth(list: number): number {
    const top = this.#words[this.#lists + list * 16]!;
    if (top === 0 || top > this.keyMask + 1) return 0;
    return this.#words[this.#nodes - 2 + ((top - 1) * POOL_NODE_SIZE) / 4]!;
  }

  /** The fewest regions that a bucket had since `beginAgain`. */
  leastOf(bucket: number): number {
    return this.#words[this.#lists + (bucket + 1) * 16 + 2]!;
  }

  /** Restarts the count of a bucket's unused regions. */
  beginAgain(bucket: number): void {
    this.#words[this.#lists + (bucket + 1) * 16 + 2] = this.depth(bucket + 1);
  }

  /** The list of a region and its position from the top, from 1; a hint while others change it. */
  placeOf(index: number): { readonly list: number; readonly position: number } | undefined {
    for (let list = 0; list <= this.params.buckets; list++) {
      let next = this.#words[this.#lists + list * 16]!;
      for (let position = 1; position <= this.keyMask + 1; position++) {
        if (next === 0 || next > this.keyMask + 1) break;
        if (next === index + 1) return { list, position };
        next = this.#words[this.#nodes - 3 + ((next - 1) * POOL_NODE_SIZE) / 4]!;
      }
    }
    return undefined;
  }

  /** The key of a region, as it is now. */
  keyAt(index: number): number {
    return this.#words[this.#keys + (index * KEY_NOTE_SIZE) / 4]!;
  }

  /** Where a region of that key is. */
  indexOf(key: number): number {
    return (key >>> 8) & this.keyMask;
  }

  /** Did an application add the region? */
  isAdded(index: number): boolean {
    return (this.#words[this.#nodes + (index * POOL_NODE_SIZE) / 4]! & PoolMark.ADDED) !== 0;
  }

  /** Is the region there in this pool? */
  has(index: number): boolean {
    return (this.#words[this.#nodes + (index * POOL_NODE_SIZE) / 4]! & 0xffff) === this.#index + 1;
  }

  /** Does a user of any thread or process hold the region? The lower half of its holder says. */
  isHeld(index: number): boolean {
    const holder = Atomics.load(this.#words, this.#nodes - 1 + (index * POOL_NODE_SIZE) / 4);
    return (holder & 0xffff) !== 0;
  }

  /** A PoolTake. */
  take(hand: number, bucket: number, borrowed: number): number {
    return this.#exports.poolTake(this.#engine, this.#index, hand, bucket, borrowed);
  }

  /** An Errno. */
  give(hand: number, bucket: number, index: number): number {
    return this.#exports.poolGive(this.#engine, this.#index, hand, bucket, index);
  }

  /** A region of this context is the pool's, in its own hand. An Errno. */
  add(key: number, added: boolean): number {
    const mark = added ? PoolMark.ADDED : 0;
    return this.#exports.poolAdd(this.#engine, this.#index, key, mark);
  }

  /** A region in the pool's own hand is the context's. An Errno. */
  remove(index: number): number {
    return this.#exports.poolRemove(this.#engine, this.#index, index);
  }

  /** Moves up to `count` regions of a bucket to the pool, one at a time. */
  drain(bucket: number, count: number): void {
    this.#exports.poolDrain(this.#engine, this.#index, bucket, count);
  }

  /** Throws RefusalError ENOMEM. */
  addUser(numMr: number, weight: number, name: string): UserPlace {
    const { arena } = this.#context.device;
    const address = arena.heap.alloc(PoolUserParametersLayout.size);
    try {
      arena.memory.bytes.fill(0, address, address + PoolUserParametersLayout.size);
      const struct = structAt(arena.memory, PoolUserParametersLayout, address);
      const thousandths = Math.min(Math.max(1, Math.round(weight * 1000)), 2 ** 24);
      Object.assign(struct, { pool: this.#index, numMr, weight: thousandths });
      const { name0 } = PoolUserParametersLayout.fields;
      // By way of memory of its own: in a browser an encoder writes into no shared memory.
      const words = new Uint8Array(NAME_BYTES);
      new TextEncoder().encodeInto(name, words);
      arena.memory.bytes.set(words, address + name0[0]);
      const errno = this.#exports.poolAddUser(this.#engine, address);
      if (errno === Errno.ENOSPC) {
        const { mrsMax, mrsMin } = this.params;
        const left = Math.max(0, mrsMax - mrsMin - this.struct.own);
        const sentence = `createUser: ${numMr} regions are wanted; of ${mrsMax}, ${mrsMin} are for`;
        throw new RefusalError(
          'ENOMEM',
          `${sentence} bursts, and users may have ${left} more; raise mrsMax`,
        );
      }
      if (errno !== Errno.OK) {
        throw new RefusalError(
          'ENOMEM',
          'createUser: the device has no free user; raise poolUsersMax',
        );
      }
      const { poolUsers } = structAt(arena.memory, ArenaLayout, arena.address);
      const { user: index, bucket } = struct;
      const place = poolUsers + index * POOL_USER_SIZE;
      return { index, bucket, struct: structAt(arena.memory, PoolUserLayout, place) };
    } finally {
      arena.heap.free(address);
    }
  }

  removeUser({ index }: UserPlace): void {
    this.#exports.poolRemoveUser(this.#engine, index);
  }

  /** The user lends `count` more of its own regions; a negative count returns some. */
  lend({ index }: UserPlace, count: number): void {
    this.#exports.poolLend(this.#engine, index, count);
  }

  /** Adds to a counter of the whole pool. */
  count(what: 'created' | 'freed', by: number): void {
    const { device } = this.#context;
    const { pools } = structAt(device.arena.memory, ArenaLayout, device.arena.address);
    const at = pools + this.#index * STRIDE + PoolLayout.fields[what][0];
    Atomics.add(this.#words, at >>> 2, by);
  }

  /** Is `slot` the lowest of the participants? That process frees unused regions. */
  isFirst(slot: number): boolean {
    const { members0, members1, members2, members3 } = this.struct;
    const all = members0 | (members1 << 64n) | (members2 << 128n) | (members3 << 192n);
    return (all & ((1n << BigInt(slot)) - 1n)) === 0n;
  }

  /** Leaves the pool; false if this is the last process and regions remain. */
  close(): boolean {
    return this.#exports.poolClose(this.#engine, this.#index) !== Errno.EAGAIN;
  }
}
