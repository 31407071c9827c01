/** Completion counters: what they count, and what they do not. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CompCntrType,
  QpAttachCompCntrOp,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  type CompletionCounter,
} from '../../../../host/index.js';
import { faultLink } from '../../../../host/link/faults/fault.js';
import { connect, makePair, type Pair, type PairOptions } from '../../../support/pair.js';

const OPS = Object.entries(QpAttachCompCntrOp);
type Counters = { readonly [op: string]: CompletionCounter };

/** A pair with a counter for each operation on each side. */
async function open(
  type: number,
  options: PairOptions = {},
): Promise<{ pair: Pair; a: Counters; b: Counters }> {
  const pair = await makePair({ ...options, connect: false });
  const attach = ({ context, qp }: Pair['a']): Counters =>
    Object.fromEntries(
      OPS.map(([name, op]) => {
        const counter = context.createCompCntr({ type });
        qp.attachCompCntr(counter, op);
        return [name, counter];
      }),
    );
  const counters = { a: attach(pair.a), b: attach(pair.b) };
  connect(pair.a.qp, pair.b, 100, 200, options);
  connect(pair.b.qp, pair.a, 200, 100, options);
  return { pair, ...counters };
}

function values(counters: Counters): { [op: string]: number } {
  const read = Object.entries(counters).map(([name, counter]) => [name, Number(counter.read())]);
  return Object.fromEntries(read.filter(([, value]) => value !== 0));
}

/** Two SENDs, three WRITEs of which one with immediate, two READs, an atomic: none signalled. */
function work({ a, b }: Pair): void {
  const sge = (length: number) => [{ addr: a.mr.addr, length, lkey: a.mr.lkey }];
  const remote = { remoteAddr: b.mr.addr, rkey: b.mr.rkey };
  for (let count = 0; count < 3; count++) {
    b.qp.postRecv({ sgList: [{ addr: b.mr.addr, length: 8192, lkey: b.mr.lkey }] });
  }
  a.qp.postSend([
    { opcode: WrOpcode.SEND, sgList: sge(10) },
    { opcode: WrOpcode.SEND_WITH_IMM, sgList: sge(5000) },
    { opcode: WrOpcode.RDMA_WRITE, sgList: sge(3000), rdma: remote },
    { opcode: WrOpcode.RDMA_WRITE, sgList: [], rdma: remote },
    { opcode: WrOpcode.RDMA_WRITE_WITH_IMM, sgList: sge(7), rdma: remote },
    { opcode: WrOpcode.RDMA_READ, sgList: sge(2049), rdma: remote },
    { opcode: WrOpcode.RDMA_READ, sgList: sge(1), rdma: remote },
    {
      opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
      sendFlags: SendFlag.SIGNALED,
      sgList: sge(8),
      atomic: { ...remote, compareAdd: 1n },
    },
  ]);
}

/** Lets the work of `work` be done. */
function finish(pair: Pair): void {
  let done = 0;
  pair.run(() => (done += pair.a.cq.poll(9).length) === 1);
}

test('every kind of operation is counted at its end, signalled or not', async () => {
  const { pair, a, b } = await open(CompCntrType.WRS);
  work(pair);
  finish(pair);
  assert.equal(values(a), { SEND: 2, RDMA_WRITE: 3, RDMA_READ: 2 });
  assert.equal(values(b), { RECV: 3, REMOTE_RDMA_WRITE: 3, REMOTE_RDMA_READ: 2 });
  await pair.close();
});

test('a counter of bytes counts bytes', async () => {
  const { pair, a, b } = await open(CompCntrType.BYTES);
  work(pair);
  finish(pair);
  assert.equal(values(a), { SEND: 5010, RDMA_WRITE: 3007, RDMA_READ: 2050 });
  const remote = { REMOTE_RDMA_WRITE: 3007, REMOTE_RDMA_READ: 2050 };
  assert.equal(values(b), { RECV: 5017, ...remote });
  await pair.close();
});

