/** The MTU of a network, or of an interface, is smaller than what the connection uses. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { printed } from '../support/hook.js';
import { root } from '../support/paths.js';
import { cliPath, type Ended } from '../support/processes.js';
import { moduleOf, runStream, startReceiver } from './loads.js';
import { Network, addressOf, missingForNetwork, type Link } from './network.js';
import type { WritesResult } from './remote-writes.js';
import { longOnly } from '../support/sample.js';

const test = suite('net/path-mtu');
const longTest = longOnly(test);
const LINK: Link = { rate: 100, queue: 1000, rtt: 1 };
const JUMBO = 9000;
const BYTES = 300_000;
const HOST = new URL('build/host/index.js', root).href;

if (missingForNetwork() === undefined) {
  let network: Network;
  const folder = mkdtempSync(join(tmpdir(), 'verbena-mtu-'));

  /** A program of host 1 has run. */
  const evaluated = (program: string): Promise<Ended> =>
    network.start(1, process.execPath, ['--input-type=module', '--eval', program]).ended;

  test.before(
    printed(async () => {
      network = await Network.open(2);
      network.setHostMtu(JUMBO);
    }),
  );

  test.after(async () => {
    await network.close();
    rmSync(folder, { recursive: true });
  });

  test('put goes on with a smaller path MTU where long packets vanish, and says why', async () => {
    network.set({ ...LINK, mtu: [1500, false] });
    const bytes = new Uint8Array(BYTES).fill(0xa5);
    const directory = join(folder, 'received');
    mkdirSync(directory);
    const words = ['serve', '--dir', directory, '--bind', addressOf(2), '--no-token'];
    const server = network.start(2, process.execPath, [cliPath, ...words]);
    await server.printed('stdout', /\S/);
    const source = join(folder, 'file');
    writeFileSync(source, bytes);
    const client = network.start(1, process.execPath, [cliPath, 'put', source, addressOf(2)]);
    const { code, stderr } = await client.ended;
    server.kill();
    assert.is(code, 0, stderr);
    assert.equal(new Uint8Array(readFileSync(join(directory, 'file'))), bytes);
    assert.match(stderr, /none of path MTU 4096/);
  });

  test('an interface whose MTU is lowered ends the connection within a second, by name', async () => {
    network.setHostMtu(JUMBO);
    network.set(LINK);
    const receiver = await startReceiver(network, 2);
    const stream = runStream(network, 1, 2, { seconds: 4 });
    await network.untilCarried(BYTES, stream);
    network.setHostMtu(1500);
    const { errors } = await stream;
    receiver.kill();
    network.setHostMtu(JUMBO);
    assert.is(errors.length, 1);
    assert.match(errors[0]!, /system refused packets of path MTU 4096/);
  });

  for (const how of ['', 'reconnect']) {
    const goesOn = how === 'reconnect';
    test(`errors of share and connect name the path MTU ${goesOn ? 'with' : 'without'} reconnect`, async () => {
      network.setHostMtu(JUMBO);
      network.set(LINK);
      const program = moduleOf('remote-writes');
      const server = network.start(2, process.execPath, [program, 'serve', addressOf(2)]);
      await server.printed('stdout', /listening/);
      const client = network.start(1, process.execPath, [program, 'write', addressOf(2), how]);
      await network.untilCarried(BYTES, client.ended);
      network.setMtu(1500, false);
      const { stdout, stderr } = await client.ended;
      server.kill();
      const result = JSON.parse(stdout || '{}') as WritesResult;
      assert.is(result.code, 'EMSGSIZE', stderr);
      const rule =
        'write of table: the network drops packets of path MTU 4096, and carries shorter ones; ';
      assert.ok(result.message.startsWith(rule), result.message);
      assert.match(result.message, 'the next connection has a smaller one');
      assert.match(result.explanation, 'none of path MTU 4096');
      assert.is(result.message.includes('set the option reconnect'), !goesOn);
      assert.is(result.message.includes('reconnect connects again'), goesOn);
      assert.is(result.goesOn, goesOn);
      // 0.7 s where nothing else runs; the retries would take several seconds.
      assert.ok(result.millis < 3000, `${result.millis} ms`);
    });
  }

  test('an NVMe volume connects again, with a path MTU that the target has named', async () => {
    network.setHostMtu(JUMBO);
    network.set({ ...LINK, mtu: [1500, false] });
    const nqn = 'nqn.2026-01.dev.verbena:path-mtu';
    const words = [cliPath, 'nvme-target', '--bind', addressOf(2), '--ram', '1M', '--nqn', nqn];
    const target = network.start(2, process.execPath, words);
    await target.printed('stdout', /serving/);
    const { code, stdout, stderr } = await evaluated(
      `const { connectNvme } = await import(${JSON.stringify(HOST)});` +
        `const volume = await connectNvme('${addressOf(2)}', { nqn: '${nqn}' });` +
        `const bytes = volume.context.alloc(65536);` +
        `await volume.write(0, bytes.fill(7));` +
        `await volume.read(0, bytes.fill(0));` +
        `console.log(bytes.every((byte) => byte === 7));` +
        `await volume.close();`,
    );
    target.kill();
    assert.is(code, 0, stderr);
    assert.is(stdout.trim(), 'true');
  });

  test('the MTU of lo limits packets as that of any other interface does', async () => {
    const set = (mtu: number) =>
      network.start(1, 'ip', ['link', 'set', 'lo', 'up', 'mtu', `${mtu}`]);
    assert.is((await set(1500).ended).code, 0);
    const { stdout, stderr } = await evaluated(
      `const { openDevice } = await import(${JSON.stringify(HOST)});` +
        `const context = await openDevice({ address: '127.0.0.1' });` +
        `console.log(context.device.info.packetSizeMax);` +
        `await context.close();`,
    );
    await set(65536).ended;
    assert.is(stdout.trim(), '1472', stderr);
  });

  longTest(
    'a network whose MTU drops during a stream ends it by name long before its retries',
    async () => {
      network.setHostMtu(JUMBO);
      network.set(LINK);
      const receiver = await startReceiver(network, 2);
      const stream = runStream(network, 1, 2, { seconds: 4 });
      await network.untilCarried(BYTES, stream);
      network.setMtu(1500, false);
      const { errors } = await stream;
      receiver.kill();
      assert.is(errors.length, 1);
      assert.match(errors[0]!, /none of path MTU 4096/);
    },
  );
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
