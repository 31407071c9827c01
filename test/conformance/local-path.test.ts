/**
 * Behaviour of the local path alone: parts of long requests, turns, calls that end, targets that
 * go.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { AsyncEventName, PlacementType } from '#build/abi.js';
import {
  AccessFlag,
  QpAttachCompCntrOp,
  QpState,
  SendFlag,
  WcStatusName,
  WrOpcode,
  type QueuePair,
} from '../../host/index.js';
import { FLUSH_ACCESS, HandStore } from '../support/durable.js';
import { ALL_ACCESS, connect, makePair, type Pair, type PairOptions } from '../support/pair.js';
import { pattern } from '../support/wire.js';
import { asPosted, type AnyRequest } from '../support/any-request.js';

const test = suite();

const { SIGNALED } = SendFlag;
const MIB = 2 ** 20;
/** More than one call of the engine copies. */
const LONG = 40 * MIB;
const MANY = 12_000;

async function onLocal(
  options: PairOptions,
  body: (pair: Pair) => void | Promise<void>,
): Promise<void> {
  const pair = await makePair({ oneDevice: 'local', ...options });
  try {
    await body(pair);
  } finally {
    await pair.close();
  }
}

const long: PairOptions = { bytes: LONG, device: { memoryBytes: 128 * MIB } };

function write({ a, b }: Pair, length: number, at = 0): AnyRequest {
  return {
    wrId: length,
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SIGNALED,
    sgList: [{ addr: a.mr.addr + BigInt(at), length, lkey: a.mr.lkey }],
    rdma: { remoteAddr: b.mr.addr + BigInt(at), rkey: b.mr.rkey },
  };
}

function statuses({ a }: Pair): string[] {
  return a.cq.poll(100).map(({ wrId, status }) => `${wrId} ${WcStatusName[status]}`);
}

test('a WRITE completes while it is posted, without a packet', () =>
  onLocal({}, (pair) => {
    const { a, b } = pair;
    a.buffer.set(pattern(64));
    const before = a.context.counters();
    a.qp.postSend(write(pair, 64));
    assert.equal(statuses(pair), ['64 SUCCESS']);
    assert.equal(b.buffer.slice(0, 64), pattern(64));
    const after = a.context.counters();
    assert.is(after.sentPkts, before.sentPkts);
    assert.is(after.localRequests - before.localRequests, 1n);
    assert.is(after.localBytes - before.localBytes, 64n);
  }));

test('WRITE and READ of more than one call: every byte, and time for others in between', () =>
  onLocal(long, (pair) => {
    const { a, b } = pair;
    for (let at = 0; at < LONG; at += 4096) a.buffer[at] = at >> 12;
    a.qp.postSend(write(pair, LONG));
    assert.equal(statuses(pair), [], 'the call ended before');
    pair.run(() => b.buffer[LONG - 4096] === a.buffer[LONG - 4096]);
    assert.equal(statuses(pair), [`${LONG} SUCCESS`]);
    assert.ok(Buffer.from(a.buffer).equals(Buffer.from(b.buffer)));
    a.buffer.fill(0);
    a.qp.postSend(asPosted({ ...write(pair, LONG), opcode: WrOpcode.RDMA_READ }));
    pair.run(() => a.buffer[LONG - 4096] === b.buffer[LONG - 4096]);
    assert.ok(Buffer.from(a.buffer).equals(Buffer.from(b.buffer)));
    assert.is(a.context.counters().localBytes, BigInt(2 * LONG));
    assert.is(a.context.counters().sentPkts, 0n);
  }));

/** One more queue pair at each side, connected. */
function another({ a, b }: Pair): QueuePair {
  const ends = [a, b].map(({ pd, cq }) => pd.createQp({ sendCq: cq, recvCq: cq }));
  const [one, other] = ends as [QueuePair, QueuePair];
  connect(one, { ...b, qp: other }, 1, 2, {});
  connect(other, { ...a, qp: one }, 2, 1, {});
  return one;
}

test('thousands of short requests leave time for others in between', () =>
  onLocal({ cqe: 16_384, qp: { cap: { maxSendWr: MANY } } }, (pair) => {
    const { a } = pair;
    a.qp.postSend(Array.from({ length: MANY }, () => asPosted(write(pair, 8))));
    let done = a.cq.poll(MANY).length;
    assert.ok(done >= 1000 && done < MANY, `${done} requests in a call`);
    pair.run(() => (done += a.cq.poll(MANY).length) === MANY);
    assert.is(a.context.counters().sentPkts, 0n);
  }));

