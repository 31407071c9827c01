/** Listeners and connections of a process that name no device share one by local address. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  LinkError,
  connect,
  listen,
  openDevice,
  type RdmaConnection,
} from '../../../host/index.js';
import { rejection } from '../../support/refusal.js';

const test = suite('unit/cm/common-device');
const ADDRESS = '127.0.145.1';

test('two listeners and their connections share a device, which ends with the last of them', async () => {
  const one = await listen(`${ADDRESS}:7471`);
  const two = await listen(`${ADDRESS}:7472`);
  const { device } = one.context;
  assert.is(two.context.device, device);
  for (const listener of [one, two]) {
    void (async () => {
      for await (const it of listener.connections()) void it.disconnected.then(() => it.close());
    })();
  }
  const connections: RdmaConnection[] = [];
  for (let count = 0; count < 20; count++) {
    connections.push(await connect(`${ADDRESS}:${7471 + (count % 2)}`));
  }
  const [first] = connections;
  assert.ok(connections.every(({ context }) => context.device === first!.context.device));
  assert.is(new Set(connections.map(({ context }) => context)).size, 20, 'contexts of their own');
  await first!.close();
  await Promise.all(connections.map((connection) => connection.close()));
  await one.close();
  assert.not.ok(device.closed);
  await two.close();
  assert.ok(device.closed);
  // The port is free at once.
  const again = await listen(`${ADDRESS}:7471`);
  assert.is(again.url, `rdma://${ADDRESS}:7471`);
  await again.close();
});

test('many listens at once open one device', async () => {
  const all = await Promise.all([1, 2, 3, 4].map((port) => listen(`${ADDRESS}:${port}`)));
  assert.is(new Set(all.map(({ context }) => context.device)).size, 1);
  await Promise.all(all.map((listener) => listener.close()));
  // Closing and opening at the same time: the next one waits for the port.
  const last = await listen(`${ADDRESS}:5`);
  const [, next] = await Promise.all([last.close(), listen(`${ADDRESS}:6`)]);
  assert.is(next.url, `rdma://${ADDRESS}:6`);
  await next.close();
});

test('a listener whose UDP port is taken says what to do', async () => {
  const holder = await openDevice({ address: ADDRESS });
  const error = await rejection(listen(`${ADDRESS}:7471`));
  assert.instance(error, LinkError);
  assert.match((error as Error).message, /taken by this process, .*option address.*option port/);
  await holder.close();
  await (await listen(`${ADDRESS}:7471`)).close();
});

test.run();
