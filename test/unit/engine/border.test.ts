/**
 * The engine's own checks of the arguments of control verbs. The host checks most arguments before;
 * another host, or one with an error, must not take the engine out of its bounds.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  ContextLayout,
  ContextSlotLayout,
  Errno,
  Opcode,
  PathLayout,
  QUEUE_PAIR_PATH,
  QpAttribute,
  QueuePairAttributesLayout,
  QueuePairLayout,
  QueuePairParametersLayout,
  RANDOM_QPNS,
  ReceiveDescriptorLayout,
} from '#build/abi.js';
import { structAt } from '../../../host/engine/struct.js';
import { QpState, QpType, WrOpcode } from '../../../host/index.js';
import { onWire, pattern, type Wire } from '../../support/wire.js';

const { OK, EINVAL, ENOMEM, EAGAIN, EBUSY, EOPNOTSUPP } = Errno;
const { RESET, INIT, RTR, RTS } = QpState;
const A = QpAttribute;
const NONSENSE = 0xfffffff0;

/** From RESET to RTS: state, attributes that the change must bring, values that are allowed. */
const STEPS = [
  [INIT, A.PKEY_INDEX | A.PORT | A.ACCESS_FLAGS, { pkeyIndex: 0, portNumber: 1, accessFlags: 0 }],
  [
    RTR,
    A.AV | A.PATH_MTU | A.DEST_QPN | A.RQ_PSN | A.MAX_DEST_RD_ATOMIC | A.MIN_RNR_TIMER,
    {
      remoteGid0: 0n,
      remoteGid1: 0xffff0000007fn,
      remotePort: 4791,
      receiveBufferBytes: 0,
      reorderPackets: 0,
      ownKind: 0,
      skipsIcrc: 0,
      payloadBytes: 0,
      sourcePort: 0,
      wireOnly: 1,
      pathMtu: 3,
      targetQp: 5,
      receivePsn: 0,
      maxDestRdAtomic: 1,
      minRnrTimer: 1,
    },
  ],
  [
    RTS,
    A.SQ_PSN | A.TIMEOUT | A.RETRY_CNT | A.RNR_RETRY | A.MAX_QP_RD_ATOMIC,
    { sendPsn: 0, timeout: 1, retryCount: 1, rnrRetry: 1, maxRdAtomic: 1 },
  ],
] as const;

/** Field, values that are allowed, values that are not; what the queue pair has afterwards. */
const VALUES: readonly (readonly [string, readonly number[], readonly number[]])[] = [
  ['pathMtu', [1, 2, 3, 4, 5], [0, 6, 7, 31, 32]],
  ['pkeyIndex', [0], [1, 0xffff]],
  ['portNumber', [1], [0, 2]],
  ['maxRdAtomic', [0, 16], [17, NONSENSE]],
  ['maxDestRdAtomic', [0, 16], [17, NONSENSE]],
  ['minRnrTimer', [0, 31], [32, 63]],
  ['timeout', [0, 1, 2, 14, 30, 31], [32, 64]],
  ['retryCount', [0, 7], [8, 15]],
  ['rnrRetry', [0, 7], [8, 15]],
  ['targetQp', [0, 0xffffff], [0x1000000, NONSENSE]],
  ['remotePort', [1, 65535], [0, 65536, NONSENSE]],
  [
    'accessFlags',
    [
      0,
      AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ,
      AccessFlag.REMOTE_ATOMIC | AccessFlag.FLUSH_GLOBAL | AccessFlag.FLUSH_PERSISTENT,
    ],
    [AccessFlag.MW_BIND, AccessFlag.ZERO_BASED, AccessFlag.ON_DEMAND, AccessFlag.RELAXED_ORDERING],
  ],
];

class Border {
  readonly exports;
  readonly context;
  readonly #at: number;

  constructor(readonly wire: Wire) {
    const { arena, engine } = wire.context.device;
    this.exports = arena.exports;
    this.context = engine.context;
    this.#at = arena.heap.alloc(QueuePairAttributesLayout.size);
  }

  get arena() {
    return this.wire.context.device.arena;
  }

  get qp() {
    return structAt(this.arena.memory, QueuePairLayout, this.wire.qp.handle);
  }