test('a short request of another queue pair waits for a part of a long one only', () =>
  onLocal(long, (pair) => {
    const quick = another(pair);
    pair.a.qp.postSend(write(pair, LONG));
    quick.postSend(write(pair, 8));
    pair.run(() => pair.b.buffer[0] === 0);
    const seen: string[] = [];
    pair.run(() => {
      seen.push(...statuses(pair));
      return seen.length === 2;
    });
    assert.equal(seen, ['8 SUCCESS', `${LONG} SUCCESS`]);
  }));

test('SQD finishes the request that was begun, and nothing behind it', () =>
  onLocal(long, (pair) => {
    const { qp } = pair.a;
    qp.postSend([write(pair, LONG), write(pair, 8)]);
    qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
    const seen: string[] = [];
    pair.run(() => {
      seen.push(...statuses(pair));
      return seen.length === 1;
    });
    assert.equal(seen, [`${LONG} SUCCESS`]);
    qp.modify({ qpState: QpState.RTS });
    pair.settle();
    assert.equal(statuses(pair), ['8 SUCCESS']);
  }));

test('SQD is drained when the request that was begun is complete, and not before', () =>
  onLocal(long, (pair) => {
    const { qp, cq, context } = pair.a;
    const order: string[] = [];
    const inner = context.device.events!;
    context.device.events = {
      ...inner,
      completion: (queue) => {
        order.push('completion');
        inner.completion(queue);
      },
      asyncEvent: (event, object) => {
        order.push(AsyncEventName[event]!);
        inner.asyncEvent(event, object);
      },
    };
    cq.reqNotify();
    qp.postSend(write(pair, LONG));
    assert.equal(order, []);
    qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
    pair.run(() => order.length >= 2);
    assert.equal(order, ['completion', 'SQ_DRAINED']);
  }));

test('a WRITE beyond the end of a layout writes nothing, however long it is', () =>
  onLocal({ bytes: 4 * MIB }, (pair) => {
    const { a, b } = pair;
    const access = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.ZERO_BASED;
    const layout = b.pd.regMr(null, 0, access);
    const length = 2 * MIB;
    layout.setLayoutSg(0, [{ addr: b.mr.addr, length: length - 64, lkey: b.mr.lkey }]);
    a.buffer.fill(9);
    a.qp.postSend({ ...write(pair, length), rdma: { remoteAddr: 0n, rkey: layout.rkey } });
    pair.settle();
    assert.equal(statuses(pair), [`${length} REM_ACCESS_ERR`]);
    assert.ok(b.buffer.every((byte) => byte === 0));
  }));

test('an atomic and a FLUSH through a layout need no packet', () =>
  onLocal({ attributes: { qpAccessFlags: FLUSH_ACCESS } }, (pair) => {
    const { a, b } = pair;
    const access = ALL_ACCESS | AccessFlag.FLUSH_GLOBAL;
    const base = b.pd.regMr(b.buffer, access);
    const layout = b.pd.regMr(null, 0, access | AccessFlag.ZERO_BASED);
    layout.setLayoutSg(0, [
      { addr: base.addr + 64n, length: 8, lkey: base.lkey },
      { addr: base.addr + 256n, length: 8, lkey: base.lkey },
    ]);
    const where = { remoteAddr: 8n, rkey: layout.rkey };
    a.qp.postSend([
      asPosted({
        wrId: 1,
        opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
        sendFlags: SIGNALED,
        sgList: write(pair, 8).sgList!,
        atomic: { ...where, compareAdd: 5n },
      }),
      asPosted({
        wrId: 2,
        opcode: WrOpcode.FLUSH,
        sendFlags: SIGNALED,
        flush: { ...where, length: 8, type: PlacementType.GLOBAL },
      }),
    ]);
    assert.equal(statuses(pair), ['1 SUCCESS', '2 SUCCESS']);
    assert.is(b.buffer[256], 5);
    const { localRequests, sentPkts } = a.context.counters();
    assert.equal([localRequests, sentPkts], [2n, 0n]);
  }));

test('a FLUSH for persistence waits for the store of its target, on every path', () =>
  onLocal({ attributes: { qpAccessFlags: FLUSH_ACCESS } }, async (pair) => {
    const { a, b } = pair;
    const store = await HandStore.keep(b.context, 4096);
    const mr = b.pd.regMr(store.buffer, FLUSH_ACCESS);
    const flush = {
      remoteAddr: mr.addr,
      rkey: mr.rkey,
      length: 64,
      type: PlacementType.PERSISTENT,
    };
    a.qp.postSend(asPosted({ wrId: 1, opcode: WrOpcode.FLUSH, sendFlags: SIGNALED, flush }));
    pair.settle();
    assert.equal([statuses(pair), store.asked], [[], [[0, 64]]]);
    store.answer();
    pair.settle();
    assert.equal(statuses(pair), ['1 SUCCESS']);
  }));

