/**
 * Delayed ACKs between peers of our implementation: without a completion that depends on it, the
 * requester sets no ACK request, and the responder answers within a bound. Nothing gets lost by it.
 */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { Mtu, QpState, SendFlag, WrOpcode } from '../../host/index.js';
import { makePair, type Side } from '../support/pair.js';
import { Wire, onWire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const OWN_KIND = { reorderPackets: 64 };
const test = testsOnWire(OWN_KIND);
const SIGNALED = { sendFlags: SendFlag.SIGNALED };
/** The bound of a delayed ACK in microseconds (responder/delayed-ack.ts), and the wheel's tick. */
const DELAYED_ACK_MICROS = 500 + 16;

/** The first packet to a peer always requests an acknowledgement. */
function meet(wire: Wire): number {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  const { psn, ackRequest } = wire.takePacket()!;
  assert.is(ackRequest, 1, 'the first packet asks');
  wire.clock.advance(100);
  wire.acknowledge(psn);
  return psn + 1;
}

/** The ACK request bit of each packet that was sent. */
function asks(wire: Wire): number[] {
  return wire.takePackets().map(({ ackRequest }) => ackRequest);
}

test('an unsignaled message requests no acknowledgement', (wire) => {
  meet(wire);
  wire.post(WrOpcode.SEND, 8);
  wire.post(WrOpcode.RDMA_WRITE, 3000);
  assert.equal(asks(wire), [0, 0, 0, 0]);
});

test('a signaled message requests an acknowledgement, and so does the last of a list', (wire) => {
  meet(wire);
  wire.post(WrOpcode.SEND, 8, SIGNALED);
  assert.equal(asks(wire), [1]);
  wire.qp.postSend([
    { opcode: WrOpcode.SEND, sgList: wire.sge(0, 8), ...SIGNALED },
    { opcode: WrOpcode.SEND, sgList: wire.sge(0, 8) },
  ]);
  assert.equal(asks(wire), [0, 1]);
});

test('a queue pair with sqSigAll requests an acknowledgement for each message', () =>
  onWire({ ...OWN_KIND, qp: { sqSigAll: true, cap: { reorderPackets: 64 } } }, (wire) => {
    meet(wire);
    wire.post(WrOpcode.SEND, 8);
    assert.equal(asks(wire), [1]);
  }));

test.with({})('a peer of another implementation gets an ACK request with each message', (wire) => {
  meet(wire);
  wire.post(WrOpcode.SEND, 8);
  assert.equal(asks(wire), [1]);
});

test('when half of the send queue is unacknowledged, messages request acknowledgements', () =>
  onWire({ reorderPackets: 64, qp: { cap: { maxSendWr: 4, reorderPackets: 64 } } }, (wire) => {
    meet(wire);
    const found: number[] = [];
    for (let sent = 0; sent < 4; sent++) {
      wire.post(WrOpcode.SEND, 8);
      found.push(...asks(wire));
    }
    assert.equal(found, [0, 0, 1, 1]);
  }));

for (const [size, packets, windowBytes] of [
  [8, 20, 65_536],
  [1024, 8, 65_536],
  [4096, 2, 65_536],
  [4096, 6, 200_000],
] as const) {
  test(`${packets} messages of ${size} bytes fill a quarter of ${windowBytes}, and the last asks`, () => {
    const device = { windowBytes };
    const cap = { maxSendWr: 128, reorderPackets: 64 };
    return onWire({ ...OWN_KIND, device, qp: { cap }, mtu: Mtu.MTU_4096 }, (wire) => {
      const psn = meet(wire);
      const message = { opcode: WrOpcode.SEND, sgList: wire.sge(0, size) };
      wire.qp.postSend(Array.from({ length: packets + 1 }, () => message));
      const first = [...Array.from({ length: packets - 1 }, () => 0), 1];
      assert.equal(asks(wire).slice(0, packets), first);
      wire.acknowledge(psn + packets);
      wire.qp.postSend(Array.from({ length: packets + 1 }, () => message));
      // The last one of the list before counts.
      assert.equal(asks(wire).slice(0, packets), [...first.slice(1), 0]);
    });
  });
}

for (const windowBytes of [65_536, 2 ** 19]) {
  test(`after a retransmission each message counts as a full packet of ${windowBytes} bytes`, () => {
    const cap = { maxSendWr: 128, reorderPackets: 64 };
    const options = { ...OWN_KIND, device: { windowBytes }, qp: { cap }, mtu: Mtu.MTU_4096 };
    return onWire(options, (wire) => {
      meet(wire);
      wire.post(WrOpcode.SEND, 8);
      wire.takePackets();
      while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
      const { psn } = wire.takePacket()!;
      wire.acknowledge(psn);
      const message = { opcode: WrOpcode.SEND, sgList: wire.sge(0, 8) };
      wire.qp.postSend(Array.from({ length: 64 }, () => message));
      const every = Math.ceil(windowBytes / 4 / (256 + 8192));
      const found = asks(wire);
      const first = found.indexOf(1) + 1;
      assert.is(first, every - 1);
      assert.ok(
        found.slice(first, 32).every((ask, index) => ask === Number((index + 1) % every === 0)),
      );
    });
  });
}

test('SQD retransmits an unacknowledged message with an ACK request', (wire) => {
  const psn = meet(wire);
  wire.post(WrOpcode.SEND, 8);
  assert.equal(asks(wire), [0]);
  wire.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
  wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn, ackRequest: 1 });
  wire.acknowledge(psn);
  assert.ok(wire.events.includes('SQ_DRAINED'), String(wire.events));
});

