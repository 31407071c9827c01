/** Memory regions: flags, device memory, re-registration (rdma-core tests/test_mr.py). */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MwType,
  ReregMrFlag,
  SendFlag,
  WcFlag,
  WcStatus,
  WrOpcode,
  incRkey,
  type Context,
  type DeviceMemory,
  type MemoryRegion,
  type MemoryWindow,
} from '../../../host/index.js';
import {
  ALL_ACCESS,
  atomicTraffic,
  createPlayers,
  rdmaTraffic,
  refused,
  restate,
  traffic,
  type Player,
  type PlayerOptions,
} from './player.js';
import { everywhere, type World } from './world.js';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC, ZERO_BASED, MW_BIND } = AccessFlag;
const { CHANGE_TRANSLATION, CHANGE_PD, CHANGE_ACCESS } = ReregMrFlag;
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

/** Regions of the classic call, and of the extended one. */
const KINDS: readonly [string, Pick<PlayerOptions, 'makeMr'>][] = [
  ['mr', {}],
  [
    'mrex',
    { makeMr: (pd, size, access) => pd.regMrEx({ buffer: pd.context.alloc(size), access }) },
  ],
];
const REREG_ADDR: { readonly [kind: string]: string } = {
  mr: 'a region moves: receives for the old memory fail, new ones find the new',
  mrex: 'so does one of regMrEx',
};
const REREG_ACCESS: { readonly [kind: string]: string } = {
  mr: 'a region gets the right to be written',
  mrex: 'so does one of regMrEx when it had none',
};

for (const [kind, options] of KINDS) {
  everywhere(`${kind}_rereg_addr`, REREG_ADDR[kind]!, async (world) => {
    const { client, server } = await createPlayers(world, { ...options, mrAccess: LOCAL_WRITE });
    const { lkey, rkey, buffer: before } = server.mr;
    server.postRecv();
    const buffer = server.context.alloc(server.msgSize);
    before.fill(0x11);
    server.mr.rereg(CHANGE_TRANSLATION, undefined, buffer);
    assert.equal([server.mr.lkey, server.mr.rkey], [lkey, rkey]);
    assert.is(server.mr.addr, BigInt(buffer.byteOffset));
    await refused(client, WrOpcode.SEND, WcStatus.REM_OP_ERR);
    assert.ok(before.every((byte) => byte === 0x11) && buffer.every((byte) => byte === 0));
    await restate(client, server);
    await traffic(client, server);
    // No region refers to `before` any more: it can be freed.
    server.context.free(before);
  });

  everywhere(`${kind}_rereg_access`, REREG_ACCESS[kind]!, async (world) => {
    const { client, server } = await createPlayers(world, { ...options, mrAccess: LOCAL_WRITE });
    for (const { mr } of [client, server]) {
      mr.rereg(CHANGE_ACCESS, undefined, undefined, LOCAL_WRITE | REMOTE_WRITE);
    }
    await rdmaTraffic(client, server);
  });
}

everywhere('mr_rereg_atomic', 'a region loses and regains atomics', async (world) => {
  const mrAccess = LOCAL_WRITE | REMOTE_ATOMIC;
  const { client, server } = await createPlayers(world, { mrAccess, msgSize: 8 });
  const opcode = WrOpcode.ATOMIC_FETCH_AND_ADD;
  const both = (access: number): void => {
    for (const { mr } of [client, server]) mr.rereg(CHANGE_ACCESS, undefined, undefined, access);
  };
  both(LOCAL_WRITE);
  const before = server.message.slice();
  const atomic = { remoteAddr: client.raddr, rkey: client.rkey, compareAdd: 2n };
  await refused(client, opcode, WcStatus.REM_ACCESS_ERR, { atomic });
  assert.equal(server.message.slice(), before);
  await restate(client, server);
  both(mrAccess);
  await atomicTraffic(client, server, opcode);
});

everywhere('mr_rereg_access_bad_flow', 'a region is written until it may not be', async (world) => {
  const { client, server } = await createPlayers(world, { mrAccess: LOCAL_WRITE | REMOTE_WRITE });
  await rdmaTraffic(client, server);
  server.mr.rereg(CHANGE_ACCESS, undefined, undefined, LOCAL_WRITE);
  const before = server.message.slice();
  client.message.fill(0x77);
  await refused(client, WrOpcode.RDMA_WRITE, WcStatus.REM_ACCESS_ERR);
  assert.equal(server.message.slice(), before);
});

everywhere(
  'mr_rereg_pd',
  'a region of another domain serves no receive, until back',
  async (world) => {
    const { client, server } = await createPlayers(world, { mrAccess: LOCAL_WRITE });
    await traffic(client, server);
    const other = server.context.allocPd();
    server.mr.rereg(CHANGE_PD, other);
    assert.is(server.mr.pd, other);
    // A receive of the traffic before waits already.
    await refused(client, WrOpcode.SEND, WcStatus.REM_OP_ERR);
    await restate(client, server);
    server.mr.rereg(CHANGE_PD, server.pd);
    await traffic(client, server);
    server.mr.rereg(CHANGE_PD, other);
    assert.throws(() => other.dealloc(), /EBUSY/);
  },
);

