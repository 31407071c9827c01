/** The file of a region: creation, open, growth, with a kill or an error at every step. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError } from '../../../host/index.js';
import { loadPosix, type Posix } from '../../../host/link/posix.js';
import {
  DATA_OFFSET,
  HEADER_BYTES,
  decodeHeader,
  encodeHeader,
} from '../../../host/pmem/header.js';
import { FileLock } from '../../../host/pmem/file-lock.js';
import { evictPages } from '../../../host/pmem/page-cache.js';
import { placeOf, placeOfPath } from '../../../host/pmem/place.js';
import { PmemFile } from '../../../host/pmem/pmem-file.js';
import {
  canBeReadByOthers,
  give,
  openToAll,
  runAsOtherUser,
  testOfTwoUsers,
} from '../../support/other-user.js';
import { Workspace } from '../../support/processes.js';

const test = suite('pmem/pmem-file');
const { posix } = await loadPosix();
const opener = fileURLToPath(new URL('../../support/killed-opener.js', import.meta.url));
const BYTES = 10_000;
const ID = 0x77n;
const OLD = 'what was there before';

function open(path: string, bytes?: number, calls: Posix | undefined = posix): Promise<PmemFile> {
  return PmemFile.open(path, bytes, ID, calls, (fd) => placeOf(fd));
}

async function code(work: Promise<PmemFile>): Promise<string> {
  try {
    (await work).close();
  } catch (error) {
    assert.instance(error, RefusalError);
    return (error as RefusalError).code;
  }
  return 'none';
}

/** Creates a file with some bytes in it. */
async function make(path: string, text = OLD, bytes = BYTES): Promise<void> {
  const file = await open(path, bytes);
  writeSync(file.fd, text, DATA_OFFSET);
  file.close();
}

function textIn(path: string, length = OLD.length): string {
  return readFileSync(path)
    .subarray(DATA_OFFSET, DATA_OFFSET + length)
    .toString('latin1');
}

function headerOf(path: string) {
  const bytes = readFileSync(path);
  return decodeHeader(bytes.subarray(0, HEADER_BYTES), bytes.length, path);
}

/** Creates a file as earlier builds did. */
function makeOldLayout(path: string, text = OLD): void {
  const fd = openSync(path, 'w+', 0o600);
  const { bytes, offset } = encodeHeader({
    ...{ version: 1, generation: 0, id: ID, dataOffset: DATA_OFFSET, length: BYTES },
  });
  if (posix) posix.allocateFile(fd, DATA_OFFSET + BYTES);
  else writeSync(fd, Buffer.alloc(BYTES), 0, BYTES, DATA_OFFSET);
  writeSync(fd, text, DATA_OFFSET);
  writeSync(fd, bytes, 0, bytes.length, offset);
  closeSync(fd);
}

/** Output of the opener; '': it was killed. */
function opening(path: string, bytes: number, what: 'kill' | 'fail', number: number): string {
  const words = [opener, path, `${bytes}`, what, `${number}`];
  return spawnSync(process.execPath, words, { encoding: 'utf8' }).stdout.trim();
}

