/** Extended posting and polling, beyond what pyverbs asks: batches, overruns, allocators. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CreateCqAttrFlag,
  MisuseError,
  QpExWith,
  QpState,
  QpType,
  RefusalError,
  SendFlag,
  WcExWith,
  WcStatus,
  WrOpcode,
  type Context,
  type QueuePairEx,
} from '../../../../host/index.js';
import {
  ALL_ACCESS,
  connect,
  makeDatagramsReady,
  makePair,
  type Pair,
  type PairOptions,
} from '../../../support/pair.js';

const ALL_RC =
  QpExWith.SEND |
  QpExWith.SEND_WITH_IMM |
  QpExWith.SEND_WITH_INV |
  QpExWith.RDMA_WRITE |
  QpExWith.RDMA_WRITE_WITH_IMM |
  QpExWith.RDMA_READ |
  QpExWith.ATOMIC_CMP_AND_SWP |
  QpExWith.ATOMIC_FETCH_AND_ADD |
  QpExWith.LOCAL_INV;

interface ExPair {
  readonly pair: Pair;
  readonly qp: QueuePairEx;
}

/** A pair whose side `a` sends by an extended queue pair of its own. */
async function openEx(sendOpsFlags = ALL_RC, options: PairOptions = {}): Promise<ExPair> {
  const pair = await makePair({ ...options, connect: false });
  const { a, b } = pair;
  const cap = { maxSendWr: 4, maxSendSge: 2, maxInlineData: 64 };
  const { context, pd, cq } = a;
  const qp = context.createQpEx({ pd, sendCq: cq, recvCq: cq, cap, sendOpsFlags });
  const side = { ...a, qp };
  connect(qp, b, 100, 200, options);
  connect(b.qp, side, 200, 100, options);
  return { pair, qp };
}

function write(qp: QueuePairEx, pair: Pair, wrId: number, offset = 0, length = 16): void {
  qp.wrId = wrId;
  qp.wrFlags = SendFlag.SIGNALED;
  qp.wrRdmaWrite(pair.b.mr.rkey, pair.b.mr.addr + BigInt(offset));
  qp.wrSetSge(pair.a.mr.lkey, pair.a.mr.addr, length);
}

function statuses(pair: Pair): [bigint, number][] {
  pair.settle();
  return pair.a.cq.poll(64).map(({ wrId, status }) => [wrId, status]);
}

test('a batch goes out when it is complete, in order, with what was set for each', async () => {
  const { pair, qp } = await openEx();
  pair.a.buffer.fill(0x31, 0, 32);
  qp.wrStart();
  write(qp, pair, 1);
  qp.wrId = 2;
  qp.wrFlags = 0;
  qp.wrRdmaWrite(pair.b.mr.rkey, pair.b.mr.addr + 64n);
  qp.wrSetInlineDataList([new Uint8Array([1, 2]), new Uint8Array([3])]);
  write(qp, pair, 3, 128);
  pair.settle();
  assert.is(pair.b.buffer[0], 0, 'nothing travels before');
  qp.wrComplete();
  assert.equal(statuses(pair), [
    [1n, WcStatus.SUCCESS],
    [3n, WcStatus.SUCCESS],
  ]);
  assert.is(pair.b.buffer[15], 0x31);
  assert.equal([...pair.b.buffer.subarray(64, 68)], [1, 2, 3, 0]);
  assert.is(pair.b.buffer[128], 0x31);
  await pair.close();
});

test('inline bytes and SGE lists are copied when they are set', async () => {
  const { pair, qp } = await openEx();
  const data = new Uint8Array([9, 9]);
  const sgList = [{ addr: pair.a.mr.addr, length: 4, lkey: pair.a.mr.lkey }];
  pair.a.buffer.fill(5, 0, 64);
  qp.wrStart();
  qp.wrRdmaWrite(pair.b.mr.rkey, pair.b.mr.addr);
  qp.wrSetInlineData(data);
  data.fill(0);
  qp.wrRdmaWrite(pair.b.mr.rkey, pair.b.mr.addr + 8n);
  qp.wrSetSgeList(sgList);
  sgList[0]!.length = 64;
  qp.wrComplete();
  pair.settle();
  assert.equal([...pair.b.buffer.subarray(0, 13)], [9, 9, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 0]);
  await pair.close();
});

