/**
 * A send buffer takes 128 packets. What finds no room leaves with the next one, and no buffer gets
 * a packet too many.
 */
import * as assert from 'uvu/assert';
import { Opcode, PlacementType, SelectivityLevel } from '#build/abi.js';
import { lookFor } from '../../host/cm/keep-alive.js';
import { Endpoint, WrOpcode, type QueuePair } from '../../host/index.js';
import { FLUSH_ACCESS, HandStore } from '../support/durable.js';
import { testsOnWire } from '../support/tests-in.js';
import type { Packet, Wire } from '../support/wire.js';

const BUFFER_PACKETS = 128;
const ACCESS = { qpAccessFlags: FLUSH_ACCESS };
const test = testsOnWire({ device: { sendBuffers: 1, queuePairsMax: 256 } });

/** As many queue pairs as that, to the same peer. */
function many(wire: Wire, count: number): QueuePair[] {
  return Array.from({ length: count }, () => {
    const cap = { maxSendWr: 8, maxRecvWr: 1 };
    const qp = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, cap });
    wire.connect({ attributes: ACCESS }, qp);
    return qp;
  });
}

/** The one buffer is with a slow socket while `action` happens; then it comes back. */
function behindFullBuffer(wire: Wire, action: () => void): void {
  wire.link.holds = true;
  wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.acknowledge(wire.takePacket()!.psn);
  action();
  wire.expectSilence('there is no buffer');
  wire.link.release();
}

/**
 * Others leave the last queue pair room for its requests, and none for what `answers` makes it
 * answer. Returns what it sends of this opcode.
 */
function answersLater(wire: Wire, opcode: number, answers: (qp: QueuePair) => void): Packet[] {
  const requests = 8;
  const [last] = many(wire, 1);
  answers(last!);
  wire.takePackets();
  const all = many(wire, BUFFER_PACKETS - requests);
  const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
  const request = { opcode: WrOpcode.RDMA_READ, sgList: wire.sge(0, 8), rdma };
  behindFullBuffer(wire, () => {
    for (const qp of all) qp.postSend(request);
    answers(last!);
    for (let index = 0; index < requests; index++) last!.postSend(request);
  });
  return wire.takePackets().filter((packet) => packet.opcode === opcode);
}

test('an acknowledgement that finds no room leaves with the next buffer', (wire) => {
  const write = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x200, ackRequest: 1 };
  const sent = answersLater(wire, Opcode.RC_ACKNOWLEDGE, ({ qpNum }) => {
    wire.deliver(wire.packet({ ...write, ...wire.reth(0, 8), targetQp: qpNum }, 8));
  });
  assert.is(sent.length, 1);
});

test('a probe that finds no room leaves with the next buffer', (wire) => {
  const sent = answersLater(wire, Opcode.RC_RDMA_WRITE_ONLY, (qp) => lookFor(qp));
  assert.is(sent.length, 1);
});

test('the answer to a repeated FLUSH that finds no room leaves with the next buffer', async (wire) => {
  const store = await HandStore.keep(wire.context, 4096);
  const mr = wire.pd.regMr(store.buffer, FLUSH_ACCESS);
  const flush = PlacementType.PERSISTENT | (SelectivityLevel.RANGE << 4);
  const where = { virtualAddress: mr.addr, key: mr.rkey, dmaLength: 8 };
  const request = { opcode: Opcode.RC_FLUSH, psn: 0x200, ackRequest: 1, flush, ...where };
  const sent = answersLater(wire, Opcode.RC_ACKNOWLEDGE, ({ qpNum }) => {
    wire.deliver(wire.packet({ ...request, targetQp: qpNum }));
  });
  assert.is(sent.length, 1, 'an RNR NAK');
});

test('a packet that is alone is sent twice only where the buffer has room for both', (wire) => {
  const [last] = many(wire, 1);
  // To another peer, whose path has lost nothing.
  Object.assign(wire, { peer: Endpoint.parse('127.0.0.7', 4791) });
  const all = many(wire, BUFFER_PACKETS - 1);
  const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
  const request = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 8), rdma };
  last!.postSend(request);
  wire.takePackets();
  // The second retry, and all after it, send the packet twice.
  const longest: number[] = [];
  for (let time = 0; time < 100 && !longest.includes(2); time++) {
    wire.clock.step();
    longest.push(wire.takePackets().length);
  }
  assert.ok(longest.includes(2), 'sent twice');
  const sizes: number[] = [];
  const send = wire.link.send.bind(wire.link);
  wire.link.send = (batch) => {
    sizes.push(batch.count);
    send(batch);
  };
  behindFullBuffer(wire, () => {
    for (const qp of all) qp.postSend(request);
    const { completerRetryErr } = wire.context.counters();
    while (wire.context.counters().completerRetryErr === completerRetryErr) wire.clock.step();
  });
  assert.equal(sizes.slice(0, 2), [1, BUFFER_PACKETS]);
});

test.run();
