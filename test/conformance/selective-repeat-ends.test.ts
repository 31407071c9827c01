/** Ends of selective repeat: reports that are taken back, requests whose memory is gone. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { NakCode, Opcode, QueuePairLayout } from '#build/abi.js';
import { structAt, type Struct } from '../../host/engine/struct.js';
import { Mtu, QpState, SendFlag, WrOpcode } from '../../host/index.js';
import { FULL_ACCESS, onWire, pattern, type Wire } from '../support/wire.js';

const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const MTU = 256;
const OPTIONS = { reorderPackets: 8, mtu: Mtu.MTU_256, attributes: { timeout: 14, retryCnt: 3 } };
const { MSP_SELECTIVE_ACKNOWLEDGE, RC_ACKNOWLEDGE, RC_RDMA_READ_RESPONSE_ONLY } = Opcode;
const NO_CREDITS = 0x1f;

const structOf = ({ context, qp }: Wire): Struct<typeof QueuePairLayout> =>
  structAt(context.device.arena.memory, QueuePairLayout, qp.handle);

/** `kind`: a report of arrivals (an ACK), or of what is missing (a NAK). `bits`: behind `psn`. */
function report(wire: Wire, kind: 'ack' | 'nak', psn: number, ...bits: readonly number[]): void {
  const aheadLow = bits.reduce((map, bit) => map | (1n << BigInt(bit)), 0n);
  const syndrome = kind === 'ack' ? NO_CREDITS : NakCode.PSN_SEQUENCE_ERROR;
  const opcode = MSP_SELECTIVE_ACKNOWLEDGE;
  wire.sendPacket({ opcode, psn: psn & 0xffffff, syndrome, aheadLow });
}

/** The first round trip of the connection takes `micros`. */
function roundTrip(wire: Wire, micros: number): number {
  wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
  const [{ psn } = { psn: 0 }] = wire.takePackets();
  wire.clock.advance(micros);
  wire.sendPacket({ opcode: RC_ACKNOWLEDGE, psn, syndrome: NO_CREDITS });
  assert.equal(wire.statuses(), ['SUCCESS']);
  return psn + 1;
}

/** Milliseconds until something completes; undefined: nothing does in ten minutes. */
function millisToEnd(wire: Wire): [millis: number, statuses: string[]] {
  for (let millis = 0; millis < 600_000; millis += 10) {
    const statuses = wire.statuses();
    if (statuses.length > 0) return [millis, statuses];
    wire.clock.advance(10_000);
    wire.takePackets();
  }
  return [Infinity, []];
}

test('a peer that reports packets far ahead, takes that back and is silent, ends the queue pair', () =>
  onWire({ ...OPTIONS, bytes: 2 ** 20 }, (wire) => {
    roundTrip(wire, 100);
    const { flightMax, psnUnacked: first } = structOf(wire);
    wire.post(WrOpcode.RDMA_WRITE, (flightMax + 300) * MTU, SIGNALED);
    for (let arrived = 40; arrived <= flightMax + 40; arrived += 40) {
      wire.takePackets();
      wire.clock.advance(50);
      report(wire, 'ack', first + arrived);
    }
    wire.takePackets();
    const { psnArrived } = structOf(wire);
    assert.ok(psnArrived - first >= flightMax, `${psnArrived - first}`);
    report(wire, 'ack', psnArrived, 9);
    report(wire, 'nak', first);
    const [millis, statuses] = millisToEnd(wire);
    assert.equal(statuses, ['RETRY_EXC_ERR']);
    assert.ok(millis < 10_000, `${millis} ms`);
  }));

test('an ATOMIC WRITE that is repeated without its memory fails, and so do those behind it', () => {
  const attributes = { ...OPTIONS.attributes, maxRdAtomic: 1 };
  return onWire({ ...OPTIONS, attributes }, (wire) => {
    roundTrip(wire, 100);
    const word = wire.context.alloc(64);
    const mr = wire.pd.regMr(word, FULL_ACCESS);
    const sgList = [{ addr: mr.addr, length: 8, lkey: mr.lkey }];
    wire.post(WrOpcode.ATOMIC_WRITE, 8, { ...SIGNALED, wrId: 7, sgList });
    assert.is(wire.takePackets().length, 1);
    mr.dereg();
    wire.post(WrOpcode.RDMA_WRITE, MTU, { ...SIGNALED, wrId: 8 });
    wire.clock.advance(500_000);
    assert.equal(wire.completions(), ['7 LOC_PROT_ERR', '8 WR_FLUSH_ERR']);
    assert.is(structOf(wire).state, QpState.ERR);
  });
});

test('a request that is repeated without its memory takes the READs behind it out of flight', () =>
  onWire({ ...OPTIONS, reorderPackets: 64 }, (wire) => {
    const first = roundTrip(wire, 100);
    const source = wire.context.alloc(MTU);
    const mr = wire.pd.regMr(source, FULL_ACCESS);
    const read = (wrId: number, packets: number): void =>
      wire.post(WrOpcode.RDMA_READ, packets * MTU, { ...SIGNALED, wrId });
    read(1, 1);
    const sgList = [{ addr: mr.addr, length: MTU, lkey: mr.lkey }];
    wire.post(WrOpcode.RDMA_WRITE, MTU, { ...SIGNALED, wrId: 2, sgList });
    read(3, 4);
    assert.is(wire.takePackets().length, 3);
    mr.dereg();
    wire.clock.advance(300);
    report(wire, 'nak', first, 1);
    wire.takePackets();
    // The WRITE was only late: the peer has executed it, and answers what is behind it.
    wire.sendPacket({ opcode: RC_RDMA_READ_RESPONSE_ONLY - 3, psn: first + 2 }, pattern(MTU));
    const { flightNoted, psnNext, psnArrived } = structOf(wire);
    assert.ok(flightNoted <= ((psnNext - psnArrived) & 0xffffff), `${flightNoted} in flight`);
    const syndrome = NO_CREDITS;
    wire.sendPacket({ opcode: RC_RDMA_READ_RESPONSE_ONLY, psn: first, syndrome }, pattern(MTU));
    const [millis] = millisToEnd(wire);
    assert.ok(millis < 10_000, `${millis} ms`);
  }));

test('a request for data that SQD leaves without a place fails', () =>
  onWire({ ...OPTIONS, attributes: { ...OPTIONS.attributes, maxRdAtomic: 1 } }, (wire) => {
    roundTrip(wire, 100);
    for (const wrId of [1, 2, 3]) wire.post(WrOpcode.RDMA_READ, MTU, { wrId, ...SIGNALED });
    const [{ psn } = { psn: 0 }] = wire.takePackets();
    wire.qp.modify({ qpState: QpState.SQD });
    const syndrome = NO_CREDITS;
    wire.sendPacket({ opcode: RC_RDMA_READ_RESPONSE_ONLY, psn, syndrome }, pattern(MTU));
    wire.qp.modify({ qpState: QpState.SQD, maxRdAtomic: 0 });
    wire.qp.modify({ qpState: QpState.RTS });
    wire.clock.advance(1000);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 LOC_QP_OP_ERR', '3 WR_FLUSH_ERR']);
  }));

for (const timeout of [29, 30, 31]) {
  test(`a silent peer ends a request with timeout ${timeout}, too`, () =>
    onWire({ ...OPTIONS, attributes: { timeout, retryCnt: 0 } }, (wire) => {
      wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
      for (let minutes = 0; minutes < 200; minutes++) wire.clock.advance(60e6);
      assert.equal(wire.statuses(), ['RETRY_EXC_ERR']);
    }));
}

test.run();
