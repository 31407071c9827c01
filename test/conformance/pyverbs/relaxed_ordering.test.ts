/** Relaxed ordering (rdma-core tests/test_relaxed_ordering.py). */
import { AccessFlag, QpType } from '../../../host/index.js';
import { createPlayers, rdmaTraffic, traffic } from './player.js';
import { everywhere } from './world.js';

const { LOCAL_WRITE, REMOTE_WRITE, RELAXED_ORDERING } = AccessFlag;
const mrAccess = LOCAL_WRITE | RELAXED_ORDERING;

everywhere('ro_rc_traffic', 'messages into relaxed regions', async (world) => {
  const { client, server } = await createPlayers(world, { mrAccess });
  await traffic(client, server);
});

everywhere('ro_ud_traffic', 'datagrams into relaxed regions', async (world) => {
  const { client, server } = await createPlayers(world, { qpType: QpType.UD, mrAccess });
  await traffic(client, server);
});

everywhere('ro_mr_ex_traffic', 'WRITEs into relaxed regions of regMrEx', async (world) => {
  const { client, server } = await createPlayers(world, {
    mrAccess: mrAccess | REMOTE_WRITE,
    makeMr: (pd, bytes, access) => pd.regMrEx({ buffer: pd.context.alloc(bytes), access }),
  });
  await rdmaTraffic(client, server);
});

everywhere.run();
