/** Calls that find at once what they wait for, one after another. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { init, ShmemCmp, type Shmem } from '../../../host/shmem/index.js';
import { loadPosix } from '../../../host/link/posix.js';

const test = suite('unit/shmem/event-loop');
const { posix } = await loadPosix();
const LOOP_MILLIS = 10_000;

/** Has a timer of the program run before the loop ended? */
async function timerRuns(call: () => Promise<void>): Promise<boolean> {
  let hasRun = false;
  setTimeout(() => (hasRun = true), 1);
  const end = performance.now() + LOOP_MILLIS;
  while (!hasRun && performance.now() < end) await call();
  return hasRun;
}

async function withPe(use: (shmem: Shmem) => Promise<void>): Promise<void> {
  const id = `events-${process.pid}-${Math.floor(performance.now() * 1000)}`;
  const shmem = await init({ size: 2 ** 20, job: { id, rank: 0, size: 1 } });
  try {
    await use(shmem);
  } finally {
    await shmem.finalize();
  }
}

// Symmetric memory of one machine lies in a named device, which needs koffi.
if (posix) {
  test('timers of the program run between barriers that never sleep', () =>
    withPe(async (shmem) => {
      assert.ok(await timerRuns(() => shmem.barrierAll()));
    }));

  test('timers run between waits for a word that has its value already', () =>
    withPe(async (shmem) => {
      const words = await shmem.array(Int32Array, 1);
      assert.ok(await timerRuns(() => shmem.waitUntil(words, ShmemCmp.EQ, 0)));
    }));

  test('parts of a PE that want the same lock wait for each other, and for their timeout', () =>
    withPe(async (shmem) => {
      const lock = await shmem.array(BigInt64Array, 1);
      await shmem.setLock(lock);
      const late = await shmem.setLock(lock, { timeout: 30 }).catch((error: Error) => error);
      assert.match((late as Error).message, /^setLock: not within 30 ms; raise timeout/);
      setTimeout(() => shmem.clearLock(lock), 5);
      await shmem.setLock(lock, { timeout: LOOP_MILLIS });
      shmem.clearLock(lock);
    }));
}

test.run();
