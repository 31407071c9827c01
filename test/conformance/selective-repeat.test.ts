/** Selective repeat between peers of our own kind: both halves, against a peer made by hand. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode, PeerState } from '#build/abi.js';
import { lookFor } from '../../host/cm/keep-alive.js';
import { Mtu, SendFlag, WrOpcode } from '../../host/index.js';
import { onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const MTU = 256;
const OPTIONS = { reorderPackets: 8, mtu: Mtu.MTU_256, attributes: { timeout: 14 } };
const test = testsOnWire(OPTIONS);
/** First PSNs of the device's requests and of the test's. */
const OURS = 0x100;
const THEIRS = 0x200;

/** Packet `index` of a WRITE of `count` whole packets from the peer. */
function write(wire: Wire, index: number, count: number): Uint8Array {
  const psn = THEIRS + index;
  const payload = pattern(MTU, index + 1);
  if (index === 0) {
    const reth = wire.reth(0, count * MTU);
    return wire.packet({ opcode: Opcode.RC_RDMA_WRITE_FIRST, psn, ...reth }, payload);
  }
  const last = index === count - 1;
  const opcode = last ? Opcode.RC_RDMA_WRITE_LAST : Opcode.RC_RDMA_WRITE_MIDDLE;
  return wire.packet({ opcode, psn, ackRequest: last ? 1 : 0 }, payload);
}

function selectiveAck(wire: Wire, psn: number, ...ahead: readonly number[]): void {
  const low = ahead.reduce((map, bit) => map | (1n << BigInt(bit)), 0n);
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  wire.sendPacket({ opcode, psn, syndrome: NakCode.PSN_SEQUENCE_ERROR, aheadLow: low });
}

function psns(wire: Wire): number[] {
  return wire.takePackets().map(({ psn }) => psn - OURS);
}

/** Eight packets under way, none acknowledged. */
function sendEight(wire: Wire): void {
  wire.post(WrOpcode.RDMA_WRITE, 8 * MTU, SIGNALED);
  assert.equal(psns(wire), [0, 1, 2, 3, 4, 5, 6, 7]);
}

test('packets ahead of a gap are kept and named; once the gap is closed they are complete', (wire) => {
  wire.deliver([0, 2, 3, 4].map((index) => write(wire, index, 6)));
  wire.expectPacket({
    opcode: Opcode.MSP_SELECTIVE_ACKNOWLEDGE,
    psn: THEIRS + 1,
    aheadLow: 0b111n,
  });
  wire.expectSilence();
  wire.deliver([1, 5].map((index) => write(wire, index, 6)));
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: THEIRS + 5 });
  const whole = [1, 2, 3, 4, 5, 6].flatMap((seed) => [...pattern(MTU, seed)]);
  assert.equal([...wire.buffer.subarray(0, 6 * MTU)], whole);
});

test('a map names nothing beyond the last packet that is kept, whatever the size of its ring', () =>
  onWire({ ...OPTIONS, reorderPackets: 64 }, (wire) => {
    wire.deliver([0, 2, 3, 4].map((index) => write(wire, index, 6)));
    const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
    wire.expectPacket({ opcode, psn: THEIRS + 1, aheadLow: 0b111n, aheadHigh: 0n });
  }));

test('a packet beyond the room displaces no kept packet', (wire) => {
  // 2 and 10 would lie in the same place: 8 are kept.
  wire.deliver([0, 2, 10].map((index) => write(wire, index, 12)));
  wire.expectPacket({ opcode: Opcode.MSP_SELECTIVE_ACKNOWLEDGE, aheadLow: 0b1n });
  wire.deliver([1, 3].map((index) => write(wire, index, 12)));
  for (const index of [4, 5, 6, 7, 8, 9, 10, 11]) wire.deliver(write(wire, index, 12));
  wire.takePackets();
  const whole = Array.from({ length: 12 }, (_, index) => [...pattern(MTU, index + 1)]).flat();
  assert.equal([...wire.buffer.subarray(0, 12 * MTU)], whole);
});

