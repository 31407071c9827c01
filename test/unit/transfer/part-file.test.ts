/** NAME.part on its way to NAME, with a disk that fails at a chosen moment. */
import { createHash } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import {
  appendFile,
  mkdir,
  open,
  readFile,
  readdir,
  rm,
  rmdir,
  symlink,
  writeFile,
  type FileHandle,
} from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openPartFile, type OpenFile } from '../../../host/transfer/directory-part.js';
import type { PartFile } from '../../../host/transfer/part-file.js';
import { RefusalError } from '../../../host/index.js';
import { placeOfPath } from '../../../host/pmem/place.js';
import { give, testOfTwoUsers } from '../../support/other-user.js';
import { Workspace, noise } from '../../support/processes.js';
import { eventually } from '../../support/receiver.js';
import { WITHOUT_KOFFI } from '../../support/without-koffi.js';

const partFile = new URL('../../../host/transfer/directory-part.js', import.meta.url).href;
const PIECE = 4096;
const content = noise(PIECE * 40 + 5);
const version = { name: 'x', size: content.length, mtimeNs: '5', pieceBytes: PIECE };
const sha256 = createHash('sha256').update(content).digest();

function piece(index: number): Buffer {
  return content.subarray(index * PIECE, (index + 1) * PIECE);
}

async function write(part: PartFile, from: number, to: number): Promise<void> {
  for (let index = from; index < to; index++) {
    await part.write(index, piece(index), crc32(piece(index)));
  }
}

async function refusal(work: Promise<unknown>): Promise<string> {
  const error: unknown = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.instance(error, RefusalError);
  return (error as RefusalError).message;
}

/** Files whose `method` fails with `code` from its `count`-th call on. */
function failing(
  method: 'write' | 'datasync' | 'appendFile',
  code: string,
  count: number,
): OpenFile {
  return async (path, flags, mode) => {
    const file = await open(path, flags, mode);
    const original = file[method].bind(file) as (...args: unknown[]) => Promise<unknown>;
    let calls = 0;
    const replaced = (...args: unknown[]): Promise<unknown> =>
      ++calls < count
        ? original(...args)
        : Promise.reject(Object.assign(new Error(code), { code }));
    return Object.assign(file, { [method]: replaced }) as FileHandle;
  };
}

test('a piece that comes again and again makes nothing longer', () =>
  Workspace.use(async ({ directory }) => {
    const part = await openPartFile(directory, version);
    const bytes = (): number =>
      readdirSync(directory).reduce((sum, name) => sum + statSync(`${directory}/${name}`).size, 0);
    await write(part, 0, part.pieceCount);
    await part.close();
    const before = bytes();
    const again = await openPartFile(directory, version);
    for (let count = 0; count < 10; count++) await write(again, 0, again.pieceCount);
    await again.close();
    assert.is(bytes(), before);
  }));

test('written in any order, it becomes the file and leaves nothing beside it', () =>
  Workspace.use(async ({ directory, path }) => {
    const part = await openPartFile(directory, version);
    await write(part, 20, part.pieceCount);
    assert.match(await refusal(part.finish(sha256)), '20 pieces are missing');
    await write(part, 0, 20);
    await part.finish(sha256);
    assert.equal(await readdir(directory), ['x']);
    assert.ok((await readFile(path.call({ directory }, 'x'))).equals(content));
  }));

test('closed in the middle, it goes on from what was written', () =>
  Workspace.use(async ({ directory }) => {
    const first = await openPartFile(directory, version);
    await write(first, 0, 23);
    await first.close();
    const second = await openPartFile(directory, version);
    assert.is(second.synced.size, 23);
    assert.is(second.note, '');
    await write(second, 23, second.pieceCount);
    await second.finish(sha256);
    assert.equal(await readdir(directory), ['x']);
  }));

