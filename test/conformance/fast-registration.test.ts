/** REG_MR: regions that work requests register. */
import { asPosted } from '../support/any-request.js';
import * as assert from 'uvu/assert';
import { BindRequestLayout, NakCode, QueuePairLayout, RING_HEADER_SIZE } from '#build/abi.js';
import {
  AccessFlag,
  MisuseError,
  QpState,
  SendFlag,
  WcOpcode,
  WrOpcode,
  incRkey,
  type FastMemoryRegion,
} from '../../host/index.js';
import { structAt } from '../../host/engine/struct.js';
import { expectRefusal } from '../support/refusal.js';
import { ACK, Requests, invalidate, lastStatus, reconnect, register } from '../support/windows.js';
import { FULL_ACCESS, onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC } = AccessFlag;
const { REMOTE_ACCESS_ERROR } = NakCode;
const IOVA = 0x10000n;

/** Both kinds, on fresh wires. */
async function eachKind(body: (wire: Wire, mr: FastMemoryRegion) => void): Promise<void> {
  await onWire({}, (wire) => body(wire, wire.pd.allocMr(4096)));
  await onWire({}, (wire) => body(wire, wire.context.allocMr(4096)));
}

test('REG_MR makes a region of memory, in the order of the send queue', () =>
  eachKind((wire, mr) => {
    assert.is(mr.registered, false);
    const key = incRkey(mr.rkey);
    const buffer = wire.buffer.subarray(512, 1024);
    const regMr = { mr, key, buffer, iova: IOVA, access: FULL_ACCESS };
    const sendFlags = SendFlag.SIGNALED;
    wire.qp.postSend([
      { wrId: 1, opcode: WrOpcode.REG_MR, sendFlags, regMr },
      // Its lkey can be used behind it at once.
      {
        wrId: 2,
        opcode: WrOpcode.SEND,
        sendFlags,
        sgList: [{ addr: IOVA + 8n, length: 8, lkey: key }],
      },
    ]);
    const [wc] = wire.cq.poll(1);
    assert.equal([wc?.wrId, wc?.status, wc?.opcode], [1n, 0, WcOpcode.REG_MR]);
    assert.is(wire.takePackets().length, 1);
    assert.equal([mr.registered, mr.rkey, mr.lkey], [true, key, key]);
    const requests = new Requests(wire);
    assert.is(requests.write(key, IOVA + 504n), ACK);
    assert.equal(wire.buffer.slice(1016, 1024), pattern(8));
    assert.is(requests.write(key, IOVA + 505n), REMOTE_ACCESS_ERROR);
    assert.is(mr.counters().writes, 1);
  }));

test('a stale key never works: not invalidated, not of another registration', () =>
  eachKind((wire, mr) => {
    const never = mr.rkey;
    assert.is(new Requests(wire).write(never, IOVA), REMOTE_ACCESS_ERROR, 'not registered yet');
    reconnect(wire);
    assert.is(register(wire, mr), 'SUCCESS');
    const first = mr.rkey;
    assert.is(invalidate(wire, first), 'SUCCESS');
    assert.is(mr.registered, false);
    assert.is(new Requests(wire).write(first, IOVA), REMOTE_ACCESS_ERROR);
    reconnect(wire);
    assert.is(register(wire, mr), 'SUCCESS');
    for (const stale of [never, first]) {
      assert.is(reconnect(wire).write(stale, IOVA), REMOTE_ACCESS_ERROR);
    }
    assert.is(reconnect(wire).write(mr.rkey, IOVA), ACK);
    mr.dereg();
    assert.is(reconnect(wire).write(first + 1, IOVA), REMOTE_ACCESS_ERROR);
    assert.throws(() => register(wire, mr), /deregistered/);
  }));

test('a peer’s SEND_WITH_INV gives the region back, and it can be registered anew', () =>
  eachKind((wire, mr) => {
    assert.is(register(wire, mr), 'SUCCESS');
    const requests = new Requests(wire);
    assert.is(requests.invalidate(mr.rkey), ACK);
    const [wc] = wire.cq.poll(1);
    assert.is(wc?.invalidatedRkey, mr.rkey);
    assert.is(mr.registered, false);
    assert.is(register(wire, mr, { buffer: wire.buffer.subarray(4096, 8192) }), 'SUCCESS');
    assert.is(requests.write(mr.rkey, IOVA), ACK);
    assert.equal(wire.buffer.slice(4096, 4104), pattern(8));
  }));

test('REG_MR of a region that is registered fails, and the region stays', () =>
  eachKind((wire, mr) => {
    assert.is(register(wire, mr), 'SUCCESS');
    const key = mr.rkey;
    assert.is(register(wire, mr), 'LOC_QP_OP_ERR');
    assert.is(mr.rkey, key);
    assert.is(reconnect(wire).write(key, IOVA), ACK);
  }));

