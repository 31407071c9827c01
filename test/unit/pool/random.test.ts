/**
 * Random steps of a pool and its users: no region is in two hands, none gets lost, and what goes to
 * the next one opens nothing for the last. `POOL_STEPS` asks for more than is usual.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  RefusalError,
  VirtualClock,
  createFmrPool,
  createLoopbackPair,
  openDevice,
  type FmrDesc,
  type FmrPoolUser,
} from '../../../host/index.js';
import { Random } from '../../simulation/random.js';

const STEPS = Number(process.env['POOL_STEPS'] ?? 100_000);
const USERS_MAX = 12;
const MRS_MAX = 160;

test(`${STEPS} random steps: get, put, put what is not theirs, lend, come, go, time passes`, async () => {
  const random = new Random(STEPS);
  const clock = new VirtualClock();
  await using context = await openDevice({ link: createLoopbackPair().a, clock, regionsMax: 256 });
  const pool = createFmrPool(context, undefined, {
    maxLength: 4096,
    mrsMax: MRS_MAX,
    mrsMin: 12,
    lowWater: 6,
    growBlock: 7,
    shrinkBlock: 3,
    bucketMrs: 5,
    idleMicros: 5000,
    monitorMicros: 100,
  });
  const held = new Map<FmrDesc, FmrPoolUser>();
  const hands = new Map<FmrPoolUser, FmrDesc[]>();
  const guaranteed = new Map<FmrPoolUser, number>();
  const users: FmrPoolUser[] = [];
  const counts = { got: 0, missed: 0, refused: 0, came: 0, went: 0 };
  const refused = (body: () => void): void => {
    assert.throws(body, (error: unknown) => error instanceof RefusalError);
    counts.refused++;
  };
  const put = (user: FmrPoolUser, index: number): void => {
    const [desc] = hands.get(user)!.splice(index, 1) as [FmrDesc];
    user.putMr(desc);
    held.delete(desc);
    if (random.below(50) === 0) refused(() => user.putMr(desc));
  };
  const audit = (): void => {
    const { total, free, inBuckets } = pool.stats;
    const own = users.reduce((sum, user) => sum + user.numMr - user.stats.lent, 0);
    const borrowed = users.reduce((sum, user) => sum + user.borrowed, 0);
    assert.is(total, own + borrowed + free + inBuckets, 'none is lost, none is twice');
    assert.ok(total <= MRS_MAX);
    assert.is(
      held.size,
      users.reduce((sum, user) => sum + user.stats.inUse, 0),
    );
  };
  for (let step = 0; step < STEPS; step++) {
    const user = users.length > 0 ? users[random.below(users.length)]! : undefined;
    const mine = user && hands.get(user)!;
    switch (random.below(12)) {
      case 0:
        if (users.length === USERS_MAX || random.below(20) > 0) break;
        try {
          const numMr = random.below(10);
          const options = {
            weight: 1 + random.below(4),
            reclaim: (wanted: number) => random.below(2 * wanted + 2) - 1,
          };
          const made = pool.createUser(numMr, options);
          users.push(made);
          hands.set(made, []);
          guaranteed.set(made, numMr);
          counts.came++;
        } catch (error) {
          assert.instance(error, RefusalError);
          counts.refused++;
        }
        break;
      case 1:
        if (!user || !mine || random.below(30) > 0) break;
        if (mine.length > 0) refused(() => user.destroy());
        while (mine.length > 0) put(user, mine.length - 1);
        user.destroy();
        users.splice(users.indexOf(user), 1);
        counts.went++;
        break;
      case 2:
        clock.advance(random.below(random.below(100) === 0 ? 20_000 : 300));
        break;
      case 3: {
        const [desc, holder] = [...held][random.below(Math.max(1, held.size))] ?? [];
        if (user && desc && holder !== user && random.below(20) === 0) {
          refused(() => user.putMr(desc));
        }
        break;
      }
      case 4:
      case 5:
      case 6:
      case 7: {
        if (!user || !mine) break;
        const desc = user.getMr();
        if (!desc) {
          counts.missed++;
          const own = mine.filter(({ home }) => home === user).length;
          assert.is(own, user.numMr - user.stats.lent, 'its own are there whenever it wants them');
          break;
        }
        assert.not.ok(held.has(desc), 'in two hands');
        assert.is(desc.mr.registered, false);
        held.set(desc, user);
        mine.push(desc);
        counts.got++;
        break;
      }
      default:
        if (user && mine && mine.length > 0) put(user, random.below(mine.length));
    }
    if (step % 1000 === 0) audit();
  }
  audit();
  for (const [name, count] of Object.entries(counts)) assert.ok(count > 0, `${name}: never`);
  for (const user of users.splice(0)) {
    const mine = hands.get(user)!;
    while (mine.length > 0) put(user, mine.length - 1);
    user.destroy();
  }
  clock.advance(1_000_000);
  assert.is(pool.stats.total, pool.stats.free);
  pool.destroy();
  // The device has all of them back.
  const all = Array.from({ length: 256 }, () => context.allocMr(1));
  for (const mr of all) mr.dereg();
});

test.run();
