/**
 * What a sync that the system refuses means. The refusals are real ones: nothing can be synced to
 * /dev/null (EINVAL), and nothing where nothing is mapped (ENOMEM).
 */
import { closeSync, openSync, readFileSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { loadPosix } from '../../../host/link/posix.js';
import { SyncError } from '../../../host/pmem/sync-error.js';
import { sync, type SyncTask } from '../../../host/pmem/sync.js';
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
  const failed = new Int32Array(new SharedArrayBuffer(4));
  return { fd, dataOffset: 0, mappedAt, memory, start: 0, failed };
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

async function withFile(use: (fd: number, path: string) => void): Promise<void> {
  await Workspace.use((workspace) => {
    const path = workspace.path('region');
    const fd = openSync(path, 'w+');
    try {
      use(fd, path);
    } finally {
      closeSync(fd);
    }
    return Promise.resolve();
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

test('what was written but not synced is an error, and so is everything after it', () =>
  withFile((file) =>
    withNull((fd) => {
      const task = taskOf(fd);
      assert.is(
        refusal(() => sync(task, ONE)),
        'EINVAL',
      );
      // A disk that is well again does not bring back what was lost meanwhile.
      assert.is(
        refusal(() => sync({ ...task, fd: file }, ONE)),
        'EIO',
      );
      assert.is(readFileSync(file).length, 0);
      // Opened anew it goes on.
      assert.is(
        refusal(() => sync(taskOf(file), ONE)),
        'none',
      );
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
      assert.is(
        refusal(() => sync(task, TWO, posix)),
        'EINVAL',
      );
      assert.is(
        refusal(() => sync({ ...task, fd: file }, TWO, posix)),
        'EIO',
      );
      assert.is(
        refusal(() => sync(taskOf(file, 0), TWO, posix)),
        'none',
      );
    }),
  ));

if (posix) {
  test('pages that the kernel refuses to sync are not durable', () =>
    withFile((fd) => {
      const task = taskOf(fd, PAGE);
      assert.is(
        refusal(() => sync(task, ONE, posix)),
        'ENOMEM',
      );
      assert.is(
        refusal(() => sync(task, TWO, posix)),
        'EIO',
      );
    }));
}

test('where nothing is to be synced nothing is asked of the system', () =>
  withNull((fd) => {
    assert.is(
      refusal(() => sync(taskOf(fd), [])),
      'none',
    );
  }));

test.run();
