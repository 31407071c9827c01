/** Selective repeat of READ responses: both halves, against a peer made by hand. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { Mtu, QpState, SendFlag, WrOpcode, type Sge } from '../../host/index.js';
import { testsOnWire } from '../support/tests-in.js';
import { onWire, pattern, type Wire } from '../support/wire.js';

const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const MTU = 256;
const OPTIONS = { reorderPackets: 64, mtu: Mtu.MTU_256, attributes: { timeout: 14 } };
const test = testsOnWire(OPTIONS);
/** First PSNs of the device's requests and of the test's. */
const OURS = 0x100;
const THEIRS = 0x200;
/** Where the test's memory begins (`Wire.post`). */
const REMOTE = 0x10000n;

const READ = Opcode.RC_RDMA_READ_REQUEST;
const MIDDLE = Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;
const NO_CREDITS = 0x1f;

/** A READ of `packets` packets, which is sent. */
function read(wire: Wire, packets: number, wrId = 1, sgList?: Sge[]): void {
  wire.post(WrOpcode.RDMA_READ, packets * MTU, {
    wrId,
    ...SIGNALED,
    ...(sgList ? { sgList } : {}),
  });
}

/** Response `index`, counted from the first PSN; its bytes depend on that. */
function answer(wire: Wire, ...indices: readonly number[]): void {
  for (const index of indices) {
    const psn = (OURS + index) & 0xffffff;
    wire.sendPacket({ opcode: MIDDLE, psn }, pattern(MTU, index + 1));
  }
}

/** Packets that the device sends: `first`, or `first x packets` of a READ. */
function sent(wire: Wire): string[] {
  return wire.takePackets().map(({ opcode, psn, dmaLength, virtualAddress }) => {
    const index = psn - OURS;
    if (opcode !== READ) return `${index}`;
    assert.is(virtualAddress, REMOTE + BigInt(index * MTU), 'address of the READ');
    return `${index} x ${dmaLength / MTU}`;
  });
}

function expectBytes(wire: Wire, packets: number, from = 0): void {
  for (let index = from; index < packets; index++) {
    const at = index * MTU;
    assert.equal([...wire.buffer.subarray(at, at + MTU)], [...pattern(MTU, index + 1)], `${index}`);
  }
}

test('a response that is lost is requested again, and those behind it are not', (wire) => {
  read(wire, 8);
  assert.equal(sent(wire), ['0 x 8']);
  answer(wire, 0, 1, 3);
  assert.equal(sent(wire), ['2 x 1']);
  answer(wire, 4, 5, 6, 7);
  assert.equal(sent(wire), []);
  assert.equal(wire.statuses(), []);
  answer(wire, 2);
  assert.equal(wire.statuses(), ['SUCCESS']);
  expectBytes(wire, 8);
});

test('responses that are lost side by side are one request, others are one more', (wire) => {
  read(wire, 10);
  sent(wire);
  answer(wire, 0, 4);
  assert.equal(sent(wire), ['1 x 3']);
  answer(wire, 5, 7);
  assert.equal(sent(wire), ['6 x 1']);
  answer(wire, 8, 9, 6, 1, 2);
  assert.equal(wire.statuses(), []);
  answer(wire, 3);
  assert.equal(wire.statuses(), ['SUCCESS']);
  expectBytes(wire, 10);
});

test('responses find their places in any order, in a list of pieces too', (wire) => {
  const at = (offset: number, length: number): Sge => wire.sge(offset, length)[0]!;
  read(wire, 4, 1, [at(0, 300), at(4096, 100), at(300, 624)]);
  sent(wire);
  answer(wire, 3, 1, 2, 0);
  assert.equal(wire.statuses(), ['SUCCESS']);
  const all = [0, 1, 2, 3].flatMap((index) => [...pattern(MTU, index + 1)]);
  const { buffer } = wire;
  const pieces = [buffer.subarray(0, 300), buffer.subarray(4096, 4196), buffer.subarray(300, 924)];
  assert.equal(
    pieces.flatMap((piece) => [...piece]),
    all,
  );
});