test('data and lists of another type are misuse of their own call', async () => {
  const { pair, qp } = await openEx();
  qp.wrStart();
  write(qp, pair, 1);
  const wrong: readonly (readonly [() => void, RegExp])[] = [
    [() => qp.wrSetInlineData('hello' as never), /^data: must be a Uint8Array, got string$/],
    [() => qp.wrSetInlineDataList([5] as never), /^data: must be a Uint8Array, got number$/],
    [() => qp.wrSetInlineDataList('hello' as never), /^bufList: must be an array of Uint8Arrays$/],
    [() => qp.wrSetSgeList('hello' as never), /^sgList: must be an array of SGEs$/],
  ];
  for (const [call, message] of wrong) {
    assert.throws(
      call,
      (error: Error) => error instanceof MisuseError && message.test(error.message),
    );
  }
  qp.wrAbort();
  await pair.close();
});

test('one invalid request of a batch posts none of the batch', async () => {
  const { pair, qp } = await openEx();
  const breaks: [() => void, RegExp, number][] = [
    [() => qp.wrSetInlineData(new Uint8Array(65)), /inline: has 65 bytes/, 1],
    [() => qp.wrSetSgeList(Array(3).fill({ addr: 0, length: 1, lkey: 1 })), /sgList: has 3/, 1],
    [() => qp.wrSetSge(1, -1, 8), /sgList.addr: must be a whole number/, 1],
    [() => qp.wrSetSge(1, 0, 2 ** 33), /sgList.length: must be a 32-bit number/, 1],
  ];
  for (const [spoil, message, badWr] of breaks) {
    qp.wrStart();
    write(qp, pair, 1);
    write(qp, pair, 2);
    spoil();
    write(qp, pair, 3);
    let error: unknown;
    try {
      qp.wrComplete();
    } catch (thrown) {
      error = thrown;
    }
    assert.match(String(error), message);
    assert.is((error as { badWr?: number }).badWr, badWr);
    assert.equal(statuses(pair), [], 'none of them was posted');
  }
  // The queue is as if nothing had been tried.
  qp.wrStart();
  for (let wrId = 1; wrId <= 4; wrId++) write(qp, pair, wrId);
  qp.wrComplete();
  assert.is(statuses(pair).length, 4);
  await pair.close();
});

test('a batch that does not fit is refused as a whole', async () => {
  const { pair, qp } = await openEx();
  qp.wrStart();
  for (let wrId = 0; wrId < qp.cap.maxSendWr + 1; wrId++) write(qp, pair, wrId);
  assert.throws(
    () => qp.wrComplete(),
    (error: RefusalError) => error.code === 'ENOMEM',
  );
  assert.equal(statuses(pair), []);
  await pair.close();
});

test('an aborted batch leaves nothing, and postSend may come between', async () => {
  const { pair, qp } = await openEx();
  qp.wrStart();
  write(qp, pair, 1);
  const rdma = { remoteAddr: pair.b.mr.addr, rkey: pair.b.mr.rkey };
  qp.postSend({ wrId: 7, opcode: WrOpcode.RDMA_WRITE, sendFlags: SendFlag.SIGNALED, rdma });
  qp.wrAbort();
  assert.equal(statuses(pair), [[7n, WcStatus.SUCCESS]]);
  qp.wrStart();
  qp.wrComplete();
  assert.equal(statuses(pair), []);
  await pair.close();
});

test('calls out of order are misuse, and say so at once', async () => {
  const { pair, qp } = await openEx(QpExWith.RDMA_WRITE);
  for (const call of [
    () => qp.wrComplete(),
    () => qp.wrAbort(),
    () => qp.wrRdmaWrite(1, 0),
    () => qp.wrSetSge(1, 0, 1),
  ]) {
    assert.throws(call, /call wrStart first/);
  }
  qp.wrStart();
  assert.throws(() => qp.wrStart(), /not valid during a batch/);
  assert.throws(() => qp.wrSetSge(1, 0, 1), /requires a request of the batch/);
  assert.throws(() => qp.wrSend(), /must include QpExWith.SEND/);
  qp.wrFlags = SendFlag.INLINE;
  assert.throws(() => qp.wrRdmaWrite(1, 0), /INLINE/);
  // The batch is still what it was.
  write(qp, pair, 5);
  qp.wrComplete();
  assert.equal(statuses(pair), [[5n, WcStatus.SUCCESS]]);
  await pair.close();
});

