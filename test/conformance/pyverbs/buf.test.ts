/** Buffers that a domain allocates (rdma-core tests/test_buf.py). */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  QpType,
  WrOpcode,
  type Context,
  type MemoryRegion,
  type ParentDomain,
  type ProtectionDomain,
} from '../../../host/index.js';
import {
  atomicTraffic,
  createPlayers,
  rdmaTraffic,
  traffic,
  type PlayerOptions,
} from './player.js';
import { everywhere, type World } from './world.js';

const PAGE = 4096;
const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;

const plainPd = (context: Context): ProtectionDomain => context.allocPd();
/** A domain for confidential guests: buffers may be memory that the hypervisor sees. */
const ccPd = (context: Context): ParentDomain =>
  context.allocParentDomain({ pd: context.allocPd(), allowCcUnprotectedAlloc: true });

type Register = (
  pd: ProtectionDomain,
  size: number,
  offset: number,
  length: number,
) => MemoryRegion;

function fromBuf(viaEx: boolean, access: number = LOCAL_WRITE): Register {
  return (pd, size, offset, length) => {
    const buf = pd.allocBuf(size);
    assert.is(buf.addr % PAGE, 0);
    const addr = buf.addr + offset;
    if (viaEx) return pd.regMrEx({ buf, addr, length, access });
    return pd.regBufMr(buf, addr, length, access);
  };
}

async function twoRegions(world: World, makePd: typeof plainPd, viaEx: boolean): Promise<void> {
  const pd = makePd(await world.open());
  const buf = pd.allocBuf(2 * PAGE);
  const regions = [0, PAGE].map((offset) => {
    const addr = buf.addr + offset;
    if (viaEx) return pd.regMrEx({ buf, addr, length: PAGE, access: LOCAL_WRITE });
    return pd.regBufMr(buf, addr, PAGE, LOCAL_WRITE);
  });
  const [first, second] = regions as [MemoryRegion, MemoryRegion];
  assert.is.not(first.lkey, second.lkey);
  assert.is(first.addr, BigInt(buf.addr));
  assert.is(second.addr, BigInt(buf.addr + PAGE));
  first.buffer.fill(0x61);
  second.buffer.fill(0x62);
  assert.ok(buf.bytes.subarray(0, PAGE).every((byte) => byte === 0x61));
  assert.ok(buf.bytes.subarray(PAGE).every((byte) => byte === 0x62));
  assert.throws(() => buf.free(), /EBUSY/);
  first.dereg();
  second.dereg();
  buf.free();
  assert.throws(() => pd.regBufMr(buf, buf.addr, 8, 0), /is freed/);
}

everywhere('buf_export_dmabuf_fd_plain_pd', 'ordinary memory has no DMA buffer', async (world) => {
  const buf = plainPd(await world.open()).allocBuf(PAGE);
  assert.throws(() => buf.exportDmabufFd(), /ENODATA/);
});

everywhere('multiple_mrs_one_buf_plain_pd_reg_buf_mr', 'two regions of one buffer', (world) =>
  twoRegions(world, plainPd, false),
);
everywhere('multiple_mrs_one_buf_plain_pd_reg_mr_ex', 'two regions by regMrEx', (world) =>
  twoRegions(world, plainPd, true),
);
everywhere('multiple_mrs_one_buf_cc_pd_reg_buf_mr', 'two regions, confidential guest', (world) =>
  twoRegions(world, ccPd, false),
);

