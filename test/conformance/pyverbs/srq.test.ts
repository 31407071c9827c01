/** Shared receive queues (rdma-core tests/test_srq.py). */
import * as assert from 'uvu/assert';
import { AsyncEvent, DeviceCapFlag, WrOpcode } from '../../../host/index.js';
import { createPlayers, traffic } from './player.js';
import { everywhere } from './world.js';

const SHARED = { qpCount: 2, srq: true };

everywhere('rc_srq_traffic', 'two queue pairs take from one queue', async (world) => {
  const { client, server } = await createPlayers(world, SHARED);
  await traffic(client, server);
});

everywhere('resize_srq', 'a shared queue grows under what is posted', async (world) => {
  const { client, server } = await createPlayers(world, SHARED);
  const { deviceCapFlags, maxSrqWr } = server.context.queryDevice();
  assert.ok(deviceCapFlags & DeviceCapFlag.SRQ_RESIZE);
  const srq = server.srq!;
  const before = srq.query().maxWr;
  server.postRecv();
  const maxWr = Math.min(maxSrqWr, before * 2);
  srq.modify({ maxWr });
  assert.ok(srq.query().maxWr >= maxWr);
  for (let count = 1; count < maxWr; count++) server.postRecv();
  assert.throws(() => srq.modify({ maxWr: before }), /EINVAL/);
  assert.is(srq.query().maxWr, maxWr);
  assert.throws(() => server.postRecv(), /ENOMEM/);
  for (let count = 0; count < maxWr; count++) {
    client.send(WrOpcode.SEND, {}, count % 2);
    await client.success();
    await server.success();
  }
});

everywhere('modify_srq_limit', 'fewer than the limit are left: one event', async (world) => {
  const { client, server } = await createPlayers(world, SHARED);
  const srq = server.srq!;
  for (let count = 0; count < 10; count++) server.postRecv();
  srq.modify({ srqLimit: 7 });
  assert.is(srq.query().srqLimit, 7);
  for (let count = 0; count < 4; count++) {
    client.send(WrOpcode.SEND);
    await client.success();
    await server.success();
  }
  let eventType: number | undefined;
  for (let seen = 0; eventType !== AsyncEvent.SRQ_LIMIT_REACHED; seen++) {
    assert.ok(seen < 4, 'the event came');
    const event = await server.context.getAsyncEvent();
    eventType = event?.eventType;
    if (eventType === AsyncEvent.SRQ_LIMIT_REACHED) assert.is(event?.element, srq);
  }
  assert.is(srq.query().srqLimit, 0);
});

everywhere.run();