test('left without a word, it goes on from what was synced; a torn line is cut off', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const first = await openPartFile(directory, version);
    await write(first, 0, 32);
    await eventually(() => first.synced.size === 32);
    // These wait for a sync that never comes.
    await write(first, 32, 35);
    await appendFile(space.path('x.part.journal'), '33 0000');
    const second = await openPartFile(directory, version);
    assert.is(second.synced.size, 32);
    await write(second, 32, second.pieceCount);
    await second.close();
    const third = await openPartFile(directory, version);
    assert.is(third.synced.size, third.pieceCount);
    await third.finish(sha256);
    await first.close();
  }));

test('another version, another piece size or a lost part starts anew with a reason', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const cases = [
      { change: { mtimeNs: '6' }, note: /the file has changed since/ },
      { change: { size: content.length - 1 }, note: /the file has changed since/ },
      { change: { pieceBytes: 2 * PIECE }, note: /pieces of another size/ },
    ];
    for (const { change, note } of cases) {
      const old = await openPartFile(directory, version);
      await write(old, 0, 5);
      await old.close();
      const part = await openPartFile(directory, { ...version, ...change });
      assert.match(part.note, note);
      assert.is(part.synced.size, 0);
      await part.abandon();
      assert.equal(await readdir(directory), []);
    }
    await writeFile(space.path('x.part.journal'), 'garbage');
    await writeFile(space.path('x.part'), 'garbage');
    const part = await openPartFile(directory, version);
    assert.match(part.note, 'journal cannot be read');
    await part.abandon();
  }));

test('a disk that becomes full refuses the piece; what was synced stays', () =>
  Workspace.use(async ({ directory }) => {
    const part = await openPartFile(directory, version, failing('write', 'ENOSPC', 21));
    await write(part, 0, 20);
    const sentence = await refusal(part.write(20, piece(20), 0));
    assert.is(sentence, 'the server cannot write x: no room left on the disk (ENOSPC)');
    await part.close();
    const again = await openPartFile(directory, version);
    assert.is(again.synced.size, 20);
    await again.close();
  }));

test('a sync that fails fails the file, and the journal does not name its pieces', () =>
  Workspace.use(async ({ directory }) => {
    for (const method of ['datasync', 'appendFile'] as const) {
      // The header is the journal's first append.
      const count = method === 'datasync' ? 1 : 2;
      const part = await openPartFile(directory, version, failing(method, 'EIO', count));
      const all = write(part, 0, part.pieceCount).then(() => part.finish(sha256));
      assert.match(await refusal(all), 'the server cannot write x: EIO');
      await part.close();
      const again = await openPartFile(directory, version);
      assert.is(again.synced.size, 0);
      await again.abandon();
    }
  }));

test('after a failed sync no other one is tried: it would succeed, and prove nothing', () =>
  Workspace.use(async ({ directory }) => {
    let syncs = 0;
    const part = await openPartFile(directory, version, async (path, flags, mode) => {
      const file = await open(path, flags, mode);
      const datasync = file.datasync.bind(file);
      // The kernel reports it once.
      return Object.assign(file, {
        datasync: () =>
          ++syncs === 1
            ? Promise.reject(Object.assign(new Error('EIO'), { code: 'EIO' }))
            : datasync(),
      }) as FileHandle;
    });
    const all = Array.from({ length: 40 }, (_, index) =>
      part.write(index, piece(index), crc32(piece(index))),
    );
    await Promise.allSettled(all);
    assert.match(await refusal(part.finish(sha256)), /EIO/);
    await part.close();
    assert.is(syncs, 1);
    const again = await openPartFile(directory, version);
    assert.is(again.synced.size, 0);
    await again.abandon();
  }));

test('a received file has mode 0600 from its first byte on, whatever the umask', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const modes = (): string[] =>
      readdirSync(directory).map((name) => (statSync(space.path(name)).mode & 0o7777).toString(8));
    const umask = process.umask(0);
    try {
      const part = await openPartFile(directory, version);
      assert.equal(modes(), ['600', '600']);
      await write(part, 0, part.pieceCount);
      await part.finish(sha256);
    } finally {
      process.umask(umask);
    }
    assert.equal(modes(), ['600']);
  }));

