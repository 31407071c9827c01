/** The lock of a file: a lock of the kernel, or a directory without koffi. */
import {
  closeSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError } from '../../../host/index.js';
import { loadPosix } from '../../../host/link/posix.js';
import { FileLock } from '../../../host/pmem/file-lock.js';
import { give, openToAll, testOfTwoUsers } from '../../support/other-user.js';
import { Workspace, type Program } from '../../support/processes.js';

const test = suite('pmem/file-lock');
const { posix } = await loadPosix();
const holder = fileURLToPath(new URL('../../support/lock-holder.js', import.meta.url));
const isPosix = process.platform !== 'win32';
/** The kind of lock that a process takes. */
const KINDS = posix ? (['koffi', 'directory'] as const) : (['directory'] as const);
type Kind = (typeof KINDS)[number];

function fileIn(workspace: Workspace, name = 'file'): string {
  const path = workspace.path(name);
  writeFileSync(path, 'x', { mode: 0o600 });
  return path;
}

async function withDescriptor(path: string, use: (fd: number) => Promise<void>): Promise<void> {
  const fd = openSync(path, 'r+');
  try {
    await use(fd);
  } finally {
    closeSync(fd);
  }
}

/** Takes the lock, and releases it at once. */
async function attempt(path: string, kind: Kind): Promise<string> {
  let said = 'locked';
  await withDescriptor(path, async (fd) => {
    try {
      (await FileLock.take(fd, path, kind === 'koffi' ? posix : undefined)).release();
    } catch (error) {
      assert.instance(error, RefusalError);
      said = (error as RefusalError).code;
    }
  });
  return said;
}

function start(workspace: Workspace, path: string, kind: Kind, ...words: string[]): Program {
  return workspace.startProcess(process.execPath, [holder, path, kind, ...words]);
}

for (const held of KINDS) {
  for (const wanted of KINDS) {
    test(`held by ${held}, wanted by ${wanted}: refused until the holder is killed`, () =>
      Workspace.use(async (workspace) => {
        const path = fileIn(workspace);
        const process_ = start(workspace, path, held);
        await process_.printed('stdout', /locked/);
        assert.is(await attempt(path, wanted), 'EBUSY');
        // Stopped is not dead.
        process_.kill('SIGSTOP');
        assert.is(await attempt(path, wanted), 'EBUSY');
        process_.kill('SIGKILL');
        await process_.ended;
        assert.is(await attempt(path, wanted), 'locked');
        assert.is(await attempt(path, held), 'locked');
      }));
  }
}

test('a second lock in one process is refused, and a released lock is free', () =>
  Workspace.use(async (workspace) => {
    const path = fileIn(workspace);
    for (const kind of KINDS) {
      const fd = openSync(path, 'r+');
      const lock = await FileLock.take(fd, path, kind === 'koffi' ? posix : undefined);
      for (const wanted of KINDS) assert.is(await attempt(path, wanted), 'EBUSY', wanted);
      lock.release();
      closeSync(fd);
      for (const wanted of KINDS) assert.is(await attempt(path, wanted), 'locked', wanted);
    }
    assert.equal(readdirSync(dirname(path)), [basename(path)]);
  }));