test('invalidating by wrSendInv and wrLocalInv', async () => {
  const { pair, qp } = await openEx();
  const { a, b } = pair;
  const theirs = b.pd.regMr(b.context.alloc(64), ALL_ACCESS, { invalidatable: true });
  const ours = a.pd.regMr(a.context.alloc(64), ALL_ACCESS, { invalidatable: true });
  b.qp.postRecv({});
  qp.wrFlags = SendFlag.SIGNALED;
  qp.wrStart();
  qp.wrSendInv(theirs.rkey);
  qp.wrLocalInv(ours.lkey);
  qp.wrRdmaRead(theirs.rkey, theirs.addr);
  qp.wrSetSge(a.mr.lkey, a.mr.addr, 8);
  qp.wrComplete();
  assert.equal(
    statuses(pair).map(([, status]) => status),
    [WcStatus.SUCCESS, WcStatus.SUCCESS, WcStatus.REM_ACCESS_ERR],
  );
  await pair.close();
});

test('an operation that a type of queue pair lacks is refused at creation', async () => {
  const pair = await makePair({ connect: false });
  const { context, pd, cq } = pair.a;
  const make = (qpType: number, sendOpsFlags: number) => () =>
    context.createQpEx({ pd, qpType, sendCq: cq, recvCq: cq, sendOpsFlags });
  assert.throws(
    make(QpType.UD, QpExWith.RDMA_WRITE),
    /support RDMA_WRITE; leave it out \(EOPNOTSUPP\)/,
  );
  assert.throws(make(QpType.UC, QpExWith.RDMA_READ), /EOPNOTSUPP/);
  assert.throws(make(QpType.UC, QpExWith.ATOMIC_FETCH_AND_ADD), /EOPNOTSUPP/);
  assert.throws(make(QpType.RC, QpExWith.TSO), /EOPNOTSUPP/);
  assert.throws(make(QpType.RC, 1 << 20), /EOPNOTSUPP/);
  assert.throws(make(99, QpExWith.SEND), /EOPNOTSUPP/);
  assert.throws(
    () => context.createQpEx({ pd: pair.b.pd, sendCq: cq, recvCq: cq, sendOpsFlags: 0 }),
    /pd: must be/,
  );
  await pair.close();
});

test('a datagram without an address keeps its batch back', async () => {
  const pair = await makePair({ connect: false });
  const { context, pd, cq } = pair.a;
  const qpType = QpType.UD;
  const sendOpsFlags = QpExWith.SEND;
  const qp = context.createQpEx({ pd, qpType, sendCq: cq, recvCq: cq, sendOpsFlags });
  makeDatagramsReady(qp, 1);
  qp.wrStart();
  qp.wrSend();
  qp.wrSetUdAddr(pd.createAh({ dgid: pair.b.context.local.gid }), 77, 1);
  qp.wrSend();
  assert.throws(() => qp.wrComplete(), /wrSetUdAddr/);
  assert.equal(statuses(pair), []);
  await pair.close();
});

/** `count` completions on a queue of 4, made with these flags. */
async function overrun(flags: number, count: number) {
  const pair = await makePair({ connect: false });
  const { a, b } = pair;
  const cq = a.context.createCqEx({ cqe: 4, flags, wcFlags: WcExWith.QP_NUM });
  const qp = a.pd.createQp({ sendCq: cq, recvCq: cq, sqSigAll: true });
  connect(qp, b, 100, 200, {});
  connect(b.qp, { ...a, qp }, 200, 100, {});
  const rdma = { remoteAddr: b.mr.addr, rkey: b.mr.rkey };
  for (let wrId = 0; wrId < count; wrId++) {
    qp.postSend({ wrId, opcode: WrOpcode.RDMA_WRITE, rdma });
    pair.settle();
  }
  return { pair, cq, qp };
}

test('with IGNORE_OVERRUN the oldest completions make room for the newest', async () => {
  const { pair, cq, qp } = await overrun(CreateCqAttrFlag.IGNORE_OVERRUN, 11);
  assert.is(qp.state, QpState.RTS);
  const seen: bigint[] = [];
  for (let more = cq.startPoll(); more; more = cq.nextPoll()) seen.push(cq.wrId);
  cq.endPoll();
  assert.equal(seen, [7n, 8n, 9n, 10n]);
  await pair.close();
});

test('a queue that was overrun keeps what is there when it is resized', async () => {
  const { pair, cq } = await overrun(CreateCqAttrFlag.IGNORE_OVERRUN, 11);
  cq.resize(32);
  assert.equal(
    cq.poll(32).map(({ wrId }) => wrId),
    [7n, 8n, 9n, 10n],
  );
  await pair.close();
});

