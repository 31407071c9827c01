/** Captures, and files that another user could plant at their path. */
import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError } from '../../../host/index.js';
import { pcapFile } from '../../../host/link/capture/pcap.js';
import { checkOwner, overwritePrivate } from '../../../host/link/private-file.js';
import { canBeReadByOthers, give, openToAll, testOfTwoUsers } from '../../support/other-user.js';
import { Workspace } from '../../support/processes.js';

function refusal(work: () => unknown): RefusalError {
  try {
    work();
  } catch (error) {
    assert.instance(error, RefusalError);
    return error as RefusalError;
  }
  throw new Error('it was not refused');
}

function modeOf(path: string): number {
  return statSync(path).mode & 0o7777;
}

async function capture(path: string): Promise<void> {
  const sink = pcapFile(path);
  sink.write(new Uint8Array(24).fill(7));
  await sink.close();
}

test('a capture has mode 0600 whatever the umask, also in place of an old one', () =>
  Workspace.use(async (workspace) => {
    const path = workspace.path('a.pcap');
    const umask = process.umask(0);
    try {
      await capture(path);
      assert.is(modeOf(path), 0o600);
      chmodSync(path, 0o644);
      writeFileSync(path, 'longer than a capture without a packet');
      await capture(path);
    } finally {
      process.umask(umask);
    }
    assert.is(modeOf(path), 0o600);
    assert.is(readFileSync(path).length, 24);
  }));

test('a link of this user is followed, a link without a target creates no file', () =>
  Workspace.use(async (workspace) => {
    const [path, link, lost] = [workspace.path('a'), workspace.path('b'), workspace.path('c')];
    writeFileSync(path, 'old');
    symlinkSync(path, link);
    await capture(link);
    assert.is(readFileSync(path).length, 24);
    symlinkSync(workspace.path('nothing'), lost);
    assert.is(refusal(() => pcapFile(lost)).code, 'ENOENT');
    assert.not.ok(existsSync(workspace.path('nothing')));
  }));

test('a pipe and a device receive a capture unchanged', () =>
  Workspace.use(async (workspace) => {
    if (process.platform === 'win32') return;
    await capture('/dev/null');
    const path = workspace.path('pipe');
    execFileSync('mkfifo', ['-m', '600', path]);
    const reader = spawn('cat', [path], { stdio: ['ignore', 'pipe', 'ignore'] });
    const chunks: Buffer[] = [];
    reader.stdout.on('data', (bytes: Buffer) => chunks.push(bytes));
    const ended = new Promise((resolve) => reader.once('close', resolve));
    const fd = overwritePrivate(path);
    writeSync(fd, 'through');
    closeSync(fd);
    await ended;
    assert.is(Buffer.concat(chunks).toString(), 'through');
    assert.is(modeOf(path), 0o600);
  }));

test('a file with write permission for others is refused', () =>
  Workspace.use(async (workspace) => {
    if (process.platform === 'win32') return;
    const path = workspace.path('a');
    writeFileSync(path, 'old');
    for (const mode of [0o666, 0o620, 0o602]) {
      chmodSync(path, mode);
      const { code, message } = refusal(() => pcapFile(path));
      assert.is(code, 'EACCES');
      assert.match(message, `mode ${mode.toString(8)}: other users may write to it`);
      assert.is(readFileSync(path, 'utf8'), 'old');
    }
    checkOwner({ uid: process.geteuid!(), mode: 0o660 }, path, 0o002);
  }));

testOfTwoUsers(test, 'a file of another user is not followed, emptied or written to', () =>
  Workspace.use(async (workspace) => {
    openToAll(workspace.directory);
    const target = workspace.path('target');
    writeFileSync(target, 'of value', { mode: 0o600 });
    const link = workspace.path('link');
    symlinkSync(target, link);
    give(link);
    const file = workspace.path('file');
    writeFileSync(file, 'planted');
    give(file);
    const pipe = workspace.path('pipe');
    execFileSync('mkfifo', [pipe]);
    give(pipe);
    for (const [path, why] of [
      [link, /is a symbolic link of user 65534/],
      [file, /belongs to user 65534/],
      [pipe, /belongs to user 65534/],
    ] as const) {
      const { code, message } = refusal(() => pcapFile(path));
      assert.is(code, 'EACCES');
      assert.match(message, why);
    }
    assert.is(readFileSync(target, 'utf8'), 'of value');
    assert.is(readFileSync(file, 'utf8'), 'planted');
    const path = workspace.path('a.pcap');
    await capture(path);
    assert.not.ok(canBeReadByOthers(path));
  }),
);

test.run();
