/** `serve --pmem` and `put --pmem`, as real processes. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { placeOfPath } from '../../host/pmem/place.js';
import { killServers } from '../support/killed-server.js';
import { Workspace, type Ended } from '../support/processes.js';
import { longOnly, sample } from '../support/sample.js';

const test = suite('cli/pmem');
const longTest = longOnly(test);
/** Of no other test. */
const SERVER = '127.0.86.1';

interface Found {
  readonly files: { name: string; sha256: string }[];
  readonly durability: string;
  readonly durabilityReason: string;
}

test('what put reported is there after a kill, and next to it what is put later', () =>
  Workspace.use(async (workspace) => {
    const pmem = workspace.path('store.pmem');
    const serve = async () => {
      const server = workspace.start('serve', '--pmem', pmem, '--bind', SERVER, '--json');
      const [line] = await server.printed('stdout', /\{.*\}\n/);
      const found = JSON.parse(line) as Found;
      const { durability, reason } = placeOfPath(workspace.directory);
      assert.equal([found.durability, found.durabilityReason], [durability, reason]);
      return { server, found };
    };
    const sizes = sample([300_000, 0], [300_000, 0, 70_000]);
    const sums: { name: string; sha256: string }[] = [];
    for (const [index, size] of sizes.entries()) {
      const { server, found } = await serve();
      const names = found.files.map(({ name, sha256 }) => ({ name, sha256 }));
      assert.equal(names, sums);
      const name = `file-${index}`;
      const path = await workspace.file(name, size, index + 1);
      const ended = await workspace.run('put', path, SERVER, '--pmem', '--json');
      server.kill('SIGKILL');
      assert.is(ended.code, 0, ended.stderr);
      const sha256 = createHash('sha256').update(readFileSync(path)).digest('hex');
      assert.is((JSON.parse(ended.stdout) as { sha256: string }).sha256, sha256);
      sums.push({ name, sha256 });
      await server.ended;
    }
    const { server, found } = await serve();
    assert.is(found.files.length, sizes.length);
    server.kill('SIGTERM');
    assert.is((await server.ended).code, 0);
  }));

test('a file that the log has no room for is refused before it travels, with the free bytes', () =>
  Workspace.use(async (workspace) => {
    const words = ['--pmem', workspace.path('s.pmem'), '--pmem-bytes', '64k', '--bind', SERVER];
    const server = workspace.start('serve', ...words);
    await server.printed('stdout', /^serving .*\n  durability: (disk|unknown|dax), .*: /);
    const path = await workspace.file('large', 100_000);
    const { code, stderr } = await workspace.run('put', path, SERVER, '--pmem');
    assert.is(code, 1);
    assert.is(
      stderr,
      `verbena put: large has 100 kB and needs 100 kB of the log at ${SERVER}, which has 65.5 kB ` +
        'left; start "verbena serve --pmem" with a new file and a larger --pmem-bytes (ENOSPC)\n',
    );
    // 16 bytes of header, and 16, 16 and 48 for the records of a name, a piece and the end.
    const fits = await workspace.file('f', 65536 - 16 - 16 - 9 - 48 - 7);
    assert.is((await workspace.run('put', fits, SERVER, '--pmem')).code, 0);
    assert.match(
      (await workspace.run('put', fits, SERVER, '--pmem')).stderr,
      'which has 0 bytes left',
    );
  }));