test('several READs complete in the order of their posting', (wire) => {
  for (const wrId of [1, 2, 3]) read(wire, 2, wrId, wire.sge((wrId - 1) * 2 * MTU, 2 * MTU));
  assert.is(wire.takePackets().length, 3);
  answer(wire, 0, 2, 3, 4, 5);
  assert.equal(wire.completions(), []);
  assert.is(wire.takePackets().length, 1);
  answer(wire, 1);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS']);
  expectBytes(wire, 6);
});

test('a WRITE behind a READ is acknowledged once, before the READ is complete', (wire) => {
  read(wire, 3);
  wire.post(WrOpcode.RDMA_WRITE, MTU, { wrId: 2, ...SIGNALED });
  assert.equal(sent(wire), ['0 x 3', '3']);
  answer(wire, 0, 2);
  wire.acknowledge(OURS + 3);
  assert.equal(wire.completions(), []);
  assert.equal(sent(wire), ['1 x 1']);
  answer(wire, 1);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  wire.clock.advance(200_000);
  wire.expectSilence();
});

test('an acknowledgement in place of a READ’s responses requests them again, and nothing else', (wire) => {
  read(wire, 3);
  wire.post(WrOpcode.RDMA_WRITE, MTU, { wrId: 2, ...SIGNALED });
  sent(wire);
  wire.acknowledge(OURS + 3);
  assert.equal(sent(wire), ['0 x 3']);
  answer(wire, 0, 1, 2);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
});

test('so does one after a NAK for the packet that is to be sent next', (wire) => {
  read(wire, 3);
  wire.post(WrOpcode.RDMA_WRITE, MTU, { wrId: 2, ...SIGNALED });
  sent(wire);
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  wire.sendPacket({ opcode, psn: OURS + 4, syndrome: 0x60, aheadLow: 0n });
  wire.expectSilence('the peer has all requests');
  wire.acknowledge(OURS + 3);
  assert.equal(sent(wire), ['0 x 3']);
  answer(wire, 0, 1, 2);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
});

test('the response of an atomic that is lost is requested again, with the same operands', (wire) => {
  wire.post(WrOpcode.ATOMIC_FETCH_AND_ADD, 8, {
    wrId: 1,
    ...SIGNALED,
    atomic: { remoteAddr: REMOTE, rkey: 0x77, compareAdd: 5n },
  });
  wire.post(WrOpcode.RDMA_WRITE, MTU, { wrId: 2, ...SIGNALED, sgList: wire.sge(4096, MTU) });
  const [first] = wire.takePackets();
  wire.acknowledge(OURS + 1);
  assert.equal(wire.expectPacket({ opcode: Opcode.RC_FETCH_ADD, psn: OURS }).bytes, first!.bytes);
  wire.expectSilence();
  const opcode = Opcode.RC_ATOMIC_ACKNOWLEDGE;
  wire.sendPacket({ opcode, psn: OURS, syndrome: NO_CREDITS, atomicOriginal: 7n } as never);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
});

test('a READ that the peer keeps behind a gap is not requested again', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, MTU, { wrId: 1, ...SIGNALED });
  read(wire, 4, 2);
  wire.post(WrOpcode.RDMA_WRITE, MTU, { wrId: 3, ...SIGNALED });
  assert.is(wire.takePackets().length, 3);
  // The first WRITE is missing; the READ and the other WRITE are kept.
  wire.sendPacket({
    opcode: Opcode.MSP_SELECTIVE_ACKNOWLEDGE,
    psn: OURS,
    syndrome: 0x60,
    aheadLow: 0b10001n,
  });
  assert.equal(
    wire.takePackets().map(({ psn }) => psn - OURS),
    [0],
  );
  wire.acknowledge(OURS);
  for (const index of [1, 2, 3, 4]) answer(wire, index);
  wire.acknowledge(OURS + 5);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS']);
  wire.expectSilence();
});

test('a request that is lost is repeated as it was', (wire) => {
  read(wire, 4);
  const [request] = wire.takePackets();
  read(wire, 4, 2, wire.sge(4 * MTU, 4 * MTU));
  wire.takePackets();
  // The peer keeps the second READ, and misses the first.
  wire.sendPacket({
    opcode: Opcode.MSP_SELECTIVE_ACKNOWLEDGE,
    psn: OURS,
    syndrome: 0x60,
    aheadLow: 0b1000n,
  });
  assert.equal(wire.takePackets()[0]!.bytes, request!.bytes);
});

