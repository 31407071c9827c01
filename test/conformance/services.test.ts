/** UC, UD, shared receive queues, atomics, invalidation and channels on a link without faults. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  Gid,
  AsyncEvent,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
  type AsyncEventRecord,
} from '../../host/index.js';
import {
  ALL_ACCESS,
  connect,
  makeDatagramsReady,
  makePair,
  type Pair,
  type Side,
} from '../support/pair.js';
import { eachPath } from '../support/request-paths.js';

const each = eachPath(test);

function sge(side: Side, offset: number, length: number) {
  return [{ addr: side.mr.addr + BigInt(offset), length, lkey: side.mr.lkey }];
}

/** The next asynchronous event that is there already. */
async function event(side: Side): Promise<AsyncEventRecord> {
  const none = new Promise<undefined>((resolve) => setImmediate(() => resolve(undefined)));
  const found = await Promise.race([side.context.getAsyncEvent(), none]);
  assert.ok(found, 'an asynchronous event');
  return found!;
}

function statuses(side: Side): number[] {
  return side.cq.poll(100).map((wc) => wc.status);
}

/** UD queue pairs of both sides in RTS, and an address handle of each to the other. */
async function datagramPair(qkey = 0x11111111): Promise<Pair> {
  const pair = await makePair({ connect: false, qp: { qpType: QpType.UD } });
  for (const { qp } of [pair.a, pair.b]) {
    makeDatagramsReady(qp, qkey, 5);
  }
  return pair;
}

each('FETCH_ADD returns the value before and adds once', (pair) => {
  const { a, b } = pair;
  const word = new DataView(b.buffer.buffer, b.buffer.byteOffset);
  word.setBigUint64(64, 0xffff_ffff_ffff_fffen, true);
  const atomic = { remoteAddr: b.mr.addr + 64n, rkey: b.mr.rkey, compareAdd: 3n };
  const sgList = sge(a, 8, 8);
  const sendFlags = SendFlag.SIGNALED;
  a.qp.postSend({ opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sendFlags, sgList, atomic });
  pair.settle();
  const [wc] = a.cq.poll(1);
  assert.is(wc?.opcode, WcOpcode.FETCH_ADD);
  assert.is(word.getBigUint64(64, true), 1n, 'wraps at 2^64');
  const view = new DataView(a.buffer.buffer, a.buffer.byteOffset);
  assert.is(view.getBigUint64(8, true), 0xffff_ffff_ffff_fffen);
});

test('UC carries SEND and WRITE, completes when sent, and never answers', async () => {
  const { a, b, ...pair } = await openUc();
  a.buffer.fill(7, 0, 3000);
  b.qp.postRecv({ wrId: 9, sgList: sge(b, 8192, 4096) });
  const sendFlags = SendFlag.SIGNALED;
  const rdma = { remoteAddr: b.mr.addr, rkey: b.mr.rkey };
  a.qp.postSend([
    { opcode: WrOpcode.RDMA_WRITE, sendFlags, sgList: sge(a, 0, 3000), rdma },
    { opcode: WrOpcode.SEND_WITH_IMM, sendFlags, sgList: sge(a, 0, 2500), immData: 77 },
  ]);
  assert.equal(statuses(a), [0, 0], 'complete before anything travels');
  pair.settle();
  assert.equal(b.buffer.subarray(0, 3000), a.buffer.subarray(0, 3000));
  const [wc] = b.cq.poll(2);
  assert.is(wc?.byteLen, 2500);
  assert.is(wc?.immData, 77);
  assert.is(b.context.counters().sentPkts, 0n);
  await pair.close();
});

test('a UC send with a bad local key goes to SQE, flushes, and comes back', async () => {
  const { a, b, ...pair } = await openUc();
  const bad = [{ addr: a.mr.addr, length: 10, lkey: a.mr.lkey ^ 1 }];
  b.qp.postRecv({ wrId: 1, sgList: sge(b, 0, 100) });
  a.qp.postSend([
    { opcode: WrOpcode.SEND, sgList: bad },
    { opcode: WrOpcode.SEND, sgList: sge(a, 0, 10) },
  ]);
  assert.equal(statuses(a), [WcStatus.LOC_PROT_ERR, WcStatus.WR_FLUSH_ERR]);
  assert.is(a.qp.state, QpState.SQE);
  a.qp.modify({ qpState: QpState.RTS });
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10) });
  pair.settle();
  assert.equal(statuses(b), [0]);
  await pair.close();
});

