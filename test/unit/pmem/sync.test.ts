/**
 * Consequences of a sync that the system refuses. The refusals are real ones: nothing can be synced
 * to /dev/null (EINVAL), and nothing where nothing is mapped (ENOMEM).
 */
import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { loadPosix } from '../../../host/link/posix.js';
import { SyncError } from '../../../host/pmem/sync-error.js';
import { SYNC_STATE_BYTES, markFailed, sync, type SyncTask } from '../../../host/pmem/sync.js';
import { Workspace } from '../../support/processes.js';

const test = suite('pmem/sync');
const { posix } = await loadPosix();
const PAGE = 4096;
const ONE = [{ offset: 0, length: 8 }];
const TWO = [
  { offset: 0, length: 8 },
  { offset: 2 * PAGE, length: 8 },
];

/** Of a region of three pages of sevens. */
function taskOf(fd: number, mappedAt?: number): SyncTask {
  const memory = new SharedArrayBuffer(3 * PAGE);
  new Uint8Array(memory).fill(7);
  const state = new Int32Array(new SharedArrayBuffer(SYNC_STATE_BYTES));
  return { fd, dataOffset: 0, mappedAt, memory, start: 0, state };
}

function refusal(work: () => void): string {
  try {
    work();
  } catch (error) {
    assert.instance(error, SyncError);
    return (error as SyncError).code;
  }
  return 'none';
}

function expectRefused(work: () => void, code: string): void {
  assert.is(refusal(work), code);
}

async function withFile(use: (fd: number, path: string) => void | Promise<void>): Promise<void> {
  await Workspace.use(async (workspace) => {
    const path = workspace.path('region');
    const fd = openSync(path, 'w+');
    try {
      await use(fd, path);
    } finally {
      closeSync(fd);
    }
  });
}

function withNull(use: (fd: number) => void): void {
  const fd = openSync('/dev/null', 'r+');
  try {
    use(fd);
  } finally {
    closeSync(fd);
  }
}

test('a failed sync rejects its flush, and all later ones', () =>
  withFile((file) =>
    withNull((fd) => {
      const task = taskOf(fd);
      expectRefused(() => sync(task, ONE), 'EINVAL');
      // A disk that is well again does not bring back what was lost meanwhile.
      expectRefused(() => sync({ ...task, fd: file }, ONE), 'EIO');
      assert.is(readFileSync(file).length, 0);
      // Opened anew it goes on.
      expectRefused(() => sync(taskOf(file), ONE), 'none');
    }),
  ));

test('ranges are written where they belong, and nothing beside them', () =>
  withFile((fd, path) => {
    sync(taskOf(fd), TWO);
    const bytes = readFileSync(path);
    assert.is(bytes.length, 2 * PAGE + 8);
    assert.is(bytes.filter((byte) => byte === 7).length, 16);
  }));

test('a mapped region whose file cannot be synced is not durable, nor ever after', () =>
  withFile((file) =>
    withNull((fd) => {
      const task = taskOf(fd, 0);
      expectRefused(() => sync(task, TWO, posix), 'EINVAL');
      expectRefused(() => sync({ ...task, fd: file }, TWO, posix), 'EIO');
      expectRefused(() => sync(taskOf(file, 0), TWO, posix), 'none');
    }),
  ));

if (posix) {
  test('pages that the kernel refuses to sync are not durable', () =>
    withFile((fd) => {
      const task = taskOf(fd, PAGE);
      expectRefused(() => sync(task, ONE, posix), 'ENOMEM');
      expectRefused(() => sync(task, TWO, posix), 'EIO');
    }));
}

test('two threads never sync a region at the same time, and the waiting one gets the other’s failure', () =>
  withFile(async (fd) => {
    const task = taskOf(fd);
    const begin = (): Promise<string> => {
      const worker = new Worker(new URL('../../support/sync-once.js', import.meta.url), {
        workerData: { task, ranges: ONE },
      });
      return once(worker, 'message').then(([said]) => said as string);
    };
    const written = (): number => fstatSync(fd).size;
    // As if another thread were in its fdatasync.
    Atomics.store(task.state, 1, 1);
    const first = begin();
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.is(written(), 0);
    Atomics.store(task.state, 1, 0);
    Atomics.notify(task.state, 1);
    assert.is(await first, 'none');
    assert.is(written(), 8);
    Atomics.store(task.state, 1, 1);
    const second = begin();
    await new Promise((resolve) => setTimeout(resolve, 300));
    // The other thread has failed or died: its turn never ends.
    markFailed(task.state);
    assert.is(await second, 'EIO');
  }));

test('an empty range makes no system call', () =>
  withNull((fd) => {
    expectRefused(() => sync(taskOf(fd), []), 'none');
  }));

test.run();
