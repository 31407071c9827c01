/** The first timers of a path: the round trip of a handshake seeds them until one is measured. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import { Mtu, SendFlag, WrOpcode } from '../../host/index.js';
import { testsOnWire } from '../support/tests-in.js';
import { onWire, type Wire } from '../support/wire.js';

const test = testsOnWire();

const OWN_KIND = { reorderPackets: 64, ownKind: true };
/** 67 ms, half a second. */
const SHORT = 14;
const LONG = 17;

/** Milliseconds until an unanswered packet is sent for the second time. */
function untilRepeated(wire: Wire): number {
  wire.post(WrOpcode.RDMA_WRITE, 8, { sendFlags: SendFlag.SIGNALED });
  wire.takePackets();
  for (let millis = 1; ; millis++) {
    wire.clock.advance(1000);
    if (wire.takePackets().length > 0) return millis;
    assert.ok(millis < 5000, 'it is sent again');
  }
}

test('a lost first packet is sent again after the timeout, with a seed after round trips', async () => {
  const attributes = { timeout: LONG };
  await onWire({ ...OWN_KIND, attributes }, (wire) => assert.is(untilRepeated(wire), 537));
  await onWire({ ...OWN_KIND, attributes }, (wire) => {
    wire.qp.seedRoundTrip(1500);
    const millis = untilRepeated(wire);
    assert.ok(millis >= 3 && millis < 30, `${millis} ms`);
  });
});

test('a timeout shorter than the seed is longer than the round trip', async () => {
  for (const reorderPackets of [0, 64]) {
    await onWire({ reorderPackets, attributes: { timeout: SHORT } }, (wire) => {
      wire.qp.seedRoundTrip(300_000);
      const millis = untilRepeated(wire);
      assert.ok(millis > 300 && millis <= 1200, `${millis} ms`);
    });
  }
});

test('the shortest of several handshakes counts, and none that took an application’s time', () =>
  onWire({ attributes: { timeout: SHORT } }, (wire) => {
    for (const millis of [0, 3001, 30, 500]) wire.qp.seedRoundTrip(millis * 1000);
    const millis = untilRepeated(wire);
    assert.ok(millis >= 120 && millis < 125, `${millis} ms`);
  }));

test('a path of two seconds is known by its handshake: nothing is sent again before', async () => {
  for (const [micros, least, most] of [
    [2_000_000, 4000, 4100],
    [3_000_001, 60, 75],
  ] as const) {
    await onWire({ ...OWN_KIND, attributes: { timeout: SHORT } }, (wire) => {
      wire.qp.seedRoundTrip(micros);
      const millis = untilRepeated(wire);
      assert.ok(millis >= least && millis < most, `${millis} ms`);
    });
  }
});

test('a repetition that was needless makes the next one later, though it measures nothing', () =>
  onWire({ ...OWN_KIND, attributes: { timeout: LONG } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 8, { sendFlags: SendFlag.SIGNALED });
    wire.takePackets();
    wire.clock.advance(1000);
    wire.acknowledge(0x100);
    // A queue has filled: from now on each round trip takes 80 ms.
    const delays = Array.from({ length: 6 }, (_, index) => {
      const millis = untilRepeated(wire);
      wire.clock.advance(Math.max(80 - millis, 1) * 1000);
      wire.takePackets();
      // The peer has received the packet, and its repetition.
      const packet = { opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x101 + index, syndrome: 0x1f };
      wire.sendPacket({ ...packet, ackRequest: 1 });
      return millis;
    });
    const last = delays.at(-1)!;
    assert.ok(delays[1]! < 10 && last > 60 && last < 200, `${delays} ms`);
    for (let index = 2; index < delays.length; index++) {
      assert.ok(delays[index]! >= delays[index - 1]!, `${delays} ms`);
    }
  }));

const MTU = 256;
const THREE = { ...OWN_KIND, mtu: Mtu.MTU_256, attributes: { timeout: LONG } };

/** The first WRITE is acknowledged after `micros`, the first round trip that is measured. */
function measure(wire: Wire, micros: number): void {
  wire.post(WrOpcode.RDMA_WRITE, 8, { sendFlags: SendFlag.SIGNALED });
  wire.takePackets();
  wire.clock.advance(micros);
  wire.acknowledge(0x100);
}

/**
 * Of the three packets of a WRITE two are lost, and the answer to the third. `micros` after the
 * first one was retransmitted a report names the third. Returns the time until the retransmission.
 */
function loseTwo(wire: Wire, psn: number, micros: number): number {
  wire.post(WrOpcode.RDMA_WRITE, 3 * MTU, { sendFlags: SendFlag.SIGNALED });
  assert.is(wire.takePackets().length, 3);
  let delay = 0;
  for (; delay < 600_000 && wire.takePackets().length === 0; delay++) wire.clock.advance(1);
  wire.clock.advance(micros);
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  wire.sendPacket({ opcode, psn, syndrome: NakCode.PSN_SEQUENCE_ERROR, aheadLow: 0b1n });
  return delay;
}

test('of a packet whose answer was lost no time before the retransmission is a round trip', () =>
  onWire(THREE, (wire) => {
    const roundTrip = 300;
    measure(wire, roundTrip);
    const delays = Array.from({ length: 60 }, (_, index) => {
      const psn = 0x101 + 3 * index;
      const delay = loseTwo(wire, psn, roundTrip);
      wire.clock.advance(2 * roundTrip);
      wire.takePackets();
      wire.acknowledge(psn + 2);
      return delay;
    });
    assert.is(wire.qp.pathState()!.roundTripMicros, roundTrip);
    assert.ok(Math.max(...delays.slice(1)) < 5000, `${delays} us`);
  }));

for (const [roundTrip, counted] of [
  [304, 1000],
  [2000, 4000],
] as const) {
  test(`an answer ahead of any round trip is of a longer path: ${counted} us count at most`, () =>
    onWire(THREE, (wire) => {
      measure(wire, roundTrip);
      loseTwo(wire, 0x101, roundTrip - 1);
      const { roundTripMicros, roundTripLeastMicros } = wire.qp.pathState()!;
      assert.is(roundTripMicros, roundTrip + (counted - roundTrip) / 8);
      assert.is(roundTripLeastMicros, roundTrip);
    }));
}

test('where no round trip is known, an answer after a retransmission counts as 1 ms', () =>
  onWire(THREE, (wire) => {
    loseTwo(wire, 0x100, 5);
    assert.is(wire.qp.pathState()!.roundTripMicros, 1000);
  }));

test('a measured round trip replaces the seed', () =>
  onWire({ attributes: { timeout: SHORT } }, (wire) => {
    wire.qp.seedRoundTrip(500_000);
    wire.post(WrOpcode.RDMA_WRITE, 8, { sendFlags: SendFlag.SIGNALED });
    wire.takePackets();
    wire.clock.advance(1000);
    wire.acknowledge(0x100);
    const state = wire.qp.pathState()!;
    assert.equal([state.roundTripMicros, state.roundTripLeastMicros], [1000, 1000]);
    assert.ok(untilRepeated(wire) < 70);
  }));

test.run();