test('a datagram arrives behind its 40-byte header, with its sender’s number', async () => {
  const { a, b, ...pair } = await openUd();
  const ah = a.pd.createAh({ dgid: b.context.local.gid, port: b.context.local.port });
  a.buffer.fill(9, 0, 500);
  b.qp.postRecv({ wrId: 4, sgList: sge(b, 0, 1000) });
  const ud = { ah, remoteQpn: b.qp.qpNum, remoteQkey: 0x11111111 };
  a.qp.postSend({ opcode: WrOpcode.SEND_WITH_IMM, immData: 6, sgList: sge(a, 0, 500), ud });
  pair.settle();
  const [wc] = b.cq.poll(2);
  assert.is(wc?.byteLen, 540);
  assert.is(wc?.srcQp, a.qp.qpNum);
  assert.is(wc?.wcFlags, WcFlag.GRH | WcFlag.WITH_IMM);
  assert.equal(b.buffer.subarray(40, 540), a.buffer.subarray(0, 500));
  assert.equal(b.buffer.slice(8, 24), a.context.local.gid.bytes);
  const back = b.pd.createAhFromWc(wc!, b.buffer.subarray(0, 40), a.context.local.port);
  assert.is(`${back.destination}`, `${a.context.local}`);
  await pair.close();
});

test('a datagram without an address handle of its own domain goes to SQE', async () => {
  const { a, b, ...pair } = await openUd();
  const other = a.context.allocPd();
  const ah = other.createAh({ dgid: b.context.local.gid });
  const ud = { ah, remoteQpn: b.qp.qpNum, remoteQkey: 0x11111111 };
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10), ud });
  assert.equal(statuses(a), [WcStatus.LOC_QP_OP_ERR]);
  assert.is(a.qp.state, QpState.SQE);
  await pair.close();
});

test('a pointer into an address handle is no handle, whatever it points to', async () => {
  const { a, b, ...pair } = await openUd();
  // A GID that begins with the number of the domain: where an address handle has its own.
  const gid = new Uint8Array(16);
  new DataView(gid.buffer).setUint32(0, a.pd.handle, true);
  const ah = a.pd.createAh({ dgid: new Gid(gid) });
  const at = a.context.device.arena.memory.words.indexOf(a.pd.handle, (ah.handle >> 2) + 2);
  const inside = { handle: at * 4 - 4, destroyed: false } as typeof ah;
  const ud = { ah: inside, remoteQpn: b.qp.qpNum, remoteQkey: 0x11111111 };
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10), ud });
  assert.equal(statuses(a), [WcStatus.LOC_QP_OP_ERR]);
  assert.is(a.context.counters().sentPkts, 0n);
  await pair.close();
});

test('multicast reaches every member and no other queue pair', async () => {
  const { a, b, ...pair } = await openUd();
  const group = 'ff0e::1234';
  const ah = a.pd.createAh({ dgid: group });
  const ud = { ah, remoteQpn: 0xffffff, remoteQkey: 0x11111111 };
  b.qp.postRecv([
    { wrId: 1, sgList: sge(b, 0, 100) },
    { wrId: 2, sgList: sge(b, 0, 100) },
  ]);
  a.qp.postRecv({ wrId: 3, sgList: sge(a, 1000, 100) });
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10), ud });
  pair.settle();
  assert.is(b.cq.poll(9).length, 0, 'no member yet');
  b.qp.attachMcast(group);
  a.qp.attachMcast(group);
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10), ud });
  pair.settle();
  assert.is(b.cq.poll(9).length, 1);
  assert.is(a.cq.poll(9).length, 1, 'the sender’s own host as well');
  b.qp.modify({ qpState: QpState.ERR });
  assert.equal(
    b.cq.poll(9).map(({ status }) => status),
    [WcStatus.WR_FLUSH_ERR],
  );
  b.qp.modify({ qpState: QpState.RESET });
  b.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey: 0x11111111 });
  b.qp.attachMcast(group);
  b.qp.postRecv({ wrId: 4, sgList: sge(b, 0, 100) });
  a.qp.postRecv({ wrId: 5, sgList: sge(a, 1000, 100) });
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10), ud });
  pair.settle();
  assert.equal([a.cq.poll(9).length, b.cq.poll(9).length], [1, 0], 'in INIT it receives nothing');
  b.qp.detachMcast(group);
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10), ud });
  pair.settle();
  assert.is(b.cq.poll(9).length, 0);
  assert.throws(() => b.qp.detachMcast(group), /EINVAL/);
  await pair.close();
});

