/** Completion queues (rdma-core tests/test_cq.py). */
import * as assert from 'uvu/assert';
import { QpType, SendFlag, WrOpcode } from '../../../host/index.js';
import { createPlayers, pollOnce } from './player.js';
import { everywhere } from './world.js';

const ROOM = { memoryBytes: 160 * 2 ** 20 };

everywhere('create_cq', 'queues of every size, on every completion vector', async (world) => {
  const context = await world.open(ROOM);
  const { maxCqe } = context.queryDevice();
  assert.ok(context.numCompVectors >= 1);
  for (let vector = 0; vector < context.numCompVectors; vector++) {
    for (const cqe of [1, maxCqe / 2, maxCqe]) {
      const cq = context.createCq(cqe, undefined, vector);
      assert.ok(cq.cqe >= cqe);
      cq.destroy();
    }
  }
});

everywhere('create_cq_with_comp_channel', 'queues of every size with a channel', async (world) => {
  const context = await world.open(ROOM);
  const { maxCqe } = context.queryDevice();
  const channel = context.createCompChannel();
  for (const cqe of [1, maxCqe / 2, maxCqe]) {
    const cq = context.createCq(cqe, channel);
    assert.is(cq.channel, channel);
    cq.destroy();
  }
  const cq = context.createCq(1, channel);
  assert.throws(() => channel.destroy(), /EBUSY/);
  cq.destroy();
  const waiting = channel.getCqEvent();
  channel.destroy();
  assert.is(await waiting, undefined);
  assert.throws(() => context.createCq(1, channel), /completion channel: is destroyed/);
  const other = await world.open();
  assert.throws(
    () => other.createCq(1, context.createCompChannel()),
    /channel: must be .* of the same context/,
  );
});

everywhere('create_cq_bad_flow', 'too many entries, or no such vector: no queue', async (world) => {
  const context = await world.open({ completionQueuesMax: 1 });
  const { maxCqe } = context.queryDevice();
  assert.throws(() => context.createCq(maxCqe + 1), /cqe: must be/);
  const { numCompVectors } = context;
  assert.throws(() => context.createCq(100, undefined, numCompVectors), /EINVAL/);
  assert.throws(() => context.createCq(100, undefined, numCompVectors + 1), /EINVAL/);
  context.createCq(100);
});

everywhere('resize_cq', 'a queue grows, shrinks, and keeps what was not polled', async (world) => {
  const { client } = await createPlayers(world, {
    qpType: QpType.UD,
    makeCq: (context) => context.createCq(3),
  });
  const { cq } = client;
  cq.resize(1);
  assert.ok(cq.cqe >= 1);
  cq.resize(7);
  assert.ok(cq.cqe >= 7);
  for (let count = 0; count < 6; count++) {
    client.send(WrOpcode.SEND, { wrId: count, sendFlags: SendFlag.SIGNALED });
  }
  // An unreliable send is complete when it has left.
  assert.throws(() => cq.resize(1), /EINVAL/);
  cq.resize(32);
  for (let count = 0; count < 6; count++) assert.is(pollOnce(cq)?.wrId, BigInt(count));
  assert.is(pollOnce(cq), undefined);
  cq.resize(1);
});

everywhere.run();
