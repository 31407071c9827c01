/**
 * Conformance cases of OpenSHMEM 1.5, which every PE of a job runs at the same time. The number of
 * the section in the specification stands before each.
 */
import * as assert from 'uvu/assert';
import { ShmemCmp, ShmemSignal, type Shmem } from '../../host/shmem/index.js';
import type { SymmetricArray } from '../../host/shmem/index.js';

type Case = (shmem: Shmem) => Promise<void>;

const all = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

async function putsAndGets(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const next = (myPe + 1) % nPes;
  const types = [Int8Array, Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array] as const;
  for (const type of [...types, Float32Array, Float64Array] as const) {
    const dest = (await shmem.array(type as typeof Int32Array, 100)) as Int32Array;
    for (const count of [1, 3, 8, 9, 100]) {
      const source = dest.slice(0, count).map((_, index) => (myPe + index) % 100);
      shmem.put(dest, source, next);
      await shmem.barrierAll();
      const from = (myPe + nPes - 1) % nPes;
      assert.equal(
        [...dest.subarray(0, count)],
        all(count).map((index) => (from + index) % 100),
      );
      const got = new (type as typeof Int32Array)(count);
      shmem.get(got, dest, next);
      assert.equal(
        [...got],
        all(count).map((index) => (myPe + index) % 100),
      );
      await shmem.barrierAll();
    }
    await shmem.free(dest);
  }
}

/** A number of a range is put in the middle of the object, and nothing beside it changes. */
async function parts(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const dest = await shmem.array(Uint8Array, 64 * 1024);
  dest.fill(0xaa);
  await shmem.barrierAll();
  const bytes = new Uint8Array(5001).fill(myPe + 1);
  shmem.put(dest.subarray(7, 7 + 5001), bytes, (myPe + 1) % nPes);
  await shmem.barrierAll();
  const from = ((myPe + nPes - 1) % nPes) + 1;
  assert.ok(dest.every((byte, at) => byte === (at >= 7 && at < 5008 ? from : 0xaa)));
  await shmem.free(dest);
}

/** A wait looks by itself every 20 ms: a quarter of the puts would be seen after 5 ms or less. */
const WAKES = 40;
const WOKEN_MILLIS = 3;

async function wakes(shmem: Shmem): Promise<void> {
  const flags = await shmem.array(BigInt64Array, 2);
  const sent = await shmem.array(Float64Array, 1);
  const now = (): number => performance.timeOrigin + performance.now();
  const [flag, answer] = [flags.subarray(0, 1), flags.subarray(1)];
  const delays: number[] = [];
  for (let turn = 1n; turn <= WAKES && shmem.myPe < 2; turn++) {
    if (shmem.myPe === 0) {
      await shmem.waitUntil(flag, ShmemCmp.EQ, turn);
      delays.push(now() - sent[0]!);
      shmem.put(answer, BigInt64Array.of(turn), 1);
    } else {
      await new Promise((resolve) => setTimeout(resolve, 7 + (Number(turn) % 11)));
      shmem.put(sent, Float64Array.of(now()), 0);
      shmem.fence();
      shmem.put(flag, BigInt64Array.of(turn), 0);
      await shmem.waitUntil(answer, ShmemCmp.EQ, turn);
    }
  }
  delays.sort((a, b) => a - b);
  const quarter = delays[delays.length >> 2] ?? 0;
  assert.ok(quarter < WOKEN_MILLIS, `a quarter of the puts are seen after ${quarter} ms`);
  await shmem.barrierAll();
  await shmem.free(sent);
  await shmem.free(flags);
}