each('an SRQ feeds two queue pairs and says once that it runs low', async (pair, options) => {
  const { a, b } = pair;
  const srq = b.pd.createSrq({ maxWr: 8, srqLimit: 2 });
  const qp = b.pd.createQp({ sendCq: b.cq, recvCq: b.cq, srq });
  a.qp.modify({ qpState: QpState.RESET });
  connect(a.qp, { ...b, qp }, 1, 1, options);
  connect(qp, a, 1, 1, options);
  for (let i = 0; i < 3; i++) srq.postRecv({ wrId: 100 + i, sgList: sge(b, i * 1000, 1000) });
  for (let i = 0; i < 3; i++) a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 10) });
  pair.settle();
  assert.equal(
    b.cq.poll(9).map((wc) => wc.wrId),
    [100n, 101n, 102n],
  );
  const low = await event(b);
  assert.is(low.eventType, AsyncEvent.SRQ_LIMIT_REACHED);
  assert.is(low.element, srq);
  srq.postRecv({ wrId: 200, sgList: sge(b, 0, 1000) });
  qp.modify({ qpState: QpState.ERR });
  const last = await event(b);
  assert.is(last?.eventType, AsyncEvent.QP_LAST_WQE_REACHED);
  assert.is(b.cq.poll(9).length, 0, 'requests of an SRQ are not flushed');
  assert.throws(() => srq.destroy(), /EBUSY/);
  qp.destroy();
  srq.destroy();
});

each('SEND_WITH_INV kills the key it names, LOCAL_INV waits for everything before it', (pair) => {
  const { a, b } = pair;
  const window = b.pd.regMr(b.buffer.subarray(0, 4096), ALL_ACCESS, { invalidatable: true });
  b.qp.postRecv({ wrId: 1, sgList: sge(b, 8192, 100) });
  const rdma = { remoteAddr: window.addr, rkey: window.rkey };
  a.qp.postSend([
    { opcode: WrOpcode.RDMA_WRITE, sgList: sge(a, 0, 10), rdma },
    { opcode: WrOpcode.SEND_WITH_INV, sgList: sge(a, 0, 10), invalidateRkey: window.rkey },
  ]);
  pair.settle();
  const [wc] = b.cq.poll(1);
  assert.is(wc?.wcFlags, WcFlag.WITH_INV);
  assert.is(wc?.invalidatedRkey, window.rkey);
  window.dereg();
  const local = a.pd.regMr(a.buffer.subarray(0, 4096), ALL_ACCESS, { invalidatable: true });
  a.qp.postSend([
    {
      wrId: 1,
      opcode: WrOpcode.RDMA_READ,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: local.addr, length: 100, lkey: local.lkey }],
      rdma: { remoteAddr: b.mr.addr, rkey: b.mr.rkey },
    },
    {
      wrId: 2,
      opcode: WrOpcode.LOCAL_INV,
      sendFlags: SendFlag.SIGNALED,
      invalidateRkey: local.lkey,
    },
    { wrId: 3, opcode: WrOpcode.LOCAL_INV, invalidateRkey: local.lkey },
  ]);
  pair.settle();
  assert.equal(
    a.cq.poll(9).map((c) => [c.wrId, c.status]),
    [
      [1n, WcStatus.SUCCESS],
      [2n, WcStatus.SUCCESS],
      [3n, WcStatus.LOC_QP_OP_ERR],
    ],
  );
});