test('a map about packets that were withdrawn leads to no PSN that was never sent', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 40 * MTU, SIGNALED);
  const sent = psns(wire);
  assert.is(sent.at(-1), 39);
  // The peer keeps eight packets: what is beyond is sent anew.
  selectiveAck(wire, OURS, 0);
  wire.takePackets();
  selectiveAck(wire, OURS + 38, 0);
  wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
  wire.clock.advance(100_000);
  const later = psns(wire);
  assert.ok(later.length > 0 && later.every((psn) => psn <= 40), `${Math.max(...later)}`);
});

test('packets that a map reports missing are retransmitted, and no others', (wire) => {
  sendEight(wire);
  // 1 is missing; 2, 3 and 5 are there: 4 is missing, too.
  selectiveAck(wire, OURS + 1, 0, 1, 3);
  assert.equal(psns(wire), [1, 4]);
});

test('a gap that is reported twice is retransmitted once', (wire) => {
  sendEight(wire);
  selectiveAck(wire, OURS + 1, 0, 1);
  assert.equal(psns(wire), [1]);
  selectiveAck(wire, OURS + 1, 0, 1, 2);
  selectiveAck(wire, OURS + 1, 0, 1, 2, 3);
  assert.equal(psns(wire), []);
  // A packet sent after the retransmission has arrived, and the gap is still there: it was lost
  // again.
  wire.clock.advance(10);
  wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
  wire.acknowledge(OURS);
  assert.equal(psns(wire), [8]);
  selectiveAck(wire, OURS + 1, 0, 1, 2, 3, 4, 5, 6);
  assert.equal(psns(wire), [1]);
});

test('a map that names packets that were never sent changes nothing', (wire) => {
  sendEight(wire);
  const counted = wire.counted(() => selectiveAck(wire, OURS + 1, 0, 6));
  assert.equal(psns(wire), [], 'packet 8 was not sent');
  assert.is(counted['rcvdSeqErr'], undefined);
  selectiveAck(wire, OURS + 1, 0, 5);
  assert.equal(psns(wire), [1, 3, 4, 5, 6]);
});

test('a READ that was kept, and is one too many since the peer cut another one in two, is sent again', () =>
  onWire({ ...OPTIONS, attributes: { maxDestRdAtomic: 2 } }, (wire) => {
    const read = (index: number, count: number): Uint8Array =>
      wire.packet({
        opcode: Opcode.RC_RDMA_READ_REQUEST,
        psn: THEIRS + index,
        ...wire.reth(0, count * MTU),
      });
    wire.deliver(read(4, 1));
    wire.takePackets();
    wire.deliver([read(0, 2), read(2, 2)]);
    const answers = wire.takePackets().filter(({ opcode }) => opcode !== Opcode.RC_ACKNOWLEDGE);
    assert.equal(
      answers.map(({ psn }) => psn - THEIRS),
      [0, 1, 2, 3],
    );
    wire.deliver(read(4, 1));
    wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: THEIRS + 4 });
  }));

/** A WRITE of one packet that is acknowledged after so long. */
function roundTrip(wire: Wire, micros: number): void {
  wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
  const [packet] = wire.takePackets();
  wire.clock.advance(micros);
  wire.acknowledge(packet!.psn);
}

function answerRead(wire: Wire, psn: number): void {
  wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn, syndrome: 0x1f }, MTU);
}

/** A READ of one packet that is answered after so long. */
function read(wire: Wire, micros: number): void {
  wire.post(WrOpcode.RDMA_READ, MTU, SIGNALED);
  const { psn } = wire.takePackets()[0]!;
  wire.clock.advance(micros);
  answerRead(wire, psn);
}

/** A READ whose first request gets lost. */
function readLost(wire: Wire): void {
  wire.post(WrOpcode.RDMA_READ, MTU, SIGNALED);
  const { psn } = wire.takePackets()[0]!;
  wire.clock.advance(21_000);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn });
  answerRead(wire, psn);
}