if (isPosix) {
  test('of many processes that compete for the lock of a dead one, exactly one gets it', () =>
    Workspace.use(async (workspace) => {
      const path = fileIn(workspace);
      for (let round = 0; round < 2; round++) {
        const begin = `${Date.now() + 700}`;
        const kinds = Array.from({ length: 6 }, (_, index) => KINDS[index % KINDS.length]!);
        const all = kinds.map((kind) => start(workspace, path, kind, 'race', begin));
        await Promise.all(all.map((one) => one.printed('stdout', /locked|refused EBUSY/)));
        const winners = all.filter((one) => one.stdout.includes('locked'));
        // Two processes of different kinds may detect each other, and both give up.
        assert.ok(winners.length <= 1, `${winners.length} hold the lock`);
        for (const one of all) one.kill('SIGKILL');
        await Promise.all(all.map((one) => one.ended));
      }
      const one = start(workspace, path, 'directory');
      await one.printed('stdout', /locked/);
    }));

  test('of many processes without koffi exactly one gets it', () =>
    Workspace.use(async (workspace) => {
      const path = fileIn(workspace);
      for (let round = 0; round < 2; round++) {
        const begin = `${Date.now() + 700}`;
        const words = ['race', begin];
        const all = Array.from({ length: 6 }, () => start(workspace, path, 'directory', ...words));
        await Promise.all(all.map((one) => one.printed('stdout', /locked|refused EBUSY/)));
        assert.is(all.filter((one) => one.stdout.includes('locked')).length, 1);
        // The next round begins with the files of a dead owner.
        for (const one of all) one.kill('SIGKILL');
        await Promise.all(all.map((one) => one.ended));
      }
    }));

  test('the directory is of mode 0700, and no socket has an abstract name', () =>
    Workspace.use(async (workspace) => {
      const path = fileIn(workspace);
      for (const kind of KINDS) {
        const process_ = start(workspace, path, kind);
        await process_.printed('stdout', /locked/);
        if (kind === 'directory') assert.is(statSync(`${path}.lock`).mode & 0o7777, 0o700);
        if (process.platform === 'linux') {
          assert.not.match(readFileSync('/proc/net/unix', 'latin1'), /@verbena-pmem/);
        }
        process_.kill('SIGKILL');
        await process_.ended;
      }
    }));

  test('a path of any length can be locked', () =>
    Workspace.use(async (workspace) => {
      if (process.platform !== 'linux') return;
      const deep = join(workspace.directory, 'd'.repeat(100), 'e'.repeat(100));
      mkdirSync(deep, { recursive: true });
      const path = join(deep, 'f'.repeat(120));
      writeFileSync(path, 'x');
      await withDescriptor(path, async (fd) => {
        const lock = await FileLock.take(fd, path, undefined);
        assert.is(await attempt(path, 'directory'), 'EBUSY');
        lock.release();
      });
    }));

  test('without koffi a foreign file with the lock’s name is an error, and stays', () =>
    Workspace.use(async (workspace) => {
      const path = fileIn(workspace);
      const target = workspace.path('target');
      mkdirSync(target);
      const lock = `${path}.lock`;
      for (const put of [
        () => writeFileSync(lock, 'mine'),
        () => symlinkSync(target, lock),
        () => {
          mkdirSync(lock);
          writeFileSync(join(lock, 'mine'), '');
        },
      ]) {
        put();
        assert.is(await attempt(path, 'directory'), 'EEXIST');
        if (posix) assert.is(await attempt(path, 'koffi'), 'locked');
        assert.ok(existsSync(lock));
        rmSync(lock, { recursive: true });
      }
      assert.equal(readdirSync(target), []);
      assert.equal(readdirSync(workspace.directory).sort(), ['file', 'target']);
    }));

  test('a file of two names is refused without koffi: a lock covers one name', () =>
    Workspace.use(async (workspace) => {
      const path = fileIn(workspace);
      linkSync(path, workspace.path('second'));
      assert.is(await attempt(path, 'directory'), 'EBUSY');
      if (!posix) return;
      await withDescriptor(workspace.path('second'), async (fd) => {
        await FileLock.take(fd, workspace.path('second'), posix);
        assert.is(await attempt(path, 'koffi'), 'EBUSY');
      });
    }));

  testOfTwoUsers(test, 'another user cannot lock a file without permission to open it', () =>
    Workspace.use(async (workspace) => {
      openToAll(workspace.directory);
      const path = fileIn(workspace);
      const lock = `${path}.lock`;
      for (const isEmpty of [true, false]) {
        mkdirSync(lock);
        if (!isEmpty) writeFileSync(join(lock, 'socket'), '');
        give(lock);
        // With koffi that directory has no effect.
        if (posix) assert.is(await attempt(path, 'koffi'), 'locked');
        const said = await attempt(path, 'directory');
        // Root may replace an empty directory of others even there.
        assert.is(said, isEmpty ? 'locked' : 'EACCES');
        rmSync(lock, { recursive: true, force: true });
      }
    }),
  );
}

test.run();