each(
  'SEND_WITH_INV of a key that may not be invalidated ends the responder without a NAK',
  (pair) => {
    const { a, b } = pair;
    b.qp.postRecv({ wrId: 1, sgList: sge(b, 8192, 100) });
    const invalidateRkey = b.mr.rkey;
    a.qp.postSend({ opcode: WrOpcode.SEND_WITH_INV, sgList: sge(a, 0, 10), invalidateRkey });
    pair.settle();
    assert.equal(statuses(b), [WcStatus.REM_INV_REQ_ERR]);
    assert.is(b.qp.state, QpState.ERR);
    assert.is(a.qp.state, QpState.RTS, 'nothing was said');
  },
);

each('SEND_WITH_INV does not reach into another protection domain', (pair) => {
  const { a, b } = pair;
  const other = b.context.allocPd();
  const foreign = other.regMr(b.buffer.subarray(0, 4096), ALL_ACCESS, { invalidatable: true });
  b.qp.postRecv({ wrId: 1, sgList: sge(b, 8192, 100) });
  const invalidateRkey = foreign.rkey;
  a.qp.postSend({ opcode: WrOpcode.SEND_WITH_INV, sgList: sge(a, 0, 10), invalidateRkey });
  pair.settle();
  assert.equal(statuses(b), [WcStatus.REM_INV_REQ_ERR]);
  assert.is(b.qp.state, QpState.ERR);
});

each(
  'a channel yields an armed queue once; solicited-only waits for a solicited receive',
  async (pair, options) => {
    const { a, b } = pair;
    const channel = b.context.createCompChannel();
    const cq = b.context.createCq(16, channel);
    const qp = b.pd.createQp({ sendCq: cq, recvCq: cq });
    a.qp.modify({ qpState: QpState.RESET });
    connect(a.qp, { ...b, qp }, 1, 1, options);
    connect(qp, a, 1, 1, options);
    for (let i = 0; i < 3; i++) qp.postRecv({ wrId: i, sgList: sge(b, 0, 100) });
    cq.reqNotify(true);
    let woken = 0;
    const waiting = channel.getCqEvent().then((queue) => {
      assert.is(queue, cq);
      woken++;
    });
    a.qp.postSend({ opcode: WrOpcode.SEND, sgList: sge(a, 0, 1) });
    pair.settle();
    await new Promise((resolve) => setImmediate(resolve));
    assert.is(woken, 0);
    const sendFlags = SendFlag.SOLICITED;
    a.qp.postSend({ opcode: WrOpcode.SEND, sendFlags, sgList: sge(a, 0, 1) });
    pair.settle();
    await waiting;
    assert.is(woken, 1);
  },
);

each('a region counts what peers do with it', (pair) => {
  const { a, b } = pair;
  const rdma = { remoteAddr: b.mr.addr, rkey: b.mr.rkey };
  a.qp.postSend([
    { opcode: WrOpcode.RDMA_WRITE, sgList: sge(a, 0, 5000), rdma },
    { opcode: WrOpcode.RDMA_READ, sgList: sge(a, 0, 300), rdma },
    {
      opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
      sgList: sge(a, 0, 8),
      atomic: { ...rdma, compareAdd: 1n },
    },
  ]);
  pair.settle();
  assert.equal(b.mr.counters(), {
    reads: 1,
    readBytes: 300n,
    writes: 1,
    writeBytes: 5000n,
    atomics: 1,
  });
});

interface Opened {
  readonly a: Side;
  readonly b: Side;
  settle(): number;
  close(): Promise<void>;
}

function opened(pair: Pair): Opened {
  return { a: pair.a, b: pair.b, settle: () => pair.settle(), close: () => pair.close() };
}

async function openUc(): Promise<Opened> {
  return opened(await makePair({ qp: { qpType: QpType.UC } }));
}

async function openUd(): Promise<Opened> {
  return opened(await datagramPair());
}

test.run();