const WINDOWED: PlayerOptions = { mrAccess: LOCAL_WRITE | MW_BIND };

interface Windowed {
  readonly client: Player;
  readonly server: Player;
  readonly windows: ReadonlyMap<Player, MemoryWindow>;
}

/** Players that offer nothing but a window over their memory; written through both ways. */
async function throughWindows(
  world: World,
  type: number,
  options: PlayerOptions = {},
): Promise<Windowed> {
  const { client, server } = await createPlayers(world, { ...WINDOWED, ...options });
  const windows = new Map([client, server].map((player) => [player, player.pd.allocMw(type)]));
  for (const [player, mw] of windows) {
    await bind(player, mw, player.mr.length);
    player.peer.rkey = mw.rkey;
  }
  await rdmaTraffic(client, server);
  return { client, server, windows };
}

/** Type 1 chooses its key, with type 2 the application does. */
async function bind(player: Player, mw: MemoryWindow, length: number): Promise<void> {
  const mwAccessFlags = length > 0 ? REMOTE_WRITE : 0;
  const bindInfo = { mr: player.mr, addr: player.mr.addr, length, mwAccessFlags };
  const sendFlags = SendFlag.SIGNALED;
  const before = mw.rkey;
  if (mw.type === MwType.TYPE_1) {
    const rkey = player.qp.bindMw(mw, { sendFlags, bindInfo });
    await player.success();
    assert.is(mw.rkey, rkey);
  } else {
    const bindMw = { mw, rkey: incRkey(before), bindInfo };
    player.qp.postSend({ opcode: WrOpcode.BIND_MW, sendFlags, bindMw });
    await player.success();
    assert.is(mw.rkey, incRkey(before));
  }
  assert.is(mw.bound, length > 0);
}

/** Checks that WRITEs to a window that no longer exists fail and change nothing. */
async function writeRefused({ client, server }: Windowed): Promise<void> {
  const before = server.message.slice();
  client.message.fill(0x77);
  await refused(client, WrOpcode.RDMA_WRITE, WcStatus.REM_ACCESS_ERR);
  assert.equal(server.message.slice(), before);
}

everywhere('mw_type1', 'WRITEs through a window of type 1', async (world) => {
  const { windows } = await throughWindows(world, MwType.TYPE_1);
  for (const [player, mw] of windows) {
    // Bound to, the region stays; the window gone, it goes.
    assert.throws(() => player.mr.dereg(), /EBUSY/);
    mw.dealloc();
    player.mr.dereg();
  }
});

everywhere('mw_ex_type1', 'WRITEs through a window over a region of regMrEx', async (world) => {
  await throughWindows(world, MwType.TYPE_1, KINDS[1]![1]);
});

everywhere('invalidate_mw_type1', 'a window bound to no bytes opens nothing', async (world) => {
  const windowed = await throughWindows(world, MwType.TYPE_1);
  for (const [player, mw] of windowed.windows) await bind(player, mw, 0);
  await writeRefused(windowed);
});

everywhere('mw_type2', 'WRITEs through a window of type 2', async (world) => {
  const { windows } = await throughWindows(world, MwType.TYPE_2);
  for (const mw of windows.values()) assert.ok(mw.counters().writes > 0);
});

everywhere('mw_type2_invalidate_local', 'LOCAL_INV closes a window', async (world) => {
  const windowed = await throughWindows(world, MwType.TYPE_2);
  for (const [player, mw] of windowed.windows) {
    const invalidateRkey = mw.rkey;
    const sendFlags = SendFlag.SIGNALED;
    player.qp.postSend({ opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey });
    await player.success();
    assert.not(mw.bound);
  }
  await writeRefused(windowed);
});

everywhere(
  'mw_type2_invalidate_remote',
  'SEND_WITH_INV closes the peer’s window',
  async (world) => {
    const windowed = await throughWindows(world, MwType.TYPE_2);
    for (const [player, mw] of windowed.windows) {
      player.postRecv();
      const invalidateRkey = mw.rkey;
      player.peer.send(WrOpcode.SEND_WITH_INV, { invalidateRkey });
      await player.peer.success();
      const { wcFlags, invalidatedRkey } = await player.success();
      assert.is(wcFlags & WcFlag.WITH_INV, WcFlag.WITH_INV);
      assert.is(invalidatedRkey, invalidateRkey);
      assert.not(mw.bound);
    }
    await writeRefused(windowed);
  },
);

everywhere('mw_type2_invalidate_dealloc', 'a window that is gone opens nothing', async (world) => {
  const windowed = await throughWindows(world, MwType.TYPE_2);
  for (const mw of windowed.windows.values()) mw.dealloc();
  await writeRefused(windowed);
});

everywhere('reg_mw_wrong_type', 'there are two types of windows', async (world) => {
  const context = await world.open({ regionsMax: 1 });
  const pd = context.allocPd();
  for (const type of [0, 3, 1.5, undefined]) {
    assert.throws(() => pd.allocMw(type as number), /type: must be an MwType/);
  }
  // Nothing was taken by those that failed.
  pd.allocMw(MwType.TYPE_1).dealloc();
  pd.dealloc();
});

everywhere.run();
