/** What goes wrong before a byte of a file travels: one clear line, a non-zero exit. */
import { mkdir, open, readdir, writeFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace, freePort, type Ended } from '../support/processes.js';

const test = suite('cli/refusal');

/** Ended with `code`, and with one line that begins as all do. */
function assertRefused(ended: Ended, code: number, pattern: RegExp | string): void {
  assert.is(ended.code, code, ended.stderr);
  assert.match(ended.stderr, pattern);
  assert.match(ended.stderr, /^verbena( \w+)?: [^\n]+\n$/, 'one line');
  assert.is(ended.stdout, '');
}

test('a path that is not there, a directory and a device are refused by name', () =>
  Workspace.use(async (space) => {
    const file = await space.file('f', 1);
    const cases: [words: string[], pattern: RegExp][] = [
      [['put', space.path('no'), '::1'], /no: no such file .*ENOENT/],
      [['put', space.directory, '::1'], /is a directory \(EISDIR\)/],
      [['put', '/dev/null', '::1'], /is not a regular file/],
      [['serve', '--dir', space.path('no')], /cannot serve .*no: no such file or directory/],
      [['serve', '--dir', file], /not a directory/],
    ];
    await Promise.all(
      cases.map(async ([words, pattern]) => assertRefused(await space.run(...words), 1, pattern)),
    );
  }));

test('an invalid command line is an error with exit code 2', () =>
  Workspace.use(async (space) => {
    const file = await space.file('f', 1);
    const cases: [words: string[], pattern: RegExp][] = [
      [['put', file, 'a:b:c'], /"a:b:c" is not host\[:port\]/],
      [['put', file], /verbena put: missing required argument/],
      [['put', file, 'x', '--retries', 'y'], /whole number from 0/],
      [['put', file, 'x', '--loss', '101'], /percentage/],
      [['frobnicate'], /unknown command/],
      [['serve', '--bind', 'localhost'], /must be an IPv4 or IPv6 address/],
      [['serve', '--max-clients', '128', '--window-bytes', '256M'], /more than the 4 GiB/],
    ];
    await Promise.all(
      cases.map(async ([words, pattern]) => assertRefused(await space.run(...words), 2, pattern)),
    );
    assert.is((await space.run()).code, 2);
    const help = await space.run('put', '--help');
    assert.is(help.code, 0);
    assert.match(help.stdout, 'Example:');
    assert.match(help.stdout, '--loss');
  }));

test('a host without a device and a device without a server have their own errors', () =>
  Workspace.use(async (space) => {
    const file = await space.file('f', 1);
    const absent = space.run('put', file, `127.0.0.1:${await freePort()}`);
    const device = space.start('rping', '-s', '-a', '127.0.0.1', '--udp-port', 0, '--json');
    const [, port] = await device.printed('stdout', /"udpPort":(\d+)/);
    const none = await space.run('put', file, `127.0.0.1:${port}`);
    assertRefused(none, 1, /no process listens at .*: start "verbena serve" there \(ECONNREFUSED/);
    assertRefused(
      await absent,
      1,
      /no answer from .*: check that "verbena serve" runs there \(ETIM/,
    );
  }));

test('a port that is taken names the process that has it', () =>
  Workspace.use(async (space) => {
    const { server, port } = await space.serve(space.directory);
    const second = await space.run('serve', '--port', port);
    assertRefused(second, 1, /EADDRINUSE/);
    if (process.platform === 'linux')
      assert.match(second.stderr, `taken by process ${server.pid} `);
    assert.match(second.stderr, '--port');
  }));

test('a file that the disk has no room for is refused before it travels', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { address } = await space.serve(space.path('in'));
    const path = space.path('huge');
    const file = await open(path, 'w');
    await file.truncate(3 * 2 ** 40);
    await file.close();
    assertRefused(await space.run('put', path, address), 1, /huge needs 3.3 TB.*\(ENOSPC\)/);
    assert.equal(await readdir(space.path('in')), []);
  }));

test('a directory of that name, and pieces larger than the window, are refused', () =>
  Workspace.use(async (space) => {
    const { address } = await space.serve(space.path(), '--window-bytes', '512k');
    await mkdir(space.path('there'));
    await mkdir(space.path('from'));
    await writeFile(space.path('from', 'there'), 'x');
    const put = (...words: string[]): Promise<Ended> =>
      space.run('put', space.path('from', 'there'), address, ...words);
    assertRefused(await put(), 1, /do not fit into the server's window of 524288/);
    assertRefused(await put('--piece-bytes', '64k'), 1, /there is a directory on the server/);
  }));

test.run();
