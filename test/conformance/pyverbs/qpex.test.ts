/** Posting by `wr_*` (rdma-core tests/test_qpex.py). */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MwType,
  QpExWith,
  QpState,
  QpType,
  SendFlag,
  WcStatus,
  WrOpcode,
  incRkey,
} from '../../../host/index.js';
import {
  atomicTraffic,
  createPlayers,
  rdmaTraffic,
  refused,
  traffic,
  type PlayerOptions,
} from './player.js';
import { everywhere } from './world.js';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND } = AccessFlag;
const UD_SEND: PlayerOptions = { qpType: QpType.UD, sendOpsFlags: QpExWith.SEND };
const WRITE: PlayerOptions = {
  sendOpsFlags: QpExWith.RDMA_WRITE,
  mrAccess: LOCAL_WRITE | REMOTE_WRITE,
};
const READ: PlayerOptions = {
  sendOpsFlags: QpExWith.RDMA_READ,
  mrAccess: LOCAL_WRITE | REMOTE_READ,
};

everywhere('qp_ex_ud_send', 'UD: wrSend', async (world) => {
  const { client, server } = await createPlayers(world, UD_SEND);
  await traffic(client, server);
});

everywhere('qp_ex_ud_zero_size', 'UD: wrSend of no bytes', async (world) => {
  const { client, server } = await createPlayers(world, { ...UD_SEND, msgSize: 0 });
  await traffic(client, server);
});

everywhere('qp_ex_rc_send', 'RC: wrSend', async (world) => {
  const { client, server } = await createPlayers(world, { sendOpsFlags: QpExWith.SEND });
  await traffic(client, server);
});

everywhere('qp_ex_ud_send_imm', 'UD: wrSendImm', async (world) => {
  const sendOpsFlags = QpExWith.SEND_WITH_IMM;
  const { client, server } = await createPlayers(world, { ...UD_SEND, sendOpsFlags });
  await traffic(client, server, { opcode: WrOpcode.SEND_WITH_IMM });
});

everywhere('qp_ex_rc_send_imm', 'RC: wrSendImm', async (world) => {
  const { client, server } = await createPlayers(world, { sendOpsFlags: QpExWith.SEND_WITH_IMM });
  await traffic(client, server, { opcode: WrOpcode.SEND_WITH_IMM });
});

everywhere('qp_ex_rc_rdma_write', 'RC: wrRdmaWrite', async (world) => {
  const { client, server } = await createPlayers(world, WRITE);
  await rdmaTraffic(client, server);
});

everywhere('qp_ex_rc_rdma_write_imm', 'RC: wrRdmaWriteImm', async (world) => {
  const sendOpsFlags = QpExWith.RDMA_WRITE_WITH_IMM;
  const { client, server } = await createPlayers(world, { ...WRITE, sendOpsFlags });
  await traffic(client, server, { opcode: WrOpcode.RDMA_WRITE_WITH_IMM });
});

everywhere('qp_ex_rc_rdma_write_zero_size', 'RC: wrRdmaWrite of no bytes', async (world) => {
  const { client, server } = await createPlayers(world, { ...WRITE, msgSize: 0 });
  await rdmaTraffic(client, server);
});

everywhere('qp_ex_rc_rdma_read', 'RC: wrRdmaRead', async (world) => {
  const { client, server } = await createPlayers(world, READ);
  await rdmaTraffic(client, server, { opcode: WrOpcode.RDMA_READ });
});

everywhere('qp_ex_rc_rdma_read_zero_size', 'RC: wrRdmaRead of no bytes', async (world) => {
  const { client, server } = await createPlayers(world, { ...READ, msgSize: 0 });
  await rdmaTraffic(client, server, { opcode: WrOpcode.RDMA_READ });
});

