/** `verbena nvme-target` as a real process, and our initiator: loss, signals, a kill. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { connectNvme, discoverNvme, openDevice, type Context } from '../../host/index.js';
import { Workspace, noise, type Program } from '../support/processes.js';

const test = suite('cli/nvme-target');
/** Of no other test. */
const TARGET = '127.0.71.1';
const HOST = '127.0.71.2';
const NQN = 'nqn.2026-01.test:process';
/** The connection manager asks again after a quarter of one, not after a second. */
const SOON = { cmResponseTimeout: 16, ackTimeout: 12 };

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
    assert.match(await said(), /FILE or --ram: say what is served/);
    assert.match(await said('x.img', '--ram', '1m'), /FILE or --ram: say what/);
    assert.match(await said(workspace.path('none.img')), /ENOENT/);
    assert.match(await said('--ram', '1m', '--nqn', 'disk'), /nqn/);
    assert.match(await said('--ram', '1m', '--block-bytes', '1024'), /blockBytes/);
    assert.match(await said('--ram', '1m', '--medium', 'tape'), /medium/);
  }));

test.run();
