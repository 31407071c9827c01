/** Memory regions: flags, and device memory (rdma-core tests/test_mr.py). */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  WrOpcode,
  type Context,
  type DeviceMemory,
  type MemoryRegion,
} from '../../../host/index.js';
import {
  ALL_ACCESS,
  atomicTraffic,
  createPlayers,
  rdmaTraffic,
  traffic,
  type PlayerOptions,
} from './player.js';
import { everywhere } from './world.js';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC, ZERO_BASED } = AccessFlag;
const BAD_FLAGS = [REMOTE_WRITE, REMOTE_ATOMIC, REMOTE_WRITE | REMOTE_ATOMIC];
const DM_ACCESS = ZERO_BASED | LOCAL_WRITE;

everywhere('reg_mr_bad_flags', 'remote writes and atomics need LOCAL_WRITE', async (world) => {
  const context = await world.open();
  const pd = context.allocPd();
  const buffer = context.alloc(512);
  for (const access of BAD_FLAGS) assert.throws(() => pd.regMr(buffer, access), /EINVAL/);
  context.free(buffer);
});

everywhere('reg_mrex_bad_flags', 'so they do for regMrEx', async (world) => {
  const context = await world.open();
  const pd = context.allocPd();
  const buffer = context.alloc(512);
  for (const access of BAD_FLAGS) {
    assert.throws(() => pd.regMrEx({ buffer, access }), /EINVAL/);
  }
  context.free(buffer);
});

everywhere('reg_mrex_inval_params', 'regMrEx takes one thing to register', async (world) => {
  const context = await world.open({ regionsMax: 1 });
  const pd = context.allocPd();
  const buffer = context.alloc(512);
  const buf = pd.allocBuf(512);
  const access = LOCAL_WRITE;
  assert.throws(() => pd.regMrEx({ access }), /EINVAL/);
  assert.throws(() => pd.regMrEx({ access, buffer, buf }), /EINVAL/);
  assert.throws(() => pd.regMrEx({ access, buffer, fd: 0 }), /EINVAL/);
  assert.throws(() => pd.regMrEx({ access, fd: 0 }), /EOPNOTSUPP/);
  assert.throws(() => pd.regMrEx({ access, buffer, length: 513 }), /EINVAL/);
  const mr = pd.regMrEx({ access, buffer, length: 100, iova: 0x1000 });
  assert.equal([mr.length, mr.addr], [100, 0x1000n]);
});

function allocDm(context: Context, length: number): DeviceMemory {
  return context.allocDm({ length });
}

everywhere('create_dm_mr', 'device memory of many sizes, in part or whole', async (world) => {
  const context = await world.open();
  const pd = context.allocPd();
  const { maxDmSize } = context.queryDeviceEx();
  for (const size of [4, maxDmSize / 4, maxDmSize / 2]) {
    const dm = allocDm(context, size);
    for (const share of [0.1, 0.5, 1]) {
      const length = Math.max(4, Math.floor((size * share) / 4) * 4);
      const mr = pd.regDmMr(dm, 0, length, DM_ACCESS);
      assert.equal([mr.addr, mr.length], [0n, length]);
      assert.throws(() => dm.free(), /EBUSY/);
      mr.dereg();
    }
    dm.free();
  }
});

everywhere('dm_bad_access', 'copies off the units or out of the memory', async (world) => {
  const context = await world.open();
  const dm = allocDm(context, 100);
  context.allocPd().regDmMr(dm, 0, 100, DM_ACCESS);
  for (const [offset, length] of [
    [3, 4],
    [4, 3],
    [104, 4],
    [0, 104],
  ] as const) {
    assert.throws(() => dm.memcpyFrom(offset, length), /memcpyFrom: .*EINVAL/);
    assert.throws(() => dm.memcpyTo(offset, new Uint8Array(length)), /memcpyTo: .*EINVAL/);
  }
});

everywhere('dm_bad_registration', 'no region is longer than its memory', async (world) => {
  const context = await world.open({ regionsMax: 1 });
  const pd = context.allocPd();
  const dm = allocDm(context, 100);
  assert.throws(() => pd.regDmMr(dm, 0, 104, DM_ACCESS), /EINVAL/);
  assert.throws(() => pd.regDmMr(dm, 4, 100, DM_ACCESS), /EINVAL/);
  assert.throws(() => pd.regDmMr(dm, -4, 8, DM_ACCESS), /EINVAL/);
  assert.throws(() => pd.regDmMr(dm, 0, 100, LOCAL_WRITE), /EINVAL/);
  pd.regDmMr(dm, 0, 100, DM_ACCESS);
});

const DM: PlayerOptions = {
  mrAccess: ALL_ACCESS | ZERO_BASED,
  makeMr: (pd, bytes, access): MemoryRegion =>
    pd.regDmMr(allocDm(pd.context, bytes), 0, bytes, access),
};

everywhere('dm_traffic', 'messages from and to device memory', async (world) => {
  const { client, server } = await createPlayers(world, { ...DM, mrAccess: DM_ACCESS });
  await traffic(client, server);
});

everywhere('dm_remote_traffic', 'WRITEs to device memory', async (world) => {
  const { client, server } = await createPlayers(world, DM);
  assert.is(client.raddr, 0n);
  await rdmaTraffic(client, server);
});

everywhere('dm_remote_write_traffic_imm', 'WRITEs with immediate', async (world) => {
  const { client, server } = await createPlayers(world, DM);
  await traffic(client, server, { opcode: WrOpcode.RDMA_WRITE_WITH_IMM });
});

everywhere('dm_remote_read_traffic', 'READs of device memory', async (world) => {
  const { client, server } = await createPlayers(world, DM);
  await rdmaTraffic(client, server, { opcode: WrOpcode.RDMA_READ });
});

everywhere('dm_atomic_fetch_add', 'FETCH_ADD on device memory', async (world) => {
  const { client, server } = await createPlayers(world, { ...DM, msgSize: 8 });
  await atomicTraffic(client, server, WrOpcode.ATOMIC_FETCH_AND_ADD);
});

everywhere('dm_atomic_cmp_swp', 'CMP_SWAP on device memory', async (world) => {
  const { client, server } = await createPlayers(world, { ...DM, msgSize: 8 });
  await atomicTraffic(client, server, WrOpcode.ATOMIC_CMP_AND_SWP);
});

everywhere.run();
