/** `serve --pmem` and `put --pmem`, as real processes. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { killServers } from '../support/killed-server.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/pmem');
/** Of no other test. */
const SERVER = '127.0.86.1';

test('what put reported is there after a kill, and next to it what is put later', () =>
  Workspace.use(async (workspace) => {
    const pmem = workspace.path('store.pmem');
    const serve = async () => {
      const server = workspace.start('serve', '--pmem', pmem, '--bind', SERVER, '--json');
      const [line] = await server.printed('stdout', /\{.*\}\n/);
      return { server, found: JSON.parse(line) as { files: { name: string; sha256: string }[] } };
    };
    const sums: { name: string; sha256: string }[] = [];
    for (const [index, size] of [300_000, 0, 70_000].entries()) {
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
    assert.is(found.files.length, 3);
    server.kill('SIGTERM');
    assert.is((await server.ended).code, 0);
  }));

test('a full log refuses, and says so in one line', () =>
  Workspace.use(async (workspace) => {
    const words = ['--pmem', workspace.path('s.pmem'), '--pmem-bytes', '64k', '--bind', SERVER];
    const server = workspace.start('serve', ...words);
    await server.printed('stdout', /serving/);
    const path = await workspace.file('large', 100_000);
    const { code, stderr } = await workspace.run('put', path, SERVER, '--pmem');
    assert.is(code, 1);
    assert.match(stderr, /^verbena put: append: the log has no \d+ bytes left \(ENOSPC\)\n$/);
  }));

test('a file that is no persistent memory is refused', () =>
  Workspace.use(async (workspace) => {
    const path = await workspace.file('diary', 10_000);
    const { code, stderr } = await workspace.run('serve', '--pmem', path, '--bind', SERVER);
    assert.is(code, 1);
    assert.match(stderr, /^verbena serve: .*diary is no persistent memory of Verbena/);
  }));

test('a server that is killed again and again loses nothing that was acknowledged', async () => {
  assert.ok((await killServers(3)) >= 3);
});

test.run();