test('links in the place of a part and its journal are removed, and their targets stay', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const target = space.path('target');
    await writeFile(target, 'of value');
    for (const name of ['x.part', 'x.part.journal']) {
      await symlink(target, space.path(name));
      const part = await openPartFile(directory, version);
      await write(part, 0, part.pieceCount);
      await part.finish(sha256);
      assert.is(await readFile(target, 'utf8'), 'of value');
      assert.equal(await readdir(directory), ['target', 'x']);
    }
  }));

testOfTwoUsers(test, 'a part of another user is not resumed', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const first = await openPartFile(directory, version);
    await write(first, 0, 20);
    await first.close();
    give(space.path('x.part'));
    const second = await openPartFile(directory, version);
    assert.is(second.synced.size, 0);
    assert.is(statSync(space.path('x.part')).uid, 0);
    await second.abandon();
  }),
);

test('without koffi only a part that was closed in order is resumed', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const resumed = async (): Promise<string> => {
      const script = `
        const { openPartFile } = await import(${JSON.stringify(partFile)});
        const part = await openPartFile(${JSON.stringify(directory)}, ${JSON.stringify(version)});
        console.log(part.synced.size, part.note);
        await part.close();`;
      const words = [...WITHOUT_KOFFI, '--input-type=module', '-e', script];
      const { stdout } = await space.startProcess(process.execPath, words).ended;
      return stdout;
    };
    const first = await openPartFile(directory, version);
    await write(first, 0, 32);
    await eventually(() => first.synced.size === 32);
    const isMemory = placeOfPath(directory).isMemory;
    const open_ = await resumed();
    if (isMemory) assert.match(open_, /^32 /);
    else assert.match(open_, /^0 the server's part of x is discarded: .*without koffi/);
    await first.close();
    const second = await openPartFile(directory, version);
    await write(second, 0, 32);
    await second.close();
    assert.match(await resumed(), /^32 \n/);
    // That process closed it in order as well.
    assert.match(await resumed(), /^32 \n/);
  }));

test('a part that is not what was sent never gets the name', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const part = await openPartFile(directory, version);
    await write(part, 0, part.pieceCount);
    const meddler = await open(space.path('x.part'), 'r+');
    await meddler.write(Buffer.of(content[7 * PIECE + 9]! ^ 1), 0, 1, 7 * PIECE + 9);
    await meddler.close();
    assert.match(await refusal(part.finish(sha256)), /piece 7 of x.part is not what was written/);
    assert.equal(await readdir(directory), []);
    assert.is(part.synced.size, 0, 'no piece is kept');
    const other = await openPartFile(directory, version);
    await write(other, 0, other.pieceCount);
    const wrong = createHash('sha256').update('something else').digest();
    assert.match(await refusal(other.finish(wrong)), /has another SHA-256/);
    assert.equal(await readdir(directory), []);
  }));

test('a part or journal that another program removes leaves nothing, and no piece counts as kept', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    const whole = await openPartFile(directory, version);
    await write(whole, 0, whole.pieceCount);
    await rm(space.path('x.part'));
    const sentence = 'the server: a program removed x.part during the transfer; put the file again';
    assert.is(await refusal(whole.finish(sha256)), `${sentence} (ENOENT)`);
    assert.is(whole.synced.size, 0);
    assert.equal(await readdir(directory), []);
    for (const name of ['x.part', 'x.part.journal']) {
      const part = await openPartFile(directory, version);
      await write(part, 0, 20);
      await rm(space.path(name));
      await part.close();
      assert.is(part.synced.size, 0);
      assert.equal(await readdir(directory), []);
    }
  }));

test('a directory or a pipe in the place of one of the names is refused by its name, without a path', () =>
  Workspace.use(async (space) => {
    const { directory } = space;
    for (const name of ['x', 'x.part', 'x.part.journal']) {
      await mkdir(space.path(name));
      const sentence = await refusal(openPartFile(directory, version));
      assert.is(
        sentence,
        `${name} is a directory on the server; remove it there, or put the file by another name (EISDIR)`,
      );
      await rmdir(space.path(name));
    }
    await space.startProcess('mkfifo', [space.path('x')]).ended;
    assert.match(await refusal(openPartFile(directory, version)), /^x is no regular .*\(EEXIST\)$/);
  }));

test.run();
