/** Pools of memory regions, on a device without a network and with a virtual clock. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  RefusalError,
  VirtualClock,
  createFmrPool,
  createLoopbackPair,
  fmrPools,
  openDevice,
  regionsFor,
  type Context,
  type FmrDesc,
  type FmrPool,
  type FmrPoolEvent,
  type FmrPoolParams,
  type FmrPoolUser,
} from '../../../host/index.js';

interface Bench {
  readonly context: Context;
  readonly clock: VirtualClock;
  readonly pool: FmrPool;
  readonly events: FmrPoolEvent[];
  /** So much time passes. */
  pass(micros: number): void;
}

async function withPool(
  params: Partial<FmrPoolParams>,
  body: (bench: Bench) => void,
  regionsMax = 4096,
): Promise<void> {
  const clock = new VirtualClock();
  await using context = await openDevice({ link: createLoopbackPair().a, clock, regionsMax });
  const events: FmrPoolEvent[] = [];
  const onEvent = (event: FmrPoolEvent): void => void events.push(event);
  const pool = createFmrPool(context, undefined, { maxLength: 4096, onEvent, ...params });
  const pass = (micros: number): void => {
    for (const end = clock.now() + micros; clock.now() < end;) {
      clock.advance(Math.min(500, end - clock.now()));
    }
  };
  body({ context, clock, pool, events, pass });
}

function take(user: FmrPoolUser, count: number): FmrDesc[] {
  return Array.from({ length: count }, () => user.getMr()!).filter((desc) => desc !== undefined);
}

function putAll(user: FmrPoolUser, all: FmrDesc[]): void {
  for (const desc of all.splice(0)) user.putMr(desc);
}

function code(body: () => void): string {
  try {
    body();
  } catch (error) {
    if (error instanceof MisuseError) return 'misuse';
    return (error as RefusalError).code;
  }
  return 'no error';
}

function expectCode(body: () => void, wanted: string, why?: string): void {
  assert.is(code(body), wanted, why);
}

test('a user takes its own first, then its bucket’s, then the pool’s; the last one put is the next', () =>
  withPool({ mrsMax: 64, mrsMin: 16, bucketMrs: 4 }, ({ pool }) => {
    const user = pool.createUser(2);
    const descs = take(user, 5);
    assert.equal(
      [user.stats.hitsL1, user.stats.hitsL2, user.stats.hitsGlobal, user.stats.inUse],
      [2, 0, 3, 5],
    );
    const [, , third] = descs;
    user.putMr(third!);
    assert.is(pool.stats.inBuckets, 1);
    assert.is(user.getMr(), third);
    assert.is(user.stats.hitsL2, 1);
    user.putMr(descs[0]!);
    assert.is(user.getMr(), descs[0]);
    assert.is(user.stats.hitsL1, 3);
    assert.is(user.stats.peak, 5);
    // A bucket that is full: the rest is the pool's.
    const more = take(user, 4);
    putAll(user, [...descs, ...more]);
    assert.equal([pool.stats.inBuckets, user.stats.inUse], [4, 0]);
  }));

test('a new connection gets the bucket that has the fewest', () =>
  withPool({ mrsMax: 64, mrsMin: 8, buckets: 4 }, ({ pool }) => {
    const users = Array.from({ length: 8 }, () => pool.createUser(0));
    assert.equal(
      users.map(({ bucket }) => bucket),
      [0, 1, 2, 3, 0, 1, 2, 3],
    );
    users[2]!.destroy();
    assert.is(pool.createUser(0).bucket, 2);
  }));

test('a release of a region that the caller does not hold is refused without effect', () =>
  withPool({ mrsMax: 64 }, ({ pool }) => {
    const [a, b] = [pool.createUser(1), pool.createUser(1)];
    const desc = a.getMr()!;
    expectCode(() => b.putMr(desc), 'EINVAL');
    assert.is(a.stats.inUse, 1);
    a.putMr(desc);
    expectCode(() => a.putMr(desc), 'EINVAL');
    assert.throws(() => a.putMr({} as never), /^desc: must be what getMr returned/);
    assert.is(a.stats.inUse, 0);
    assert.is(a.getMr(), desc, 'once in its hands again');
    assert.is(a.getMr()!.home, undefined, 'and the next one is another');
  }));