/** Two READs; of the second one a response is late. It is requested again, in vain. */
function meetLateness(wire: Wire): void {
  read(wire, 1);
  wire.clock.advance(1000);
  answer(wire, 0);
  sent(wire);
  read(wire, 3, 2, wire.sge(MTU, 3 * MTU));
  wire.takePackets();
  wire.clock.advance(1000);
  answer(wire, 1, 3);
  assert.is(wire.takePackets().length, 1);
  wire.clock.advance(100);
  answer(wire, 2);
}

test('a response that is late is waited for once that is known of the path', (wire) => {
  meetLateness(wire);
  read(wire, 3, 3, wire.sge(4 * MTU, 3 * MTU));
  wire.takePackets();
  wire.clock.advance(1000);
  answer(wire, 4, 6);
  wire.expectSilence('it may be late');
  wire.clock.advance(100);
  answer(wire, 5);
  wire.expectSilence();
  assert.equal(wire.statuses(), ['SUCCESS', 'SUCCESS', 'SUCCESS']);
  // A response that is lost is requested again when that time has passed.
  read(wire, 3, 4, wire.sge(7 * MTU, 3 * MTU));
  wire.takePackets();
  wire.clock.advance(1000);
  answer(wire, 7, 9);
  wire.expectSilence();
  wire.clock.advance(300);
  wire.expectPacket({ opcode: READ, psn: OURS + 8, dmaLength: MTU });
});

test('a response that is late counts as in flight, also after a report of later arrivals', (wire) => {
  meetLateness(wire);
  read(wire, 3, 3, wire.sge(4 * MTU, 3 * MTU));
  wire.post(WrOpcode.RDMA_WRITE, MTU, { wrId: 4, ...SIGNALED });
  wire.takePackets();
  wire.clock.advance(1000);
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  wire.sendPacket({ opcode, psn: OURS + 8, syndrome: NO_CREDITS, aheadLow: 0n });
  assert.is(wire.qp.pathState()!.inFlightPackets, 0);
  wire.acknowledge(OURS + 7);
  wire.expectSilence('they may be late');
  assert.is(wire.qp.pathState()!.inFlightPackets, 3);
  answer(wire, 4, 5, 6);
  assert.equal(wire.statuses(), ['SUCCESS', 'SUCCESS', 'SUCCESS', 'SUCCESS']);
  assert.is(wire.qp.pathState()!.inFlightPackets, 0);
});

test('READs of one packet are under way together on a link with a small window', () =>
  onWire({ ...OPTIONS, device: { windowPackets: 64 } }, (wire) => {
    for (let wrId = 1; wrId <= 8; wrId++) read(wire, 1, wrId, wire.sge((wrId - 1) * MTU, MTU));
    assert.is(wire.takePackets().length, 8);
    answer(wire, 7, 6, 5, 4, 3, 2, 1, 0);
    assert.is(wire.completions().length, 8);
    expectBytes(wire, 8);
  }));

test('a response without the mark of the connection is not placed ahead', (wire) => {
  read(wire, 4);
  sent(wire);
  const { answerMark } = wire;
  for (const mark of [0, answerMark ^ 1]) {
    wire.answerMark = mark;
    wire.expectCounted({ dropGhost: 1 }, () => answer(wire, 2));
  }
  assert.equal([...wire.buffer.subarray(2 * MTU, 3 * MTU)], Array(MTU).fill(0));
  wire.expectSilence();
  wire.answerMark = answerMark;
  answer(wire, 0, 1, 2, 3);
  assert.equal(wire.statuses(), ['SUCCESS']);
  expectBytes(wire, 4);
});

test('the genuine response replaces a forged one that came before it', (wire) => {
  read(wire, 4);
  sent(wire);
  wire.sendPacket({ opcode: MIDDLE, psn: OURS + 2 }, pattern(MTU, 99));
  answer(wire, 0, 2, 1, 3);
  assert.equal(wire.statuses(), ['SUCCESS']);
  expectBytes(wire, 4);
});