for (const [suffix, makePd] of [
  ['plain_pd', plainPd],
  ['cc_pd', ccPd],
] as const) {
  const kind = suffix === 'cc_pd' ? 'confidential guest' : 'plain domain';
  everywhere(
    `buf_reg_wrong_allocating_pd_fails_${suffix}`,
    `a buffer is registered by the domain that allocated it (${kind})`,
    async (world) => {
      const context = await world.open({ regionsMax: 1 });
      const pd = makePd(context);
      const buf = pd.allocBuf(PAGE);
      const other = makePd(context);
      assert.throws(() => other.regBufMr(buf, buf.addr, PAGE, LOCAL_WRITE), /EINVAL/);
      assert.throws(() => other.regMrEx({ buf, access: LOCAL_WRITE }), /EINVAL/);
      pd.regBufMr(buf, buf.addr, PAGE, LOCAL_WRITE);
    },
  );
  everywhere(
    `buf_reg_length_exceeds_buffer_fails_${suffix}`,
    `a region is no longer than its buffer (${kind})`,
    async (world) => {
      const pd = makePd(await world.open());
      const buf = pd.allocBuf(PAGE);
      assert.throws(() => pd.regBufMr(buf, buf.addr, 2 * PAGE, LOCAL_WRITE), /EINVAL/);
    },
  );
  everywhere(
    `buf_reg_offset_length_exceeds_buffer_fails_${suffix}`,
    `a region ends where its buffer ends (${kind})`,
    async (world) => {
      const pd = makePd(await world.open());
      const buf = pd.allocBuf(PAGE);
      assert.throws(() => pd.regBufMr(buf, buf.addr + PAGE, PAGE, LOCAL_WRITE), /EINVAL/);
      assert.throws(() => pd.regBufMr(buf, buf.addr + 1, PAGE, LOCAL_WRITE), /EINVAL/);
      assert.throws(() => pd.regBufMr(buf, buf.addr - 1, 1, LOCAL_WRITE), /EINVAL/);
    },
  );
}

/** Players whose messages lie in buffers, with extended completion queues. */
function players(
  world: World,
  makePd: typeof plainPd,
  register: Register,
  { offset = 0, size = 0, ...options }: PlayerOptions & { offset?: number; size?: number } = {},
) {
  return createPlayers(world, {
    ...options,
    makePd,
    makeCq: (context, pd) =>
      context.createCqEx({
        cqe: 64,
        ...(makePd === ccPd ? { parentDomain: pd as ParentDomain } : {}),
      }),
    makeMr: (pd, bytes) => register(pd, Math.max(size, bytes + offset), offset, bytes),
  });
}

everywhere('buf_rc_send_cc_pd_reg_buf_mr', 'messages from buffers', async (world) => {
  const { client, server } = await players(world, ccPd, fromBuf(false));
  await traffic(client, server);
});

everywhere('buf_rc_send_large_msg_cc_pd_reg_buf_mr', 'messages of many pages', async (world) => {
  const { client, server } = await players(world, ccPd, fromBuf(false), { msgSize: 16384 });
  await traffic(client, server);
});

everywhere('buf_rc_send_mr_subrange_cc_pd_reg_buf_mr', 'messages from a part', async (world) => {
  const part = { offset: PAGE, size: PAGE + 16384, msgSize: 8192 };
  const { client, server } = await players(world, ccPd, fromBuf(false), part);
  await traffic(client, server);
});

everywhere('buf_rc_rdma_write_imm_cc_pd_reg_buf_mr', 'WRITEs with immediate', async (world) => {
  const register = fromBuf(false, LOCAL_WRITE | REMOTE_WRITE);
  const { client, server } = await players(world, ccPd, register);
  await traffic(client, server, { opcode: WrOpcode.RDMA_WRITE_WITH_IMM });
});

everywhere('buf_rc_rdma_read_cc_pd_reg_buf_mr', 'READs of buffers', async (world) => {
  const register = fromBuf(false, LOCAL_WRITE | REMOTE_READ);
  const { client, server } = await players(world, ccPd, register);
  await rdmaTraffic(client, server, { opcode: WrOpcode.RDMA_READ });
});

everywhere('buf_rc_atomic_fetch_add_cc_pd_reg_buf_mr', 'atomics on buffers', async (world) => {
  const register = fromBuf(false, LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC);
  const { client, server } = await players(world, ccPd, register, { msgSize: 8 });
  await atomicTraffic(client, server, WrOpcode.ATOMIC_FETCH_AND_ADD);
});

everywhere('buf_ud_send_cc_pd_reg_buf_mr', 'datagrams from buffers', async (world) => {
  const options = { qpType: QpType.UD };
  const { client, server } = await players(world, ccPd, fromBuf(false), options);
  await traffic(client, server);
});

everywhere('buf_rc_send_plain_pd_reg_buf_mr', 'messages, plain domain', async (world) => {
  const { client, server } = await players(world, plainPd, fromBuf(false));
  await traffic(client, server);
});

everywhere('buf_rc_send_cc_pd_reg_mr_ex', 'messages from regions of regMrEx', async (world) => {
  const { client, server } = await players(world, ccPd, fromBuf(true));
  await traffic(client, server);
});

everywhere.run();