test('registered, invalidated and registered again in one list', () =>
  eachKind((wire, mr) => {
    const keys = [incRkey(mr.rkey), incRkey(incRkey(mr.rkey))] as const;
    const [one, two] = [wire.buffer.subarray(0, 64), wire.buffer.subarray(64, 128)];
    const regMr = (key: number, buffer: Uint8Array) =>
      ({ opcode: WrOpcode.REG_MR, regMr: { mr, key, buffer, access: FULL_ACCESS } }) as const;
    wire.qp.postSend([
      regMr(keys[0], one),
      { opcode: WrOpcode.LOCAL_INV, invalidateRkey: keys[0] },
      { ...regMr(keys[1], two), wrId: 3, sendFlags: SendFlag.SIGNALED },
    ]);
    assert.equal(wire.completions(), ['3 SUCCESS']);
    const requests = new Requests(wire);
    assert.is(requests.write(keys[1], BigInt(two.byteOffset)), ACK);
    assert.is(requests.write(keys[0], BigInt(one.byteOffset)), REMOTE_ACCESS_ERROR);
  }));

test('a region of a domain stays in it; one of the context joins that of the queue pair', (wire) => {
  const other = wire.context.allocPd();
  const foreign = other.allocMr(4096);
  assert.is(register(wire, foreign), 'LOC_QP_OP_ERR');
  reconnect(wire);
  const mobile = wire.context.allocMr(4096);
  const own = other.createQp({ sendCq: wire.cq, recvCq: wire.cq });
  const { qp } = wire;
  Object.assign(wire, { qp: own });
  wire.connect();
  assert.is(register(wire, mobile), 'SUCCESS');
  assert.is(new Requests(wire).write(mobile.rkey, IOVA), ACK);
  const opened = mobile.rkey;
  Object.assign(wire, { qp });
  assert.is(new Requests(wire).write(opened, IOVA), REMOTE_ACCESS_ERROR, 'the other domain');
  reconnect(wire);
  assert.is(invalidate(wire, opened), 'LOC_QP_OP_ERR', 'it is not of this domain');
  Object.assign(wire, { qp: own });
  assert.is(invalidate(wire, opened), 'SUCCESS');
  Object.assign(wire, { qp });
  reconnect(wire);
  assert.is(register(wire, mobile), 'SUCCESS');
  assert.is(new Requests(wire).write(mobile.rkey, IOVA), ACK);
  Object.assign(wire, { qp: own });
  reconnect(wire);
  assert.is(new Requests(wire).write(mobile.rkey, IOVA), REMOTE_ACCESS_ERROR, 'it has moved');
});

test('a mobile region keeps no domain alive, and dies with it', (wire) => {
  const mobile = wire.context.allocMr(4096);
  const pd = wire.context.allocPd();
  const own = pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
  const { qp } = wire;
  Object.assign(wire, { qp: own });
  wire.connect();
  assert.is(register(wire, mobile), 'SUCCESS');
  own.destroy();
  Object.assign(wire, { qp });
  pd.dealloc();
  assert.throws(() => wire.context.free(wire.buffer), /EBUSY/);
  mobile.dereg();
});

test('REG_MR keeps to the rules of regMr', async () => {
  for (const [what, options] of [
    ['remote write without local write', { access: REMOTE_WRITE }],
    ['remote atomics without local write', { access: REMOTE_ATOMIC | REMOTE_READ }],
    ['atomics at an address that is not aligned at home', { iova: IOVA + 4n }],
    ['an unknown flag', { access: 0x8000 }],
    ['a flag of the engine', { access: 0x20000000 | REMOTE_READ }],
    ['an address that wraps', { iova: 2n ** 64n - 4096n }],
    ['another key', { key: 0x12345678 }],
  ] as const) {
    await eachKind((wire, mr) => {
      assert.is(register(wire, mr, options), 'LOC_QP_OP_ERR', what);
      assert.is(mr.registered, false);
      reconnect(wire);
      assert.is(register(wire, mr), 'SUCCESS', what);
    });
  }
});

test('what is posted is checked for what can be checked here', (wire) => {
  const mr = wire.pd.allocMr(64);
  const misuse = (action: () => unknown, argument: string): void =>
    assert.throws(
      action,
      (error: unknown) => error instanceof MisuseError && error.argument === argument,
      argument,
    );
  misuse(() => register(wire, mr), 'regMr.buffer');
  misuse(() => register(wire, mr, { buffer: new Uint8Array(8) }), 'buffer');
  const { buffer: memory } = wire.context.device.arena.memory;
  misuse(() => register(wire, mr, { buffer: new Uint8Array(memory, 4096, 64) }), 'buffer');
  const buffer = wire.buffer.subarray(0, 64);
  misuse(() => register(wire, mr, { buffer, iova: -1n }), 'iova');
  misuse(() => register(wire, mr, { buffer, access: 0.5 }), 'access');
  misuse(() => register(wire, mr, { buffer, key: 2 ** 33 }), 'key');
  misuse(() => wire.qp.postSend(asPosted({ opcode: WrOpcode.REG_MR })), 'regMr');
  misuse(() => wire.qp.postSend(asPosted({ opcode: WrOpcode.BIND_MW })), 'bindMw');
  for (const length of [0, -1, 0.5, 2 ** 32]) {
    misuse(() => wire.pd.allocMr(length), 'maxLength');
  }
  assert.equal(wire.completions(), []);
  assert.is(wire.qp.state, QpState.RTS);
  assert.is(register(wire, mr, { buffer }), 'SUCCESS');
});

