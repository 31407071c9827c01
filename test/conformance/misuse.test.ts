/**
 * Every way to use the API wrongly is refused with a class, a name or an errno, and a sentence that
 * says which rule was broken; and has no effect.
 */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MisuseError,
  QpAttribute,
  QpState,
  QpType,
  RefusalError,
  SendFlag,
  WrOpcode,
  openDevice,
  type OpenOptions,
} from '../../host/index.js';
import { Wire, WireLink, PEER, onWire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_WRITE } = AccessFlag;

/** Throws a MisuseError about `argument`, with a sentence. */
function misuse(action: () => unknown, argument: string, what = argument): void {
  let thrown: unknown;
  try {
    action();
  } catch (error) {
    thrown = error;
  }
  assert.instance(thrown, MisuseError, `${what}: ${String(thrown)}`);
  const error = thrown as MisuseError;
  assert.is(error.argument, argument, `${what}: ${error.message}`);
  assert.match(error.message, /^.+: .{8,}/, what);
}

/** Throws a RefusalError with that errno, and a sentence. */
function refusal(action: () => unknown, code: string, sentence: RegExp, what?: string): void {
  let thrown: unknown;
  try {
    action();
  } catch (error) {
    thrown = error;
  }
  assert.instance(thrown, RefusalError, `${what}: ${String(thrown)}`);
  assert.is((thrown as RefusalError).code, code, what);
  assert.match((thrown as RefusalError).message, sentence, what);
}

/** Not what the types allow. */
const as = <T>(value: unknown): T => value as T;
const ODD = [-1, 0.5, NaN, Infinity, 2 ** 32 + 1, as<number>('3')];

test('openDevice: every limit has a range', async () => {
  const names: (keyof OpenOptions)[] = [
    'memoryBytes',
    'queuePairsMax',
    'completionQueuesMax',
    'sharedReceiveQueuesMax',
    'addressHandlesMax',
    'multicastMax',
    'regionsMax',
    'protectionDomainsMax',
    'rdAtomicMax',
    'sendBuffers',
    'windowPackets',
  ];
  for (const name of names) {
    for (const value of [0, ...ODD]) {
      const link = new WireLink(PEER, 'none');
      const options = as<OpenOptions>({ link, memoryBytes: 8 << 20, [name]: value });
      const opening = openDevice(options);
      const error = await opening.then(
        () => undefined,
        (reason: unknown) => reason,
      );
      assert.instance(error, MisuseError, `${name} ${String(value)}: ${String(error)}`);
      assert.is((error as MisuseError).argument, name);
      assert.is(link.receiver, undefined, 'the link was not opened');
    }
  }
  const link = new WireLink(PEER, 'none');
  const odd = openDevice({ link, memoryBytes: 8 << 20, rdAtomicMax: 12 });
  const error = await odd.catch((reason: unknown) => reason);
  assert.match(String(error), /power of two/);
  const small = await openDevice({ link, memoryBytes: 65536 }).catch((reason: unknown) => reason);
  assert.is((small as RefusalError).code, 'ENOMEM');
});

test('alloc and free: sizes, foreign and partial buffers, and those that are registered', async (wire) => {
  const { context } = wire;
  for (const length of [0, ...ODD.filter((value) => value !== 2 ** 32 + 1)]) {
    misuse(() => context.alloc(length), 'length', String(length));
  }
  refusal(() => context.alloc(1 << 30), 'ENOMEM', /memoryBytes/);
  const other = await Wire.open();
  const free = context.device.arena.heap.bytesFree;
  misuse(() => context.free(new Uint8Array(64)), 'buffer');
  misuse(() => context.free(other.buffer), 'buffer');
  misuse(() => context.free(wire.buffer.subarray(64)), 'buffer');
  refusal(() => context.free(wire.buffer), 'EBUSY', /dereg/);
  assert.is(context.device.arena.heap.bytesFree, free);
  const mine = context.alloc(64);
  context.free(mine);
  misuse(() => context.free(mine), 'buffer', 'twice');
  await other.close();
});