test('an ATOMIC WRITE to a persistent region is executed behind the FLUSH before it, not earlier', () =>
  onLocal({ attributes: { qpAccessFlags: FLUSH_ACCESS } }, async (pair) => {
    const { a, b } = pair;
    const store = await HandStore.keep(b.context, 4096);
    const { addr, rkey } = b.pd.regMr(store.buffer, FLUSH_ACCESS);
    a.buffer.set(pattern(64));
    const sgList = (length: number) => [{ addr: a.mr.addr, length, lkey: a.mr.lkey }];
    const requests: AnyRequest[] = [
      {
        wrId: 1,
        opcode: WrOpcode.RDMA_WRITE,
        sgList: sgList(64),
        rdma: { remoteAddr: addr, rkey },
      },
      {
        wrId: 2,
        opcode: WrOpcode.FLUSH,
        flush: { remoteAddr: addr, rkey, length: 64, type: PlacementType.PERSISTENT },
      },
      {
        wrId: 3,
        opcode: WrOpcode.ATOMIC_WRITE,
        sgList: sgList(8),
        rdma: { remoteAddr: addr + 512n, rkey },
      },
    ];
    a.qp.postSend(requests.map((request) => asPosted({ ...request, sendFlags: SIGNALED })));
    pair.settle();
    assert.equal(statuses(pair), ['1 SUCCESS']);
    assert.equal(store.buffer.slice(512, 520), new Uint8Array(8), 'before its FLUSH is answered');
    store.answer();
    pair.settle();
    assert.equal(statuses(pair), ['2 SUCCESS', '3 SUCCESS']);
    assert.equal(store.buffer.slice(512, 520), pattern(8));
    // With nothing on the wire before it, it needs no packet.
    const { sentPkts } = a.context.counters();
    a.buffer.fill(9, 0, 8);
    a.qp.postSend(asPosted({ ...requests[2]!, sendFlags: SIGNALED }));
    assert.equal(statuses(pair), ['3 SUCCESS']);
    assert.is(a.context.counters().sentPkts, sentPkts);
    assert.equal(store.buffer.slice(512, 520), new Uint8Array(8).fill(9));
  }));

test('a queue pair of another context whose completions are counted gets packets', async () => {
  const pair = await makePair({ contexts: true });
  const { a, b } = pair;
  const counter = b.context.createCompCntr();
  b.qp.modify({ qpState: QpState.RESET });
  b.qp.attachCompCntr(counter, QpAttachCompCntrOp.REMOTE_RDMA_WRITE);
  connect(b.qp, a, 0xfffff8, 0xfffff0, {});
  a.qp.postSend(write(pair, 64));
  pair.settle();
  assert.equal([statuses(pair), counter.read()], [['64 SUCCESS'], 1n]);
  await pair.close();
});

test('a target that goes in the middle of a request: it is retried as packets, and fails', () =>
  onLocal({ ...long, attributes: { timeout: 10, retryCnt: 1 } }, (pair) => {
    pair.a.qp.postSend([write(pair, LONG), write(pair, 8)]);
    pair.b.qp.destroy();
    const seen: string[] = [];
    pair.run(() => {
      seen.push(...statuses(pair));
      return seen.length === 2;
    });
    assert.equal(seen, [`${LONG} RETRY_EXC_ERR`, '8 WR_FLUSH_ERR']);
    assert.is.not(pair.a.context.counters().sentPkts, 0n);
  }));

test('a key that goes in the middle of a request: the target refuses its packets', () =>
  onLocal(long, (pair) => {
    const { a, b } = pair;
    const mr = b.pd.regMr(b.buffer, ALL_ACCESS);
    const rdma = { remoteAddr: mr.addr, rkey: mr.rkey };
    a.qp.postSend({ ...write(pair, LONG), rdma });
    mr.dereg();
    const seen: string[] = [];
    pair.run(() => {
      seen.push(...statuses(pair));
      return seen.length === 1;
    });
    assert.equal(seen, [`${LONG} REM_ACCESS_ERR`]);
    assert.is(b.qp.state, QpState.ERR);
  }));