test('without earlier losses a READ is retried after 20 ms only: its peer may lack a processor', (wire) => {
  read(wire, 100);
  wire.post(WrOpcode.RDMA_READ, MTU, SIGNALED);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 1 });
  wire.clock.advance(20_000);
  wire.expectSilence('two round trips and twenty milliseconds are not over');
  const counted = wire.counted(() => wire.clock.advance(1000));
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 1 });
  assert.is(counted['timeouts'], undefined, 'no retry was used up');
});

test('a second response to a retried READ shows that nothing was lost', (wire) => {
  read(wire, 100);
  readLost(wire);
  answerRead(wire, OURS + 1);
  wire.post(WrOpcode.RDMA_READ, MTU, SIGNALED);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 2 });
  wire.clock.advance(20_000);
  wire.expectSilence();
});

test('so does a second acknowledgement', (wire) => {
  roundTrip(wire, 100);
  wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
  wire.takePackets();
  wire.clock.advance(21_000);
  assert.equal(psns(wire), [1]);
  wire.acknowledge(OURS + 1);
  wire.acknowledge(OURS + 1);
  wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
  wire.takePackets();
  wire.clock.advance(20_000);
  wire.expectSilence();
});

test('after a loss a READ is retried soon after two round trips', (wire) => {
  read(wire, 100);
  readLost(wire);
  wire.post(WrOpcode.RDMA_READ, MTU, SIGNALED);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 2 });
  wire.clock.advance(1000);
  wire.expectSilence('two round trips and a millisecond are not over');
  const counted = wire.counted(() => wire.clock.advance(1500));
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 2 });
  assert.is(counted['timeouts'], undefined, 'no retry was used up');
  // Each delay is twice as long as the one before.
  wire.clock.advance(800);
  wire.expectSilence();
  wire.clock.advance(1500);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: OURS + 1 }); // path-mtu.test.ts
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 2 });
  // The timeout comes in the end.
  const late = wire.counted(() => wire.clock.advance(200_000));
  assert.ok((late['timeouts'] ?? 0) > 0);
});

test('the acknowledgement of a probe is no second answer to a repetition, whatever its PSN', () =>
  onWire({ ...OPTIONS, ownKind: true, sendPsn: 0xfffffe }, (wire) => {
    const after = (micros: number): number => {
      wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
      const { psn } = wire.takePackets()[0]!;
      wire.clock.advance(micros);
      wire.takePackets();
      wire.acknowledge(psn);
      return psn;
    };
    after(100);
    after(21_000);
    assert.is(after(100), 0);
    while (lookFor(wire.qp) !== PeerState.SILENT) wire.expectSilence();
    wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0, dmaLength: 0 });
    wire.acknowledge(0);
    wire.post(WrOpcode.RDMA_READ, MTU, SIGNALED);
    wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1 });
    wire.clock.advance(19_000);
    wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1 });
  }));

test('after a partial response the rest of a READ is requested', (wire) => {
  read(wire, 100);
  wire.post(WrOpcode.RDMA_READ, 4 * MTU, SIGNALED);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 1, dmaLength: 4 * MTU });
  const first = Opcode.RC_RDMA_READ_RESPONSE_FIRST;
  wire.sendPacket({ opcode: first, psn: OURS + 1, syndrome: 0x1f }, MTU);
  wire.clock.advance(21_000);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: OURS + 2, dmaLength: 3 * MTU });
  const last = Opcode.RC_RDMA_READ_RESPONSE_LAST;
  wire.sendPacket({ opcode: first, psn: OURS + 2, syndrome: 0x1f }, MTU);
  wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_MIDDLE, psn: OURS + 3 }, MTU);
  wire.sendPacket({ opcode: last, psn: OURS + 4, syndrome: 0x1f }, MTU);
  assert.equal(wire.statuses(), ['SUCCESS', 'SUCCESS']);
});