test('regMr: buffers of others, access and iova out of range', async (wire) => {
  const { pd, buffer } = wire;
  const other = await Wire.open();
  misuse(() => pd.regMr(new Uint8Array(64), 1), 'buffer');
  misuse(() => pd.regMr(other.buffer, 1), 'buffer');
  misuse(() => pd.regMr(buffer.subarray(0, 0), 1), 'buffer');
  misuse(() => pd.regMr(as([1, 2]), 1), 'buffer');
  misuse(() => pd.regMr(as(undefined), 1), 'buffer');
  const whole = wire.context.device.arena.memory.bytes;
  misuse(() => pd.regMr(whole.subarray(0, 4096), 1), 'buffer', 'the engine’s own tables');
  misuse(() => pd.regMr(whole.subarray(buffer.byteOffset, buffer.byteOffset + 65537), 1), 'buffer');
  refusal(() => pd.regMr(buffer, 1 << 29), 'EOPNOTSUPP', /flag/);
  refusal(() => pd.regMr(buffer, REMOTE_WRITE), 'EINVAL', /LOCAL_WRITE/);
  refusal(() => pd.regMr(buffer, 1, { iova: 2n ** 64n - 8n }), 'EINVAL', /2\^64/);
  refusal(() => pd.regMr(buffer, LOCAL_WRITE | REMOTE_ATOMIC, { iova: 4n }), 'EINVAL', /modulo 8/);
  await other.close();
});

test('regMr: access and iova that are no whole numbers in range are refused', ({ pd, buffer }) => {
  for (const access of ODD.slice(1))
    misuse(() => pd.regMr(buffer, access), 'access', String(access));
  for (const iova of [-1, 0.5, NaN, -5n, 2n ** 64n]) {
    misuse(() => pd.regMr(buffer, LOCAL_WRITE, { iova }), 'iova', String(iova));
  }
});

test('createCq and resize: sizes', ({ context, cq }) => {
  for (const cqe of [0, ...ODD, 2 ** 20 + 1]) {
    misuse(() => context.createCq(cqe), 'cqe', String(cqe));
    misuse(() => cq.resize(cqe), 'cqe', String(cqe));
  }
  assert.is(cq.cqe, 4096);
});

test('poll: a count that is no whole number is refused', ({ cq }) => {
  for (const count of [-1, 0.5, NaN, as<number>('3'), as<number>(undefined)]) {
    misuse(() => cq.poll(count), 'count', String(count));
  }
});

test('createQp: capabilities, type, queues of others', async (wire) => {
  const { pd, cq } = wire;
  const other = await Wire.open();
  const made = { sendCq: cq, recvCq: cq };
  for (const [name, most] of Object.entries({
    maxSendWr: 65536,
    maxRecvWr: 65536,
    maxSendSge: 32,
    maxRecvSge: 32,
    maxInlineData: 512,
  })) {
    for (const value of [-1, 0.5, NaN, most + 1, as<number>('3')]) {
      misuse(() => pd.createQp({ ...made, cap: { [name]: value } }), `cap.${name}`, String(value));
    }
  }
  misuse(() => pd.createQp({ ...made, sendCq: other.cq }), 'sendCq');
  misuse(() => pd.createQp({ ...made, recvCq: other.cq }), 'recvCq');
  misuse(() => pd.createQp(as({ sendCq: cq })), 'recvCq');
  misuse(() => pd.createQp({ ...made, srq: other.pd.createSrq() }), 'srq');
  for (const qpType of [0, 1, 5, 8, 9, 255]) {
    refusal(() => pd.createQp({ ...made, qpType }), 'EOPNOTSUPP', /type/);
  }
  pd.createQp(made).destroy();
  await other.close();
});

test('createQp: queues that are destroyed are refused', ({ context, pd, cq }) => {
  const gone = context.createCq(4);
  gone.destroy();
  misuse(() => pd.createQp({ sendCq: gone, recvCq: cq }), 'sendCq');
  misuse(() => pd.createQp({ sendCq: cq, recvCq: gone }), 'recvCq');
  const srq = pd.createSrq();
  srq.destroy();
  misuse(() => pd.createQp({ sendCq: cq, recvCq: cq, srq }), 'srq');
});

test('createSrq, modify and postRecv of an SRQ: ranges', ({ pd, qp }) => {
  for (const value of [0, ...ODD, 65537]) {
    misuse(() => pd.createSrq({ maxWr: value }), 'maxWr', String(value));
  }
  for (const value of [0, ...ODD, 33]) misuse(() => pd.createSrq({ maxSge: value }), 'maxSge');
  misuse(() => pd.createSrq({ maxWr: 4, srqLimit: 5 }), 'srqLimit');
  const srq = pd.createSrq({ maxWr: 4, maxSge: 1 });
  for (const srqLimit of [...ODD, 5]) misuse(() => srq.modify({ srqLimit }), 'srqLimit');
  const sge = { addr: 0, length: 1, lkey: 1 };
  misuse(() => srq.postRecv({ sgList: [sge, sge] }), 'sgList');
  for (let turn = 0; turn < 4; turn++) srq.postRecv({});
  refusal(() => srq.postRecv({}), 'ENOMEM', /all 4 requests/);
  const other = pd.createQp({ sendCq: qp.sendCq, recvCq: qp.recvCq, srq });
  other.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  misuse(() => other.postRecv({}), 'postRecv');
});

