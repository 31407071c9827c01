/** Address handles (rdma-core tests/test_addr.py). */
import * as assert from 'uvu/assert';
import { QpType } from '../../../host/index.js';
import { createPlayers, traffic } from './player.js';
import { everywhere } from './world.js';

everywhere('create_ah', 'an address handle says where datagrams go', async (world) => {
  const { client, server } = await createPlayers(world, { qpType: QpType.UD });
  assert.is(client.ah.destination.toString(), server.context.local.toString());
  await traffic(client, server, { iterations: 1 });
});

everywhere('create_ah_roce', 'there is no address handle without a GID', async (world) => {
  const context = await world.open({ addressHandlesMax: 1 });
  const pd = context.allocPd();
  for (const dgid of [undefined, '', 'nowhere']) {
    assert.throws(() => pd.createAh({ dgid } as never), /ahAttr\.dgid/);
  }
  // Nothing was taken by those that failed.
  pd.createAh({ dgid: '10.0.0.1' });
  assert.throws(() => pd.createAh({ dgid: '10.0.0.2' }), /ENOMEM/);
});

everywhere('destroy_ah', 'a destroyed handle is gone, its place is free', async (world) => {
  const context = await world.open({ addressHandlesMax: 1 });
  const pd = context.allocPd();
  const ah = pd.createAh({ dgid: '10.0.0.1' });
  assert.throws(() => pd.dealloc(), /EBUSY/);
  ah.destroy();
  assert.throws(() => ah.destroy(), /is destroyed/);
  pd.createAh({ dgid: '10.0.0.1' }).destroy();
  pd.dealloc();
});

everywhere.run();