for (const what of ['kill', 'fail'] as const) {
  const end = what === 'kill' ? 'killed before any call' : 'refused any call';

  test(`${end} during the creation: no file or a complete one, and the next process creates it`, () =>
    Workspace.use(async (workspace) => {
      for (let number = 1, said = ''; !said.startsWith('calls'); number++) {
        const path = workspace.path(`a${number}`);
        said = opening(path, BYTES, what, number);
        if (what === 'fail' && !existsSync(path)) {
          assert.not.ok(existsSync(`${path}.new`), `call ${number}`);
        }
        if (existsSync(path)) assert.is(headerOf(path).length, BYTES);
        const file = await open(path, BYTES);
        assert.is(file.header.length, BYTES);
        file.close();
        assert.not.ok(existsSync(`${path}.new`), `call ${number}`);
        assert.ok(number < 40, said);
      }
    }));

  test(`${end} during the growth: its bytes remain, and it grows at the next open`, () =>
    Workspace.use(async (workspace) => {
      for (let number = 1, said = ''; !said.startsWith('calls'); number++) {
        const path = workspace.path(`a${number}`);
        await make(path);
        said = opening(path, 3 * BYTES, what, number);
        assert.is(textIn(path), OLD, `call ${number}`);
        const same = await open(path);
        const { length, dataOffset } = same.header;
        assert.ok(length === BYTES || length === 3 * BYTES);
        // No unfinished file remains.
        assert.is(statSync(path).size, dataOffset + length);
        same.close();
        const grown = await open(path, 3 * BYTES);
        assert.is(grown.header.length, 3 * BYTES);
        grown.close();
        assert.is(textIn(path), OLD);
        assert.ok(
          readFileSync(path)
            .subarray(DATA_OFFSET + BYTES)
            .every((byte) => byte === 0),
        );
        assert.ok(number < 40, said);
      }
    }));
}

test('a new file is written completely, not preallocated', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a');
    await make(path, OLD, 2 ** 20);
    assert.is(headerOf(path).version, 2);
    const { size, blocks } = statSync(path);
    assert.is(size, DATA_OFFSET + 2 ** 20);
    if (placeOfPath(path).fileSystem === 'ext4') assert.ok(blocks * 512 >= size);
    if (!posix) return;
    let calls = 0;
    const { allocateFile } = posix;
    posix.allocateFile = () => void calls++;
    try {
      await make(workspace.path('b'));
    } finally {
      posix.allocateFile = allocateFile;
    }
    assert.is(calls, 0);
  }));

test('a file of version 1 is opened with its bytes, if its pages can be compared with the disk', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('old');
    makeOldLayout(path);
    const without = PmemFile.open(path, undefined, ID, undefined, (fd) => placeOf(fd));
    assert.is(await code(without), placeOfPath(path).isMemory ? 'none' : 'EOPNOTSUPP');
    if (!posix) return;
    assert.is(await code(open(path)), 'none');
    assert.is(textIn(path), OLD);
    assert.is(headerOf(path).version, 1);
  }));

test('without koffi an opened file is written again, with the same bytes', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a');
    await make(path);
    const before = readFileSync(path);
    const file = await PmemFile.open(path, undefined, ID, undefined, (fd) => placeOf(fd));
    file.close();
    assert.ok(before.equals(readFileSync(path)));
    assert.equal(readdirSync(workspace.directory), ['a']);
  }));

if (posix) {
  /** Maps a page of the file into this process, as another program might. */
  const mapped = async (path: string, use: () => Promise<void>): Promise<void> => {
    const memory = new WebAssembly.Memory({ initial: 4, maximum: 4, shared: true });
    const fd = openSync(path, 'r+');
    const address = posix.addressOf(memory.buffer);
    posix.mapFile(fd, address, 65536, 0);
    closeSync(fd);
    try {
      assert.type(new Uint8Array(memory.buffer)[0], 'number');
      await use();
    } finally {
      posix.unmapFile(address, 65536);
    }
  };

  test('pages of a file are evicted, unless a program maps them', () =>
    Workspace.use(async (workspace) => {
      const path = workspace.path('a');
      if (placeOfPath(workspace.directory).isMemory) return;
      writeFileSync(path, Buffer.alloc(200_000, 7));
      const fd = openSync(path, 'r+');
      assert.ok(posix.cachedPages(fd, 0, 200_000, posix.pageBytes) > 0);
      assert.is(await evictPages(fd, posix), 0);
      assert.is(posix.cachedPages(fd, 0, 200_000, posix.pageBytes), 0);
      await mapped(path, async () => {
        assert.ok((await evictPages(fd, posix)) > 0);
      });
      assert.is(await evictPages(fd, posix), 0);
      closeSync(fd);
      assert.ok(readFileSync(path).every((byte) => byte === 7));
    }));

  test('a preallocated file is refused if other programs use its pages, any other is written again', () =>
    Workspace.use(async (workspace) => {
      if (placeOfPath(workspace.directory).isMemory) return;
      const [old, path] = [workspace.path('old'), workspace.path('new')];
      makeOldLayout(old);
      await make(path);
      await mapped(old, async () => assert.is(await code(open(old)), 'EBUSY'));
      assert.is(await code(open(old)), 'none');
      await mapped(path, async () => assert.is(await code(open(path)), 'none'));
      assert.is(textIn(path), OLD);
    }));
}