  /** All fields that `values` does not name are nonsense. */
  modify(mask: number, values: object): number {
    const struct = structAt(this.arena.memory, QueuePairAttributesLayout, this.#at);
    for (const [name, [, type]] of Object.entries(QueuePairAttributesLayout.fields)) {
      (struct as Record<string, unknown>)[name] = type === 'u64' ? BigInt(NONSENSE) : NONSENSE;
    }
    Object.assign(struct, { mask, drainNotify: 0, doublesFlush: 0, ...values });
    return this.exports.modifyQp(this.context, this.wire.qp.handle, this.#at, 1);
  }

  /** From RESET to `state`, and there with `changed`. */
  take(state: number, changed: object): number {
    assert.is(this.modify(A.STATE, { state: RESET }), OK);
    for (const [to, mask, values] of STEPS) {
      const last = to === state;
      const errno = this.modify(A.STATE | mask, { state: to, ...values, ...(last && changed) });
      if (last) return errno;
      assert.is(errno, OK, `to ${to}`);
    }
    throw new Error(`no step leads to ${state}`);
  }
}

test('a change takes values within their bounds, and looks at no field that its mask leaves out', () =>
  onWire({ state: RESET }, (wire) => {
    const border = new Border(wire);
    for (const [field, allowed, refused] of VALUES) {
      const [state] = STEPS.find(([, , values]) => field in values)!;
      for (const value of allowed) {
        assert.is(border.take(state, { [field]: value }), OK, `${field} ${value}`);
        assert.is(border.qp.state, state);
      }
      for (const value of refused) {
        assert.is(border.take(state, { [field]: value }), EINVAL, `${field} ${value}`);
        assert.is(border.qp.state, state - 1, `${field} ${value} changes nothing`);
      }
    }
    assert.is(border.take(RTS, {}), OK);
  }));

test('each attribute is what the queue pair has from then on', () =>
  onWire({ state: RESET }, (wire) => {
    const border = new Border(wire);
    const own: Record<string, string> = { accessFlags: 'access', retryCount: 'retryLimit' };
    own['rnrRetry'] = 'rnrRetryLimit';
    own['maxDestRdAtomic'] = 'destRdAtomicMax';
    own['maxRdAtomic'] = 'rdAtomicMax';
    own['timeout'] = 'timeoutExponent';
    for (const [field, allowed] of VALUES) {
      if (field === 'remotePort') continue;
      const [state] = STEPS.find(([, , values]) => field in values)!;
      for (const value of allowed) {
        border.take(state, { [field]: value });
        const qp = border.qp as unknown as Record<string, number | bigint>;
        if (field === 'pathMtu') assert.is(qp['mtu'], 128 << value);
        else assert.is(qp[own[field] ?? field], value, field);
        if (field !== 'timeout') continue;
        // 4.096 us * 2^timeout, rounded up; 0: no timer.
        const micros = value === 0 ? 0 : Math.ceil(4.096 * 2 ** value);
        assert.is(Number(qp['timeoutMicros']), micros, `timeout ${value}`);
      }
    }
    for (const psn of [0, 1, 0xffffff, 0x1000000, 0xffffffff]) {
      border.take(RTR, { receivePsn: psn });
      assert.is(border.qp.psnExpected, psn % 2 ** 24);
      border.take(RTS, { sendPsn: psn });
      const { psnNext, psnUnacked, psnArrived, psnExecuted, psnMax, arrivedLast } = border.qp;
      const all = [psnNext, psnUnacked, psnArrived, psnExecuted, psnMax, arrivedLast];
      assert.equal(
        all,
        all.map(() => psn % 2 ** 24),
      );
    }
  }));

test('a path has the source port of its attributes, or that of the device', () =>
  onWire({ state: RESET }, (wire) => {
    const border = new Border(wire);
    const path = structAt(border.arena.memory, PathLayout, wire.qp.handle + QUEUE_PAIR_PATH);
    for (const sourcePort of [0, 1, 0xc123]) {
      border.take(RTR, { sourcePort });
      assert.is(path.sourcePort, sourcePort || wire.context.local.port);
    }
  }));

test('an engine has left its call when the call returns, and its time does not go back', () =>
  onWire({}, (wire) => {
    const { exports, context, arena } = new Border(wire);
    const state = structAt(arena.memory, ContextLayout, context);
    const slot = structAt(arena.memory, ContextSlotLayout, state.slot);
    const left = (what: string): void => assert.is(slot.activity & 1, 0, what);
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1 });
    left('post');
    wire.clock.advance(10_000_000);
    left('timers');
    wire.acknowledge(0x100);
    left('packets');
    wire.completions();
    left('completions');
    const { now } = state;
    exports.postProbe(context, wire.qp.handle, Number(now) - 5);
    assert.is(state.now, now);
    exports.postProbe(context, wire.qp.handle, Number(now) + 5);
    assert.is(state.now, now + 5n);
    left('a probe');
    // Address 0 means that there is nothing: no code writes to it, or near it.
    assert.equal(arena.memory.bytes.slice(0, 1024), new Uint8Array(1024));
  }));

