/** Hints for regions (rdma-core tests/test_dmah.py). */
import * as assert from 'uvu/assert';
import { AccessFlag, TphMemType, WrOpcode } from '../../../host/index.js';
import { atomicTraffic, createPlayers, rdmaTraffic, traffic } from './player.js';
import { everywhere, type World } from './world.js';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC, ON_DEMAND } = AccessFlag;

everywhere('dmah_with_mrex', 'a region takes a hint', async (world) => {
  const context = await world.open();
  const pd = context.allocPd();
  const dmah = context.allocDmah({ cpuId: 0, ph: 0, tphMemType: TphMemType.VM });
  const buffer = context.alloc(4096);
  const mr = pd.regMrEx({ buffer, access: LOCAL_WRITE, dmah });
  mr.dereg();
  dmah.dealloc();
  assert.throws(() => pd.regMrEx({ buffer, access: LOCAL_WRITE, dmah }), /dmah: is deallocated/);
});

everywhere('dmah_invalid_ph', 'processing hints are 0 to 3', async (world) => {
  const context = await world.open();
  for (const ph of [0, 1, 2, 3]) context.allocDmah({ ph }).dealloc();
  assert.throws(() => context.allocDmah({ ph: 4 }), /EINVAL/);
  assert.throws(() => context.allocDmah({ ph: -1 }), /EINVAL/);
});

everywhere('dmah_persistent_memory', 'a hint may speak of persistent memory', async (world) => {
  const dmah = (await world.open()).allocDmah({ tphMemType: TphMemType.PM });
  assert.is(dmah.attributes.tphMemType, TphMemType.PM);
});

everywhere('dmah_invalid_mem_type', 'there are two kinds of memory', async (world) => {
  const context = await world.open();
  assert.throws(() => context.allocDmah({ tphMemType: 0xfe }), /EINVAL/);
});

everywhere('dmah_inval_cpu_id', 'a hint names a processor that is there', async (world) => {
  const context = await world.open();
  assert.throws(() => context.allocDmah({ cpuId: 0xffff, ph: 3 }), /EINVAL/);
});

everywhere('dmah_mrex_odp_bad_flow', 'no hint for memory paged on demand', async (world) => {
  const context = await world.open();
  const buffer = context.alloc(4096);
  const dmah = context.allocDmah();
  const access = LOCAL_WRITE | ON_DEMAND;
  assert.throws(() => context.allocPd().regMrEx({ buffer, access, dmah }), /EINVAL/);
  context.free(buffer);
});

function players(world: World, mrAccess: number, msgSize: number) {
  return createPlayers(world, {
    msgSize,
    mrAccess,
    makeMr: (pd, bytes, access) => {
      const dmah = pd.context.allocDmah();
      return pd.regMrEx({ buffer: pd.context.alloc(bytes), access, dmah });
    },
  });
}

everywhere('dmah_mrex_rc_send', 'messages from hinted regions', async (world) => {
  const { client, server } = await players(world, LOCAL_WRITE, 1024);
  await traffic(client, server);
});

everywhere('dmah_mrex_rc_rdma_write', 'WRITEs into hinted regions', async (world) => {
  const { client, server } = await players(world, LOCAL_WRITE | REMOTE_WRITE, 1024);
  await rdmaTraffic(client, server);
});

everywhere('dmah_mrex_rc_atomic', 'atomics on hinted regions', async (world) => {
  const { client, server } = await players(world, LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC, 8);
  await atomicTraffic(client, server, WrOpcode.ATOMIC_FETCH_AND_ADD);
});

everywhere.run();