async function atomicsOf(shmem: Shmem, is64: boolean): Promise<void> {
  const { myPe, nPes } = shmem;
  const type = (is64 ? BigInt64Array : Int32Array) as unknown as typeof Int32Array;
  const word = (value: number): number => (is64 ? BigInt(value) : value) as unknown as number;
  // Two words of 32 bits share one that RDMA changes.
  const words = await shmem.array(type, 2);
  const at = words.subarray(1) as Int32Array;
  for (let turn = 0; turn < 20; turn++) shmem.atomicAdd(at, word(myPe + 1), 0);
  for (let turn = 0; turn < 20; turn++) shmem.atomicInc(at, 0);
  await shmem.barrierAll();
  const sum = 20 * nPes + (20 * nPes * (nPes + 1)) / 2;
  assert.is(shmem.atomicFetch(at, 0), word(sum));
  assert.is(shmem.atomicFetch(words, 0), word(0));
  await shmem.barrierAll();
  const mine = words.subarray(0, 1) as Int32Array;
  const next = (myPe + 1) % nPes;
  shmem.atomicSet(mine, word(12), next);
  assert.is(shmem.atomicSwap(mine, word(-5), next), word(12));
  assert.is(shmem.atomicCompareSwap(mine, word(7), word(8), next), word(-5));
  assert.is(shmem.atomicCompareSwap(mine, word(-5), word(0b1100), next), word(-5));
  assert.is(shmem.atomicFetchAnd(mine, word(0b0110), next), word(0b1100));
  assert.is(shmem.atomicFetchOr(mine, word(0b0001), next), word(0b0100));
  assert.is(shmem.atomicFetchXor(mine, word(0b0111), next), word(0b0101));
  shmem.atomicOr(mine, word(8), next);
  shmem.atomicAnd(mine, word(10), next);
  shmem.atomicXor(mine, word(1), next);
  assert.is(shmem.atomicFetchAdd(mine, word(1), next), word(11));
  assert.is(shmem.atomicFetchInc(mine, next), word(12));
  assert.is(shmem.g(mine, next), word(13));
  await shmem.free(words);
}

async function signals(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const next = (myPe + 1) % nPes;
  const data = await shmem.array(Float64Array, 1000);
  const signal = await shmem.array(BigUint64Array, 1);
  for (let turn = 1; turn <= 5; turn++) {
    shmem.putSignal(
      data,
      new Float64Array(1000).fill(turn),
      signal,
      BigInt(turn),
      ShmemSignal.SET,
      next,
    );
    const seen = await shmem.signalWaitUntil(signal, ShmemCmp.GE, BigInt(turn), {
      timeout: 20_000,
    });
    assert.ok(seen >= BigInt(turn));
    assert.ok(data.every((value) => value === turn));
    await shmem.barrierAll();
  }
  shmem.putSignal(data, new Float64Array(1), signal, 10n, ShmemSignal.ADD, next);
  await shmem.signalWaitUntil(signal, ShmemCmp.EQ, 15n, { timeout: 20_000 });
  assert.is(shmem.signalFetch(signal), 15n);
  await shmem.free(signal);
  await shmem.free(data);
}

async function waits(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const flags = await shmem.array(Int32Array, nPes);
  const limits = { timeout: 20_000 };
  for (let pe = 0; pe < nPes; pe++) shmem.p(flags.subarray(myPe, myPe + 1), myPe + 1, pe);
  await shmem.waitUntilAll(flags, ShmemCmp.NE, 0, limits);
  assert.equal(
    [...flags],
    all(nPes).map((pe) => pe + 1),
  );
  assert.is(shmem.testAll(flags, ShmemCmp.GT, 0), true);
  assert.is(shmem.testAny(flags, ShmemCmp.EQ, 2), 1);
  assert.is(shmem.testAny(flags, ShmemCmp.LT, 0), -1);
  assert.is(shmem.test(flags, ShmemCmp.LE, 1), true);
  await shmem.barrierAll();
  if (myPe === 0) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    for (let pe = 1; pe < nPes; pe++) shmem.atomicSet(flags.subarray(0, 1), 100, pe);
  } else {
    assert.is(await shmem.waitUntilAny(flags, ShmemCmp.EQ, 100, limits), 0);
    await shmem.waitUntil(flags, ShmemCmp.GE, 100, limits);
  }
  let text = '';
  await shmem.waitUntil(flags, ShmemCmp.EQ, -7, { timeout: 10 }).catch((error: Error) => {
    text = error.message;
  });
  assert.match(text, /waitUntil: not within 10 ms/);
  await shmem.free(flags);
}

