/**
 * A switch marks packets (CE), and the receiver notifies the sender. How much shorter its queue is
 * is a bar of `npm run net -- marks`.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { runStream, startReceiver } from './loads.js';
import { Network, missingForNetwork, type Link } from './network.js';
import { printed } from '../support/hook.js';

const test = suite('net/marks');
const SECONDS = 2;
/** Slow enough for a busy machine: its processors do not limit the stream. */
const LINK: Link = { rate: 10, queue: 2000, rtt: 10, ecn: 16 };

if (missingForNetwork() === undefined) {
  let network: Network;

  test.before(
    printed(async () => {
      network = await Network.open(2);
    }),
  );

  test.after(() => network.close());

  const stream = async (link: Link) => {
    network.set(link);
    const receiver = await startReceiver(network, 2);
    const measured = await runStream(network, 1, 2, { seconds: SECONDS });
    receiver.kill();
    return { ...measured, port: (await network.counters())[1]! };
  };

  test('marks of a switch reach the sender as notifications, and nothing is dropped', async () => {
    const plain = await stream({ ...LINK, ecn: 0 });
    assert.is(plain.notified, 0);
    assert.is(plain.port.capable, plain.port.packets, 'packets that may be marked');
    const { errors, notified, port } = await stream(LINK);
    assert.equal([errors, port.dropped], [[], 0]);
    assert.ok(port.marked > 0 && notified! > 0, `${notified} notifications`);
    assert.ok(notified! <= port.marked, `${notified} of ${port.marked}`);
  });
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
