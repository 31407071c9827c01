/** Pools of regions against a model: stacks, holders, users and their shares. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  Errno,
  KEY_NOTE_SIZE,
  KeyNoteLayout,
  KeyState,
  POOL_HOLDER,
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  POOL_USER_SIZE,
  PoolLayout,
  PoolNodeLayout,
  PoolMark,
  PoolParametersLayout,
  PoolTake,
  PoolUserLayout,
  PoolUserParametersLayout,
} from '#build/abi.js';
import { Random } from '../../simulation/random.js';
import { SharedArena } from '../../support/shared-arena.js';

const { OK, EAGAIN, EINVAL, EBUSY, ENOSPC, ENOMEM } = Errno;
const { LIVE, INVALID } = KeyState;
const { BUCKET, GLOBAL, SCARCE } = PoolTake;
const LIMITS = {
  regionsMax: 16,
  protectionDomainsMax: 1,
  contextsMax: 41,
  blocksMax: 1,
  servicesMax: 0,
  inboxEntries: 0,
  poolUsersMax: 6,
};
const KEYS = 2 * LIMITS.regionsMax;
/** Their bits are in different words of a pool's members. */
const SLOTS = [1, 40];
/** In place of what a user borrows: it takes what is its own. */
const OWN = 0xffffffff;

interface User {
  readonly slot: number;
  readonly bucket: number;
  readonly weight: number;
  readonly numMr: number;
  lent: number;
}

/** A pool with two members; the key in slot n of the table is KEYS + n, shifted by 8. */
class World {
  readonly #random: Random;
  readonly #arena = new SharedArena(LIMITS);
  readonly #exports = this.#arena.exports;
  readonly #contexts = new Map(SLOTS.map((slot) => [slot, this.#arena.attach(slot).context]));
  readonly #at = this.#arena.heap.alloc(PoolParametersLayout.size);
  readonly #address = this.#arena.state.pools + POOL_SIZE + POOL_LISTS_SIZE;
  readonly #pool = this.#arena.at(PoolLayout, this.#address);
  readonly #limits;
  /** The pool itself, and its buckets: the last one is on top; changes of each list. */
  readonly #lists: number[][] = Array.from({ length: 9 }, () => []);
  readonly #changes = this.#lists.map(() => 1);
  readonly #users: (User | undefined)[] = Array.from({ length: LIMITS.poolUsersMax });
  /** Of regions in the pool: slot and user that hold it; undefined: it is in a list. */
  readonly #holders = new Map<number, readonly [slot: number, user: number] | undefined>();

  constructor(seed: number) {
    const random = (this.#random = new Random(seed));
    this.#limits = {
      maxLength: 64,
      mrsMax: random.between(4, 20),
      mrsMin: random.below(3),
      lowWater: random.below(6),
      buckets: random.pick([1, 2, 8, 9]),
      bucketMrs: random.between(1, 4),
    };
    this.#open(SLOTS[0]!, { ulp0: 9n }, [0, 1]);
    this.#open(SLOTS[0]!, { ulp0: 9n, ulp3: 2n, ...this.#limits }, [1, 1]);
    const joined = this.#open(SLOTS[1]!, { ulp0: 9n, ulp3: 2n }, [1, 0]);
    const { maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs } = joined;
    const limits = { maxLength, mrsMax, mrsMin, lowWater, buckets, bucketMrs };
    assert.equal(limits, this.#limits);
    for (let index = 0; index < KEYS; index++) {
      const key = (KEYS + index) << 8;
      Object.assign(this.#note(index), { key, state: INVALID, owner: SLOTS[index & 1] });
    }
    // Behind the table another process has written what looks like a region in our hand.
    const behind = this.#arena.state.poolNodes + KEYS * POOL_NODE_SIZE;
    const holder = (SLOTS[0]! + 1) << 16;
    Object.assign(this.#arena.at(PoolNodeLayout, behind), { holder, pool: 2 });
    // The first node lies behind the last user, and looks like one of the pool.
    const node = this.#arena.at(PoolNodeLayout, this.#arena.state.poolNodes);
    Object.assign(node, { next: SLOTS[0]! + 1, depth: 2 });
    const context = this.#contexts.get(SLOTS[0]!)!;
    assert.is(this.#exports.poolRemoveUser(context, LIMITS.poolUsersMax), EINVAL);
    this.#exports.poolLend(context, LIMITS.poolUsersMax, 1);
    this.check();
  }

  #open(slot: number, values: object, [pool, isNew]: readonly [number, number]) {
    const parameters = this.#arena.at(PoolParametersLayout, this.#at);
    Object.assign(parameters, { ulp0: 0n, ulp3: 0n, ...values });
    assert.is(this.#exports.poolOpen(this.#contexts.get(slot)!, this.#at), OK);
    assert.equal([parameters.pool, parameters.isNew], [pool, isNew]);
    return parameters;
  }

  #note(index: number) {
    return this.#arena.at(KeyNoteLayout, this.#arena.state.keyNotes + index * KEY_NOTE_SIZE);
  }

  get #buckets(): number {
    return Math.min(this.#limits.buckets, 8);
  }

  get #free(): number {
    const lists = this.#lists.slice(0, this.#buckets + 1);
    return lists.reduce((sum, list) => sum + list.length, 0);
  }

  get #own(): number {
    return this.#users.reduce((sum, user) => sum + (user ? user.numMr - user.lent : 0), 0);
  }

  get #weights(): number {
    return this.#users.reduce((sum, user) => sum + (user?.weight ?? 0), 0);
  }

