/** `verbena nvme-target` as a real process, and our initiator: loss, signals, a kill. */
import { chmod, writeFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  connectNvme,
  discoverNvme,
  makeDhchapSecret,
  openDevice,
  type Context,
} from '../../host/index.js';
import { Workspace, noise, type Program } from '../support/processes.js';

const test = suite('cli/nvme-target');
/** Of no other test. */
const TARGET = '127.0.71.1';
const HOST = '127.0.71.2';
const NQN = 'nqn.2026-01.test:process';
/** The connection manager asks again after a quarter of one, not after a second. */
const SOON = { cmResponseTimeout: 16, ackTimeout: 14 };

async function serve(workspace: Workspace, ...words: readonly (string | number)[]) {
  const target = workspace.start('nvme-target', ...words, '--bind', TARGET, '--nqn', NQN);
  await target.printed('stdout', /serving/);
  return target;
}

async function withHost(work: (host: Context) => Promise<void>): Promise<void> {
  const host = await openDevice({ address: HOST, port: 0 });
  try {
    await work(host);
  } finally {
    await host.close();
  }
}

test('a file is served, and ends whole with SIGTERM', () =>
  Workspace.use(async (workspace) => {
    const file = workspace.path('disk.img');
    const target = await serve(workspace, file, '--size', '8m', '--json');
    await withHost(async (context) => {
      assert.equal(await discoverNvme(TARGET, { context }), [
        { nqn: NQN, address: TARGET, port: 4420 },
      ]);
      const volume = await connectNvme(TARGET, { nqn: NQN, context, ...SOON });
      const memory = context.alloc(2 ** 20);
      memory.set(noise(memory.length));
      await volume.write(0, memory);
      const back = context.alloc(memory.length);
      await volume.read(0, back);
      assert.is(Buffer.compare(memory, back), 0);
      await volume.close();
    });
    target.kill('SIGTERM');
    const { code, stdout } = await target.ended;
    assert.is(code, 0);
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string });
    assert.equal(
      events.map(({ event }) => event).filter((event) => event === 'connected').length,
      3,
    );
  }));

test('a file of secrets: a host with its secret connects, others are refused', () =>
  Workspace.use(async (workspace) => {
    const [secret, controllerSecret] = [makeDhchapSecret(), makeDhchapSecret('sha512')];
    const hostNqn = 'nqn.2026-01.test:host';
    const file = workspace.path('secrets');
    await writeFile(file, `# hosts\n\n${hostNqn} ${secret} ${controllerSecret}\n`, { mode: 0o600 });
    const words = ['--dhchap-file', file, '--dhchap-hash', 'sha512', '--dhchap-group', 'ffdhe4096'];
    const target = await serve(workspace, '--ram', '1m', ...words);
    await withHost(async (context) => {
      const options = { nqn: NQN, context, hostNqn, ...SOON };
      const volume = await connectNvme(TARGET, {
        ...options,
        dhchap: { secret, controllerSecret },
      });
      await volume.read(0, context.alloc(4096));
      await volume.close();
      const wrong = { ...options, dhchap: { secret: controllerSecret } };
      for (const others of [options, wrong, { ...options, hostNqn: 'nqn.2026-01.test:other' }]) {
        const error = await connectNvme(TARGET, others).catch((reason: unknown) => reason);
        assert.is((error as { code?: string }).code, 'EACCES', `${String(error)}`);
      }
    });
    target.kill('SIGTERM');
    const { stderr, stdout } = await target.ended;
    assert.match(stderr, /authentication failed: the host does not have the secret/);
    assert.match(stderr, /nqn.2026-01.test:other has no secret here/);
    for (const text of [stdout, stderr]) assert.not.match(text, secret.slice(10, 40));
  }));

