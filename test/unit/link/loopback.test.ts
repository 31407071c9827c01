import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../../host/link/endpoint.js';
import { createLoopbackPair, LoopbackNetwork } from '../../../host/link/loopback.js';
import { pattern, TestBatch } from '../../support/batch.js';
import { BatchReceiver, RecordingReceiver, settle } from '../../support/receiver.js';
import { expectMisuse } from '../../support/refusal.js';

async function openPair(receiver = new RecordingReceiver()) {
  const { network, a, b } = createLoopbackPair({ auto: false });
  const sender = new RecordingReceiver();
  await a.open(sender);
  await b.open(receiver);
  const batch = (salt: number): TestBatch =>
    new TestBatch([{ bytes: pattern(40, salt), to: b.info.local }]);
  return { network, a, b, sender, receiver, batch };
}

test('a network without `auto` delivers only on request', async () => {
  const { network, a, receiver, batch } = await openPair();
  const first = batch(1);
  a.send(first);
  await settle(5);
  assert.is(receiver.received.length, 0);
  assert.is(first.releaseCount, 0);
  assert.is(network.deliver(), 1);
  assert.is(receiver.received.length, 1);
  assert.is(first.releaseCount, 1);
  assert.is(network.deliver(), 0);
});

test('flushes a receiver once for all that one delivery brought', async () => {
  const { network, a, receiver, sender, batch } = await openPair();
  for (let i = 0; i < 5; i++) a.send(batch(i));
  assert.is(network.deliver(), 5);
  assert.is(receiver.flushCount, 1);
  assert.is(sender.flushCount, 0);
});

test('leaves what receivers send meanwhile to the next delivery', async () => {
  const { network, a, b, sender, receiver, batch } = await openPair();
  receiver.flush = () => b.send(new TestBatch([{ bytes: pattern(8, 8), to: a.info.local }]));
  a.send(batch(1));
  assert.is(network.deliver(), 1);
  assert.is(sender.received.length, 0);
  assert.is(network.deliver(), 1);
  assert.equal(sender.bytes, [pattern(8, 8)]);
});

test('hands over a batch for one receiver as a whole', async () => {
  const receiver = new BatchReceiver();
  const { network, a, b } = await openPair(receiver);
  const to = b.info.local;
  a.send(new TestBatch([1, 2, 3].map((salt) => ({ bytes: pattern(40, salt), to }))));
  assert.is(network.deliver(), 3);
  assert.is(receiver.batchCount, 1);
  assert.is(receiver.received.length, 3);
});

test('counts and releases packets without a receiver', async () => {
  const { network, a, batch } = await openPair();
  const lost = new TestBatch([
    { bytes: pattern(40, 1), to: Endpoint.parse('10.0.0.1', 1) },
    { bytes: pattern(40, 2), to: Endpoint.parse('10.0.0.2', 1) },
  ]);
  a.send(lost);
  a.send(batch(3));
  assert.is(network.deliver(), 1);
  assert.is(lost.releaseCount, 1);
  assert.equal(network.counters, { delivered: 1, dropped: 2 });
});

test('drops what is under way to or from a link that closes during the delivery', async () => {
  for (const closing of ['a', 'b'] as const) {
    const pair = await openPair();
    const { network, a, receiver } = pair;
    const to = pair.b.info.local;
    const batches = [0, 1].map(
      () => new TestBatch([1, 2].map((salt) => ({ bytes: pattern(40, salt), to }))),
    );
    const keep = receiver.packet.bind(receiver);
    receiver.packet = (bytes, source) => {
      keep(bytes, source);
      void pair[closing].close();
    };
    for (const batch of batches) a.send(batch);
    assert.is(network.deliver(), 1);
    assert.equal(
      batches.map(({ releaseCount }) => releaseCount),
      [1, 1],
    );
  }
});

test('keeps the other packets when a receiver throws', async () => {
  const { network, a, sender, receiver, batch } = await openPair();
  receiver.packet = () => {
    throw new Error('broken receiver');
  };
  const toBroken = batch(1);
  const toSelf = new TestBatch([{ bytes: pattern(40, 2), to: a.info.local }]);
  a.send(toBroken);
  a.send(toSelf);
  assert.throws(() => network.deliver(), /broken receiver/);
  assert.is(sender.received.length, 1);
  assert.equal([toBroken.releaseCount, toSelf.releaseCount], [1, 1]);
  assert.is(network.deliver(), 0);
});

test('refuses to deliver inside a delivery', async () => {
  const { network, a, receiver, batch } = await openPair();
  receiver.flush = () => {
    network.deliver();
  };
  a.send(batch(1));
  expectMisuse(() => network.deliver());
});

test('port 0 takes the first free port of the address', async () => {
  const network = new LoopbackNetwork();
  const ports: number[] = [];
  for (let i = 0; i < 3; i++) {
    const link = network.link(Endpoint.parse('127.0.0.1', 0));
    ports.push((await link.open(new RecordingReceiver())).local.port);
  }
  assert.equal(ports, [49152, 49153, 49154]);
});

test('finds a link that took over an address', async () => {
  const { network, a, b, batch } = await openPair();
  a.send(batch(1));
  network.deliver();
  const to = b.info.local;
  await b.close();
  const heir = new RecordingReceiver();
  await network.link(to).open(heir);
  a.send(new TestBatch([{ bytes: pattern(40, 2), to }]));
  network.deliver();
  assert.equal(heir.bytes, [pattern(40, 2)]);
});

test.run();