for (const [upstream, name, opcode, flag] of [
  ['cmp_swp', 'wrAtomicCmpSwp', WrOpcode.ATOMIC_CMP_AND_SWP, QpExWith.ATOMIC_CMP_AND_SWP],
  ['fetch_add', 'wrAtomicFetchAdd', WrOpcode.ATOMIC_FETCH_AND_ADD, QpExWith.ATOMIC_FETCH_AND_ADD],
] as const) {
  everywhere(`qp_ex_rc_atomic_${upstream}`, `RC: ${name}`, async (world) => {
    const { client, server } = await createPlayers(world, {
      sendOpsFlags: flag,
      msgSize: 8,
      mrAccess: LOCAL_WRITE | REMOTE_ATOMIC,
    });
    await atomicTraffic(client, server, opcode);
  });
}

everywhere('qp_ex_rc_bind_mw', 'RC: wrBindMw, of a window that may not be written', async (w) => {
  const { client, server } = await createPlayers(w, {
    sendOpsFlags: QpExWith.RDMA_WRITE | QpExWith.BIND_MW,
    mrAccess: LOCAL_WRITE | REMOTE_WRITE | MW_BIND,
  });
  const { mr, pd, qpEx } = server;
  const bind = async (mwAccessFlags: number): Promise<number> => {
    const mw = pd.allocMw(MwType.TYPE_2);
    const rkey = incRkey(mw.rkey);
    qpEx.wrStart();
    qpEx.wrId = 0x123;
    qpEx.wrFlags = SendFlag.SIGNALED;
    qpEx.wrBindMw(mw, rkey, { mr, addr: mr.addr, length: mr.length, mwAccessFlags });
    qpEx.wrComplete();
    assert.is((await server.success()).wrId, 0x123n);
    assert.equal([mw.rkey, mw.bound], [rkey, true]);
    return rkey;
  };
  // Another one may be written: what fails then, fails for its rights.
  const { raddr: remoteAddr } = client;
  client.message.fill(0x55);
  client.send(WrOpcode.RDMA_WRITE, { rdma: { remoteAddr, rkey: await bind(REMOTE_WRITE) } });
  await client.success();
  assert.ok(server.message.every((byte) => byte === 0x55));
  client.message.fill(0x77);
  const rdma = { remoteAddr, rkey: await bind(0) };
  await refused(client, WrOpcode.RDMA_WRITE, WcStatus.REM_ACCESS_ERR, { rdma });
  assert.ok(server.message.every((byte) => byte === 0x55));
});

everywhere('post_receive_qp_state_bad_flow', 'RESET takes no receives', async (world) => {
  const { server } = await createPlayers(world, UD_SEND);
  server.qp.modify({ qpState: QpState.RESET });
  assert.throws(() => server.postRecv(), /EINVAL/);
});

everywhere('post_send_qp_state_bad_flow', 'RESET sends nothing, as wrComplete says', async (w) => {
  const { client } = await createPlayers(w, UD_SEND);
  client.qp.modify({ qpState: QpState.RESET });
  const { qpEx } = client;
  qpEx.wrStart();
  qpEx.wrSend();
  qpEx.wrSetUdAddr(client.ah, client.peer.qp.qpNum, 0);
  assert.throws(() => qpEx.wrComplete(), /EINVAL/);
  // The batch is gone; another may begin.
  qpEx.wrStart();
  qpEx.wrAbort();
});

everywhere('full_rq_bad_flow', 'a receive queue takes what it was made for', async (world) => {
  const { server } = await createPlayers(world, UD_SEND);
  const { maxRecvWr } = server.qp.cap;
  for (let count = 0; count < maxRecvWr; count++) server.postRecv();
  assert.throws(() => server.postRecv(), /ENOMEM/);
});

everywhere('rq_with_larger_sgl_bad_flow', 'a receive has no more SGEs than agreed', async (w) => {
  const { server } = await createPlayers(w, UD_SEND);
  const { maxRecvSge } = server.qp.cap;
  const sgList = Array.from({ length: maxRecvSge + 1 }, () => server.sge(8));
  assert.throws(() => server.qp.postRecv({ sgList }), /sgList: has/);
  server.qp.postRecv({ sgList: sgList.slice(1) });
});

everywhere.run();