async function strided(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const next = (myPe + 1) % nPes;
  const dest = await shmem.array(Int16Array, 40);
  shmem.iput(dest.subarray(1), Int16Array.from(all(20)), 3, 2, 10, next);
  await shmem.barrierAll();
  assert.equal(
    [...dest],
    all(40).map((at) => (at >= 1 && (at - 1) % 3 === 0 && at < 31 ? ((at - 1) / 3) * 2 : 0)),
  );
  const got = new Int16Array(12);
  shmem.iget(got, dest.subarray(1), 2, 6, 5, next);
  assert.equal([...got], [0, 0, 4, 0, 8, 0, 12, 0, 16, 0, 0, 0]);
  assert.throws(() => shmem.iput(dest, got, 4, 1, 12, next), /dest: must have 45 elements/);
  await shmem.free(dest);
}

async function collectives(shmem: Shmem): Promise<void> {
  const { myPe, nPes, world } = shmem;
  const source = await shmem.array(Int32Array, 6);
  const dest = await shmem.array(Int32Array, 6 * nPes);
  for (let root = 0; root < nPes; root++) {
    source.fill(100 * myPe + root);
    await world.broadcast(dest, source, root);
    assert.ok(dest.subarray(0, 6).every((value) => value === 101 * root));
    await shmem.syncAll();
  }
  source.forEach((_, index) => (source[index] = 10 * myPe + index));
  await world.fcollect(dest, source);
  assert.equal(
    [...dest],
    all(nPes).flatMap((pe) => all(6).map((index) => 10 * pe + index)),
  );
  await world.collect(dest, source.subarray(0, myPe + 1));
  const parts = all(nPes).flatMap((pe) => all(pe + 1).map((index) => 10 * pe + index));
  assert.equal([...dest.subarray(0, parts.length)], parts);
  // Elements behind those of the source stay.
  dest.fill(-1);
  await shmem.syncAll();
  await world.broadcast(dest, source.subarray(0, 2), 1);
  assert.equal([...dest.subarray(0, 4)], [10, 11, -1, -1]);
  await stepsKept(shmem, dest, source);
  await shmem.free(dest);
  await shmem.free(source);
}

/** One PE calls with wrong arguments, then with right ones: the others do not notice. */
async function stepsKept(shmem: Shmem, dest: Int32Array, source: Int32Array): Promise<void> {
  const { myPe, nPes, world } = shmem;
  const not = (value: unknown): never => value as never;
  const wrong: (() => Promise<unknown>)[] = [
    () => world.sumReduce(dest, not(new Float64Array(1))),
    () => world.broadcast(dest, new Int32Array(1), 0),
    () => world.collect(dest, new Int32Array(1)),
    () => world.splitStrided(0, 0, 2),
    () => world.split2d(0),
    () => shmem.free(not(null)),
    () => shmem.free(dest.subarray(1)),
    () => shmem.realloc(not(new Uint8Array(1)), 8),
    () => shmem.array(not(DataView), 8),
    () => world.sync({ timeout: -1 }),
  ];
  for (const call of myPe === 1 ? wrong : []) {
    const error = await call().catch((caught: unknown) => caught);
    assert.is((error as Error | undefined)?.name, 'MisuseError', `${call}`);
  }
  // The elements of all are too many for one PE only.
  const few = myPe === 1 ? dest.subarray(0, 1) : dest;
  const result = await world.collect(few, source).catch((error: Error) => error.message);
  assert.match(String(result), myPe === 1 ? /^dest: must have at least/ : /^undefined$/);
  source.fill(1);
  await world.sumReduce(source, source, { timeout: 20_000 });
  assert.is(source[0], nPes);
}