test('2,048 regions: 113 for each connection serve 18, 32 each and 256 in a pool serve 56', () =>
  withPool(
    { mrsMax: 2048, mrsMin: 256 },
    ({ pool }) => {
      let volumes = 0;
      while (code(() => pool.createUser(32)) === 'no error') volumes++;
      assert.is(volumes, 56);
      assert.is(Math.floor(2048 / 113), 18);
      expectCode(() => pool.createUser(32), 'ENOMEM');
      assert.equal([pool.stats.total, pool.stats.free], [2048, 256]);
    },
    4096,
  ));

test('a user that the device has no room for leaves the regions to others', () =>
  withPool(
    { mrsMax: 1024, mrsMin: 16 },
    ({ context, pool }) => {
      pool.createUser(0);
      const { total } = pool.stats;
      expectCode(() => pool.createUser(1000), 'ENOMEM');
      assert.is(pool.stats.total, total);
      const mrs = Array.from({ length: 200 }, () => context.allocMr(4096));
      for (const mr of mrs) mr.dereg();
    },
    256,
  ));

test('below the low-water mark the pool grows, and it shrinks when it is idle', () =>
  withPool(
    { mrsMax: 256, mrsMin: 16, lowWater: 8, growBlock: 16, idleMicros: 20_000, shrinkBlock: 8 },
    ({ pool, events, pass }) => {
      const user = pool.createUser(4);
      const descs = take(user, 4 + 12);
      assert.is(descs.length, 16);
      assert.is(pool.stats.total, 20);
      pass(1000);
      assert.is(pool.stats.total, 36);
      // From idle to eight times the minimum, as fast as the monitor refills.
      while (descs.length < 128) {
        const some = take(user, 8);
        assert.is(some.length, 8, `a stall at ${descs.length}`);
        descs.push(...some);
        pass(1000);
      }
      pass(5000);
      assert.ok(pool.stats.free + pool.stats.inBuckets >= 8, 'the mark is reached within 5 ms');
      putAll(user, descs);
      pass(10_000);
      assert.ok(pool.stats.total > 100, 'nothing is freed at once');
      pass(60_000);
      assert.is(pool.stats.total, 4 + 16, 'the minimum, after the idle time');
      const kinds = events.map(({ kind }) => kind);
      assert.ok(kinds.includes('grown') && kinds.includes('shrunk'));
      assert.ok(events.every(({ kind, count }) => kind !== 'shrunk' || count <= 8));
      assert.is(pool.stats.created - pool.stats.freed, pool.stats.total);
    },
  ));

test('the regions of an idle bucket return to the pool', () =>
  withPool({ mrsMax: 64, mrsMin: 16, idleMicros: 10_000 }, ({ pool, pass }) => {
    const user = pool.createUser(0);
    putAll(user, take(user, 6));
    assert.is(pool.stats.inBuckets, 6);
    pass(8000);
    assert.is(pool.stats.inBuckets, 6);
    pass(4000);
    assert.equal([pool.stats.inBuckets, pool.stats.free], [0, 16]);
  }));

test('an idle pool has no timer', () =>
  withPool({ mrsMax: 64, mrsMin: 16, idleMicros: 10_000 }, ({ pool, pass, clock }) => {
    const user = pool.createUser(4);
    putAll(user, take(user, 10));
    pass(100_000);
    assert.is(clock.nextMicros(), undefined);
  }));