test('the ring’s other side cannot register memory that is not the application’s', (wire) => {
  const { arena } = wire.context.device;
  const qp = structAt(arena.memory, QueuePairLayout, wire.qp.handle);
  const mr = wire.pd.allocMr(4096);
  const live = wire.pd.allocMr(4096);
  assert.is(register(wire, live), 'SUCCESS');
  const { byteOffset, length } = wire.buffer;
  type Entry = { -readonly [F in keyof (typeof BindRequestLayout)['fields']]: number | bigint };
  const changes: ((entry: Entry) => void)[] = [
    (entry) => void (entry.memory = 64n),
    (entry) => void (entry.memory = BigInt(byteOffset - 64)),
    (entry) => void (entry.memory = BigInt(byteOffset + length - 4088)),
    (entry) => void (entry.memory = BigInt(byteOffset + length)),
    (entry) => void (entry.memory = BigInt(byteOffset) + 2n ** 32n),
    (entry) => void (entry.length = BigInt(length + 1)),
    (entry) => void (entry.length = 2n ** 32n),
    (entry) => void (entry.length = 2n ** 64n - 8n),
    (entry) => void (entry.length = 0n),
    (entry) => void (entry.base = live.rkey),
    (entry) => void (entry.base = wire.mr.rkey),
    (entry) => void (entry.base = mr.rkey),
    (entry) => void (entry.base = 0),
    (entry) => void (entry.target = wire.mr.rkey),
    (entry) => void (entry.target = live.rkey),
    (entry) => void ((entry.target = 0), (entry.key = 0)),
    (entry) => void (entry.access = 0xffffffff),
  ];
  for (const [index, change] of changes.entries()) {
    reconnect(wire);
    wire.qp.modify({ qpState: QpState.SQD });
    register(wire, mr);
    const at = (qp.sendFetched & (qp.sendEntries - 1)) * qp.sendStride;
    const entry = structAt(arena.memory, BindRequestLayout, qp.sendRing + RING_HEADER_SIZE + at);
    change(entry as Entry);
    wire.qp.modify({ qpState: QpState.RTS });
    assert.is(lastStatus(wire), 'LOC_QP_OP_ERR', `change ${index}`);
    assert.is(mr.registered, false, `change ${index}`);
  }
  reconnect(wire);
  assert.is(register(wire, mr), 'SUCCESS');
});

test('memory that a REG_MR registered is not freed before it is invalidated', () =>
  eachKind((wire, mr) => {
    const buffer = wire.context.alloc(128);
    assert.is(register(wire, mr, { buffer }), 'SUCCESS');
    expectRefusal(() => wire.context.free(buffer), 'EBUSY');
    assert.is(new Requests(wire).write(mr.rkey, IOVA), ACK, 'the refusal has changed nothing');
    assert.is(invalidate(wire, mr.rkey), 'SUCCESS');
    wire.context.free(buffer);
    // A request that was posted before and is executed now finds the area gone.
    const again = wire.context.alloc(128);
    wire.qp.modify({ qpState: QpState.SQD });
    register(wire, mr, { buffer: again });
    wire.context.free(again);
    wire.qp.modify({ qpState: QpState.RTS });
    assert.is(lastStatus(wire), 'LOC_QP_OP_ERR');
    mr.dereg();
  }));

test('an invalidated key is dead before its place can be taken again, by whatever work (S87)', () =>
  onWire({ device: { regionsMax: 8 } }, (wire) => {
    const mr = wire.context.allocMr(4096);
    const requests = new Requests(wire);
    const seen = new Set<number>();
    for (let turn = 0; turn < 250; turn++) {
      assert.is(register(wire, mr), 'SUCCESS');
      assert.ok(!seen.has(mr.rkey));
      seen.add(mr.rkey);
      assert.is(requests.write(mr.rkey, IOVA), ACK);
      assert.is(invalidate(wire, mr.rkey), 'SUCCESS');
    }
    assert.is(register(wire, mr), 'SUCCESS');
    for (const key of seen) {
      assert.is(reconnect(wire).write(key, IOVA), REMOTE_ACCESS_ERROR);
    }
  }));

test.run();
