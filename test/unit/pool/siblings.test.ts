/** One pool for all contexts of a device: siblings of a thread, and other threads by weight. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  VirtualClock,
  createFmrPool,
  createLoopbackPair,
  fmrPools,
  openDevice,
  type FmrDesc,
  type FmrPoolUser,
} from '../../../host/index.js';
import { expectRefusal } from '../../support/refusal.js';

const PARAMS = { ulp: 'siblings', maxLength: 4096, mrsMax: 60, mrsMin: 20, lowWater: 0 };

async function openFirst() {
  const clock = new VirtualClock();
  const { a, b } = createLoopbackPair();
  const first = await openDevice({ link: a, clock, regionsMax: 128, threadsMax: 2 });
  return { clock, first, link: b };
}

function takeAll(user: FmrPoolUser): FmrDesc[] {
  const taken: FmrDesc[] = [];
  for (let desc = user.getMr(); desc; desc = user.getMr()) taken.push(desc);
  return taken;
}

test('siblings of a device join one pool, and it lives as long as one of them uses it', async () => {
  const { first, clock } = await openFirst();
  const second = first.openDevice();
  const events: string[] = [];
  const creator = createFmrPool(first, undefined, PARAMS);
  const onEvent = ({ kind }: { kind: string }): void => void events.push(kind);
  const joined = createFmrPool(second, undefined, { ...PARAMS, mrsMax: 70, onEvent });
  assert.is(joined.params.mrsMax, 60, 'the creator’s parameters');
  assert.is(fmrPools(first).get('siblings'), creator);
  assert.is(fmrPools(second).get('siblings'), joined);
  expectRefusal(() => createFmrPool(second, undefined, PARAMS), 'EEXIST');
  const third = first.openDevice();
  expectRefusal(() => createFmrPool(third, undefined, { ...PARAMS, maxLength: 8192 }), 'EINVAL');
  expectRefusal(() => createFmrPool(third, third.allocPd(), PARAMS), 'EEXIST');
  const [here, there] = [creator.createUser(2), joined.createUser(2)];
  assert.equal([creator.users.size, joined.users.size, joined.stats.users], [1, 1, 2]);
  const held = takeAll(here);
  assert.is(held.length, 2 + 20, 'its own, and all that are shared');
  assert.is(there.getMr()!.home, there);
  assert.is(there.getMr()!.home, there);
  assert.is(there.getMr(), undefined);
  expectRefusal(() => there.putMr(held[3]!), 'EINVAL');
  expectRefusal(() => joined.revoke(held[3]!), 'EINVAL');
  clock.advance(5000);
  assert.ok(events.includes('grown'), 'events reach each handle');
  // The context that created the pool is closed: its user's regions are the other's.
  await first.close();
  assert.is(joined.stats.users, 1);
  assert.ok(takeAll(there).length >= 20);
  assert.is(fmrPools(second).get('siblings'), joined);
  await second.close();
  await third.close();
});

test('a region of addMr leaves with its context, or stays while a sibling’s user holds it', async () => {
  const { first } = await openFirst();
  const second = first.openDevice();
  const pool = createFmrPool(first, undefined, PARAMS);
  const joined = createFmrPool(second, undefined, PARAMS);
  const [one, other] = [second.allocMr(4096), second.allocMr(4096)];
  joined.addMr(one);
  joined.addMr(other);
  const user = pool.createUser(0);
  const desc = user.getMr()!;
  assert.is(desc.mr, other);
  expectRefusal(() => joined.destroy(), 'EBUSY');
  await second.close();
  assert.is(pool.stats.total, 21, 'the free one is gone, the held one is not');
  user.putMr(desc);
  assert.is(user.getMr(), desc);
  user.putMr(desc);
  await first.close();
});

test('users of two threads converge to the shares of their weights, 1 and 2', async () => {
  const { first, clock, link } = await openFirst();
  const share = first.share({ memoryBytes: 2 ** 22 });
  const second = await openDevice({ threadShare: share, link, clock, queuePairsMax: 4 });
  const params = { ...PARAMS, mrsMin: 60 };
  const pools = [first, second].map((context) => createFmrPool(context, undefined, params));
  const users = pools.map((pool, index) => pool.createUser(0, { weight: index + 1 }));
  const hands = users.map((user) => takeAll(user));
  assert.ok(hands[0]!.length > 50, 'alone it has almost all');
  for (let turn = 0; turn < 500; turn++) {
    for (const [index, user] of users.entries()) {
      if (hands[index]!.length > 0) user.putMr(hands[index]!.shift()!);
    }
    for (const [index, user] of users.entries()) hands[index]!.push(...takeAll(user));
  }
  assert.equal(
    hands.map(({ length }) => length),
    [20, 40],
  );
  await second.close();
  first.unshare(share);
  await first.close();
});

test.run();