test('without it a full queue is dead', async () => {
  const { pair, cq, qp } = await overrun(0, 11);
  assert.is(qp.state, QpState.ERR);
  assert.equal(
    cq.poll(32).map(({ wrId }) => wrId),
    [0n, 1n, 2n, 3n],
  );
  await pair.close();
});

test('an entry that is being read stays while others come, and is taken at the end', async () => {
  const { pair, cq, qp } = await overrun(0, 2);
  assert.ok(cq.startPoll());
  assert.is(cq.wrId, 0n);
  const rdma = { remoteAddr: pair.b.mr.addr, rkey: pair.b.mr.rkey };
  for (const wrId of [2, 3]) qp.postSend({ wrId, opcode: WrOpcode.RDMA_WRITE, rdma });
  pair.settle();
  assert.is(cq.wrId, 0n);
  assert.is(qp.state, QpState.RTS, 'there was room');
  cq.endPoll();
  assert.equal(
    cq.poll(9).map(({ wrId }) => wrId),
    [1n, 2n, 3n],
  );
  assert.throws(() => cq.wrId, /startPoll first/);
  await pair.close();
});

test('completions of a queue pair that is gone are passed over', async () => {
  const { pair, cq, qp } = await overrun(0, 3);
  qp.destroy();
  assert.not(cq.startPoll());
  await pair.close();
});

test('events are not moderated: asking for none is fine, for any is refused', async () => {
  const { pair, cq } = await overrun(0, 0);
  cq.modify({ cqCount: 0, cqPeriodMicros: 0 });
  assert.throws(() => cq.modify({ cqCount: 8, cqPeriodMicros: 0 }), /EOPNOTSUPP/);
  await pair.close();
});

/** Invalid results of an allocator, and the refusals. */
const BAD_GIFTS: [string, (context: Context, size: number) => Uint8Array | null, RegExp][] = [
  ['nothing', () => null, /ENOMEM/],
  ['foreign memory', (_, size) => new Uint8Array(size + 64), /must return memory of context.alloc/],
  ['too little', (context, size) => context.alloc(size).subarray(0, size - 1), /required are/],
  ['misaligned memory', (context, size) => context.alloc(size + 8).subarray(8), /required are/],
  [
    'registered memory',
    (context, size) => {
      const buffer = context.alloc(size);
      context.allocPd().regMr(buffer, 0);
      return buffer;
    },
    /neither registered nor in use/,
  ],
];

for (const [what, give, message] of BAD_GIFTS) {
  test(`an allocator that gives ${what} makes no queue`, async () => {
    const pair = await makePair({ connect: false });
    const { context, cq } = pair.a;
    const parent = context.allocParentDomain({
      pd: context.allocPd(),
      alloc: (size) => give(context, size),
      free: () => assert.unreachable('nothing was taken'),
    });
    assert.throws(() => parent.createQp({ sendCq: cq, recvCq: cq }), message);
    assert.throws(() => parent.createSrq(), message);
    parent.dealloc();
    await pair.close();
  });
}

test('memory that queues live in is neither lent twice, nor registered, nor freed', async () => {
  const pair = await makePair({ connect: false });
  const { context, cq } = pair.a;
  const buffer = context.alloc(1 << 18);
  const pd = context.allocPd();
  let freed = 0;
  const parent = context.allocParentDomain({ pd, alloc: () => buffer, free: () => freed++ });
  const srq = parent.createSrq();
  assert.throws(() => parent.createQp({ sendCq: cq, recvCq: cq }), /neither registered nor in use/);
  assert.throws(() => pd.regMr(buffer, ALL_ACCESS), /EBUSY/);
  assert.throws(() => context.free(buffer), /EBUSY/);
  srq.destroy();
  assert.is(freed, 1);
  pd.regMr(buffer, ALL_ACCESS).dereg();
  context.free(buffer);
  await pair.close();
});

test('a missing or unshared object cannot be imported', async () => {
  const pair = await makePair({ connect: false });
  const { context, pd } = pair.a;
  assert.throws(() => context.importPd(1), /ENOENT/);
  assert.throws(() => context.importDm(1), /EOPNOTSUPP/);
  assert.throws(() => context.attach(4096, 1), /EOPNOTSUPP/);
  assert.throws(() => context.sharePd(new Uint8Array(32), 1), /EINVAL/);
  assert.throws(() => context.sharePd(new Uint8Array(31), 1), /shpd/);
  assert.throws(() => pd.allocShpd(-1), /shareKey/);
  assert.throws(() => pd.importMr(1), /ENOENT/);
  await pair.close();
});

test.run();
