/** Errors before a byte of a file travels: one clear line, a non-zero exit. */
import { mkdir, open, readdir, writeFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { runAsOtherUser, testOfTwoUsers } from '../support/other-user.js';
import { Workspace, cliPath, freePort, type Ended } from '../support/processes.js';

const test = suite('cli/refusal');

/** Ended with `code`, and with one line that begins as all do. */
function assertRefused(ended: Ended, code: number, pattern: RegExp | string): void {
  assert.is(ended.code, code, ended.stderr);
  assert.match(ended.stderr, pattern);
  assert.match(ended.stderr, /^verbena( \w+)?: [^\n]+\n$/, 'one line');
  assert.is(ended.stdout, '');
}

test('a path that is not there, a directory, a pipe and a device are refused by name', () =>
  Workspace.use(async (space) => {
    const [file, pipe] = [await space.file('f', 1), space.path('pipe')];
    await space.startProcess('mkfifo', [pipe]).ended;
    const cases: [words: string[], pattern: RegExp][] = [
      [['put', space.path('no'), '::1'], /no: no such file .*ENOENT/],
      [['put', space.directory, '::1'], /is a directory \(EISDIR\)/],
      [['put', '/dev/null', '::1'], /is not a regular file/],
      [['put', pipe, '::1'], /pipe is not a regular file; copy it to one/],
      [['put', pipe, '::1', '--pmem'], /pipe is not a regular file/],
      [['serve', '--dir', space.path('no')], /cannot serve .*no: no such file or directory/],
      [['serve', '--dir', file], /not a directory; choose .* \(--dir\) \(ENOTDIR\)/],
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
      [['serve', '--bind', '0.0.0.0'], /not a wildcard\. This machine has /],
      [['put', file, 'x', '--bind', '::'], /not a wildcard\. This machine has /],
      [['put', '', 'x'], /<file> must not be empty, got ''/],
      [['serve', '--dir', ''], /--dir <directory> must not be empty, got ''/],
      [['serve', '--quota', '1X'], /a size from 1 to .*; 64k, 8M, 1G, 1T are sizes/],
      [['serve', '--quota', '1T', '--dir', ''], /--dir <directory> must not be empty/],
      [['serve', '--pmem-bytes', '1M'], /--pmem-bytes: requires --pmem/],
      [['serve', '--pmem', 'x', '--quota', '1M'], /'--pmem <file>' cannot be used with .*--quota/],
      [['put', '--pmem', '--retries', '1', file, 'x'], /'--pmem' cannot be used with .*--retries/],
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

test('two options that name the key are refused in either order, and so is a key that is too short', () =>
  Workspace.use(async (space) => {
    const file = await space.file('f', 1);
    const key = 'a key of enough letters';
    const [token, keyFile, pskFile] = [
      ['--token', key],
      ['--token-file', space.path('key')],
      ['--psk-file', space.path('psk')],
    ];
    const both: (readonly string[][])[] = [
      [token!, keyFile!],
      [token!, pskFile!],
      [keyFile!, pskFile!],
    ];
    const without = [token!, keyFile!, pskFile!, ['--encrypt']].map((one) => [one, ['--no-token']]);
    const lines = [
      ...both.map((words) => ['put', file, '::1', ...words.flat()]),
      ...[...both, ...without].flatMap(([one, other]) => [
        ['serve', ...one!, ...other!],
        ['serve', ...other!, ...one!],
      ]),
    ];
    for (const line of lines) {
      const ended = await space.run(...line);
      assertRefused(ended, 2, /option '--[a-z <>-]+' cannot be used with option '--[a-z <>-]+'/);
      assert.not.match(ended.stderr, key);
    }
    for (const command of [['serve'], ['put', file, '::1']]) {
      const wrong = (length: number) =>
        new RegExp(`a key has 16 to 256 characters, not ${length};`);
      assertRefused(await space.run(...command, '--token', ''), 2, wrong(0));
      assertRefused(await space.run(...command, '--token', 'short'), 2, wrong(5));
    }
  }));

test('a file whose size is not that of its content is refused', () =>
  Workspace.use(async (space) => {
    const more = await space.run('put', '/proc/cpuinfo', '::1');
    assertRefused(
      more,
      1,
      /cpuinfo has a size of 0 bytes and content of .* copy it to a disk.*EINVAL/,
    );
    const pmem = await space.run('put', '/proc/cpuinfo', '::1', '--pmem');
    assertRefused(pmem, 1, /cpuinfo has a size of 0 bytes and content of another length/);
  }));

test('a name of the file system that is not UTF-8 is named as the reason', () =>
  Workspace.use(async (space) => {
    await writeFile(Buffer.from(space.path('a\xff'), 'latin1'), 'x');
    const script = 'exec "$0" "$1" put "$2/$(printf "a\\377")" ::1';
    const words = ['-c', script, process.execPath, cliPath, space.directory];
    const ended = await space.startProcess('sh', words).ended;
    assertRefused(ended, 1, /its name is not UTF-8 \(U\+FFFD replaces .*\); rename the file/);
  }));

testOfTwoUsers(test, 'a directory that the server cannot write to is refused at its start', () =>
  Workspace.use((space) => {
    const { status, stderr } = runAsOtherUser([cliPath, 'serve', '--dir', space.directory]);
    assert.is(status, 1);
    assert.match(stderr, /permission denied; choose a directory .* \(--dir\) \(EACCES\)\n$/);
    return Promise.resolve();
  }),
);

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
    assertRefused(
      await put('--piece-bytes', '64k'),
      1,
      /there is a directory on the server; remove/,
    );
  }));

test.run();