longTest(
  'a server with and a server without persistent memory refuse the clients of the other',
  () =>
    Workspace.use(async (workspace) => {
      const key = ['--token', 'a key of enough letters'];
      const path = await workspace.file('some', 1000);
      for (const words of sample([key], [[], key])) {
        const store = ['--pmem', workspace.path('store'), '--bind', SERVER, '--port', 0, ...words];
        const server = workspace.start('serve', ...store);
        const [, address] = await server.printed('stdout', /serving .* on (\S+:\d+):/);
        const put = (to: string, ...more: string[]): Promise<Ended> =>
          workspace.run('put', path, to, ...words, ...more);
        assert.is(
          (await put(address!)).stderr,
          `verbena put: ${address} refuses: this server stores files in persistent memory: put --pmem, ` +
            'or start "verbena serve --dir DIR" (EOPNOTSUPP)\n',
        );
        const plain = await workspace.serve(workspace.directory, ...words);
        assert.is(
          (await put(plain.address, '--pmem')).stderr,
          `verbena put: ${plain.address} refuses: this server has no persistent memory: put without ` +
            '--pmem, or start "verbena serve --pmem FILE" (EOPNOTSUPP)\n',
        );
        assert.is((await put(address!, '--pmem')).code, 0);
        assert.is((await put(plain.address)).code, 0);
        server.kill();
        await server.ended;
      }
    }),
);

test('an unreadable file is refused before a connection is made', () =>
  Workspace.use(async (workspace) => {
    for (const [path, why] of [
      [workspace.path('none'), 'no such file or directory (ENOENT)'],
      [workspace.path('.'), 'is a directory (EISDIR)'],
    ] as const) {
      const { code, stderr } = await workspace.run('put', path, SERVER, '--pmem');
      assert.is(code, 1);
      assert.is(stderr, `verbena put: cannot read ${path}: ${why}\n`);
    }
  }));

test('a server of another program, and a missing one, are errors that name the server to start', () =>
  Workspace.use(async (workspace) => {
    const path = await workspace.file('some', 1000);
    const words = ['put', path, SERVER, '--pmem'];
    const alone = workspace.start(...words);
    await alone.printed('stderr', /no answer from .* yet: see that "verbena serve --pmem" runs/);
    alone.kill('SIGKILL');
    await alone.ended;
    const server = workspace.start('rping', '-s', '-a', SERVER);
    await server.printed('stdout', /listening/);
    const { code, stderr } = await workspace.run(...words);
    assert.is(code, 1);
    assert.is(
      stderr,
      `verbena put: no process listens at ${SERVER}:4791: start "verbena serve --pmem" there ` +
        '(ECONNREFUSED)\n',
    );
    server.kill('SIGTERM');
    await server.ended;
  }));

longTest('a file that is no persistent memory is refused', () =>
  Workspace.use(async (workspace) => {
    const path = await workspace.file('diary', 10_000);
    const { code, stderr } = await workspace.run('serve', '--pmem', path, '--bind', SERVER);
    assert.is(code, 1);
    assert.match(stderr, /^verbena serve: .*diary is no persistent memory of Verbena/);
  }),
);

longTest(
  'a server that is killed again and again loses nothing that was acknowledged',
  async () => {
    assert.ok((await killServers(3)) >= 3);
  },
);

test('memory in place of a disk is refused with a remedy that the command has', () =>
  Workspace.use(async (workspace) => {
    if (!existsSync('/dev/shm') || placeOfPath('/dev/shm').durability !== 'none') return;
    const path = `/dev/shm/verbena-cli-${process.pid}.pmem`;
    const own = ['--bind', SERVER, '--udp-port', 0];
    const cases = [
      [['serve', '--pmem', path, '--bind', SERVER, '--port', 0], 'name a file on a disk'],
      [['nvme-target', path, '--pmem', '--size', '1M', ...own], 'or omit --pmem'],
      [['rpma', 'bench', '--dir', '/dev/shm'], 'use --dir with a directory on a disk'],
    ] as const;
    for (const [words, remedy] of cases) {
      const { code, stderr } = await workspace.run(...words);
      assert.is(code, 1, stderr);
      assert.match(stderr, `survives no power cut; `);
      assert.match(stderr, `${remedy} (EOPNOTSUPP)`);
      assert.not.match(stderr, 'volatile');
    }
    assert.not(existsSync(path));
  }));

test.run();