test('a peer that does not keep what came ahead has the whole timeout to answer a READ', () =>
  onWire({ mtu: Mtu.MTU_256, attributes: { timeout: 14 } }, (wire) => {
    read(wire, 100);
    wire.post(WrOpcode.RDMA_READ, MTU, SIGNALED);
    wire.takePackets();
    wire.clock.advance(21_000);
    wire.expectSilence();
  }));

test('of a window that was lost as a whole two packets are waited for, and not each of them', (wire) => {
  roundTrip(wire, 100);
  wire.post(WrOpcode.RDMA_WRITE, 8 * MTU, SIGNALED);
  assert.equal(psns(wire), [1, 2, 3, 4, 5, 6, 7, 8]);
  wire.clock.advance(21_000);
  assert.equal(psns(wire), [1]);
  wire.acknowledge(OURS + 1);
  assert.equal(psns(wire), [], 'the peer may be slow, and have the others');
  wire.clock.advance(1500);
  assert.equal(psns(wire), [2]);
  wire.acknowledge(OURS + 2);
  // Round trips tell of no queue: the link has lost them, and the window stays.
  assert.equal(psns(wire), [3, 4, 5, 6, 7, 8], 'it would have said so by now');
});

test('so it is where a busy machine has made round trips seem longer than they are', (wire) => {
  roundTrip(wire, 400);
  roundTrip(wire, 15_000);
  wire.post(WrOpcode.RDMA_WRITE, 8 * MTU, SIGNALED);
  // The PSNs before it are those of keep-alive probes (path-mtu.test.ts).
  const sent = (): number[] => psns(wire).filter((psn) => psn > 1);
  assert.equal(sent(), [2, 3, 4, 5, 6, 7, 8, 9]);
  for (const psn of [2, 3]) {
    let repeated: number[] = [];
    for (let waits = 0; waits < 1000 && repeated.length === 0; waits++) {
      wire.clock.advance(100);
      repeated = sent();
    }
    assert.equal(repeated, [psn]);
    wire.clock.advance(200);
    wire.acknowledge(OURS + psn);
  }
  const rest: number[] = [];
  for (let next = sent(); next.length > 0; next = sent()) {
    rest.push(...next);
    wire.acknowledge(OURS + next.at(-1)!);
  }
  assert.equal(rest, [4, 5, 6, 7, 8, 9], 'the peer has answered two, and nothing before them');
});

test('a slow peer gets nothing twice but probes', (wire) => {
  roundTrip(wire, 100);
  wire.post(WrOpcode.RDMA_WRITE, 8 * MTU, SIGNALED);
  wire.takePackets();
  wire.clock.advance(21_000);
  assert.equal(psns(wire), [1]);
  wire.acknowledge(OURS + 1);
  wire.acknowledge(OURS + 5);
  wire.clock.advance(1500);
  assert.equal(psns(wire), [], 'its answers take 21 ms');
  wire.clock.advance(150_000);
  // The PSN before it is that of a keep-alive probe (path-mtu.test.ts).
  assert.equal(new Set(psns(wire)), new Set([6, 5]));
  wire.acknowledge(OURS + 8);
  assert.equal(psns(wire), []);
});

const ACKNOWLEDGE = Opcode.RC_ACKNOWLEDGE;

test('an acknowledgement reports a packet that has arrived twice, once', (wire) => {
  wire.deliver([0, 1].map((index) => write(wire, index, 3)));
  wire.deliver(write(wire, 1, 3));
  wire.expectPacket({ opcode: ACKNOWLEDGE, psn: THEIRS + 1, ackRequest: 1 });
  wire.deliver(write(wire, 2, 3));
  wire.expectPacket({ opcode: ACKNOWLEDGE, psn: THEIRS + 2, ackRequest: 0 });
});

test('so does a selective acknowledgement of a packet that is kept ahead and arrives again', (wire) => {
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  wire.deliver([0, 4].map((index) => write(wire, index, 6)));
  wire.expectPacket({ opcode, ackRequest: 0 });
  wire.deliver(write(wire, 4, 6));
  wire.expectPacket({ opcode, ackRequest: 1 });
});