/** All get the team of all, also if some PEs come late, and the teams that it leaves are apart. */
async function survivors(shmem: Shmem): Promise<void> {
  const { myPe, nPes, world } = shmem;
  const sums = await shmem.array(Int32Array, 1);
  // Teams of other numbers in each PE: the new one has a number that is free in all.
  const pairs = await world.splitStrided(0, 1, 2);
  const own = await pairs?.survivors({ timeout: 20_000 });
  for (let turn = 1; turn <= 5; turn++) {
    if (myPe === turn % nPes) await new Promise((resolve) => setTimeout(resolve, 5));
    const team = await world.survivors({ timeout: 20_000 });
    assert.equal([team.myPe, team.nPes], [myPe, nPes]);
    sums[0] = myPe;
    await team.sumReduce(sums, sums);
    assert.is(sums[0], (nPes * (nPes - 1)) / 2);
    const next = await team.survivors();
    await next.sync();
    await next.destroy();
    await team.destroy();
  }
  await own?.sync();
  await own?.destroy();
  await pairs?.destroy();
  // A call that ends by its timeout goes on with the next one.
  if (myPe === 0) {
    const late = await world.survivors({ timeout: 1 }).catch((error: Error) => error.message);
    assert.match(String(late), /^survivors: not within 1 ms.*ETIMEDOUT/);
  }
  await shmem.barrierAll();
  const team = await world.survivors({ timeout: 20_000 });
  await team.sync({ timeout: 20_000 });
  await team.destroy();
  await shmem.free(sums);
}

async function allToAll(shmem: Shmem): Promise<void> {
  const { myPe, nPes, world } = shmem;
  const source = await shmem.array(Float32Array, 6 * nPes);
  const dest = await shmem.array(Float32Array, 6 * nPes);
  source.forEach((_, index) => (source[index] = 100 * myPe + index));
  await world.alltoall(dest, source, 2);
  const expected = all(nPes).flatMap((pe) => [2 * myPe, 2 * myPe + 1].map((at) => 100 * pe + at));
  assert.equal([...dest.subarray(0, 2 * nPes)], expected);
  await shmem.syncAll();
  dest.fill(-1);
  await world.alltoalls(dest, source, 2, 3, 2);
  const far = all(nPes).flatMap((pe) => [6 * myPe, 6 * myPe + 3].map((at) => 100 * pe + at));
  assert.equal(
    [...dest.subarray(0, 4 * nPes)].filter((_, at) => at % 2 === 0),
    far,
  );
  assert.is(dest[1], -1);
  await shmem.free(dest);
  await shmem.free(source);
}

async function reductions(shmem: Shmem): Promise<void> {
  const { myPe, nPes, world } = shmem;
  const check = async <Elements extends SymmetricArray>(
    array: Elements,
    values: readonly unknown[],
    reduce: (dest: Elements, source: Elements) => Promise<void>,
    expected: unknown,
  ): Promise<void> => {
    array[0] = values[myPe] as never;
    // In place: the specification allows it.
    await reduce(array, array);
    assert.is(array[0], expected);
    await shmem.syncAll();
  };
  const ints = await shmem.array(Int32Array, 1);
  const longs = await shmem.array(BigUint64Array, 1);
  const doubles = await shmem.array(Float64Array, 1);
  const pes = all(nPes);
  await check(
    ints,
    pes.map((pe) => pe - 1),
    (d, s) => world.sumReduce(d, s),
    (nPes * (nPes - 3)) / 2,
  );
  await check(
    ints,
    pes.map((pe) => 1 << pe),
    (d, s) => world.orReduce(d, s),
    2 ** nPes - 1,
  );
  await check(
    ints,
    pes.map((pe) => ~(1 << pe)),
    (d, s) => world.andReduce(d, s),
    ~(2 ** nPes - 1),
  );
  await check(
    ints,
    pes.map(() => 5),
    (d, s) => world.xorReduce(d, s),
    nPes % 2 ? 5 : 0,
  );
  await check(
    ints,
    pes.map(() => 0x10001),
    (d, s) => world.prodReduce(d, s),
    pes.reduce((p) => Math.imul(p, 0x10001), 1),
  );
  await check(
    doubles,
    pes.map((pe) => -pe),
    (d, s) => world.minReduce(d, s),
    1 - nPes,
  );
  await check(
    doubles,
    pes.map((pe) => pe + 0.5),
    (d, s) => world.maxReduce(d, s),
    nPes - 0.5,
  );
  await check(
    longs,
    pes.map(() => 2n ** 62n),
    (d, s) => world.sumReduce(d, s),
    BigInt.asUintN(64, 2n ** 62n * BigInt(nPes)),
  );
  await shmem.free(doubles);
  await shmem.free(longs);
  await shmem.free(ints);
}

