/**
 * Random steps of a pool and its users: no region is held twice, none gets lost, and what goes to
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
  type FmrPool,
  type FmrPoolUser,
} from '../../../host/index.js';
import { Random } from '../../simulation/random.js';

const STEPS = Number(process.env['POOL_STEPS'] ?? 100_000);
const USERS_MAX = 12;
const MRS_MAX = 160;

class RandomUse {
  readonly #random = new Random(STEPS);
  readonly #clock: VirtualClock;
  readonly #pool: FmrPool;
  readonly #holders = new Map<FmrDesc, FmrPoolUser>();
  readonly #taken = new Map<FmrPoolUser, FmrDesc[]>();
  readonly #users: FmrPoolUser[] = [];
  readonly #counts = { got: 0, missed: 0, refused: 0, came: 0, went: 0 };

  constructor(pool: FmrPool, clock: VirtualClock) {
    this.#pool = pool;
    this.#clock = clock;
  }

  step(): void {
    const below = (limit: number): number => this.#random.below(limit);
    const user = this.#users.length > 0 ? this.#users[below(this.#users.length)] : undefined;
    const kind = below(12);
    if (kind === 0) {
      if (this.#users.length < USERS_MAX && below(20) === 0) this.#createUser();
    } else if (kind === 2) this.#clock.advance(below(below(100) === 0 ? 20_000 : 300));
    else if (!user) return;
    else if (kind === 1) {
      if (below(30) === 0) this.#destroy(user);
    } else if (kind === 3) this.#putOfAnother(user);
    else if (kind < 8) this.#get(user);
    else {
      const mine = this.#taken.get(user)!;
      if (mine.length > 0) this.#put(user, below(mine.length));
    }
  }

  audit(): void {
    const { total, free, inBuckets } = this.#pool.stats;
    const sum = (of: (user: FmrPoolUser) => number): number =>
      this.#users.reduce((all, user) => all + of(user), 0);
    const own = sum(({ numMr, stats }) => numMr - stats.lent);
    const borrowed = sum((user) => user.borrowed);
    assert.is(total, own + borrowed + free + inBuckets, 'none is lost, none is twice');
    assert.ok(total <= MRS_MAX);
    assert.is(
      this.#holders.size,
      sum(({ stats }) => stats.inUse),
    );
  }

  end(): void {
    for (const [name, count] of Object.entries(this.#counts))
      assert.ok(count > 0, `${name}: never`);
    for (const user of [...this.#users]) this.#destroy(user);
  }

  #refused(body: () => void): void {
    assert.throws(body, (error: unknown) => error instanceof RefusalError);
    this.#counts.refused++;
  }

  #createUser(): void {
    const numMr = this.#random.below(10);
    const lends = (wanted: number): number => this.#random.below(2 * wanted + 2) - 1;
    const options = {
      weight: 1 + this.#random.below(4),
      reclaim: this.#random.below(2) === 0 ? ('idle' as const) : lends,
    };
    try {
      const made = this.#pool.createUser(numMr, options);
      this.#users.push(made);
      this.#taken.set(made, []);
      this.#counts.came++;
    } catch (error) {
      assert.instance(error, RefusalError);
      this.#counts.refused++;
    }
  }

  #destroy(user: FmrPoolUser): void {
    const mine = this.#taken.get(user)!;
    if (mine.length > 0) this.#refused(() => user.destroy());
    while (mine.length > 0) this.#put(user, mine.length - 1);
    user.destroy();
    this.#users.splice(this.#users.indexOf(user), 1);
    this.#counts.went++;
  }

  #get(user: FmrPoolUser): void {
    const mine = this.#taken.get(user)!;
    const desc = user.getMr();
    if (!desc) {
      this.#counts.missed++;
      const own = mine.filter(({ home }) => home === user).length;
      assert.is(own, user.numMr - user.stats.lent, 'its own are there whenever it wants them');
      return;
    }
    assert.not.ok(this.#holders.has(desc), 'held twice');
    assert.is(desc.mr.registered, false);
    this.#holders.set(desc, user);
    mine.push(desc);
    this.#counts.got++;
  }

  #put(user: FmrPoolUser, index: number): void {
    const [desc] = this.#taken.get(user)!.splice(index, 1) as [FmrDesc];
    user.putMr(desc);
    this.#holders.delete(desc);
    if (this.#random.below(50) === 0) this.#refused(() => user.putMr(desc));
  }

  #putOfAnother(user: FmrPoolUser): void {
    const { size } = this.#holders;
    const [desc, holder] = [...this.#holders][this.#random.below(Math.max(1, size))] ?? [];
    if (desc && holder !== user && this.#random.below(20) === 0) {
      this.#refused(() => user.putMr(desc));
    }
  }
}

test(`${STEPS} random steps: get, put, put what is not theirs, lend, come, go, time passes`, async () => {
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
  const use = new RandomUse(pool, clock);
  for (let step = 0; step < STEPS; step++) {
    use.step();
    if (step % 1000 === 0) use.audit();
  }
  use.audit();
  use.end();
  clock.advance(1_000_000);
  assert.is(pool.stats.total, pool.stats.free);
  pool.destroy();
  // The device has all of them back.
  const all = Array.from({ length: 256 }, () => context.allocMr(1));
  for (const mr of all) mr.dereg();
});

test.run();
