/** A device whose memory the application has taken: what a peer asks for ends nothing. */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { CmId } from '../../../../host/cm/cm-id.js';
import { RefusalError, openDevice, rds } from '../../../../host/index.js';
import type { QpCapabilities } from '../../../../host/verbs/queues/queue-pair-capabilities.js';

const [HERE, THERE] = ['127.0.232.41', '127.0.232.42'] as const;

test('a connection for which there is no memory is made when there is some', async () => {
  await using here = await openDevice({ address: HERE });
  await using there = await openDevice({ address: THERE, memoryBytes: 64 * 2 ** 20 });
  const [sender, reader] = [here, there].map((context) => {
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
    socket.bind({ port: 4000 });
    return socket;
  }) as [rds.RdsSocket, rds.RdsSocket];
  const name = { address: THERE, port: 4000 };
  await sender.send(name, Buffer.from('small'));
  assert.is(`${Buffer.from((await reader.recv())!.data)}`, 'small');
  const taken: Uint8Array[] = [];
  for (let bytes = 2 ** 22; bytes >= 64; bytes /= 2) {
    try {
      for (;;) taken.push(there.alloc(bytes));
    } catch (error) {
      assert.is((error as RefusalError).code, 'ENOMEM');
    }
  }
  // Long messages have a connection of their own, and receives of their own.
  await sender.send(name, new Uint8Array(300_000).fill(7));
  await sleep(300);
  for (const bytes of taken) there.free(bytes);
  const { data } = (await reader.recv())!;
  assert.is(data.length, 300_000);
  assert.ok(data.every((byte) => byte === 7));
});

test('queue pairs of peers take no more memory than they use', async () => {
  const caps: { readonly wanted: Partial<QpCapabilities>; readonly got: QpCapabilities }[] = [];
  const { createQp } = CmId.prototype;
  CmId.prototype.createQp = function (attributes, pd) {
    const qp = createQp.call(this, attributes, pd);
    caps.push({ wanted: attributes!.cap!, got: qp.cap });
    return qp;
  };
  try {
    await using here = await openDevice({ address: HERE });
    await using there = await openDevice({ address: THERE });
    const [sender, reader] = [here, there].map((context) => {
      const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
      socket.bind({ port: 4000 });
      return socket;
    }) as [rds.RdsSocket, rds.RdsSocket];
    for (const length of [1, 5000, 300_000]) {
      await sender.send({ address: THERE, port: 4000 }, new Uint8Array(length));
      assert.is((await reader.recv())!.data.length, length);
    }
  } finally {
    CmId.prototype.createQp = createQp;
  }
  assert.is(caps.length, 6);
  // The queue is rounded up to a power of two.
  for (const { wanted, got } of caps) assert.is(got.maxSendWr, wanted.maxSendWr);
  const sizes = caps.map(({ got }) => `${got.maxSendWr} ${got.maxInlineData}`);
  assert.equal([...new Set(sizes)].sort(), ['128 48', '512 48', '512 512']);
});

test.run();
