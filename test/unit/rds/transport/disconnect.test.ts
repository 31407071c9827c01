/** The end of a connection: messages that arrived before it are delivered. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice, rds } from '../../../../host/index.js';

const COUNT = 8;

test('messages that arrive ahead of a disconnect are delivered, though no turn read them before', async () => {
  await using here = await openDevice({ address: '127.0.115.41', progress: 'thread' });
  await using there = await openDevice({ address: '127.0.115.42', progress: 'thread' });
  const [sender, reader] = [here, there].map((context) => {
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
    socket.bind({ port: 4000 });
    return socket;
  }) as [rds.RdsSocket, rds.RdsSocket];
  const name = { address: '127.0.115.42', port: 4000 };
  await sender.send(name, Buffer.from('first'));
  assert.is(`${Buffer.from((await reader.recv())!.data)}`, 'first');
  for (let index = 0; index < COUNT; index++) {
    sender.sendmsg({ name, iov: [Buffer.from(`${index}`)] });
  }
  // The devices have threads of their own; this one runs no turn of the event loop.
  sender.node.settle(() => true, 10_000);
  sender.node.close();
  const got: string[] = [];
  while (got.length < COUNT) got.push(`${Buffer.from((await reader.recv())!.data)}`);
  assert.equal(
    got,
    Array.from({ length: COUNT }, (_, index) => `${index}`),
  );
});

test.run();
