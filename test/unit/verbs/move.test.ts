/** A device goes to another address of its machine: what stays, and what ends. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  createLoopbackPair,
  openDevice,
  share,
  connect,
  type RemoteRegion,
} from '../../../host/index.js';
import { followAddress } from '../../../host/cm/follow-address.js';
import { lostAddress } from '../../../host/link/interface.js';
import { MisuseError } from '../../../host/errors/errors.js';
import { expectRejected } from '../../support/refusal.js';

const [SERVER, FIRST, SECOND] = ['127.0.0.61', '127.0.0.62', '127.0.0.63'];
const MODES = ['thread', 'inline'] as const;

for (const progress of MODES) {
  test(`by ${progress}: memory and keys stay, connections end, and new ones are made`, async () => {
    const server = await share(`rdma://${SERVER}:0`, { table: 64 });
    const context = await openDevice({ address: FIRST, port: 0, progress });
    try {
      let again = (): void => {};
      const isBack = new Promise<void>((resolve) => (again = resolve));
      const before = await connect(server.url, { context, reconnect: { onReconnect: again } });
      const bytes = before.alloc(64).fill(7);
      await (before.memory['table'] as RemoteRegion).write(0, bytes);
      const { port } = context.local;
      await context.moveTo(SECOND);
      assert.is(`${context.local}`, `${SECOND}:${port}`);
      await isBack;
      // In memory of `alloc`, whose key is that of the first address.
      await (before.memory['table'] as RemoteRegion).write(0, bytes.fill(9));
      assert.equal([...(server.memory.table as Uint8Array)], Array(64).fill(9));
      assert.is(before.connection.id.getLocalAddr()?.address, SECOND);
      await before.close();
    } finally {
      await context.close();
      await server.close();
    }
  });
}

test('an address that is not there, another family and no port leave the device alone', async () => {
  const context = await openDevice({ address: FIRST, port: 0 });
  const other = await openDevice({ address: SECOND, port: 0 });
  try {
    await expectRejected(context.moveTo('203.0.113.7'), 'EADDRNOTAVAIL', /is no address of this/);
    await expectRejected(context.moveTo('::1'), 'EOPNOTSUPP', /another family/);
    await expectRejected(context.moveTo(SECOND, other.local.port), 'EADDRINUSE');
    for (const call of [context.moveTo('nowhere'), context.moveTo(SECOND, 70_000)]) {
      assert.instance(await call.catch((error: unknown) => error), MisuseError);
    }
    assert.is(context.local.gid.toString(), FIRST);
    assert.is(lostAddress(context.device.info), undefined);
    assert.is(await followAddress(context, SERVER), undefined, 'loopback stays');
  } finally {
    await context.close();
    await other.close();
  }
});

test('a device without a socket, and one with a name, stay at their address', async () => {
  const { a } = createLoopbackPair();
  const bare = await openDevice({ link: a });
  const named = await openDevice({ name: `move-${process.pid}`, address: FIRST, port: 0 });
  try {
    await expectRejected(bare.moveTo(SECOND), 'EOPNOTSUPP', /loopback stays at its address/);
    await expectRejected(
      named.moveTo(SECOND),
      'EOPNOTSUPP',
      /processes or threads share stays at its address/,
    );
  } finally {
    await bare.close();
    await named.close();
  }
});

test.run();