async function teams(shmem: Shmem): Promise<void> {
  const { myPe, nPes, world } = shmem;
  const even = await world.splitStrided(0, 2, Math.ceil(nPes / 2));
  assert.is(even !== undefined, myPe % 2 === 0);
  const sums = await shmem.array(Int32Array, 1);
  if (even) {
    assert.equal([even.myPe, even.nPes], [myPe / 2, Math.ceil(nPes / 2)]);
    assert.is(even.translatePe(even.myPe, world), myPe);
    assert.is(world.translatePe(1, even), -1);
    sums[0] = myPe;
    await even.sumReduce(sums, sums);
    assert.is(
      sums[0],
      all(nPes)
        .filter((pe) => pe % 2 === 0)
        .reduce((sum, pe) => sum + pe, 0),
    );
  }
  await shmem.syncAll();
  const { x, y } = await world.split2d(2);
  assert.equal([x.myPe, y.myPe], [myPe % 2, Math.floor(myPe / 2)]);
  sums[0] = 1;
  await y.sumReduce(sums, sums);
  assert.is(sums[0], y.nPes);
  // 9.4.6: an xrange above the size of the team is that size.
  const wide = await world.split2d(nPes + 5);
  assert.equal([wide.x.nPes, wide.x.myPe, wide.y.nPes], [nPes, myPe, 1]);
  await wide.x.destroy();
  await wide.y.destroy();
  const last = await world.splitStrided(nPes - 1, 0, 1);
  assert.is(last?.nPes, myPe === nPes - 1 ? 1 : undefined);
  await last?.destroy();
  for (let turn = 0; turn < 3; turn++) {
    const team = await world.splitStrided(nPes - 1, -1, nPes);
    assert.is(team!.myPe, nPes - 1 - myPe);
    await team!.sync();
    await team!.destroy();
  }
  await even?.destroy();
  await x.destroy();
  await y.destroy();
  await shmem.free(sums);
}

async function locks(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const lock = await shmem.array(BigInt64Array, 1);
  const count = await shmem.array(Int32Array, 1);
  for (let turn = 0; turn < 10; turn++) {
    await shmem.setLock(lock, { timeout: 30_000 });
    // Not atomic: the lock makes it so.
    const before = shmem.g(count, 0);
    shmem.p(count, before + 1, 0);
    shmem.clearLock(lock);
  }
  await shmem.barrierAll();
  assert.is(shmem.g(count, 0), 10 * nPes);
  await shmem.barrierAll();
  if (myPe === 0) assert.is(shmem.testLock(lock), true);
  await shmem.barrierAll();
  if (myPe !== 0) assert.is(shmem.testLock(lock), false);
  await shmem.barrierAll();
  if (myPe === 0) shmem.clearLock(lock);
  assert.throws(() => shmem.clearLock(lock), /is not held by this PE/);
  await shmem.free(count);
  await shmem.free(lock);
}