test('under pressure users lend what they do not need, and get it back', () =>
  withPool({ mrsMax: 48, mrsMin: 8, lowWater: 4, idleMicros: 1e6 }, ({ pool, events, pass }) => {
    const asked: number[] = [];
    const rich = pool.createUser(32, {
      reclaim: (wanted) => {
        asked.push(wanted);
        return 6;
      },
    });
    const poor = pool.createUser(4, { weight: 1000 });
    const descs = take(poor, 4 + 8);
    assert.is(poor.getMr(), undefined);
    assert.is(poor.stats.misses, 1);
    pass(1000);
    assert.is(asked.length, 0, 'more are made as long as that is possible');
    descs.push(...take(poor, 4));
    assert.is(pool.stats.total, 48);
    pass(1000);
    assert.ok(asked.length > 0 && asked[0]! > 0);
    assert.equal(events.at(-1), { kind: 'reclaimed', count: rich.stats.lent });
    assert.ok(rich.stats.lent > 0 && rich.stats.lent <= 6);
    descs.push(...take(poor, rich.stats.lent));
    assert.is(descs.length, 16 + rich.stats.lent);
    // Its own regions are still there, without the lent ones.
    const own = take(rich, 32 - rich.stats.lent);
    assert.is(rich.stats.hitsL1, 32 - rich.stats.lent);
    putAll(rich, own);
    putAll(poor, descs);
    pass(20_000);
    assert.is(rich.stats.lent, 0);
    assert.is(take(rich, 32).length, 32);
    assert.is(rich.stats.hitsGlobal + rich.stats.hitsL2, 0);
  }));

const SCARCE = { mrsMax: 48, mrsMin: 8, lowWater: 4, idleMicros: 1e6, demandMicros: 100_000 };

test('an idle user lends all that it has, until it needs them itself', () =>
  withPool(SCARCE, ({ pool, pass }) => {
    const quiet = pool.createUser(32, { reclaim: 'idle' });
    const busy = pool.createUser(0, { weight: 1000 });
    const descs = take(busy, 8);
    for (let turn = 0; turn < 40; turn++) {
      descs.push(...take(busy, 8));
      pass(1000);
    }
    assert.is(quiet.stats.lent, 32);
    assert.ok(descs.length > 40, `${descs.length}`);
    putAll(busy, descs);
    pass(10_000);
    assert.is(quiet.stats.lent, 32, 'it does not need them');
    const own = take(quiet, 10);
    assert.is(own.length, 10);
    assert.is(quiet.stats.hitsL1, 0);
    putAll(quiet, own);
    assert.is(quiet.stats.lent, 22, 'borrowed regions that it puts stay its own');
    putAll(quiet, take(quiet, 10));
    assert.is(quiet.stats.hitsL1, 10);
  }));

test('a user keeps as many regions as it had in use recently, and lends them when that is past', () =>
  withPool(SCARCE, ({ pool, pass }) => {
    const user = pool.createUser(32, { reclaim: 'idle' });
    const busy = pool.createUser(0, { weight: 1000 });
    putAll(user, take(user, 20));
    const held = take(busy, 40);
    for (let turn = 0; turn < 10; turn++) {
      pass(1000);
      held.push(...take(busy, 40));
    }
    assert.ok(user.stats.lent >= 12 && user.stats.lent <= 14, `${user.stats.lent}`);
    const own = take(user, 18);
    assert.is(user.stats.hitsL1, 20 + 18, 'no wait for what it had a moment ago');
    putAll(user, own);
    for (let turn = 0; turn < 100; turn++) {
      pass(10_000);
      held.push(...take(busy, 40));
    }
    assert.is(user.stats.lent, 32);
    putAll(busy, held);
  }));

test('a callback that throws means none, and is counted', () =>
  withPool({ mrsMax: 12, mrsMin: 4, lowWater: 4 }, ({ pool, pass }) => {
    pool.createUser(4, {
      reclaim: () => {
        throw new Error('never');
      },
    });
    const user = pool.createUser(4);
    take(user, 6);
    pass(2000);
    assert.is(pool.stats.callbackErrors, 1);
    assert.is(pool.stats.reclaimed, 0);
  }));

test('under scarcity no user gets more than its share, and the reserve serves the others', () =>
  withPool({ mrsMax: 40, mrsMin: 40, lowWater: 10 }, ({ pool }) => {
    const greedy = pool.createUser(0);
    const heavy = pool.createUser(0, { weight: 3 });
    assert.is(take(greedy, 40).length, 27, 'almost to the mark, since its share (10) is over');
    assert.is(take(heavy, 40).length, 13);
    const modest = pool.createUser(0);
    assert.is(modest.getMr(), undefined, 'none is left');
    assert.is(greedy.stats.misses + heavy.stats.misses, 13 + 27);
  }));