test('createAh: ports and addresses', ({ pd }) => {
  for (const port of [0, ...ODD, 65536]) {
    misuse(() => pd.createAh({ dgid: PEER.gid, port }), 'ahAttr.port', String(port));
  }
  const wc = { wcFlags: 0 } as never;
  misuse(() => pd.createAhFromWc(wc, new Uint8Array(40)), 'wc');
});

test('createAh: an invalid address is refused, with the name of the argument', ({ pd }) => {
  for (const dgid of ['foo', '', '1.2.3', '1.2.3.4.5', 'ff0e::1::2', as<string>(5)]) {
    misuse(() => pd.createAh({ dgid }), 'ahAttr.dgid', String(dgid));
  }
});

test('a protection domain that is gone makes nothing, and says so', ({ context, cq, buffer }) => {
  const pd = context.allocPd();
  const mr = pd.regMr(buffer, 1);
  refusal(() => pd.dealloc(), 'EBUSY', /destroy them first/);
  mr.dereg();
  pd.dealloc();
  refusal(() => pd.dealloc(), 'EINVAL', /protection domain has ended/);
  refusal(() => pd.regMr(buffer, 1), 'EINVAL', /protection domain has ended/);
  refusal(() => pd.createQp({ sendCq: cq, recvCq: cq }), 'EINVAL', /protection domain has ended/);
});

test('createSrq and createAh say that their protection domain is gone', ({ context }) => {
  const pd = context.allocPd();
  pd.dealloc();
  refusal(() => pd.createSrq(), 'EINVAL', /protection domain has ended/, 'createSrq');
  refusal(
    () => pd.createAh({ dgid: PEER.gid }),
    'EINVAL',
    /protection domain has ended/,
    'createAh',
  );
});

test('objects in use are not destroyed', (wire) => {
  const { pd, cq, context } = wire;
  refusal(() => cq.destroy(), 'EBUSY', /queue pair uses/);
  refusal(() => pd.dealloc(), 'EBUSY', /exist/);
  const srq = pd.createSrq();
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, srq });
  refusal(() => srq.destroy(), 'EBUSY', /queue pair takes/);
  qp.destroy();
  srq.destroy();
  const other = context.allocPd();
  const ah = other.createAh({ dgid: PEER.gid });
  refusal(() => other.dealloc(), 'EBUSY', /exist/);
  ah.destroy();
  other.dealloc();
});

test('what is destroyed is not destroyed again, and refuses every verb', (wire) => {
  const { pd, context } = wire;
  const cq = context.createCq(4);
  const srq = pd.createSrq();
  const qp = pd.createQp({ sendCq: cq, recvCq: cq });
  const ah = pd.createAh({ dgid: PEER.gid });
  const mr = pd.regMr(wire.buffer, 1);
  qp.destroy();
  cq.destroy();
  srq.destroy();
  ah.destroy();
  mr.dereg();
  for (const action of [
    () => qp.destroy(),
    () => qp.modify({ qpState: QpState.RESET }),
    () => qp.query(),
    () => qp.postSend([]),
    () => qp.postRecv([]),
    () => qp.attachMcast('ff0e::1'),
  ]) {
    misuse(action, 'queue pair');
  }
  for (const action of [() => cq.destroy(), () => cq.poll(1), () => cq.resize(4)]) {
    misuse(action, 'completion queue');
  }
  misuse(() => srq.destroy(), 'shared receive queue');
  misuse(() => srq.postRecv({}), 'shared receive queue');
  misuse(() => srq.modify({ srqLimit: 0 }), 'shared receive queue');
  misuse(() => ah.destroy(), 'address handle');
  misuse(() => mr.dereg(), 'memory region');
  misuse(() => mr.counters(), 'memory region');
  for (const object of [cq, srq, qp, ah, mr]) object[Symbol.dispose]();
});

test('a destroyed completion queue cannot be armed', ({ context }) => {
  const cq = context.createCq(4);
  cq.destroy();
  misuse(() => cq.reqNotify(), 'completion queue');
});

test('leaving the scope of a protection domain that was deallocated is no error', ({ context }) => {
  const pd = context.allocPd();
  pd.dealloc();
  pd[Symbol.dispose]();
});