async function memory(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const offsets = await shmem.array(Float64Array, 1);
  const first = await shmem.malloc(1000);
  const aligned = await shmem.align(4096, 10);
  assert.is(aligned.byteOffset % 4096, 0);
  const zero = await shmem.calloc(10, 4);
  assert.ok(zero.every((byte) => byte === 0));
  first.fill(myPe + 1);
  const more = await shmem.realloc(first, 3000);
  assert.ok(more.subarray(0, 1000).every((byte) => byte === myPe + 1));
  assert.is(shmem.g(more, (myPe + 1) % nPes), ((myPe + 1) % nPes) + 1);
  assert.throws(
    () => shmem.put(new Uint8Array(8), new Uint8Array(8), 0),
    /dest: must be symmetric/,
  );
  assert.throws(() => shmem.put(zero, new Uint8Array(41), 0), /at least the 41 bytes/);
  assert.throws(() => shmem.put(zero, new Uint8Array(4), nPes), /pe: must be a number/);
  let text = '';
  await shmem.malloc(2 ** 30).catch((error: Error) => (text = error.message));
  assert.match(text, /raise SHMEM_SYMMETRIC_SIZE.*ENOMEM/);
  assert.is(shmem.addrAccessible(more, 0), true);
  assert.is(shmem.addrAccessible(new Uint8Array(1), 0), false);
  const there = shmem.ptr(more, myPe)!;
  assert.is(there.byteOffset, more.byteOffset);
  for (const one of [more, aligned, zero, offsets]) await shmem.free(one);
}

async function order(shmem: Shmem): Promise<void> {
  const { myPe, nPes } = shmem;
  const next = (myPe + 1) % nPes;
  const words = await shmem.array(Int32Array, 2);
  for (let turn = 1; turn <= 200; turn++) {
    shmem.put(words, Int32Array.of(turn), next);
    shmem.fence();
    shmem.put(words.subarray(1), Int32Array.of(turn), next);
    await shmem.waitUntil(words.subarray(1), ShmemCmp.GE, turn, { timeout: 20_000 });
    assert.ok(words[0]! >= turn, 'the first put arrives before the second one');
  }
  await shmem.barrierAll();
  shmem.putNbi(words, Int32Array.of(-1, -1), next);
  shmem.quiet();
  const got = new Int32Array(2);
  shmem.getNbi(got, words, next);
  shmem.quiet();
  assert.equal([...got], [-1, -1]);
  await shmem.free(words);
}

/** By name. */
export const SHMEM_CASES: Readonly<Record<string, Case>> = {
  '9.1: the PEs have numbers, and know each other': async (shmem) => {
    assert.ok(shmem.myPe >= 0 && shmem.myPe < shmem.nPes);
    assert.is(shmem.world.nPes, shmem.nPes);
    assert.is(shmem.peAccessible((shmem.myPe + 1) % shmem.nPes), true);
    assert.equal(shmem.failedPes, []);
    assert.equal([shmem.info().major, shmem.info().minor], [1, 5]);
    await shmem.shared.sync();
  },
  '9.3: symmetric memory is allocated, resized and aligned': memory,
  '9.4: teams are split, translated and destroyed': teams,
  'the survivors of no failure are all PEs': survivors,
  '9.6.1: puts and gets of every type': putsAndGets,
  '9.6.2: a put changes only its elements': parts,
  '9.6.4: strided puts and gets': strided,
  '9.7: atomics of 32 bits': (shmem) => atomicsOf(shmem, false),
  '9.7: atomics of 64 bits': (shmem) => atomicsOf(shmem, true),
  '9.8: a PE that sees the signal sees the data': signals,
  '9.9: broadcast, collect and fcollect': collectives,
  '9.9: alltoall and alltoalls': allToAll,
  '9.9: reductions, in place as well': reductions,
  '9.9: barriers separate what is before from what is after': async (shmem) => {
    const { myPe, nPes } = shmem;
    const turns = await shmem.array(Int32Array, nPes);
    for (let turn = 1; turn <= 100; turn++) {
      for (let pe = 0; pe < nPes; pe++) shmem.p(turns.subarray(myPe, myPe + 1), turn, pe);
      await shmem.barrierAll();
      assert.ok(turns.every((value) => value === turn));
      await shmem.syncAll();
    }
    await shmem.free(turns);
  },
  '9.10: waits and tests': waits,
  '9.10: a put wakes a wait, before that one looks by itself': wakes,
  '9.11: fence and quiet order puts': order,
  '9.12: locks': locks,
};