test('an unacknowledged message without an ACK request is retransmitted with one', (wire) => {
  const psn = meet(wire);
  wire.post(WrOpcode.SEND, 8);
  assert.equal(asks(wire), [0]);
  while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
  wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn, ackRequest: 1 });
});

test('after a retransmission every message requests an acknowledgement', (wire) => {
  meet(wire);
  wire.post(WrOpcode.SEND, 8);
  wire.takePackets();
  while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
  wire.takePackets();
  wire.post(WrOpcode.SEND, 8);
  assert.equal(asks(wire), [1]);
});

test('255 acknowledgements after the loss messages request none again', (wire) => {
  meet(wire);
  wire.post(WrOpcode.SEND, 8);
  wire.takePackets();
  while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
  wire.acknowledge(wire.takePacket()!.psn);
  const found: number[] = [];
  for (let sent = 0; sent < 256; sent++) {
    wire.post(WrOpcode.SEND, 8);
    const { psn, ackRequest } = wire.takePacket()!;
    found.push(ackRequest);
    wire.acknowledge(psn);
    wire.cq.poll(1);
  }
  assert.is(found.indexOf(0), 254, 'the first acknowledgement was that of the lost packet');
});

test('a responder acknowledges unrequested messages within half a millisecond, all at once', (wire) => {
  for (let wrId = 0; wrId < 3; wrId++) wire.receive(wrId);
  for (let psn = 0x200; psn < 0x203; psn++) {
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn }, 8);
    wire.expectSilence('no acknowledgement was requested');
  }
  const start = wire.clock.now();
  while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
  assert.ok(wire.clock.now() - start <= DELAYED_ACK_MICROS, `${wire.clock.now() - start} us`);
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x202 });
  wire.expectSilence();
});

test('over a paced link the delay is ten times as long', () =>
  onWire({ ...OWN_KIND, paced: true }, (wire) => {
    wire.receive(0);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
    wire.clock.advance(9 * DELAYED_ACK_MICROS);
    wire.expectSilence('there is time');
    wire.clock.advance(DELAYED_ACK_MICROS);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
  }));

test('what was acknowledged with something else is not acknowledged again', (wire) => {
  for (let wrId = 0; wrId < 2; wrId++) wire.receive(wrId);
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x201, ackRequest: 1 }, 8);
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x201 });
  while (wire.clock.step());
  wire.expectSilence();
});

test('nothing is owed to a peer of another kind, which asks when it wants to know', () =>
  onWire({}, (wire) => {
    wire.receive(0);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
    while (wire.clock.step());
    wire.expectSilence();
  }));

test('a queue pair that ends owes nothing, and those beside it still do', (wire) => {
  const others = [0, 1].map(() => {
    const cap = OWN_KIND;
    const qp = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, cap });
    wire.connect(OWN_KIND, qp);
    return qp;
  });
  const all = [others[0]!, wire.qp, others[1]!];
  for (const qp of all) {
    qp.postRecv({ sgList: wire.sge(0, 64) });
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200, targetQp: qp.qpNum }, 8);
  }
  wire.qp.modify({ qpState: QpState.RESET });
  others[1]!.destroy();
  while (wire.clock.step());
  assert.is(wire.takePackets().length, 1, 'one is left');
});

/** `count` SENDs to and fro; how many packets both sides sent. */
async function pingPong(signaled: boolean, count: number): Promise<number> {
  const pair = await makePair({ reorderPackets: 64 });
  const sides: Side[] = [pair.a, pair.b];
  const send = (side: Side, flags: number): void => {
    const sgList = [{ addr: side.mr.addr, length: 8, lkey: side.mr.lkey }];
    side.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: flags, sgList });
  };
  const turn = (from: Side, to: Side, flags: number): void => {
    to.qp.postRecv({ sgList: [{ addr: to.mr.addr, length: 8, lkey: to.mr.lkey }] });
    send(from, flags);
    pair.settle();
    pair.clock.advance(10);
    to.cq.poll(16);
    from.cq.poll(16);
  };
  const sent = (): number =>
    sides.reduce((sum, { context }) => sum + Number(context.counters().sentPkts), 0);
  for (const warm of [0, 1]) turn(sides[warm]!, sides[1 - warm]!, SendFlag.SIGNALED);
  const before = sent();
  for (let trip = 0; trip < count; trip++) {
    for (const from of [0, 1])
      turn(sides[from]!, sides[1 - from]!, signaled ? SendFlag.SIGNALED : 0);
  }
  const packets = sent() - before;
  await pair.close();
  return packets;
}

test('messages to and fro travel without acknowledgements beside them', async () => {
  assert.is(await pingPong(true, 20), 80, 'each one asked for');
  const packets = await pingPong(false, 20);
  assert.ok(packets >= 40 && packets <= 44, `${packets} packets for 40 messages`);
});

test('a queue pair in ERR owes no acknowledgement any more', (wire) => {
  wire.receive(1);
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
  wire.qp.modify({ qpState: QpState.ERR });
  wire.clock.advance(2 * DELAYED_ACK_MICROS);
  wire.expectSilence();
});

test.run();