test('after close every verb that makes or posts is refused', async (wire) => {
  const { context, pd, cq, qp, buffer } = wire;
  const srq = pd.createSrq();
  await context.close();
  await context.close();
  for (const action of [
    () => context.alloc(64),
    () => context.allocPd(),
    () => context.createCq(4),
    () => context.createCompChannel(),
    () => pd.regMr(buffer, 1),
    () => pd.createQp({ sendCq: cq, recvCq: cq }),
    () => pd.createSrq(),
    () => pd.createAh({ dgid: PEER.gid }),
    () => qp.modify({ qpState: QpState.RESET }),
    () => qp.query(),
    () => qp.postSend([]),
    () => qp.postRecv([]),
    () => srq.postRecv({}),
    () => srq.modify({ srqLimit: 0 }),
  ]) {
    misuse(action, 'context', action.toString());
  }
  assert.is(await context.getAsyncEvent(), undefined);
  assert.equal(await cq.wait(), []);
  assert.is(context.queryPort().state, 'DOWN');
});

test('limits that are reached are refused, and nothing leaks', async () => {
  const device = {
    queuePairsMax: 2,
    completionQueuesMax: 2,
    sharedReceiveQueuesMax: 1,
    addressHandlesMax: 1,
    regionsMax: 2,
    protectionDomainsMax: 2,
    multicastMax: 1,
  };
  await onWire({ device, qp: { qpType: QpType.UD } }, (wire) => {
    const { context, pd, cq, qp } = wire;
    context.createCq(4);
    context.allocPd();
    pd.createSrq();
    pd.createAh({ dgid: PEER.gid });
    pd.regMr(wire.buffer, 1);
    pd.createQp({ sendCq: cq, recvCq: cq });
    qp.attachMcast('ff0e::1');
    const free = context.device.arena.heap.bytesFree;
    refusal(() => context.createCq(4), 'ENOMEM', /all 2 completion queues/);
    refusal(() => context.allocPd(), 'ENOMEM', /all 2 protection domains/);
    refusal(() => pd.createSrq(), 'ENOMEM', /all 1 shared/);
    refusal(() => pd.createAh({ dgid: PEER.gid }), 'ENOMEM', /all 1 address/);
    refusal(() => pd.regMr(wire.buffer, 1), 'ENOMEM', /all 2 regions/);
    refusal(() => pd.createQp({ sendCq: cq, recvCq: cq }), 'ENOMEM', /all 2 queue pairs/);
    refusal(() => qp.attachMcast('ff0e::2'), 'ENOMEM', /all 1 memberships/);
    assert.is(context.device.arena.heap.bytesFree, free);
  });
});

test('destroyed objects of every kind can be created again, up to the limit', async () => {
  const device = {
    queuePairsMax: 4,
    completionQueuesMax: 4,
    sharedReceiveQueuesMax: 3,
    addressHandlesMax: 3,
    regionsMax: 4,
    protectionDomainsMax: 4,
  };
  await onWire({ device }, ({ context, pd, cq, buffer }) => {
    const destroyable = (made: { destroy(): void }) => () => made.destroy();
    const createPd = () => {
      const made = context.allocPd();
      return () => made.dealloc();
    };
    const createMr = () => {
      const made = pd.regMr(buffer, 1);
      return () => made.dereg();
    };
    const kinds: readonly (readonly [RegExp, () => () => void])[] = [
      [/completion queues/, () => destroyable(context.createCq(4))],
      [/shared/, () => destroyable(pd.createSrq())],
      [/address/, () => destroyable(pd.createAh({ dgid: PEER.gid }))],
      [/queue pairs/, () => destroyable(pd.createQp({ sendCq: cq, recvCq: cq }))],
      [/protection domains/, createPd],
      [/regions/, createMr],
    ];
    for (const [name, create] of kinds) {
      // Destroyed in the order of creation, in the reverse order, and the middle one first.
      for (const order of [[0, 1, 2], [2, 1, 0], [1, 2, 0], []]) {
        const destroys = [create(), create(), create()];
        refusal(create, 'ENOMEM', name);
        for (const index of order) destroys[index]!();
      }
    }
  });
});

test('groups: no multicast address, not a member, not UD', () =>
  onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    const { qp, pd, cq, link } = wire;
    refusal(() => qp.attachMcast('fd77::1'), 'EINVAL', /no multicast group/);
    qp.attachMcast('ff0e::1');
    refusal(() => qp.detachMcast('ff0e::2'), 'EINVAL', /ff0e::2/);
    const rc = pd.createQp({ sendCq: cq, recvCq: cq });
    refusal(() => rc.attachMcast('ff0e::1'), 'EINVAL', /ff0e::1/);
    assert.equal(link.groups, ['+ff0e::1']);
    qp.detachMcast('ff0e::1');
    assert.equal(link.groups, ['+ff0e::1', '-ff0e::1']);
  }));

