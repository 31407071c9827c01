/** The memory of reorder buffers, which all queue pairs of a device share. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { Mtu, QpState, type QueuePair } from '../../host/index.js';
import { onWire, pattern, type Wire, type WireOptions } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const MTU = 256;
const FIRST = 0x200;
/** Of a slot on a link with packets of 4,160 bytes. */
const SLOT_BYTES = 4168;
const OPTIONS = {
  reorderPackets: 512,
  mtu: Mtu.MTU_256,
  bytes: 600 * MTU,
  device: { memoryBytes: 32 * 2 ** 20 },
};
const test = testsOnWire(OPTIONS);

/** Packet `index` of a WRITE of `count` whole packets to `qp`. */
function write(wire: Wire, index: number, count: number, qp: QueuePair = wire.qp): Uint8Array {
  const fields = { psn: FIRST + index, targetQp: qp.qpNum };
  const payload = pattern(MTU, index + 1);
  if (index === 0) {
    const reth = wire.reth(0, count * MTU);
    return wire.packet({ ...fields, opcode: Opcode.RC_RDMA_WRITE_FIRST, ...reth }, payload);
  }
  const last = index === count - 1;
  const opcode = last ? Opcode.RC_RDMA_WRITE_LAST : Opcode.RC_RDMA_WRITE_MIDDLE;
  return wire.packet({ ...fields, opcode, ackRequest: last ? 1 : 0 }, payload);
}

/** Delivers packets [from, to), each in a call of its own. */
function deliver(wire: Wire, from: number, to: number, count: number, qp = wire.qp): void {
  for (let index = from; index < to; index++) wire.deliver(write(wire, index, count, qp));
}

/** PSN that the last report of `qp` expects, and how many packets it names behind that. */
function lastReport(wire: Wire): { expected: number; named: number } {
  const reports = wire
    .takePackets()
    .filter(({ opcode }) => opcode === Opcode.MSP_SELECTIVE_ACKNOWLEDGE);
  const last = reports.at(-1)!;
  assert.ok(last, 'a gap is reported');
  const words = [last.aheadLow, last.aheadHigh, ...wordsOf(last.payload)];
  const bits = words.reduce((sum, word) => sum + bitsOf(word), 0);
  return { expected: last.psn - FIRST, named: bits };
}

function wordsOf(bytes: Uint8Array): bigint[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Array.from({ length: bytes.length >> 3 }, (_, word) => view.getBigUint64(8 * word));
}

const bitsOf = (word: bigint): number => [...word.toString(2)].filter((bit) => bit === '1').length;

function expectWhole(wire: Wire, count: number): void {
  const whole = Array.from({ length: count }, (_, index) => [...pattern(MTU, index + 1)]).flat();
  assert.equal([...wire.buffer.subarray(0, count * MTU)], whole);
}

/** A second queue pair of the device, connected as the first. */
function another(wire: Wire, options: WireOptions): QueuePair {
  const cap = { reorderPackets: options.reorderPackets! };
  const qp = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, cap });
  wire.connect(options, qp);
  return qp;
}

test('memory grows before it is full: no packet that arrives ahead is lost', (wire) => {
  const before = wire.context.device.arena.heap.bytesFree;
  deliver(wire, 1, 500, 500);
  const { named } = lastReport(wire);
  assert.is(named, 499);
  assert.ok(wire.context.device.arena.heap.bytesFree < before - 200 * SLOT_BYTES, 'memory is used');
  deliver(wire, 0, 500, 500);
  expectWhole(wire, 500);
});

test('a queue pair is granted no more than the memory may hold', () =>
  onWire({ ...OPTIONS, device: { reorderBytes: 40 * SLOT_BYTES } }, (wire) => {
    assert.is(wire.qp.cap.reorderPackets, 32);
    deliver(wire, 1, 100, 100);
    assert.is(lastReport(wire).named, 31);
  }));

test('without memory for reorder buffers none is granted, and packets ahead are lost', () =>
  onWire({ ...OPTIONS, device: { reorderBytes: 1 } }, (wire) => {
    assert.is(wire.qp.cap.reorderPackets, 0);
    deliver(wire, 1, 4, 8);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST });
    deliver(wire, 0, 8, 8);
    expectWhole(wire, 8);
  }));

const SHORT = { ...OPTIONS, reorderPackets: 64, device: { reorderBytes: 64 * SLOT_BYTES } };

test('a gap that is never filled leaves places to other queue pairs', () =>
  onWire(SHORT, (wire) => {
    const other = another(wire, SHORT);
    deliver(wire, 1, 64, 64);
    const greedy = lastReport(wire).named;
    assert.ok(greedy >= 48 && greedy <= 52, `${greedy} of 64 places`);
    deliver(wire, 1, 64, 64, other);
    const left = lastReport(wire).named;
    assert.ok(left >= 8 && left < 64 - greedy, `${left} of ${64 - greedy} places`);
    // Both are complete once their packets arrive in order.
    for (const qp of [wire.qp, other]) {
      wire.buffer.fill(0);
      deliver(wire, 0, 64, 64, qp);
      expectWhole(wire, 64);
    }
  }));

for (const [what, end] of [
  ['is destroyed', (qp: QueuePair) => qp.destroy()],
  ['is reset', (qp: QueuePair) => qp.modify({ qpState: QpState.RESET })],
  ['fails', (qp: QueuePair) => qp.modify({ qpState: QpState.ERR })],
] as const) {
  test(`places of a queue pair that ${what} are free`, () =>
    onWire(SHORT, (wire) => {
      const other = another(wire, SHORT);
      deliver(wire, 1, 64, 64);
      wire.takePackets();
      end(wire.qp);
      wire.takePackets();
      deliver(wire, 1, 64, 64, other);
      const { named } = lastReport(wire);
      assert.ok(named >= 48, `${named} of 64 places`);
      deliver(wire, 0, 64, 64, other);
      expectWhole(wire, 64);
    }));
}

test('the last queue pair that keeps packets frees the memory', (wire) => {
  const { heap } = wire.context.device.arena;
  deliver(wire, 1, 500, 500);
  wire.qp.destroy();
  const without = heap.bytesFree;
  const other = another(wire, OPTIONS);
  deliver(wire, 1, 500, 500, other);
  assert.ok(heap.bytesFree < without - 200 * SLOT_BYTES);
  other.destroy();
  assert.is(heap.bytesFree, without);
});

test('a device without free memory goes on with the places it has', (wire) => {
  const { device } = wire.context;
  const taken: Uint8Array[] = [];
  for (let size = 2 ** 23; size >= 2 ** 15; size /= 2) {
    while (device.arena.heap.bytesFree > 2 * size) taken.push(wire.context.alloc(size));
  }
  deliver(wire, 1, 500, 500);
  const { named } = lastReport(wire);
  assert.ok(named >= 150 && named < 300, `${named} packets are kept`);
  deliver(wire, 0, 500, 500);
  expectWhole(wire, 500);
  assert.is(wire.qp.state, QpState.RTS);
  for (const bytes of taken) wire.context.free(bytes);
});

test.run();