test('the only user of a pool gets all regions; with an idle one beside it, eight ninths', async () => {
  for (const [users, most] of [
    [1, 72],
    [2, 64],
  ] as const) {
    await withPool({ mrsMin: 72, mrsMax: 72, lowWater: 0 }, ({ pool }) => {
      const [busy] = Array.from({ length: users }, () => pool.createUser(0));
      assert.is(take(busy!, 100).length, most);
    });
  }
});

test('under scarcity all users converge to the shares of their weights', () =>
  withPool({ mrsMax: 140, mrsMin: 140, lowWater: 12 }, ({ pool }) => {
    const users = [1, 3].map((weight) => pool.createUser(0, { weight }));
    const idle = Array.from({ length: 20 }, () => pool.createUser(0));
    const hands = users.map((user) => take(user, 140));
    assert.ok(hands[0]!.length > 5 * hands[1]!.length, 'the first one has almost all');
    for (let turn = 0; turn < 500; turn++) {
      // Both give one back; the one that has more asks first, and as often as it likes.
      for (const [index, user] of users.entries()) user.putMr(hands[index]!.shift()!);
      for (const [index, user] of users.entries()) hands[index]!.push(...take(user, 4));
    }
    const [light, heavy] = hands.map(({ length }) => length) as [number, number];
    assert.ok(heavy > 2 * light && heavy < 4 * light, `${light} and ${heavy}`);
    assert.is(take(idle[0]!, 5).length, 5, 'the reserve serves small requests');
  }));

test('a burst beyond its share makes the pool grow as long as it may', () =>
  withPool({ mrsMax: 400, mrsMin: 100, lowWater: 10 }, ({ pool, pass }) => {
    const user = pool.createUser(0);
    for (let count = 0; count < 9; count++) pool.createUser(0);
    assert.is(take(user, 100).length, 91, 'past the mark by one');
    pass(1000);
    assert.ok(take(user, 100).length >= 20, 'more were made');
    for (let turn = 0; turn < 20; turn++) {
      pass(1000);
      take(user, 100);
    }
    assert.is(pool.stats.total, 400);
    assert.ok(user.stats.inUse > 360);
  }));

test('a pool, or a user, with regions out is not destroyed', () =>
  withPool({ mrsMax: 64 }, ({ pool, context }) => {
    const user = pool.createUser(2);
    const desc = user.getMr()!;
    expectCode(() => pool.destroy(), 'EBUSY');
    expectCode(() => user.destroy(), 'EBUSY');
    user.putMr(desc);
    user.destroy();
    expectCode(() => user.getMr(), 'misuse');
    pool.destroy();
    expectCode(() => pool.createUser(1), 'misuse');
    assert.is(fmrPools(context).size, 0);
  }));

test('a ULP has one pool on a device', () =>
  withPool({ ulp: 'iser' }, ({ context, pool }) => {
    expectCode(() => createFmrPool(context, undefined, { maxLength: 4096, ulp: 'iser' }), 'EEXIST');
    const other = createFmrPool(context, undefined, { maxLength: 4096, ulp: 'srp' });
    assert.equal([...fmrPools(context).values()], [pool, other]);
  }));

test('regions come and go by hand; what does not fit is refused', () =>
  withPool({ mrsMax: 17, mrsMin: 16 }, ({ pool, context }) => {
    const mr = context.allocMr(4096);
    pool.addMr(mr);
    assert.is(pool.stats.total, 17);
    expectCode(() => pool.addMr(mr), 'EINVAL');
    expectCode(() => mr.dereg(), 'EBUSY');
    expectCode(() => pool.addMr(context.allocMr(8192)), 'ENOSPC');
    expectCode(() => pool.addMr(context.allocMr(100)), 'EINVAL');
    expectCode(() => pool.addMr(context.allocPd().allocMr(4096)), 'EINVAL');
    const user = pool.createUser(0);
    const [last, desc] = take(user, 2);
    assert.is(last!.mr, mr, 'the last one that came is the first to be taken');
    expectCode(() => pool.removeMr(desc!.mr), 'EBUSY');
    putAll(user, [last!, desc!]);
    pool.removeMr(desc!.mr);
    desc!.mr.dereg();
    pool.removeMr(mr);
    mr.dereg();
    expectCode(() => pool.removeMr(mr), 'EINVAL');
    assert.is(pool.stats.total, 15);
  }));