test('a queue pair that waits for a buffer is in the context’s list', () =>
  onWire({ device: { sendBuffers: 1 } }, (wire) => {
    const { context, arena } = new Border(wire);
    const state = structAt(arena.memory, ContextLayout, context);
    wire.link.holds = true;
    for (let index = 0; index < 32; index++) wire.post(WrOpcode.RDMA_WRITE, 1024, { wrId: index });
    assert.ok(state.readyFirst !== 0 && state.readyFirst === state.readyLast);
    wire.link.release();
    wire.clock.advance(1);
    for (let turn = 0; turn < 20; turn++) wire.acknowledge(0x100 + wire.takePackets().length);
    const before = arena.memory.words.slice((context - 4096) >> 2, context >> 2);
    wire.link.holds = true;
    for (let index = 0; index < 32; index++) wire.post(WrOpcode.RDMA_WRITE, 1024, { wrId: index });
    const after = arena.memory.words.slice((context - 4096) >> 2, context >> 2);
    assert.equal(after, before, 'nothing is written before the context');
    wire.link.release();
  }));

for (const last of [4, 20, 64]) {
  test(`a run of packets of 64 bytes, the last with ${last}: each is taken as if it came alone`, () =>
    onWire({}, (wire) => {
      const { exports, context, arena } = new Border(wire);
      const state = structAt(arena.memory, ContextLayout, context);
      const packets = Array.from({ length: 9 }, (_, index) => {
        const size = index < 8 ? 64 : last;
        const header = wire.reth(100 * index, size);
        const fields = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x200 + index, ...header };
        return wire.packet({ ...fields, ackRequest: index === 8 ? 1 : 0 }, pattern(size, index));
      });
      const whole = packets[0]!.length;
      const { bytes } = arena.memory;
      let at = state.receiveArea;
      for (const packet of packets) {
        bytes.set(packet, at);
        at += packet.length;
      }
      const descriptor = structAt(arena.memory, ReceiveDescriptorLayout, state.receiveDescriptors);
      const path = structAt(arena.memory, PathLayout, wire.qp.handle + QUEUE_PAIR_PATH);
      Object.assign(descriptor, {
        sourceGid0: path.remoteGid0,
        sourceGid1: path.remoteGid1,
        targetGid0: 0n,
        targetGid1: 0n,
        address: state.receiveArea,
        length: at - state.receiveArea,
        sourcePort: wire.peer.port,
        segmentSize: whole,
      });
      wire.expectCounted({ rdmaRecvs: 9 }, () => {
        exports.receivePackets(context, 1, Number(state.now) + 1);
      });
      for (const [index, packet] of packets.entries()) {
        const size = index < 8 ? 64 : last;
        const found = wire.buffer.slice(100 * index, 100 * index + size);
        assert.equal(found, pattern(size, index), `packet ${index} of ${packet.length} bytes`);
        assert.is(wire.buffer[100 * index + size], 0);
      }
      // One that comes alone, as long as the others and with another ICRC.
      const alone = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x209, ...wire.reth(2000, 64) };
      wire.sendPacket({ ...alone, ackRequest: 1 }, pattern(64, 77));
      assert.equal(wire.buffer.slice(2000, 2064), pattern(64, 77));
    }));
}

test('CUR_STATE must be the current state, and there is no state behind ERR', () =>
  onWire({ state: RESET }, (wire) => {
    const border = new Border(wire);
    border.take(RTS, {});
    for (let state = 0; state <= 8; state++) {
      const errno = border.modify(A.CUR_STATE, { currentState: state });
      assert.is(errno, state === RTS ? OK : EINVAL, `state ${state}`);
    }
    for (const state of [7, 8, 0x20, NONSENSE]) {
      assert.is(border.modify(A.STATE, { state }), EINVAL);
    }
    assert.is(border.modify(A.ALT_PATH, {}), EOPNOTSUPP);
    assert.is(border.modify(A.PATH_MIG_STATE, {}), EOPNOTSUPP);
    assert.is(border.qp.state, RTS);
  }));

