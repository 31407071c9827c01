/**
 * Acknowledgements between peers of our own kind where no completion depends on them: the requester
 * does not ask, the responder answers in its own time. And what keeps that from losing anything.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { QpState, SendFlag, WrOpcode } from '../../host/index.js';
import { makePair, type Side } from '../support/pair.js';
import { Wire, onWire } from '../support/wire.js';

const OWN_KIND = { reorderPackets: 64 };
const SIGNALED = { sendFlags: SendFlag.SIGNALED };
/** Microseconds that a responder takes at most (responder/delayed-ack.ts), and the wheel's tick. */
const OWED = 500 + 16;

/** The way to the peer becomes known: the first packet always asks. */
function meet(wire: Wire): number {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  const { psn, ackRequest } = wire.takePacket()!;
  assert.is(ackRequest, 1, 'the first packet asks');
  wire.clock.advance(100);
  wire.acknowledge(psn);
  return psn + 1;
}

/** Does what is sent ask for an acknowledgement? One entry a packet. */
function asks(wire: Wire): number[] {
  return wire.takePackets().map(({ ackRequest }) => ackRequest);
}

test(
  'a message whose completion nobody is told of does not ask for an acknowledgement',
  onWire(OWN_KIND, (wire) => {
    meet(wire);
    wire.post(WrOpcode.SEND, 8);
    wire.post(WrOpcode.RDMA_WRITE, 3000);
    assert.equal(asks(wire), [0, 0, 0, 0]);
  }),
);

test(
  'what is signaled asks, and so does what ends behind it',
  onWire(OWN_KIND, (wire) => {
    meet(wire);
    wire.post(WrOpcode.SEND, 8, SIGNALED);
    assert.equal(asks(wire), [1]);
    wire.qp.postSend([
      { opcode: WrOpcode.SEND, sgList: wire.sge(0, 8), ...SIGNALED },
      { opcode: WrOpcode.SEND, sgList: wire.sge(0, 8) },
    ]);
    assert.equal(asks(wire), [0, 1]);
  }),
);

test(
  'a queue pair that signals all asks each time',
  onWire({ ...OWN_KIND, qp: { sqSigAll: true, cap: { reorderPackets: 64 } } }, (wire) => {
    meet(wire);
    wire.post(WrOpcode.SEND, 8);
    assert.equal(asks(wire), [1]);
  }),
);

test(
  'a peer of another kind is asked each time',
  onWire({}, (wire) => {
    meet(wire);
    wire.post(WrOpcode.SEND, 8);
    assert.equal(asks(wire), [1]);
  }),
);

test(
  'half of a send queue that is not acknowledged asks',
  onWire({ reorderPackets: 64, qp: { cap: { maxSendWr: 4, reorderPackets: 64 } } }, (wire) => {
    meet(wire);
    const found: number[] = [];
    for (let sent = 0; sent < 4; sent++) {
      wire.post(WrOpcode.SEND, 8);
      found.push(...asks(wire));
    }
    assert.equal(found, [0, 0, 1, 1]);
  }),
);

test(
  'what must be complete before SQD is asked for, sent once more',
  onWire(OWN_KIND, (wire) => {
    const psn = meet(wire);
    wire.post(WrOpcode.SEND, 8);
    assert.equal(asks(wire), [0]);
    wire.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn, ackRequest: 1 });
    wire.acknowledge(psn);
    assert.ok(wire.events.includes('SQ_DRAINED'), String(wire.events));
  }),
);

test(
  'what nobody asked for and nobody acknowledges is repeated, and then asks',
  onWire(OWN_KIND, (wire) => {
    const psn = meet(wire);
    wire.post(WrOpcode.SEND, 8);
    assert.equal(asks(wire), [0]);
    while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn, ackRequest: 1 });
  }),
);

test(
  'once something was lost every message asks',
  onWire(OWN_KIND, (wire) => {
    meet(wire);
    wire.post(WrOpcode.SEND, 8);
    wire.takePackets();
    while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
    wire.takePackets();
    wire.post(WrOpcode.SEND, 8);
    assert.equal(asks(wire), [1]);
  }),
);

test(
  'a responder acknowledges what nobody asked for when half a millisecond has passed, all at once',
  onWire(OWN_KIND, (wire) => {
    for (let wrId = 0; wrId < 3; wrId++) wire.receive(wrId);
    for (let psn = 0x200; psn < 0x203; psn++) {
      wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn }, 8);
      wire.expectSilence('nobody asked');
    }
    const start = wire.clock.now();
    while (wire.link.sent.length === 0) assert.ok(wire.clock.step(), 'a timer is armed');
    assert.ok(wire.clock.now() - start <= OWED, `${wire.clock.now() - start} us`);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x202 });
    wire.expectSilence();
  }),
);

test(
  'over a link that paces itself that takes ten times as long',
  onWire({ ...OWN_KIND, paced: true }, (wire) => {
    wire.receive(0);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
    wire.clock.advance(9 * OWED);
    wire.expectSilence('there is time');
    wire.clock.advance(OWED);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
  }),
);

test(
  'what was acknowledged with something else is not acknowledged again',
  onWire(OWN_KIND, (wire) => {
    for (let wrId = 0; wrId < 2; wrId++) wire.receive(wrId);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x201, ackRequest: 1 }, 8);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x201 });
    while (wire.clock.step());
    wire.expectSilence();
  }),
);

test(
  'nothing is owed to a peer of another kind, which asks when it wants to know',
  onWire({}, (wire) => {
    wire.receive(0);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
    while (wire.clock.step());
    wire.expectSilence();
  }),
);

test(
  'a queue pair that ends owes nothing, and those beside it still do',
  onWire(OWN_KIND, (wire) => {
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
  }),
);

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

test.run();
