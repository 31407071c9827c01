/** One PE that uses its job wrongly: each call is refused with a sentence. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { init, ShmemCmp, type Shmem } from '../../../host/shmem/index.js';
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
}

test.run();
