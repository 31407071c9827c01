/** Atomics: what they do, and what refuses them (rdma-core tests/test_atomic.py). */
import * as assert from 'uvu/assert';
import { AccessFlag, QpState, WcStatus, WrOpcode, type Sge } from '../../../host/index.js';
import { ALL_ACCESS, atomicTraffic, createPlayers, type Player } from './player.js';
import { everywhere } from './world.js';

const { LOCAL_WRITE, REMOTE_ATOMIC } = AccessFlag;
const ATOMIC = { msgSize: 8, mrAccess: LOCAL_WRITE | REMOTE_ATOMIC, qpAccess: REMOTE_ATOMIC };
const FETCH_ADD = WrOpcode.ATOMIC_FETCH_AND_ADD;
const CMP_SWAP = WrOpcode.ATOMIC_CMP_AND_SWP;

everywhere('atomic_cmp_and_swap', 'CMP_SWAP swaps when the value is met, only then', async (w) => {
  const { client, server } = await createPlayers(w, ATOMIC);
  await atomicTraffic(client, server, CMP_SWAP);
  await atomicTraffic(client, server, CMP_SWAP, { receiverValue: 1n, senderValue: 1n });
});

everywhere('atomic_fetch_and_add', 'FETCH_ADD adds, and brings what was there', async (w) => {
  const { client, server } = await createPlayers(w, ATOMIC);
  await atomicTraffic(client, server, FETCH_ADD);
});

/** One FETCH_ADD that fails: the status, and the peer's memory as it was. */
async function refused(
  client: Player,
  server: Player,
  status: number,
  { raddr = client.raddr, rkey = client.rkey, sge = client.sge(8) as Sge } = {},
): Promise<void> {
  server.mr.buffer.fill(0x55);
  client.send(FETCH_ADD, {
    sgList: [sge],
    atomic: { remoteAddr: raddr, rkey, compareAdd: 3n },
  });
  const told = await client.completion();
  assert.is(told.status, status);
  assert.is(client.qp.state, QpState.ERR);
  assert.ok(
    server.mr.buffer.every((byte) => byte === 0x55),
    'the target is untouched',
  );
}

everywhere('atomic_invalid_qp_access', 'atomics need the right of the queue pair', async (w) => {
  const { client, server } = await createPlayers(w, { ...ATOMIC, qpAccess: LOCAL_WRITE });
  await refused(client, server, WcStatus.REM_INV_REQ_ERR);
});

everywhere('atomic_invalid_mr_access', 'atomics need the right of the region', async (w) => {
  const { client, server } = await createPlayers(w, { ...ATOMIC, mrAccess: LOCAL_WRITE });
  await refused(client, server, WcStatus.REM_ACCESS_ERR);
});

everywhere('atomic_non_aligned_addr', 'an atomic off its 8 bytes is invalid', async (w) => {
  const { client, server } = await createPlayers(w, { ...ATOMIC, msgSize: 9 });
  await refused(client, server, WcStatus.REM_INV_REQ_ERR, { raddr: client.raddr + 1n });
});

everywhere('atomic_invalid_lkey', 'a result that may not land is our own error', async (w) => {
  const { client, server } = await createPlayers(w, ATOMIC);
  const { lkey } = client.mr;
  client.send(FETCH_ADD, {
    sgList: [{ ...client.sge(8), lkey: (lkey ^ 1) >>> 0 }],
    atomic: { remoteAddr: client.raddr, rkey: client.rkey, compareAdd: 3n },
  });
  const told = await client.completion();
  assert.is(told.status, WcStatus.LOC_PROT_ERR);
  assert.is(client.qp.state, QpState.ERR);
  assert.ok(server.mr.buffer.length > 0);
});

everywhere('atomic_invalid_rkey', 'an atomic with a wrong key is refused', async (w) => {
  const { client, server } = await createPlayers(w, { ...ATOMIC, qpAccess: ALL_ACCESS });
  await refused(client, server, WcStatus.REM_ACCESS_ERR, { rkey: (client.rkey ^ 1) >>> 0 });
});

everywhere.run();