test('a queue pair is created with a type, a domain and a number that there are', () =>
  onWire({ device: { queuePairsMax: 2 } }, (wire) => {
    const { exports, context, arena } = new Border(wire);
    const at = arena.heap.alloc(QueuePairParametersLayout.size + RANDOM_QPNS * 4);
    const parameters = structAt(arena.memory, QueuePairParametersLayout, at);
    const random = (at + QueuePairParametersLayout.fields.random[0]) >> 2;
    const { words } = arena.memory;
    // Places in the index are the lowest bits: one that neither the wire's has, nor number 1.
    const free = [0x1230, 0x1232, 0x1233].find((low) => ((low ^ wire.qp.qpNum) & 3) !== 0)!;
    const create = (changed: object, low = free): number => {
      const { pd, cq } = wire;
      Object.assign(parameters, { type: QpType.UD, pd: pd.handle, sendCq: cq.handle, number: 0 });
      Object.assign(parameters, { receiveCq: cq.handle, sendEntries: 1, receiveEntries: 1 });
      Object.assign(parameters, { sendSgeMax: 1, receiveSgeMax: 1, ...changed });
      words.fill(low, random, random + RANDOM_QPNS);
      const bytes = exports.qpBytes(context, at);
      parameters.memory = arena.heap.alloc(bytes);
      arena.memory.bytes.fill(0xff, parameters.memory, parameters.memory + bytes);
      return exports.createQp(context, at);
    };
    for (const type of [0, 1, 5, 6, 7, 9, NONSENSE]) {
      assert.is(create({ type }), EOPNOTSUPP, `type ${type}`);
    }
    assert.is(create({ pd: NONSENSE }), EINVAL);
    assert.is(create({ number: 2 }), EINVAL, 'only the general services have a fixed number');
    assert.is(create({ number: 1, type: QpType.RC }), EINVAL);
    assert.is(create({}, 0), EAGAIN, 'number 0 is the subnet manager’s');
    assert.is(create({}, 1), EAGAIN, 'number 1 is that of the general services');
    assert.is(create({}, wire.qp.qpNum & 0xffff), EAGAIN, 'it is taken');
    assert.is(create({ number: 1 }), OK);
    assert.is(parameters.qpn, 1);
    assert.is(create({ number: 1 }), EINVAL, 'it exists');
    // A used slot is created anew: its rings are empty whatever was in the memory.
    assert.is(create({}), OK);
    const { queuePair } = parameters;
    assert.is(create({}), ENOMEM);
    for (const ring of [parameters.sendRing, parameters.receiveRing]) {
      assert.equal([words[ring >> 2], words[(ring + 64) >> 2]], [0, 0]);
    }
    assert.is(exports.destroyQp(context, queuePair), OK);
    assert.is(exports.destroyQp(context, queuePair), EINVAL, 'twice');
    assert.is(create({}), OK);
    assert.is(parameters.queuePair, queuePair);
    assert.is(exports.destroyQp(context, queuePair), OK);
  }));

test('completion and shared receive queues: one more than there are, and what is in use', () =>
  onWire({ device: { completionQueuesMax: 2 } }, (wire) => {
    const { exports, context, arena } = new Border(wire);
    const ring = arena.heap.alloc(128 + 64 * 4);
    arena.memory.bytes.fill(0xff, ring, ring + 128);
    const cq = exports.createCq(context, ring, 4);
    assert.ok(cq !== 0);
    const { words } = arena.memory;
    assert.equal([words[ring >> 2], words[(ring + 64) >> 2]], [0, 0], 'an empty ring');
    assert.is(exports.createCq(context, ring, 4), 0);
    assert.is(exports.destroyCq(context, wire.cq.handle), EBUSY);
    assert.is(exports.destroyCq(context, cq), OK);
    assert.is(exports.destroyCq(context, cq), EINVAL, 'twice');
    assert.is(exports.createCq(context, ring, 4), cq);
    assert.is(exports.createCq(context, ring, 4), 0, 'the list of free ones ends');
    assert.is(exports.destroyCq(context, cq), OK);
    const { handle } = wire.pd;
    assert.is(exports.createSrq(context, handle + 1, ring, 1, 1), 0, 'no such domain');
    const srq = exports.createSrq(context, handle, ring, 1, 1);
    assert.ok(srq !== 0);
    assert.is(exports.destroySrq(context, srq), OK);
    assert.is(exports.destroySrq(context, srq), EINVAL, 'twice');
  }));

test.run();
