/** One pool in several threads, without a lock, and without koffi. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  createFmrPool,
  openDevice,
  type DeviceShare,
  type RefusalError,
} from '../../../host/index.js';
import { auditArena } from '../../support/arena-audit.js';
import type { PoolThreadData } from '../../support/pool-thread.js';

const PARAMS = {
  ulp: 'threads',
  maxLength: 4096,
  mrsMax: 64,
  mrsMin: 24,
  lowWater: 0,
  bucketMrs: 3,
};
const REGIONS_MAX = 128;

function start(data: PoolThreadData): Worker {
  return new Worker(new URL('../../support/pool-thread.js', import.meta.url), { workerData: data });
}

async function open() {
  const device = await openDevice({
    progress: 'inline',
    address: '127.0.0.1',
    port: 0,
    threadsMax: 6,
    regionsMax: REGIONS_MAX,
  });
  const pool = createFmrPool(device, undefined, PARAMS);
  const gate = new SharedArrayBuffer(16);
  const claims = new SharedArrayBuffer(4 * 2 * REGIONS_MAX);
  const threads: { share: DeviceShare; worker: Worker }[] = [];
  const begin = async (count: number, turns: number): Promise<void> => {
    for (let seed = 0; seed < count; seed++) {
      const share = device.share({ memoryBytes: 8 * 2 ** 20 });
      const data = { share, params: PARAMS, numMr: seed, claims, gate, turns, seed };
      threads.push({ share, worker: start(data) });
    }
    const words = new Int32Array(gate);
    while (Atomics.load(words, 1) < count) await new Promise((go) => setTimeout(go, 5));
    Atomics.store(words, 0, 1);
    Atomics.notify(words, 0);
  };
  const whole = (): void => {
    assert.equal(auditArena(device.device.arena), []);
    const { total, free, inBuckets, users } = pool.stats;
    assert.equal([total, users], [free + inBuckets, 0], 'all are back');
    const user = pool.createUser(0);
    const all = new Set<number>();
    for (let desc = user.getMr(); desc; desc = user.getMr()) all.add(desc.rkey >>> 8);
    assert.is(all.size, total, 'each of them once');
  };
  return { device, threads, gate, begin, whole };
}

test('four threads take and give back at once: no region is in two hands, none is lost', async () => {
  const { device, threads, begin, whole } = await open();
  await begin(4, 30_000);
  const ends = threads.map(async ({ worker }) => {
    const [[told]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')]);
    return told as { wrong: number; stats: { hitsL2: number; hitsGlobal: number } };
  });
  for (const { wrong, stats } of await Promise.all(ends)) {
    assert.is(wrong, 0);
    assert.ok(stats.hitsL2 > 0 && stats.hitsGlobal > 0);
  }
  for (const { share } of threads) device.unshare(share);
  whole();
  await device.close();
});

test('threads that are terminated in the middle of their work lose no regions', async () => {
  const { device, threads, begin, gate, whole } = await open();
  await begin(4, 2 ** 30);
  const words = new Int32Array(gate);
  for (const { worker, share } of threads) {
    const before = Atomics.load(words, 2);
    while (Atomics.load(words, 2) - before < 5_000) await new Promise((go) => setTimeout(go, 1));
    await worker.terminate();
    for (let attempt = 0; ; attempt++) {
      try {
        device.unshare(share);
        break;
      } catch (error) {
        // Another thread stands still in the middle of something: it gets the processor.
        if (attempt > 1000) throw error;
        await new Promise((go) => setTimeout(go, 1));
      }
    }
  }
  whole();
  await device.close();
});

test('removeMr of 41 regions leaves the others available to a thread that takes and gives back', async () => {
  const device = await openDevice({
    progress: 'inline',
    address: '127.0.0.1',
    port: 0,
    threadsMax: 2,
    regionsMax: REGIONS_MAX,
  });
  const pool = createFmrPool(device, undefined, { ...PARAMS, ulp: 'removals', mrsMin: 64 });
  const gate = new SharedArrayBuffer(16);
  const share = device.share({ memoryBytes: 8 * 2 ** 20 });
  const params = { ...PARAMS, ulp: 'removals' };
  const worker = start({ share, params, numMr: 0, gate, turns: 200_000, seed: 0 });
  const words = new Int32Array(gate);
  while (Atomics.load(words, 1) < 1) await new Promise((go) => setTimeout(go, 5));
  const user = pool.createUser(0);
  const descs = Array.from({ length: 50 }, () => user.getMr()!);
  for (const desc of descs) user.putMr(desc);
  const told = once(worker, 'message');
  const ended = once(worker, 'exit');
  Atomics.store(words, 0, 1);
  Atomics.notify(words, 0);
  let refusals = 0;
  for (let removed = 0; removed < 41;) {
    const { mr } = descs.shift()!;
    try {
      pool.removeMr(mr);
      mr.dereg();
      removed++;
    } catch (error) {
      // The thread holds this one just now.
      assert.is((error as RefusalError).code, 'EBUSY');
      assert.ok(++refusals < 9, 'the thread holds one region at a time');
    }
    await new Promise((go) => setTimeout(go, 0));
  }
  const [{ stats }] = (await told) as [{ stats: { misses: number } }];
  await ended;
  assert.is(stats.misses, 0);
  device.unshare(share);
  user.destroy();
  pool.destroy();
  await device.close();
});

test.run();