test('it does not to a peer of another kind, for which the bit means nothing', () =>
  onWire({ ...OPTIONS, reorderPackets: 0 }, (wire) => {
    wire.deliver([0, 1].map((index) => write(wire, index, 3)));
    wire.deliver(write(wire, 1, 3));
    wire.expectPacket({ opcode: ACKNOWLEDGE, psn: THEIRS + 1, ackRequest: 0 });
  }));

/** Packet `first` is overtaken by two, and arrives 150 us later. Was it sent again meanwhile? */
function lateOnce(wire: Wire): boolean {
  wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
  const first = wire.takePackets()[0]!.psn;
  wire.clock.advance(100);
  selectiveAck(wire, first, 1, 2);
  wire.clock.advance(150);
  const again = wire.takePackets().some(({ psn }) => psn === first);
  const reports = again ? { ackRequest: 1 } : {};
  wire.sendPacket({ opcode: ACKNOWLEDGE, psn: first + 3, syndrome: 0x1f, ...reports });
  wire.takePackets();
  return again;
}

test('where retransmissions were needless, later packets wait until they are as late', (wire) => {
  roundTrip(wire, 100);
  const again = Array.from({ length: 8 }, () => lateOnce(wire));
  assert.ok(again[0]);
  assert.equal(again.slice(5), [false, false, false]);
});

/** How many packets go after a loss on a way where round trips have become long. */
function windowAfterLoss(wire: Wire): number {
  roundTrip(wire, 100);
  for (let trip = 0; trip < 40; trip++) roundTrip(wire, 900);
  wire.post(WrOpcode.RDMA_WRITE, 8 * MTU, SIGNALED);
  const first = wire.takePackets()[0]!.psn;
  selectiveAck(wire, first + 1, 0, 1);
  wire.takePackets();
  wire.acknowledge(first + 7);
  wire.post(WrOpcode.RDMA_WRITE, 8 * MTU, SIGNALED);
  const packets = wire.takePackets();
  for (let more = packets; more.length > 0; more = wire.takePackets()) {
    wire.acknowledge(more[more.length - 1]!.psn);
  }
  return packets.length;
}

test('where a queue overflows the window is cut', () =>
  onWire({ ...OPTIONS, device: { windowPackets: 8 } }, (wire) => {
    assert.ok(windowAfterLoss(wire) < 8);
  }));

test('it is not where the link slows down by itself', () =>
  onWire({ ...OPTIONS, device: { windowPackets: 8 }, paced: true }, (wire) => {
    assert.is(windowAfterLoss(wire), 8);
  }));

test('a packet ahead that differs in its header alone is forged, or the other one is', (wire) => {
  const genuine = write(wire, 2, 6);
  const forged = Uint8Array.from(genuine);
  forged[1]! ^= 0x80;
  wire.deliver([write(wire, 0, 6), genuine]);
  wire.deliver(wire.seal(forged));
  wire.takePackets();
  wire.deliver(write(wire, 1, 6));
  wire.takePackets();
  wire.deliver(write(wire, 5, 6));
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  wire.expectPacket({ opcode, psn: THEIRS + 2 });
});

for (const hours of [0.4, 0.7, 1.3]) {
  test(`so it is when the clock has run for ${hours} hours`, () =>
    onWire({ ...OPTIONS, device: { windowPackets: 8 } }, (wire) => {
      wire.clock.advance(hours * 3600e6);
      const first = windowAfterLoss(wire);
      const second = windowAfterLoss(wire);
      assert.ok(first < 8 && second < first, `${first}, ${second}`);
    }));
}

test('what is kept ahead is forgotten when a READ takes its PSN', (wire) => {
  // Forged: a WRITE with a PSN that the peer gives to a READ.
  wire.deliver(write(wire, 2, 8));
  const reth = wire.reth(0, 4 * MTU);
  wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: THEIRS, ...reth });
  wire.takePackets();
  wire.deliver(write(wire, 7, 9));
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  wire.expectPacket({ opcode, psn: THEIRS + 4, aheadLow: 0b100n });
});

test.run();