test('ERR and RESET in the middle of a request flush it, and leave nothing behind', () =>
  onLocal(long, (pair) => {
    const { a } = pair;
    a.qp.postSend([write(pair, LONG), write(pair, 8)]);
    a.qp.modify({ qpState: QpState.ERR });
    assert.equal(statuses(pair), [`${LONG} WR_FLUSH_ERR`, '8 WR_FLUSH_ERR']);
    a.qp.modify({ qpState: QpState.RESET });
    connect(a.qp, pair.b, 0xfffff0, 0xfffff8, {});
    assert.is(a.qp.usesLocalPath, true);
    a.qp.postSend([write(pair, 16)]);
    assert.equal(statuses(pair), ['16 SUCCESS']);
    a.qp.modify({ qpState: QpState.RESET });
    assert.is(a.qp.usesLocalPath, false);
  }));

test('a queue pair that is its own target', () =>
  onLocal({ connect: false }, (pair) => {
    const { a } = pair;
    connect(a.qp, a, 1, 1, {});
    a.buffer.set(pattern(100));
    const rdma = { remoteAddr: a.mr.addr + 50n, rkey: a.mr.rkey };
    a.qp.postSend({ ...write(pair, 100), rdma });
    assert.equal(statuses(pair), ['100 SUCCESS']);
    assert.equal(a.buffer.slice(50, 150), pattern(100), 'bytes that overlap are moved');
    a.qp.postRecv([{ wrId: 1, sgList: [{ addr: a.mr.addr, length: 8, lkey: a.mr.lkey }] }]);
    const { sgList } = write(pair, 8, 100);
    a.qp.postSend({ wrId: 2, opcode: WrOpcode.SEND, sendFlags: SIGNALED, sgList });
    assert.equal(statuses(pair), ['1 SUCCESS', '2 SUCCESS']);
    a.qp.postSend([{ ...write(pair, 8), rdma: { remoteAddr: 0, rkey: 1 } }, write(pair, 16)]);
    pair.settle();
    assert.equal(statuses(pair), ['8 WR_FLUSH_ERR', '16 WR_FLUSH_ERR']);
  }));

test('the first request to a target in RTR raises COMM_EST, later ones need no packet', () =>
  onLocal({ connect: false }, async (pair) => {
    const { a, b } = pair;
    connect(a.qp, b, 1, 2, {});
    b.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: ALL_ACCESS });
    b.qp.modify({
      qpState: QpState.RTR,
      ahAttr: { dgid: a.context.local.gid, port: a.context.local.port },
      pathMtu: 3,
      destQpNum: a.qp.qpNum,
      rqPsn: 1,
      maxDestRdAtomic: 16,
      minRnrTimer: 12,
    });
    a.qp.postSend(write(pair, 8));
    pair.settle();
    const event = await b.context.getAsyncEvent();
    assert.is(event?.name, 'COMM_EST');
    assert.is(a.context.counters().localRequests, 0n);
    a.qp.postSend(write(pair, 16));
    assert.is(a.context.counters().localRequests, 1n);
    assert.equal(statuses(pair), ['8 SUCCESS', '16 SUCCESS']);
  }));

test('local work between requests does not end the local path', () =>
  onLocal({}, (pair) => {
    const { a } = pair;
    const mr = a.pd.regMr(a.context.alloc(64), ALL_ACCESS, { invalidatable: true });
    const invalidate = { opcode: WrOpcode.LOCAL_INV, invalidateRkey: mr.lkey, wrId: 1 };
    const own = { sgList: [{ addr: mr.addr, length: 32, lkey: mr.lkey }] };
    a.qp.postSend([
      { ...write(pair, 32), ...own },
      { ...invalidate, sendFlags: SIGNALED },
      write(pair, 16),
    ]);
    assert.equal(statuses(pair), ['32 SUCCESS', '1 SUCCESS', '16 SUCCESS']);
    assert.is(a.context.counters().localRequests, 2n);
    mr.dereg();
  }));

test('a WRITE with immediate data writes nothing before there is a receive request', () =>
  onLocal({}, (pair) => {
    const { a, b } = pair;
    a.buffer.fill(7);
    const opcode = WrOpcode.RDMA_WRITE_WITH_IMM;
    a.qp.postSend(asPosted({ ...write(pair, 64), opcode, immData: 1 }));
    pair.settle();
    assert.equal([statuses(pair), b.buffer[0]], [[], 0]);
    b.qp.postRecv({ wrId: 5, sgList: [] });
    const seen: string[] = [];
    pair.run(() => seen.push(...statuses(pair)) > 0);
    assert.equal([seen, b.buffer[0]], [['64 SUCCESS'], 7]);
  }));

test.run();