test('a response of another length is not placed ahead, and ends no queue pair', (wire) => {
  read(wire, 4);
  sent(wire);
  for (const length of [0, 4, MTU - 4]) {
    wire.expectCounted({ dropGhost: 1 }, () =>
      wire.sendPacket({ opcode: MIDDLE, psn: OURS + 2 }, length),
    );
  }
  const opcode = Opcode.RC_ATOMIC_ACKNOWLEDGE;
  wire.expectCounted({ dropGhost: 1 }, () =>
    wire.sendPacket({ opcode, psn: OURS + 2, syndrome: NO_CREDITS }),
  );
  assert.is(wire.qp.state, QpState.RTS);
  answer(wire, 0, 1, 2, 3);
  expectBytes(wire, 4);
});

test('a response for what was not requested is dropped', (wire) => {
  read(wire, 2);
  wire.post(WrOpcode.RDMA_WRITE, MTU, { sgList: wire.sge(4096, MTU) });
  sent(wire);
  answer(wire, 2, 3, 600, -1);
  assert.equal([...wire.buffer], Array(wire.buffer.length).fill(0));
  answer(wire, 0, 1);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('a response ahead is not written with a key that is gone; its READ fails in its turn', (wire) => {
  const other = wire.pd.regMr(wire.context.alloc(4 * MTU), 1);
  const sgList = [{ addr: other.addr, length: 2 * MTU, lkey: other.lkey }];
  read(wire, 2, 1);
  read(wire, 2, 2, sgList);
  wire.takePackets();
  other.dereg();
  answer(wire, 1, 2, 3);
  assert.equal(wire.completions(), []);
  answer(wire, 0);
  assert.equal(wire.completions(), ['1 SUCCESS']);
  answer(wire, 2);
  assert.equal(wire.completions(), ['2 LOC_PROT_ERR']);
});

test('a FENCE waits for the response that is missing', (wire) => {
  read(wire, 3);
  wire.post(WrOpcode.RDMA_WRITE, MTU, { sendFlags: SendFlag.FENCE | SendFlag.SIGNALED });
  sent(wire);
  answer(wire, 0, 2);
  assert.equal(sent(wire), ['1 x 1']);
  answer(wire, 1);
  assert.equal(sent(wire), ['3']);
});

test('all this holds where PSNs begin anew', () =>
  onWire({ ...OPTIONS, sendPsn: 0xfffffd }, (wire) => {
    const respond = (...indices: number[]): void => {
      for (const index of indices) {
        const psn = (0xfffffd + index) & 0xffffff;
        wire.sendPacket({ opcode: MIDDLE, psn }, pattern(MTU, index + 1));
      }
    };
    read(wire, 8);
    wire.takePackets();
    respond(0, 1, 4, 5);
    wire.expectPacket({ opcode: READ, psn: 0xffffff, dmaLength: 2 * MTU });
    respond(7);
    wire.expectPacket({ opcode: READ, psn: 3, dmaLength: MTU });
    respond(6, 2, 3);
    assert.equal(wire.statuses(), ['SUCCESS']);
    expectBytes(wire, 8);
  }));

test('a repetition that is lost is repeated when one that was sent later is answered', (wire) => {
  read(wire, 3);
  sent(wire);
  wire.clock.advance(100);
  answer(wire, 0, 2);
  assert.equal(sent(wire), ['1 x 1']);
  wire.clock.advance(10);
  read(wire, 1, 2, wire.sge(3 * MTU, MTU));
  wire.takePackets();
  wire.clock.advance(100);
  answer(wire, 3);
  assert.equal(sent(wire), ['1 x 1']);
  answer(wire, 1);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
});

test('without anything behind it the last response is requested again by the timer', (wire) => {
  read(wire, 3);
  sent(wire);
  wire.clock.advance(100);
  answer(wire, 0, 1);
  wire.clock.advance(21_000);
  assert.equal(sent(wire), ['2 x 1']);
});

test('what is acknowledged twice while it waits to be sent again is sent again all the same', () =>
  onWire({ ...OPTIONS, device: { sendBuffers: 1 } }, (wire) => {
    read(wire, 3);
    wire.post(WrOpcode.RDMA_WRITE, 2 * MTU, { wrId: 2, ...SIGNALED });
    assert.equal(sent(wire), ['0 x 3', '3', '4']);
    // A slow socket has the one buffer, and the timeout withdraws all that is in flight.
    wire.link.holds = true;
    wire.qp.postSend({ opcode: WrOpcode.SEND, sgList: wire.sge(0, 8) });
    const { timeouts } = wire.context.counters();
    while (wire.context.counters().timeouts === timeouts) wire.clock.step();
    wire.takePackets();
    for (let time = 0; time < 2; time++) wire.acknowledge(OURS + 4, NO_CREDITS);
    wire.link.release();
    // Behind a probe (path-mtu.test.ts).
    assert.equal(sent(wire), ['-1', '0 x 3', '3']);
    answer(wire, 0, 1, 2);
    wire.acknowledge(OURS + 5, NO_CREDITS);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  }));

/** A READ request of the peer: `packets` from `index` on of one that begins at `first`. */
function request(wire: Wire, first: number, index: number, packets: number): Uint8Array {
  const reth = wire.reth(index * MTU, packets * MTU);
  return wire.packet({ opcode: READ, psn: THEIRS + first + index, ...reth });
}

function answered(wire: Wire): number[] {
  return wire.takePackets().map(({ psn }) => psn - THEIRS);
}

test('the responder answers part of a READ again, and all that it still has to send', (wire) => {
  wire.deliver(request(wire, 0, 0, 4));
  assert.equal(answered(wire), [0, 1, 2, 3]);
  wire.deliver([request(wire, 4, 0, 3), request(wire, 0, 1, 2), request(wire, 7, 0, 2)]);
  assert.equal(answered(wire), [4, 5, 6, 1, 2, 7, 8]);
});

test('what the responder is about to send is not sent twice', (wire) => {
  wire.deliver([request(wire, 0, 0, 4), request(wire, 0, 2, 1), request(wire, 0, 0, 4)]);
  assert.equal(answered(wire), [0, 1, 2, 3]);
});

test('the responder takes new READs while it repeats others', () =>
  onWire(
    { ...OPTIONS, attributes: { maxDestRdAtomic: 4, maxRdAtomic: 4 }, device: { rdAtomicMax: 4 } },
    (wire) => {
      wire.deliver([0, 1, 2, 3].map((at) => request(wire, 4 * at, 0, 4)));
      assert.is(answered(wire).length, 16);
      const again = [0, 1, 2, 3].map((at) => request(wire, 4 * at, 1, 1));
      const fresh = [4, 5, 6, 7].map((at) => request(wire, 4 * at, 0, 1));
      wire.deliver([...again, fresh[0]!]);
      // There is room for three repetitions beside four new ones.
      assert.equal(answered(wire), [1, 5, 9, 16]);
    },
  ));

test('responses carry the mark of the connection', (wire) => {
  wire.deliver(request(wire, 0, 0, 2));
  const marks = wire.takePackets().map(({ bytes }) => bytes[8]);
  assert.equal(marks, [wire.mark, wire.mark]);
});

test('a peer that does no selective repeat gets all from its gap on, in order', () =>
  onWire({ mtu: Mtu.MTU_256, attributes: { timeout: 14 } }, (wire) => {
    wire.deliver(request(wire, 0, 0, 4));
    assert.equal(answered(wire), [0, 1, 2, 3]);
    wire.deliver([request(wire, 4, 0, 3), request(wire, 0, 1, 3)]);
    assert.equal(answered(wire), [1, 2, 3]);
    read(wire, 4);
    wire.takePackets();
    answer(wire, 0, 2);
    assert.equal(sent(wire), ['1 x 3']);
  }));

test('what the responder is about to send again is not sent twice, from the middle of a READ on', (wire) => {
  wire.deliver(request(wire, 0, 0, 8));
  assert.equal(answered(wire), [0, 1, 2, 3, 4, 5, 6, 7]);
  wire.deliver([request(wire, 0, 4, 2), request(wire, 0, 1, 7)]);
  assert.equal(answered(wire), [4, 5, 1, 2, 3]);
});

test.run();
