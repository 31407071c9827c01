/** The switch does to packets what the link says: by datagrams that are sent back. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { jain } from './loads.js';
import { Network, addressOf, missingForNetwork, type Link } from './network.js';
import { printed } from '../support/hook.js';

const test = suite('net/network');
const DATAGRAMS = 200;
const SETTLE_MILLIS = 2000;

const ECHO = `
const socket = require('node:dgram').createSocket('udp4');
socket.on('message', (message, { address, port }) => socket.send(message, port, address));
socket.bind(7, '${addressOf(2)}', () => console.log('bound'));`;

/**
 * Sends datagrams of `bytes`, at most one each millisecond; prints the milliseconds of those that
 * return. It ends when all have, or when those on the network had time to, also on a busy machine.
 */
const ask = (bytes: number): string => `
const socket = require('node:dgram').createSocket('udp4');
const [sent, millis] = [[], []];
const end = () => (console.log(JSON.stringify(millis)), process.exit());
socket.on('message', (message) => {
  millis.push(performance.now() - sent[message.readUInt32BE()]);
  if (millis.length === ${DATAGRAMS}) end();
});
const timer = setInterval(() => {
  if (sent.length === ${DATAGRAMS}) {
    clearInterval(timer);
    setTimeout(end, ${SETTLE_MILLIS});
    return;
  }
  const message = Buffer.alloc(${bytes});
  message.writeUInt32BE(sent.length);
  sent.push(performance.now());
  socket.send(message, 7, '${addressOf(2)}', () => undefined);
}, 1);`;

const FAST: Link = { rate: 1000, queue: 1000, rtt: 0 };

if (missingForNetwork() === undefined) {
  let network: Network;

  test.before(
    printed(async () => {
      network = await Network.open(2);
      await network.start(2, process.execPath, ['-e', ECHO]).printed('stdout', /bound/);
    }),
  );

  test.after(() => network.close());

  /** Sorted milliseconds of round trips, and the counters of the echo's port. */
  async function measure(link: Link, bytes = 100) {
    network.set(link);
    const program = network.start(1, process.execPath, ['-e', ask(bytes)]);
    const { stdout } = await program.ended;
    const millis = (JSON.parse(stdout) as number[]).sort((a, b) => a - b);
    return { millis, port: (await network.counters())[1]! };
  }

  test('a round trip takes the time of the link, half each way', async () => {
    const { millis, port } = await measure({ ...FAST, rtt: 40 });
    assert.is(millis.length, DATAGRAMS);
    // The fastest one: others may wait for a processor.
    assert.ok(millis[0]! >= 40 && millis[0]! < 80, `${millis[0]} ms`);
    assert.is(port.packets, DATAGRAMS);
    assert.is(port.carried[0], DATAGRAMS * 128, 'IP bytes of host 1');
  });

  test('packets are lost at random, both ways, and counted', async () => {
    const { millis, port } = await measure({ ...FAST, loss: 0.3 });
    assert.ok(port.lost > DATAGRAMS * 0.15 && port.lost < DATAGRAMS * 0.45, `${port.lost}`);
    assert.ok(millis.length < DATAGRAMS - port.lost, 'answers are lost as well');
  });

  test('a slow port queues packets, and drops those that find its queue full', async () => {
    // 80 ms for each packet of 1,000 bytes: one arrives each millisecond, or each 20 ms on a busy
    // machine.
    const { port } = await measure({ ...FAST, rate: 0.1, queue: 10 }, 1000);
    assert.is(port.queueMax, 10);
    assert.ok(port.dropped > DATAGRAMS / 2, `${port.dropped}`);
  });

  test('late packets are overtaken', async () => {
    const { millis } = await measure({ ...FAST, late: [0.2, 500] });
    const late = millis.filter((each) => each >= 500).length;
    assert.ok(late > DATAGRAMS * 0.2 && late < DATAGRAMS * 0.55, `${late}, of both ways`);
  });

  test('a packet that is too long is refused by ICMP, or vanishes', async () => {
    for (const icmp of [true, false]) {
      const { millis, port } = await measure({ ...FAST, mtu: [600, icmp] }, 1000);
      // With ICMP, Linux sends fragments from the second datagram on.
      if (icmp) assert.ok(millis.length > 0, 'fragments');
      else assert.equal([millis.length, port.tooLong], [0, DATAGRAMS]);
    }
  });

  test('in an outage nothing passes', async () => {
    network.set(FAST);
    network.cut(true);
    const program = network.start(1, process.execPath, ['-e', ask(100)]);
    assert.is((await program.ended).stdout, '[]\n');
    assert.is((await network.counters())[1]!.cut, DATAGRAMS);
  });
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test('the index of Jain is 1 for equal shares, and 1/n when one has everything', () => {
  assert.equal([jain([5, 5, 5]), jain([0, 0, 9, 0]), jain([0, 0])], [1, 0.25, 0]);
});

test.run();