test('a region that another process has replaced meanwhile is opened as it is now', () =>
  Workspace.use(async (workspace) => {
    const [path, other] = [workspace.path('a'), workspace.path('b')];
    await make(path, 'first');
    await make(other, 'second');
    if (!posix) return;
    let looked = 0;
    const { lockByte } = posix;
    // Between the lock and the check of the name.
    posix.lockByte = (fd, offset) => {
      if (looked++ === 0) renameSync(other, path);
      return lockByte.call(posix, fd, offset);
    };
    let file: PmemFile;
    try {
      file = await open(path);
    } finally {
      posix.lockByte = lockByte;
    }
    assert.is(looked, 2);
    file.close();
    assert.is(textIn(path, 6), 'second');
  }));

test('two processes that create it at the same time get one region, and overwrite nothing', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a');
    const made = await Promise.allSettled([
      open(path, BYTES),
      open(path, BYTES),
      open(path, BYTES),
    ]);
    const opened = made.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    assert.ok(opened.length <= 1);
    for (const file of opened) file.close();
    for (const one of made) {
      if (one.status === 'rejected') assert.is((one.reason as RefusalError).code, 'EBUSY');
    }
    assert.is(await code(open(path, BYTES)), 'none');
    assert.equal(readdirSync(workspace.directory), ['a']);
  }));

test('of concurrent creators, with koffi and without, at least one succeeds, and no file remains', () =>
  Workspace.use(async (workspace) => {
    for (let round = 0; round < 40; round++) {
      const path = workspace.path(`${round}`);
      const makers = [posix, undefined, undefined, posix];
      const made = await Promise.allSettled(
        makers.map((calls) => PmemFile.open(path, BYTES, ID, calls, (fd) => placeOf(fd))),
      );
      for (const one of made) if (one.status === 'fulfilled') one.value.close();
      if (existsSync(path)) assert.is(headerOf(path).length, BYTES);
      const left = readdirSync(workspace.directory).filter((name) => name.startsWith(`${round}.`));
      assert.equal(left, [], `round ${round}`);
      assert.is(await code(open(path, BYTES)), 'none');
    }
  }));

test('without koffi a process that finds the name locked creates nothing, and removes nothing', () =>
  Workspace.use(async (workspace) => {
    const [path, other] = [workspace.path('a'), workspace.path('b')];
    const make = (name: string): Promise<PmemFile> =>
      PmemFile.open(name, BYTES, ID, undefined, (fd) => placeOf(fd));
    if (process.platform === 'win32') return;
    const name = (await FileLock.takeName(path, undefined))!;
    assert.is(await code(make(path)), 'EBUSY');
    assert.equal(readdirSync(workspace.directory), ['a.lock']);
    name.release();
    if (!posix || process.platform !== 'linux') return;
    // A process with koffi is writing that file.
    const fd = openSync(`${other}.new`, 'wx+', 0o600);
    const lock = await FileLock.take(fd, other, posix);
    assert.is(await code(make(other)), 'EBUSY');
    assert.equal(readdirSync(workspace.directory), ['b.new']);
    lock.release();
    closeSync(fd);
    assert.is(await code(make(other)), 'none');
    assert.equal(readdirSync(workspace.directory), ['b']);
  }));

