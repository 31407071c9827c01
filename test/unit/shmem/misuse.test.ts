/** One PE that uses its job wrongly: each call is refused with a sentence. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { init, ShmemCmp, ShmemSignal, type Shmem } from '../../../host/shmem/index.js';
import { loadPosix } from '../../../host/link/posix.js';

const test = suite('unit/shmem/misuse');
const { posix } = await loadPosix();

async function withPe(use: (shmem: Shmem, id: string) => Promise<void>): Promise<void> {
  const id = `misuse-${process.pid}-${Math.floor(performance.now() * 1000)}`;
  const shmem = await init({ size: 2 ** 20, job: { id, rank: 0, size: 1 } });
  try {
    await use(shmem, id);
  } finally {
    await shmem.finalize();
  }
}

async function refused(work: () => unknown, pattern: RegExp): Promise<void> {
  let message = 'nothing was refused';
  try {
    await work();
  } catch (error) {
    message = (error as Error).message;
  }
  assert.match(message, pattern);
}

// Symmetric memory of one machine lies in a named device, which needs koffi.
if (posix) {
  test('a second init of the same PE is refused, also after finalize', async () => {
    let name = '';
    await withPe(async (_, id) => {
      name = id;
      const again = () => init({ job: { id, rank: 0, size: 1 } });
      await refused(again, new RegExp(`^job: this process is PE 0 of job ${id}`));
    });
    await refused(() => init({ job: { id: name, rank: 0, size: 1 } }), /since an earlier init/);
  });

  test('a lock is a BigInt64Array; a wait has timeout and signal, and no other limit', () =>
    withPe(async (shmem) => {
      const word = (await shmem.array(Int32Array, 1)) as never;
      const rule = /^lock: must be a BigInt64Array, got Int32Array; make it with shmem.array/;
      await refused(() => shmem.setLock(word), rule);
      await refused(() => shmem.testLock(word), rule);
      await refused(() => shmem.clearLock(word), rule);
      const odd = { timeoutMillis: 5 } as never;
      const unknown = /^timeoutMillis: \w+ has no option of this name; is timeout meant/;
      await refused(() => shmem.barrierAll(odd), unknown);
      await refused(() => shmem.waitUntil(word, ShmemCmp.EQ, 0 as never, odd), unknown);
      await refused(() => shmem.barrierAll({ timeout: -1 }), /^timeout: must be/);
      await shmem.barrierAll({ timeout: 1000 });
    }));

  test('each call after finalize is refused', async () => {
    let ended: Shmem | undefined;
    let words = new BigInt64Array(1);
    await withPe(async (shmem) => {
      ended = shmem;
      words = await shmem.array(BigInt64Array, 4);
    });
    const shmem = ended!;
    const calls: (() => unknown)[] = [
      () => shmem.put(words, BigInt64Array.of(1n), 0),
      () => shmem.p(words, 1n, 0),
      () => shmem.get(BigInt64Array.of(1n), words, 0),
      () => shmem.atomicAdd(words, 1n, 0),
      () => shmem.ptr(words, 0),
      () => shmem.malloc(64),
      () => shmem.barrierAll(),
      () => shmem.waitUntil(words, ShmemCmp.NE, 7n),
      () => shmem.world.broadcast(words, words, 0),
      () => shmem.setLock(words),
      () => shmem.testLock(words),
      () => shmem.test(words, ShmemCmp.EQ, 0n),
      () => shmem.testAny(words, ShmemCmp.EQ, 0n),
      () => shmem.failedPes,
      () => shmem.world.livePes,
      () => shmem.world.survivors(),
      () => shmem.world.splitStrided(0, 1, 1),
      () => shmem.peAccessible(0),
      () => shmem.addrAccessible(new Int8Array(1), 0),
      () => shmem.free(words),
      () => shmem.quiet(),
      () => shmem.fence(),
    ];
    for (const call of calls) await refused(call, /^shmem: is finalized/);
    await shmem.finalize();
  });

  test('values and elements of another type are refused by name', () =>
    withPe(async (shmem) => {
      const words = await shmem.array(BigInt64Array, 4);
      const bytes = await shmem.malloc(64);
      const not = (value: unknown): never => value as never;
      await refused(
        () => shmem.put(words, not(new Int32Array(2)), 0),
        /^source: must be a BigInt64/,
      );
      await refused(() => shmem.put(words, not(null), 0), /^source: must be a BigInt64Array, got/);
      await refused(
        () => shmem.get(not([1]), words, 0),
        /^dest: must be a BigInt64Array, got object/,
      );
      await refused(() => shmem.p(words, not(1), 0), /^value: must be a bigint, got number 1/);
      await refused(() => shmem.atomicAdd(words, not('1'), 0), /^value: must be a bigint/);
      await refused(
        () => shmem.atomicCompareSwap(words, not(0), 1n, 0),
        /^condition: must be a big/,
      );
      await refused(() => shmem.waitUntil(words, ShmemCmp.EQ, not(0)), /^value: must be a bigint/);
      const none = not(undefined);
      await refused(() => shmem.put(none, none, 0), /^dest: must be a typed array, got undef/);
      await refused(() => shmem.get(none, none, 0), /^source: must be a typed array, got undef/);
      await refused(() => shmem.iput(words, not(new Int32Array(2)), 1, 1, 1, 0), /^source: must/);
      await refused(() => shmem.iget(not(new Int32Array(2)), words, 1, 1, 1, 0), /^dest: must/);
      await refused(() => shmem.g(none, 0), /^source: must be symmetric/);
      await refused(() => shmem.p(none, not(1), 0), /^dest: must be symmetric/);
      await refused(() => shmem.atomicAdd(none, none, 0), /^dest: must be symmetric/);
      const doubles = await shmem.array(Float64Array, 1);
      await refused(
        () => shmem.atomicAdd(not(doubles), not(1), 0),
        /^dest: must be an array of whole numbers of 32 or 64 bits/,
      );
      await refused(() => shmem.p(bytes, 1, 1), /^pe: must be a number from 0 to 0, got 1/);
      shmem.put(bytes, Buffer.from('a Buffer is a Uint8Array'), 0);
      assert.is(Buffer.from(bytes.subarray(0, 8)).toString(), 'a Buffer');
    }));

  test('a destroyed team has no collectives, and the teams of the job stay', () =>
    withPe(async (shmem) => {
      const { world, shared } = shmem;
      const rule =
        /^team: must be of splitStrided, split2d or survivors, got shmem\.(world|shared)$/;
      await refused(() => world.destroy(), rule);
      await refused(() => shared.destroy(), rule);
      const words = await shmem.array(Int32Array, 1);
      const teams = [(await world.splitStrided(0, 1, 1))!, await world.survivors()];
      for (const team of teams) {
        await team.destroy();
        const text = /^team: is destroyed; use another team/;
        await refused(() => team.sync(), text);
        await refused(() => team.sumReduce(words, words), text);
        await refused(() => team.splitStrided(0, 1, 1), text);
        await refused(() => team.survivors(), text);
        await refused(() => team.destroy(), text);
      }
    }));

  test('values that the type of an element does not have are refused', () =>
    withPe(async (shmem) => {
      const ints = await shmem.array(Int32Array, 2);
      const bytes = await shmem.array(Uint8Array, 2);
      const longs = await shmem.array(BigInt64Array, 1);
      const signal = await shmem.array(BigUint64Array, 1);
      const int =
        /^value: must be a whole number from -2147483648 to 2147483647 \(Int32Array\), got/;
      await refused(() => shmem.atomicAdd(ints, 1.5, 0), int);
      await refused(() => shmem.atomicSet(ints, 2 ** 31, 0), int);
      await refused(() => shmem.p(ints, NaN, 0), int);
      await refused(() => shmem.waitUntil(ints, ShmemCmp.EQ, 2 ** 40), int);
      await refused(() => shmem.p(bytes, 256, 0), /^value: must be a whole number from 0 to 255/);
      await refused(() => shmem.atomicSet(longs, 2n ** 63n, 0), /\(BigInt64Array\), got 9223372/);
      await refused(
        () => shmem.atomicCompareSwap(longs, -(2n ** 64n), 0n, 0),
        /^condition: must be a whole number from -9223372036854775808/,
      );
      const put = (value: bigint, operation = ShmemSignal.SET) =>
        shmem.putSignal(ints, Int32Array.of(7), signal, value, operation, 0);
      await refused(() => put(-1n), /^value: must be a whole number from 0 to 184467440737095516/);
      await refused(() => put(2n ** 64n, ShmemSignal.ADD), /^value: must be a whole number from 0/);
      await refused(() => put(1n, 9 as never), /^operation: must be a ShmemSignal, got 9/);
      assert.is(ints[0], 0, 'a refused putSignal writes no element');
      const wrong = /^signal: must be a BigUint64Array, got BigInt64Array/;
      await refused(() => shmem.signalFetch(longs as never), wrong);
      await refused(() => shmem.signalWaitUntil(longs as never, ShmemCmp.EQ, 1n), wrong);
      shmem.p(ints, -(2 ** 31), 0);
      shmem.atomicSet(signal, 2n ** 64n - 1n, 0);
      assert.equal([ints[0], signal[0]], [-(2 ** 31), 2n ** 64n - 1n]);
    }));

  test('a wait is for symmetric words; one for any of no words ends at once', () =>
    withPe(async (shmem) => {
      const own = new Int32Array(2);
      const words = await shmem.array(Int32Array, 2);
      const rule = /^ivars?: must be symmetric/;
      await refused(() => shmem.waitUntil(own, ShmemCmp.EQ, 5), rule);
      await refused(() => shmem.waitUntilAll(own, ShmemCmp.EQ, 5), rule);
      await refused(() => shmem.waitUntilAny(own, ShmemCmp.EQ, 5), rule);
      await refused(() => shmem.test(own, ShmemCmp.EQ, 5), rule);
      await refused(() => shmem.signalWaitUntil(new BigUint64Array(1), ShmemCmp.EQ, 5n), /^signal/);
      const none = words.subarray(0, 0);
      await refused(() => shmem.waitUntil(none, ShmemCmp.EQ, 0), /^ivar: must have an element/);
      await refused(
        () => shmem.waitUntilAny(none, 77 as never, 0),
        /^cmp: must be a ShmemCmp, got 77/,
      );
      assert.is(await shmem.waitUntilAny(none, ShmemCmp.EQ, 5), -1);
      assert.is(shmem.testAny(none, ShmemCmp.EQ, 5), -1);
      await shmem.waitUntilAll(none, ShmemCmp.EQ, 5);
      assert.is(shmem.testAll(none, ShmemCmp.EQ, 5), true);
      for (const pe of ['0', [0], 0n, ''] as never[]) {
        const rule = /^(pe|root): must be a number from 0 to 0, got/;
        const words = await shmem.array(Int32Array, 1);
        await refused(() => shmem.put(words, words, pe), rule);
        await refused(() => shmem.get(words, words, pe), rule);
        await refused(() => shmem.atomicAdd(words, 1, pe), rule);
        await refused(() => shmem.world.broadcast(words, words, pe), rule);
      }
      await refused(() => shmem.setLock(new BigInt64Array(1)), /^lock: must be symmetric/);
      await refused(() => shmem.testLock(new BigInt64Array(1)), /^lock: must be symmetric/);
      const lock = await shmem.array(BigInt64Array, 1);
      await refused(() => shmem.setLock(lock.subarray(1)), /^lock: must have an element, got 0/);
    }));

  test('collectives take elements of one type, and teams name their arguments', () =>
    withPe(async (shmem) => {
      const { world } = shmem;
      const not = (value: unknown): never => value as never;
      const ints = await shmem.array(Int32Array, 2);
      const doubles = not(await shmem.array(Float64Array, 2));
      const longs = not(await shmem.array(BigInt64Array, 2));
      const rule = /^source: must be an Int32Array, got (?:Float64|BigInt64)Array$/;
      for (const other of [doubles, longs]) {
        await refused(() => world.broadcast(ints, other, 0), rule);
        await refused(() => world.collect(ints, other), rule);
        await refused(() => world.fcollect(ints, other), rule);
        await refused(() => world.alltoall(ints, other, 1), rule);
        await refused(() => world.alltoalls(ints, other, 1, 1, 1), rule);
        await refused(() => world.sumReduce(ints, other), rule);
        await refused(() => world.maxReduce(ints, other), rule);
        await refused(() => world.xorReduce(ints, other), rule);
      }
      for (const reduce of ['and', 'or', 'xor'] as const) {
        const text = new RegExp(
          `^source: must have whole numbers for ${reduce}Reduce, got Float64`,
        );
        await refused(() => world[`${reduce}Reduce`](doubles, doubles), text);
      }
      await refused(() => world.sumReduce(not(null), not(null)), /^dest: must be a typed array/);
      await refused(
        () => world.broadcast(ints, new Int32Array(1), 0),
        /^source: must be symmetric/,
      );
      await refused(() => world.broadcast(ints, ints, 1), /^root: must be a number from 0 to 0/);
      await refused(() => world.translatePe(0, not('x')), /^team: must be a team of this process/);
      await refused(() => world.splitStrided(0, 1.5, 1), /^stride: must lead to 1 different PEs/);
      assert.is((await world.splitStrided(0, 0, 1))!.nPes, 1);
      const odd = { timeoutMillis: 5 } as never;
      await refused(() => world.survivors(odd), /^timeoutMillis: survivors has no option/);
      await refused(() => world.sumReduce(ints, ints, odd), /^timeoutMillis: sumReduce has no opt/);
      await refused(() => shmem.finalize(odd), /^timeoutMillis: finalize has no option/);
      await refused(() => shmem.globalExit(not('7')), /^status: must be a whole number from 0 to/);
    }));

  test('memory that was not allocated is refused by free and realloc', () =>
    withPe(async (shmem) => {
      const not = (value: unknown): never => value as never;
      const words = await shmem.array(Int32Array, 4);
      await refused(
        () => shmem.free(not(null)),
        /^memory: must be memory that malloc.*returned, got null/,
      );
      await refused(() => shmem.free(new Int32Array(4)), /^memory: must be symmetric/);
      await refused(() => shmem.free(words.subarray(1)), /^memory: must be memory as malloc/);
      await refused(() => shmem.realloc(not(undefined), 5), /^memory: must be memory that malloc/);
      await refused(() => shmem.realloc(not(words), -1), /^length: must be a whole number/);
      await shmem.free(words);
      await refused(
        () => shmem.free(words),
        /^memory: must be memory as malloc.* not free, got 0x/,
      );
      await refused(() => shmem.array(not(DataView), 5), /^type: must be a typed.*got DataView/);
      await refused(() => shmem.array(not('x'), 5), /^type: must be a typed array such.*got "x"/);
      await refused(() => shmem.array(Int8Array, not('x')), /^length: must be a whole number/);
      await refused(() => shmem.align(0.5, 8), /^alignment: must be a power of two, got 0.5/);
    }));

  test('init names its own options if memory is short, or too much is wanted', async () => {
    const id = `misuse-large-${process.pid}`;
    const job = { id, rank: 0, size: 256 };
    const rule = /^size: must let the memory of 256 PEs of one machine be less than 4 GB/;
    await refused(() => init({ size: 2 ** 31, job }), rule);
  });

  test('a PE whose first PE of the machine does not start names init, that PE and a remedy', async () => {
    const job = { id: `misuse-late-${process.pid}`, rank: 1, size: 2 };
    const text = /^init: PE 0, the first of this machine, has not called init within 50 ms.*raise/;
    await refused(() => init({ size: 2 ** 20, timeout: 50, job }), text);
  });
}

test.run();