test('on a wire that loses and doubles packets everything is counted once', async () => {
  const { pair, a, b } = await open(CompCntrType.WRS, {
    attributes: { timeout: 8 },
    wrap: (link, side, clock) =>
      faultLink(link, {
        loss: 0.2,
        duplication: 0.2,
        seed: side === 'a' ? 5 : 6,
        scheduler: { schedule: (delay, action) => clock.at(clock.now() + delay, action) },
      }),
  });
  for (let round = 1; round <= 5; round++) {
    work(pair);
    finish(pair);
    assert.equal(values(a), { SEND: 2 * round, RDMA_WRITE: 3 * round, RDMA_READ: 2 * round });
    const remote = { REMOTE_RDMA_WRITE: 3 * round, REMOTE_RDMA_READ: 2 * round };
    assert.equal(values(b), { RECV: 3 * round, ...remote });
  }
  await pair.close();
});

test('failed and flushed requests count as errors', async () => {
  const { pair, a, b } = await open(CompCntrType.WRS);
  pair.b.qp.postRecv([{}, {}]);
  const rdma = { remoteAddr: 0, rkey: 1 };
  const sgList = [{ addr: pair.a.mr.addr, length: 4, lkey: pair.a.mr.lkey }];
  pair.a.qp.postSend([
    { opcode: WrOpcode.RDMA_WRITE, sgList, rdma },
    { opcode: WrOpcode.SEND, sgList },
  ]);
  pair.settle();
  const [first] = pair.a.cq.poll(9);
  assert.is(first!.status, WcStatus.REM_ACCESS_ERR);
  assert.equal([values(a), values(b)], [{}, {}]);
  assert.is(a['RDMA_WRITE']!.readErr(), 1n);
  assert.is(a['SEND']!.readErr(), 1n);
  assert.is(b['RECV']!.readErr(), 2n);
  await pair.close();
});

test('one counter for several operations and queue pairs; each is counted once', async () => {
  const pair = await makePair({ connect: false });
  const { context, qp, pd, cq } = pair.a;
  const counter = context.createCompCntr();
  const { SEND, RDMA_WRITE, RECV } = QpAttachCompCntrOp;
  qp.attachCompCntr(counter, SEND | RDMA_WRITE);
  assert.throws(() => qp.attachCompCntr(counter, RDMA_WRITE), /EBUSY/);
  assert.throws(() => qp.attachCompCntr(context.createCompCntr(), SEND | RECV), /EBUSY/);
  assert.throws(() => qp.attachCompCntr(counter, 1 << 6), /EOPNOTSUPP/);
  assert.throws(() => qp.attachCompCntr(counter, 0), /opMask/);
  assert.throws(
    () => qp.attachCompCntr(pair.b.context.createCompCntr(), RECV),
    /counter: must be of the same context/,
  );
  const other = pd.createQp({ sendCq: cq, recvCq: cq });
  other.attachCompCntr(counter, SEND);
  assert.throws(() => counter.destroy(), /EBUSY/);
  qp.destroy();
  assert.throws(() => counter.destroy(), /EBUSY/);
  other.destroy();
  counter.destroy();
  assert.throws(() => counter.read(), /is destroyed/);
  await pair.close();
});

test('a queue pair beyond INIT takes no counter; RESET keeps those it has', async () => {
  const { pair, a } = await open(CompCntrType.WRS);
  const { context, qp } = pair.a;
  const counter = context.createCompCntr();
  assert.throws(() => qp.attachCompCntr(counter, QpAttachCompCntrOp.SEND), /EINVAL/);
  qp.modify({ qpState: QpState.RESET });
  pair.b.qp.modify({ qpState: QpState.RESET });
  connect(qp, pair.b, 100, 200, {});
  connect(pair.b.qp, pair.a, 200, 100, {});
  work(pair);
  finish(pair);
  assert.is(a['SEND']!.read(), 2n);
  await pair.close();
});

test('values are set, raised, and wrap', async () => {
  const pair = await makePair({ connect: false });
  const { context } = pair.a;
  const counter = context.createCompCntr();
  const { maxValue, supportedQpAttachOps, maxCounters } = context.queryCompCntrCaps();
  assert.is(supportedQpAttachOps, 0x3f);
  assert.ok(maxCounters > 0);
  counter.set(maxValue);
  counter.inc(3n);
  counter.setErr(5n);
  counter.incErr(maxValue);
  assert.equal([counter.read(), counter.readErr()], [2n, 4n]);
  for (const bad of [-1n, maxValue + 1n, 7 as never]) {
    assert.throws(() => counter.set(bad), /value: must be/);
    assert.throws(() => counter.inc(bad), /value: must be/);
  }
  assert.throws(() => context.createCompCntr({ type: 2 }), /type/);
  await pair.close();
});

test.run();