test('a link of this user is followed: the region is at its target', () =>
  Workspace.use(async (workspace) => {
    mkdirSync(workspace.path('disk'));
    const [link, target] = [workspace.path('link'), workspace.path('disk', 'region')];
    symlinkSync(target, link);
    // Without a target: the intended file is unknown.
    assert.is(await code(open(link, BYTES)), 'ENOENT');
    assert.not.ok(existsSync(target));
    writeFileSync(target, '');
    assert.is(await code(open(link, BYTES)), 'none');
    assert.ok(lstatSync(link).isSymbolicLink());
    assert.is(headerOf(target).length, BYTES);
    assert.is(await code(open(link)), 'none');
    assert.equal(readdirSync(workspace.path('disk')), ['region']);
  }));

test('a link or a directory named NAME.new is refused, and its target stays', () =>
  Workspace.use(async (workspace) => {
    const [path, target] = [workspace.path('a'), workspace.path('target')];
    writeFileSync(target, 'of value');
    symlinkSync(target, `${path}.new`);
    assert.is(await code(open(path, BYTES)), 'EACCES');
    assert.is(readFileSync(target, 'utf8'), 'of value');
    assert.ok(lstatSync(`${path}.new`).isSymbolicLink());
    const other = workspace.path('b');
    mkdirSync(`${other}.new`);
    assert.is(await code(open(other, BYTES)), 'EACCES');
    assert.not.ok(existsSync(other));
  }));

test('a region has mode 0600 whatever the umask; with write permission for others it is refused', () =>
  Workspace.use(async (workspace) => {
    if (process.platform === 'win32') return;
    const path = workspace.path('a');
    const umask = process.umask(0);
    try {
      await make(path);
    } finally {
      process.umask(umask);
    }
    assert.is(statSync(path).mode & 0o7777, 0o600);
    for (const mode of [0o660, 0o606]) {
      chmodSync(path, mode);
      assert.is(await code(open(path)), 'EACCES');
    }
    // Its owner may allow others to read it.
    chmodSync(path, 0o640);
    assert.is(await code(open(path)), 'none');
  }));

testOfTwoUsers(test, 'a file of another user is not adopted, followed or emptied', () =>
  Workspace.use(async (workspace) => {
    openToAll(workspace.directory);
    const [path, target] = [workspace.path('a'), workspace.path('target')];
    await make(target);
    // A file that the other user could still read and write.
    writeFileSync(`${path}.new`, '');
    give(`${path}.new`);
    assert.is(await code(open(path, BYTES)), 'EACCES');
    assert.is(statSync(`${path}.new`).size, 0);
    const planted = workspace.path('planted');
    copyFileSync(target, planted);
    give(planted);
    assert.is(await code(open(planted)), 'EACCES');
    const link = workspace.path('link');
    symlinkSync(target, link);
    give(link);
    assert.is(await code(open(link)), 'EACCES');
    assert.is(textIn(target), OLD);
    assert.not.ok(canBeReadByOthers(target));
  }),
);

testOfTwoUsers(
  test,
  'in a directory without write permission a region is opened, and no region is created',
  () =>
    Workspace.use(async (workspace) => {
      if (!posix) return;
      const directory = workspace.path('read-only');
      mkdirSync(directory);
      const path = `${directory}/a`;
      await make(path);
      give(path);
      // As that user: root has all permissions.
      const script = `
      const { PmemFile } = await import('${new URL('../../../host/pmem/pmem-file.js', import.meta.url).href}');
      const { loadPosix } = await import('${new URL('../../../host/link/posix.js', import.meta.url).href}');
      const { posix } = await loadPosix();
      const judge = () => ({ durability: 'disk', reason: '', fileSystem: '', isMemory: false });
      for (const [path, bytes, calls] of [['a', undefined, posix], ['a', 20000, posix], ['b', 100, posix], ['a', undefined, undefined]]) {
        await PmemFile.open('${directory}/' + path, bytes, 1n, calls, judge).then(
          (file) => { console.log('opened', file.header.length); file.close(); },
          ({ code }) => console.log(code),
        );
      }`;
      chmodSync(workspace.directory, 0o755);
      const { stdout, stderr } = runAsOtherUser(['--input-type=module', '-e', script]);
      assert.is(stdout, 'opened 10000\nopened 20000\nEACCES\nEACCES\n', stderr);
    }),
);

test.run();