test('a device without free regions reports and counts it, and existing regions work on', () =>
  withPool(
    { mrsMax: 200, mrsMin: 16, lowWater: 8 },
    ({ pool, events, pass }) => {
      const user = pool.createUser(4);
      const descs = take(user, 16);
      pass(50_000);
      assert.ok(pool.stats.refused > 0, JSON.stringify(pool.stats));
      assert.ok(events.some(({ kind }) => kind === 'exhausted'));
      putAll(user, descs);
      assert.is(take(user, 16).length, 16);
    },
    22,
  ));

test('a context that joins a shared pool uses its settings, and leaves it to the others', async () => {
  const clock = new VirtualClock();
  const { a, b } = createLoopbackPair();
  await using first = await openDevice({ link: a, clock, regionsMax: 64, threadsMax: 2 });
  const params = { maxLength: 4096, mrsMax: 20, mrsMin: 8, ulp: 'both' };
  const made = createFmrPool(first, undefined, params);
  const owned = createFmrPool(first, first.allocPd(), { ...params, ulp: 'of a domain' });
  const share = first.share({ memoryBytes: 2 ** 22 });
  const second = await openDevice({ threadShare: share, link: b, clock, queuePairsMax: 4 });
  const join = (more: object) => createFmrPool(second, undefined, { ...params, ...more });
  expectCode(() => join({ maxLength: 8192 }), 'EINVAL', 'its regions are shorter');
  expectCode(
    () => join({ ulp: 'of a domain' }),
    'EEXIST',
    'regions of a domain are for callers that have the domain',
  );
  const joined = join({ mrsMax: 40, mrsMin: 2 });
  assert.equal([joined.params.mrsMax, joined.params.mrsMin], [20, 8]);
  expectCode(() => join({}), 'EEXIST');
  const mr = second.allocMr(4096);
  joined.addMr(mr);
  const [here, there] = [made.createUser(0), joined.createUser(4)];
  assert.is(there.numMr, 4);
  expectCode(() => joined.destroy(), 'EBUSY', 'it has a user');
  there.destroy();
  const descs = take(here, 20);
  assert.is(descs.length, made.stats.total, 'what both have made and brought');
  assert.ok(
    descs.some((desc) => desc.rkey === mr.rkey),
    'a region of one member is free for all',
  );
  expectCode(() => joined.destroy(), 'EBUSY', 'what it brought is in another hand');
  putAll(here, descs);
  assert.ok(made.stats.total > 0);
  owned.destroy();
  await second.close();
  first.unshare(share);
  assert.is(made.stats.users, 1);
});

test('a burst from idle to eight times the minimum: no stall while there are regions', () =>
  withPool(
    { mrsMax: 512, mrsMin: 16, lowWater: 16, growBlock: 64, idleMicros: 20_000 },
    (world) => {
      const { pool, pass } = world;
      const user = pool.createUser(0);
      const descs: FmrDesc[] = [];
      // As fast as requests come: sixteen each millisecond.
      for (let millis = 0; descs.length < 8 * 16; millis++) {
        descs.push(...take(user, 16));
        pass(1000);
        assert.is(user.stats.misses, 0, `a stall after ${millis} ms`);
      }
      pass(5000);
      assert.ok(pool.stats.free >= 16, 'the mark is reached within 5 ms');
      putAll(user, descs);
      // The idle time of the buckets, that of the pool, and a block each millisecond.
      pass(21_000 + 21_000 + pool.stats.total * 200);
      assert.is(pool.stats.total, 16);
    },
  ));