test('a queue pair that attaches to a group again is one member, and detaches once', () =>
  onWire({ device: { multicastMax: 1 }, qp: { qpType: QpType.UD } }, ({ qp, link }) => {
    qp.attachMcast('ff0e::1');
    qp.attachMcast('ff0e::1');
    assert.equal(link.groups, ['+ff0e::1']);
    qp.detachMcast('ff0e::1');
    assert.equal(link.groups, ['+ff0e::1', '-ff0e::1']);
    refusal(() => qp.detachMcast('ff0e::1'), 'EINVAL', /is no member/);
    qp.attachMcast('ff0e::1');
    qp.modify({ qpState: QpState.RESET });
    qp.attachMcast('ff0e::1');
    const joins = link.groups.slice(2);
    assert.equal(joins, ['+ff0e::1', '-ff0e::1', '+ff0e::1']);
  }));

test('the link leaves a group with the last member, also when that is destroyed or reset', () =>
  onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    const { qp, pd, cq, link } = wire;
    const other = pd.createQp({ qpType: QpType.UD, sendCq: cq, recvCq: cq });
    qp.attachMcast('ff0e::1');
    other.attachMcast('ff0e::1');
    other.destroy();
    assert.equal(link.groups, ['+ff0e::1']);
    qp.destroy();
    assert.equal(link.groups, ['+ff0e::1', '-ff0e::1']);
  }));

test('a queue pair that is destroyed or reset leaves all its groups', async () => {
  const groups = ['ff0e::1', 'ff0e::2', 'ff0e::3'];
  const device = { multicastMax: groups.length };
  await onWire({ device, qp: { qpType: QpType.UD } }, (wire) => {
    const { qp, pd, cq } = wire;
    const create = () => pd.createQp({ qpType: QpType.UD, sendCq: cq, recvCq: cq });
    for (const group of groups) qp.attachMcast(group);
    qp.modify({ qpState: QpState.RESET });
    const other = create();
    for (const group of groups) other.attachMcast(group);
    other.destroy();
    const last = create();
    for (const group of groups) last.attachMcast(group);
    refusal(() => last.attachMcast('ff0e::4'), 'ENOMEM', /all 3 memberships/);
  });
});

test('a mask that leaves an attribute out leaves it unapplied, the address as well', (wire) => {
  const { qp } = wire;
  const elsewhere = { dgid: '127.0.0.9', port: 9 };
  qp.modify({ qpState: QpState.RTS, minRnrTimer: 1, ahAttr: elsewhere }, QpAttribute.STATE);
  assert.is(qp.query().minRnrTimer, 12);
  wire.post(WrOpcode.SEND, 8);
  assert.is(String(wire.link.sent[0]?.destination), String(wire.peer));
});

test('a change that is refused leaves packets on their way to where they went', (wire) => {
  refusal(
    () => wire.qp.modify({ qpState: QpState.RTS, ahAttr: { dgid: '127.0.0.9' } }),
    'EINVAL',
    /superfluous/,
  );
  misuse(() => wire.qp.modify({ ahAttr: { dgid: PEER.gid, port: 0 } }), 'ahAttr.port');
  wire.post(WrOpcode.SEND, 8, { sendFlags: SendFlag.SIGNALED });
  assert.is(String(wire.takePacket()?.destination), String(wire.peer));
});

test('modify: numbers that are no 32-bit whole numbers are refused, not cut to fit', async () => {
  const init = { qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 };
  const rts = {
    qpState: QpState.RTS,
    sqPsn: 0,
    timeout: 1,
    retryCnt: 1,
    rnrRetry: 1,
    maxRdAtomic: 1,
  };
  const cases = [
    [QpState.RESET, init, ['pkeyIndex', 'portNum', 'qpAccessFlags']],
    [QpState.RTR, rts, ['sqPsn', 'timeout', 'retryCnt', 'rnrRetry', 'maxRdAtomic']],
  ] as const;
  for (const [state, attributes, names] of cases) {
    await onWire({ state }, ({ qp }) => {
      for (const name of names) {
        for (const value of [-(2 ** 32) + 1, 1.5, NaN, 2 ** 32 + 1, as<number>('1')]) {
          const what = `${name} ${String(value)}`;
          assert.throws(() => qp.modify({ ...attributes, [name]: value }), undefined, what);
          assert.is(qp.state, state, what);
        }
      }
    });
  }
});

test.run();
