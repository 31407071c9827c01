/** The tables of pools, with invalid requests and with corrupted contents. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  ArenaLayout,
  Errno,
  KeyNoteLayout,
  KeyState,
  KEY_NOTE_SIZE,
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  PoolLayout,
  PoolNodeLayout,
  PoolTake,
} from '#build/abi.js';
import { structAt } from '../../../host/engine/struct.js';
import {
  VirtualClock,
  createFmrPool,
  createLoopbackPair,
  openDevice,
  type FmrPool,
} from '../../../host/index.js';
import { expectRefusal } from '../../support/refusal.js';

const ITS_OWN = -1;

async function withTables(work: (tables: Awaited<ReturnType<typeof open>>) => void): Promise<void> {
  const tables = await open();
  work(tables);
  await tables.context.close();
}

async function open() {
  const link = createLoopbackPair().a;
  const context = await openDevice({ link, clock: new VirtualClock(), regionsMax: 64 });
  const params = { maxLength: 4096, mrsMax: 32, mrsMin: 8, lowWater: 0, bucketMrs: 4 };
  const pool: FmrPool = createFmrPool(context, undefined, params);
  const { arena, engine } = context.device;
  const local = structAt(arena.memory, ArenaLayout, arena.address);
  const { exports } = arena;
  const [a, b] = [pool.createUser(0), pool.createUser(0)];
  const take = (user: typeof a): number =>
    (exports.poolTake(engine.context, 0, user.hand, user.bucket, ITS_OWN) & PoolTake.INDEX) - 1;
  const give = (user: typeof a, index: number): number =>
    exports.poolGive(engine.context, 0, user.hand, user.bucket, index);
  const struct = structAt(arena.memory, PoolLayout, local.pools);
  const node = (index: number) =>
    structAt(arena.memory, PoolNodeLayout, local.poolNodes + index * POOL_NODE_SIZE);
  const note = (index: number) =>
    structAt(arena.memory, KeyNoteLayout, local.keyNotes + index * KEY_NOTE_SIZE);
  /** The list says that this one is on top: 0 is the pool, then come the buckets. */
  const forge = (list: number, index: number): void => {
    arena.memory.view.setUint32(local.pools + POOL_SIZE + 64 * list, index + 1, true);
  };
  return { context, pool, a, b, take, give, struct, node, note, forge, local };
}

test('a region is released by its holder only, once, and after its invalidation', () =>
  withTables(({ a, b, take, give, note, local }) => {
    const index = take(a);
    assert.is(give(b, index), Errno.EINVAL, 'another one’s');
    note(index).state = KeyState.LIVE;
    assert.is(give(a, index), Errno.EBUSY);
    note(index).state = KeyState.INVALID;
    assert.is(give(a, index), Errno.OK);
    assert.is(give(a, index), Errno.EINVAL, 'twice');
    assert.is(give(a, local.keyMask + 1), Errno.EINVAL, 'there is no such place');
    assert.is(take(a), index);
  }));

test('lists that name what they should not: a region is taken only if its node agrees', () =>
  withTables(({ a, b, take, forge, node, note, local }) => {
    const held = take(a);
    for (const list of [0, 1, 2, 3, 4]) forge(list, held);
    assert.is.not(take(b), held, 'it is in another hand');
    assert.is.not(take(b), held);
    for (const list of [0, 1, 2, 3, 4]) forge(list, -1);
    // A circle, one that is alive, one of no pool, one that does not exist.
    node(held).holder = 0;
    node(held).next = held + 1;
    forge(0, held);
    note(held).state = KeyState.LIVE;
    assert.is(take(b), -1, 'a circle of what is alive');
    note(held).state = KeyState.INVALID;
    node(held).next = 0;
    node(held).pool = 0;
    forge(0, held);
    assert.is(take(b), -1, 'of no pool');
    forge(0, local.keyMask + 7);
    assert.is(take(b), -1, 'beyond the table');
    node(held).pool = 1;
    forge(0, held);
    assert.is(take(b), held, 'and when all is well');
  }));

test('while lists are rebuilt no caller waits: take fails, and put is kept until later', () =>
  withTables(({ pool, a, struct, context }) => {
    const [first, second] = [a.getMr()!, a.getMr()!];
    struct.closed = 1;
    assert.is(a.getMr(), undefined);
    a.putMr(first);
    assert.is(a.stats.inUse, 1);
    expectRefusal(() => a.putMr(first), 'EINVAL');
    assert.is(a.getMr(), first, 'its user may have it again');
    a.putMr(first);
    a.putMr(second);
    assert.throws(() => a.destroy(), /being reclaimed/);
    struct.closed = 0;
    (context.device.clock as VirtualClock).advance(2000);
    const { total, free, inBuckets } = pool.stats;
    assert.is(free + inBuckets, total, 'the monitor has given them back');
    a.destroy();
  }));

test('a call for a region writes nothing in front of the slot of its context', () =>
  withTables(({ context, a, local }) => {
    a.putMr(a.getMr()!);
    const { memory, address } = context.device.arena;
    const between = memory.bytes.slice(address + ArenaLayout.size, local.contextSlots);
    assert.ok(between.length > 0);
    assert.equal(between, new Uint8Array(between.length));
  }));

test('a slot takes part in a pool once for all its contexts, and not without its users', () =>
  withTables(({ context, pool, a, b }) => {
    const sibling = context.openDevice();
    const { arena, engine } = context.device;
    const joined = createFmrPool(sibling, undefined, { maxLength: 4096 });
    joined.destroy();
    assert.is(arena.exports.poolClose(engine.context, 0), Errno.EBUSY, 'it has users');
    a.destroy();
    b.destroy();
    assert.is(arena.exports.poolClose(engine.context, 0), Errno.EAGAIN, 'it has regions');
    pool.destroy();
  }));

test('as many pools as there are places, and as many users: the next one is refused', () =>
  withTables(({ context, pool, local }) => {
    const stride = POOL_SIZE + POOL_LISTS_SIZE;
    assert.is(local.poolUsers - local.pools, 8 * stride);
    const more = Array.from({ length: 7 }, (_, index) =>
      createFmrPool(context, undefined, { maxLength: 64, ulp: `ulp ${index}`, mrsMin: 0 }),
    );
    const noMore = (body: () => unknown, words: RegExp) => expectRefusal(body, 'ENOMEM', words);
    noMore(() => createFmrPool(context, undefined, { maxLength: 64, ulp: 'one more' }), /8 ULPs/);
    let users = 0;
    const until = (): void => {
      for (; users < 5000; users++) more[users % 7]!.createUser(0);
    };
    noMore(until, /poolUsersMax/);
    assert.is(users, 1024 - 2);
    noMore(() => pool.createUser(0), /poolUsersMax/);
    const [first] = [...more[0]!.users];
    first!.destroy();
    pool.createUser(0);
  }));

test.run();