  #push(list: number, index: number): void {
    this.#lists[list]!.push(index);
    this.#changes[list]!++;
  }

  #pop(list: number): number | undefined {
    const index = this.#lists[list]!.pop();
    if (index !== undefined) this.#changes[list]!++;
    return index;
  }

  add(): void {
    const random = this.#random;
    const index = random.below(KEYS);
    const slot = random.pick(SLOTS);
    const [key, note] = [(KEYS + index) << 8, this.#note(index)];
    note.state = random.chance(0.1) && !this.#holders.has(index) ? LIVE : note.state;
    const isOther = random.chance(0.1);
    const { state, owner } = note;
    const mark = random.pick([0, PoolMark.ADDED]);
    const errno = this.#exports.poolAdd(
      this.#contexts.get(slot)!,
      1,
      isOther ? key + 1 : key,
      mark,
    );
    const isOurs = !isOther && owner === slot && state === INVALID && !this.#holders.has(index);
    const isFull = this.#holders.size >= this.#limits.mrsMax;
    assert.is(errno, !isOurs ? EINVAL : isFull ? ENOSPC : OK);
    if (errno === OK) this.#holders.set(index, [slot, 0]);
    if (!this.#holders.has(index)) note.state = INVALID;
  }

  /** A region and, usually, its holder. */
  #held(): readonly [index: number, slot: number, user: number] {
    const random = this.#random;
    const held = [...this.#holders].filter(([, holder]) => holder);
    if (held.length === 0 || random.chance(0.1)) {
      return [random.below(KEYS + 1), random.pick(SLOTS), random.below(2)];
    }
    const [index, holder] = random.pick(held);
    return [index, ...holder!];
  }

  #isHolder(index: number, slot: number, user: number): boolean {
    const holder = this.#holders.get(index);
    return holder !== undefined && holder[0] === slot && holder[1] === user;
  }

  remove(): void {
    const [index, slot, user] = this.#held();
    if (this.#holders.size === this.#own) return;
    const errno = this.#exports.poolRemove(this.#contexts.get(slot)!, 1, index);
    const isOurs = this.#isHolder(index, slot, 0);
    assert.is(errno, isOurs ? OK : EINVAL, `user ${user}`);
    if (isOurs) this.#holders.delete(index);
  }

  give(): void {
    const random = this.#random;
    const [index, slot, user] = this.#held();
    const bucket = this.#users[user - 1]?.bucket ?? random.below(this.#buckets + 1) - 1;
    const isLive = this.#isHolder(index, slot, user) && random.chance(0.1);
    if (isLive) this.#note(index).state = LIVE;
    const errno = this.#exports.poolGive(this.#contexts.get(slot)!, 1, user, bucket, index);
    assert.is(errno, !this.#isHolder(index, slot, user) ? EINVAL : isLive ? EBUSY : OK);
    if (isLive) this.#note(index).state = INVALID;
    if (errno !== OK) return;
    const hasRoom = user === 0 || this.#lists[bucket + 1]!.length < this.#limits.bucketMrs;
    const fits = bucket >= 0 && hasRoom;
    this.#push(fits ? bucket + 1 : 0, index);
    this.#holders.set(index, undefined);
    assert.is(this.#note(index).owner, POOL_HOLDER);
  }

  /** Has the user its share, and more than is good while few are free? */
  #isOver(user: User | undefined, borrowed: number, free: number): boolean {
    if (!user) return false;
    const { lowWater } = this.#limits;
    const shared = this.#holders.size - this.#own;
    if (borrowed * this.#weights < shared * user.weight) return false;
    return free <= lowWater || borrowed * 1000 >= 8 * user.weight * (free - lowWater);
  }

  #answer(
    user: number,
    bucket: number,
    borrowed: number,
  ): readonly [answer: number, index: number] {
    const { mrsMax, lowWater } = this.#limits;
    const [isFair, isFull] = [borrowed !== OWN, this.#holders.size >= mrsMax];
    let answer = 0;
    if (this.#lists[0]!.length <= lowWater + (isFair && isFull ? borrowed : 0)) {
      const free = this.#free;
      if (free <= lowWater) answer = SCARCE;
      const isGuarded = isFair && free > 0 && (isFull || free < lowWater);
      if (isGuarded && this.#isOver(this.#users[user - 1], borrowed, free)) return [answer, -1];
    }
    const others = Array.from(
      { length: this.#buckets },
      (_, next) => ((bucket + next + 1) % this.#buckets) + 1,
    );
    const lists = user > 0 ? [bucket + 1, 0, ...others] : [0];
    const list = lists.find((each) => this.#lists[each]!.length > 0);
    if (list === undefined) return [answer, -1];
    const isOwn = user > 0 && list === bucket + 1;
    return [answer | (isOwn ? BUCKET : GLOBAL), this.#pop(list)!];
  }

  take(): void {
    const random = this.#random;
    const user = random.below(LIMITS.poolUsersMax + 1);
    const of = this.#users[user - 1];
    if (user > 0 && !of) return;
    const slot = of?.slot ?? random.pick(SLOTS);
    const bucket = of?.bucket ?? 0;
    const borrowed = random.pick([OWN, 0, random.below(5), random.below(20)]);
    const depth = this.#lists[0]!.length;
    this.#pool.least = 10;
    const got = this.#exports.poolTake(this.#contexts.get(slot)!, 1, user, bucket, borrowed);
    const [answer, index] = this.#answer(user, bucket, borrowed);
    assert.is(got, answer | (index + 1), `user ${user} has borrowed ${borrowed}`);
    const isGlobal = this.#lists[0]!.length < depth;
    assert.is(this.#pool.least, isGlobal && depth <= 10 ? depth - 1 : 10);
    if (index < 0) return;
    this.#holders.set(index, [slot, user]);
    assert.is(this.#note(index).owner, slot);
  }

  drain(): void {
    const bucket = this.#random.below(this.#buckets);
    const count = this.#random.pick([-1, 0, 1, 3]);
    this.#exports.poolDrain(this.#contexts.get(SLOTS[0]!)!, 1, bucket, count);
    for (let left = count >>> 0; left > 0; left--) {
      const index = this.#pop(bucket + 1);
      if (index === undefined) break;
      this.#push(0, index);
    }
  }

  addUser(): void {
    const random = this.#random;
    const slot = random.pick(SLOTS);
    const parameters = this.#arena.at(PoolUserParametersLayout, this.#at);
    const pool = random.chance(0.1) ? 8 : 1;
    const { mrsMin, mrsMax } = this.#limits;
    const spare = Math.max(-1, mrsMax - mrsMin - this.#own);
    // The pool has made them before.
    const made = Math.max(0, Math.min(this.#holders.size - this.#own, spare));
    const numMr = random.pick([random.below(made + 1), random.below(made + 1), made, spare + 1]);
    const weight = random.pick([1, 500, 1000, 3000]);
    Object.assign(parameters, { pool, numMr, weight, name0: 1n, name1: 2n, name2: 3n });
    const errno = this.#exports.poolAddUser(this.#contexts.get(slot)!, this.#at);
    const place = this.#users.indexOf(undefined);
    assert.is(errno, pool === 8 ? EINVAL : numMr > spare ? ENOSPC : place < 0 ? ENOMEM : OK);
    if (errno !== OK) return;
    const counts = Array.from(
      { length: this.#buckets },
      (_, bucket) => this.#users.filter((user) => user?.bucket === bucket).length,
    );
    const bucket = counts.indexOf(Math.min(...counts));
    assert.equal([parameters.user, parameters.bucket], [place, bucket]);
    this.#users[place] = { slot, bucket, weight, numMr, lent: 0 };
    const { name0, name1, name2 } = this.#user(place);
    assert.equal([name0, name1, name2], [1n, 2n, 3n]);
  }

  /** While lists are rebuilt nothing changes. */
  close(): void {
    const context = (slot: number): number => this.#contexts.get(slot)!;
    const { poolAdd, poolTake, poolGive, poolRemove, poolDrain } = this.#exports;
    this.#pool.closed = 1;
    assert.is(poolTake(context(SLOTS[0]!), 1, 0, 0, OWN), SCARCE);
    for (let bucket = 0; bucket < this.#buckets; bucket++) {
      poolDrain(context(SLOTS[0]!), 1, bucket, -1);
    }
    for (let index = 0; index < KEYS; index++) {
      const slot = SLOTS[index & 1]!;
      const isFree = !this.#holders.has(index) && this.#note(index).owner === slot;
      if (isFree) assert.is(poolAdd(context(slot), 1, (KEYS + index) << 8, 0), EAGAIN);
      const [holder, user] = this.#holders.get(index) ?? [];
      if (holder === undefined) continue;
      assert.is(poolGive(context(holder), 1, user!, 0, index), EAGAIN);
      if (user === 0) assert.is(poolRemove(context(holder), 1, index), EAGAIN);
    }
    this.#pool.closed = 0;
  }

  check(): void {
    for (const slot of SLOTS) assert.is(this.#arena.slot(slot).pooling, 0);
    const { total, own, weights, users } = this.#pool;
    const count = this.#users.filter((user) => user).length;
    const wanted = [this.#holders.size, this.#own, this.#weights, count];
    assert.equal([total, own, weights, users], wanted);
    assert.is(this.#exports.poolFree(this.#contexts.get(SLOTS[0]!)!, 1), this.#free);
    this.#changes.forEach((changes, list) => {
      const head = this.#address + POOL_SIZE + 64 * list;
      const [top = -1] = this.#lists[list]!.slice(-1);
      const words = [0, 4].map((at) => this.#arena.memory.view.getUint32(head + at, true));
      assert.equal(words, [top + 1, changes], `list ${list}`);
    });
  }

  #user(index: number) {
    return this.#arena.at(PoolUserLayout, this.#arena.state.poolUsers + index * POOL_USER_SIZE);
  }

  removeUser(): void {
    const index = this.#random.below(LIMITS.poolUsersMax + 2);
    const user = this.#users[index];
    const slot = this.#random.pick(SLOTS);
    // It has returned its regions before.
    if ([...this.#holders.values()].some((holder) => holder?.[1] === index + 1)) return;
    const errno = this.#exports.poolRemoveUser(this.#contexts.get(slot)!, index);
    assert.is(errno, user?.slot === slot ? OK : EINVAL);
    if (errno === OK) this.#users[index] = undefined;
  }

  lend(): void {
    const index = this.#random.below(LIMITS.poolUsersMax);
    const user = this.#users[index];
    if (!user) return;
    const isBack = this.#own + user.lent <= this.#holders.size && this.#random.chance(0.5);
    const count = isBack ? -user.lent : user.numMr - user.lent;
    this.#exports.poolLend(this.#contexts.get(user.slot)!, index, count);
    user.lent += count;
    assert.is(this.#user(index).lent, user.lent);
  }
}

const KINDS = [
  'add',
  'add',
  'remove',
  'give',
  'give',
  'take',
  'take',
  'take',
  'drain',
  'addUser',
  'removeUser',
  'lend',
  'close',
] as const;

test('regions, users and shares of a pool are those of the model', () => {
  const random = new Random(1);
  for (let seed = 1; seed <= 30; seed++) {
    const world = new World(seed);
    for (let step = 0; step < 300; step++) {
      world[random.pick(KINDS)]();
      world.check();
    }
  }
});

test.run();