test('a burst of one turn is served from the next look on, and finds its regions the next time', () =>
  withPool({ mrsMax: 4096, mrsMin: 16 }, ({ pool, pass }) => {
    const user = pool.createUser(0);
    for (const burst of [512, 2048]) {
      const descs = take(user, burst);
      assert.ok(descs.length < burst, 'the first burst finds too few');
      pass(10_000);
      descs.push(...take(user, burst - descs.length));
      assert.is(descs.length, burst, 'ten milliseconds later all are there');
      putAll(user, descs);
      pass(1000);
      const { misses } = user.stats;
      descs.push(...take(user, burst));
      assert.is(user.stats.misses, misses, 'the second burst misses none');
      putAll(user, descs);
      pass(1000);
      assert.ok(pool.stats.mark >= burst / 2);
    }
    pass(10_000_000);
    assert.equal([pool.stats.total, pool.stats.mark], [16, 8], 'demand is forgotten');
  }));

test('a shortage is looked at in a millisecond, although the monitor waits for idle regions', () =>
  withPool({ mrsMax: 200, mrsMin: 16, idleMicros: 1e6 }, ({ pool, pass }) => {
    const user = pool.createUser(0);
    putAll(user, take(user, 9));
    pass(5000);
    take(user, 12);
    pass(1500);
    assert.ok(pool.stats.total > 16);
  }));

test('a bucket returns the regions that were idle, and keeps the one in use', () =>
  withPool({ mrsMax: 64, mrsMin: 16, lowWater: 0, idleMicros: 10_000 }, ({ pool, pass }) => {
    const user = pool.createUser(0);
    putAll(user, take(user, 6));
    for (let millis = 0; millis < 25; millis++) {
      user.putMr(user.getMr()!);
      pass(1000);
    }
    assert.equal([pool.stats.inBuckets, user.stats.hitsL2], [1, 25]);
  }));

test('removeMr takes its region out of any list, and leaves the order of the others', () =>
  withPool({ mrsMax: 64, mrsMin: 16, bucketMrs: 4 }, ({ pool }) => {
    const user = pool.createUser(0);
    const descs = take(user, 12);
    putAll(user, [...descs]);
    // The first four put are the bucket's.
    for (const gone of [descs[1]!, descs[6]!]) {
      pool.removeMr(gone.mr);
      gone.mr.dereg();
    }
    assert.is(pool.stats.total, 14);
    const left = take(user, 14);
    assert.is(new Set(left).size, 14);
    assert.not.ok(left.includes(descs[1]!) || left.includes(descs[6]!));
    putAll(user, left);
  }));

test('numbers out of range are misuse', () =>
  withPool({}, ({ context, pool }) => {
    for (const bad of [
      { maxLength: 0 },
      { mrsMax: 0 },
      { mrsMin: 1000 },
      { buckets: 3 },
      { buckets: 9 },
      { growBlock: 0 },
      { monitorMicros: 0.5 },
      { idleMicros: -1 },
      { onEvent: 4 as never },
      { ulp: '\ud800' },
    ]) {
      const params = { maxLength: 4096, ulp: 'other', ...bad };
      expectCode(() => createFmrPool(context, undefined, params), 'misuse', JSON.stringify(bad));
    }
    expectCode(() => pool.createUser(-1), 'misuse');
    for (const weight of [0, NaN, Infinity, true, '3', 3n, Symbol('3'), null]) {
      expectCode(() => pool.createUser(1, { weight: weight as never }), 'misuse');
    }
    for (const name of [5, null, ['a']]) {
      expectCode(() => pool.createUser(1, { name: name as never }), 'misuse');
    }
    expectCode(() => pool.createUser(1, { reclaim: 5 as never }), 'misuse');
    expectCode(() => pool.revoke(undefined as never), 'misuse');
    expectCode(() => pool.addMr({} as never), 'misuse');
  }));

test('how many regions keep a link busy is a matter of the link and the store, not of connections', () => {
  assert.is(regionsFor({}), 20);
  assert.is(
    regionsFor({ linkBytesPerSecond: 12.5e9, responseMicros: 100, requestBytes: 4096 }),
    306,
  );
  // A disk behind the same link.
  assert.is(regionsFor({ responseMicros: 8000 }), 153);
  assert.throws(() => regionsFor({ requestBytes: 0 }), /requestBytes: must be/);
});

test.run();