test('a file of secrets that others may read, or with a wrong line, is refused', () =>
  Workspace.use(async (workspace) => {
    const secret = makeDhchapSecret();
    const nqn = 'nqn.2026-01.test:host';
    const cases: readonly [string, number, RegExp][] = [
      [`${nqn} ${secret}\n`, 0o644, /other users may read .*mode 644.*chmod 600/],
      [`${nqn}\n`, 0o600, /line 1: must be HOSTNQN SECRET/],
      [`# one\n${nqn} ${secret}\n${nqn} ${secret}\n`, 0o600, /line 3: names .* twice/],
      [`${nqn} ${secret.replace('DHHC', 'dhhc')}\n`, 0o600, /must have the form DHHC-1/],
      ['', 0o600, /must name at least one host, got 0/],
    ];
    const file = workspace.path('secrets');
    for (const [text, mode, rule] of cases) {
      await writeFile(file, text);
      await chmod(file, mode);
      const words = ['--ram', '1m', '--dhchap-file', file, '--bind', TARGET];
      const { code, stderr } = await workspace.start('nvme-target', ...words).ended;
      assert.is(code, mode === 0o644 ? 1 : 2, stderr);
      assert.match(stderr, rule);
      assert.not.match(stderr, secret.slice(12, 40));
    }
  }));

test('killed and started again: what was flushed is there, and the host goes on by itself', () =>
  Workspace.use(async (workspace) => {
    const file = workspace.path('disk.img');
    let target: Program = await serve(workspace, file, '--size', '8m');
    await withHost(async (context) => {
      const seen: string[] = [];
      const volume = await connectNvme(TARGET, {
        ...{ nqn: NQN, context, ...SOON },
        ...{ keepAliveMillis: 2000, ctrlLossMillis: 60_000, reconnectDelayMillis: 100 },
        onEvent: ({ kind }) => void seen.push(kind),
      });
      const memory = context.alloc(64 * 8192);
      memory.set(noise(memory.length, 9));
      await volume.write(0, memory);
      await volume.flush();
      target.kill('SIGKILL');
      await target.ended;
      const part = memory.subarray(0, 8192);
      const later = volume.write(4096, part);
      target = await serve(workspace, file);
      await later;
      const back = context.alloc(memory.length);
      await volume.read(0, back);
      assert.is(Buffer.compare(memory, back), 0);
      await volume.read(4096, back.subarray(0, 8192));
      assert.is(Buffer.compare(part, back.subarray(0, 8192)), 0);
      assert.equal(seen, ['lost', 'reconnected']);
      assert.is(volume.stats.regions.inUse, 0);
      await volume.flush();
      await volume.close();
    });
  }));

test('with packets lost either way', () =>
  Workspace.use(async (workspace) => {
    await serve(workspace, '--ram', '8m', '--loss', 2, '--seed', 5);
    await withHost(async (context) => {
      const volume = await connectNvme(TARGET, { nqn: NQN, context, ...SOON });
      const memory = context.alloc(2 ** 20);
      memory.set(noise(memory.length, 3));
      await volume.write(0, memory);
      const back = context.alloc(memory.length);
      await volume.read(0, back);
      assert.is(Buffer.compare(memory, back), 0);
      await volume.close();
    });
  }));

test('what cannot be served is one line on standard error', () =>
  Workspace.use(async (workspace) => {
    const said = async (...words: readonly string[]): Promise<string> => {
      const { code, stderr } = await workspace.run('nvme-target', '--bind', TARGET, ...words);
      assert.ok(code === 1 || code === 2);
      assert.is(stderr.trim().split('\n').length, 1, stderr);
      return stderr;
    };
    assert.match(await said(), /FILE or --ram: is required/);
    assert.match(await said('x.img', '--ram', '1m'), /FILE or --ram: is required/);
    assert.match(await said(workspace.path('none.img')), /ENOENT/);
    assert.match(await said('--ram', '1m', '--nqn', 'disk'), /nqn/);
    assert.match(await said('--ram', '1m', '--block-bytes', '1024'), /blockBytes/);
    assert.match(await said('--ram', '1m', '--medium', 'tape'), /medium/);
  }));

test.run();
