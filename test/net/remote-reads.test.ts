/** Calls of a remote over a long path: several are in flight at once, whatever their length. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { printed } from '../support/hook.js';
import { moduleOf } from './loads.js';
import { Network, addressOf, missingForNetwork } from './network.js';

const test = suite('net/remote-reads');
/** Packets of one READ of 64 KiB. */
const READ_PACKETS = 64;

if (missingForNetwork() === undefined) {
  let network: Network;

  test.before(
    printed(async () => {
      network = await Network.open(2);
      network.set({ rate: 100, queue: 1000, rtt: 40 });
    }),
  );

  test.after(() => network.close());

  test('eight READs of 64 KiB are in flight together', async () => {
    const program = moduleOf('remote-writes');
    const server = network.start(2, process.execPath, [program, 'serve', addressOf(2)]);
    await server.printed('stdout', /listening/);
    const client = network.start(1, process.execPath, [program, 'read', addressOf(2)]);
    const { stdout, stderr } = await client.ended;
    server.kill();
    assert.ok(Number(stdout) > 3 * READ_PACKETS, `${stdout} packets: ${stderr}`);
  });
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
