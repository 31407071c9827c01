/**
 * Bugs that Linux soft-RoCE had, by the month of the mail that reported or fixed them, as tests of
 * ours. What needs memory windows or FLUSH comes with those (README.md says with which issue).
 */
import * as assert from 'uvu/assert';
import {
  CompletionQueueLayout,
  NakCode,
  Opcode,
  OpcodeName,
  QueuePairLayout,
  RING_HEADER_SIZE,
  SharedReceiveQueueLayout,
} from '#build/abi.js';
import { QpState, QpType, SendFlag, WrOpcode } from '../../host/index.js';
import { structAt } from '../../host/engine/struct.js';
import { makeDatagramsReady, makePair } from '../support/pair.js';
import { onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

/** Offset of a ring's tail. */
const RING_TAIL = 64;
const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const READ = { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200 };

/** Where the entries of a receive ring begin. */
function receiveEntries(wire: Wire): number {
  const { memory } = wire.context.device.arena;
  return structAt(memory, QueuePairLayout, wire.qp.handle).receiveRing + RING_HEADER_SIZE;
}

test('2026-05: an address and a length that wrap together reach nothing (S30)', (wire) => {
  const virtualAddress = 2n ** 64n - 16n;
  wire.sendPacket({ ...READ, key: wire.mr.rkey, virtualAddress, dmaLength: 4096 });
  wire.expectPacket({ syndrome: NakCode.REMOTE_ACCESS_ERROR });
  wire.expectSilence();
});

test('2026-04: an ATOMIC WRITE of no bytes, or of any other number but 8, gets nothing back but a NAK (S15)', async () => {
  for (const size of [0, 4, 12, 16, 1024]) {
    await onWire({}, (wire) => {
      const memory = wire.buffer.slice();
      const { RC_ATOMIC_WRITE: opcode } = Opcode;
      wire.sendPacket({ opcode, psn: 0x200, ackRequest: 1, ...wire.reth(0, size) }, size);
      wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, syndrome: NakCode.INVALID_REQUEST });
      wire.expectSilence();
      assert.equal(wire.buffer, memory);
    });
  }
});

test('2026-04: no opcode and no length makes the receiver stumble: 256 opcodes, 0 to 80 bytes (S45)', (wire) => {
  const packet = wire.packet({ opcode: 0, psn: 0x200 }, 64);
  packet[packet.length - 1]! ^= 1;
  for (let opcode = 0; opcode < 256; opcode++) {
    for (let length = 0; length <= packet.length; length++) {
      const bytes = packet.slice(0, length);
      if (length > 0) bytes[0] = opcode;
      if (OpcodeName[opcode] === undefined && length >= 16 && length % 4 === 0) wire.seal(bytes);
      wire.deliver(bytes);
    }
  }
  wire.expectSilence();
  assert.is(wire.qp.state, QpState.RTS);
  assert.ok(wire.context.counters().dropUnknownOpcode > 1000n);
});

test('2026-04: a pad count larger than the payload is no packet, whatever the opcode (S46)', (wire) => {
  for (const opcode of Object.values(Opcode)) {
    const packet = wire.packet({ opcode, psn: 0x200, ...wire.reth(0, 0) }, 0);
    packet[1]! |= 0x30;
    wire.expectCounted(
      { dropMalformed: 1 },
      () => wire.deliver(wire.seal(packet)),
      OpcodeName[opcode],
    );
  }
  wire.expectSilence();
});

test('2026-05: a receive request whose SGE count is changed in the ring reaches no foreign memory (S92)', (wire) => {
  const { words } = wire.context.device.arena.memory;
  wire.receive(1, 0, 64);
  words[(receiveEntries(wire) >> 2) + 2] = 0xffffffff;
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
  wire.expectPacket({ syndrome: NakCode.INVALID_REQUEST });
  assert.equal(wire.completions(), ['1 LOC_LEN_ERR']);
});

test('2026-05: the same for a shared receive queue (S92)', (wire) => {
  const { memory } = wire.context.device.arena;
  const srq = wire.pd.createSrq({ maxWr: 4, maxSge: 2 });
  Object.assign(wire, { qp: wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, srq }) });
  wire.connect();
  srq.postRecv({ wrId: 1, sgList: wire.sge(0, 64) });
  const { ring } = structAt(memory, SharedReceiveQueueLayout, srq.handle);
  memory.words[((ring + RING_HEADER_SIZE) >> 2) + 2] = 3;
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
  assert.equal(wire.completions(), ['1 LOC_LEN_ERR']);
});

test('2026-05: a ring whose head is moved beyond its entries is walked once around, not to its end (S92)', () =>
  onWire({ qp: { cap: { maxSendWr: 16, maxRecvWr: 16 } } }, (wire) => {
    const { memory } = wire.context.device.arena;
    const { words } = memory;
    const qp = structAt(memory, QueuePairLayout, wire.qp.handle);
    wire.receive(1, 0, 64);
    words[qp.receiveRing >> 2] = 0x800;
    for (let psn = 0x200; psn < 0x204; psn++) {
      wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn, ackRequest: 1 }, 8);
    }
    assert.is(wire.buffer[64], 0);
    assert.ok(wire.completions().length <= 18, 'receives that were flushed');
    words[qp.sendRing >> 2] = 0x800;
    wire.qp.modify({ qpState: QpState.ERR });
    assert.ok(wire.completions().length <= 33, 'sends that were flushed');
  }));

test('2026-05: a completion queue whose tail is moved does not keep the reset of a queue pair (S92)', (wire) => {
  const { memory } = wire.context.device.arena;
  const { ring } = structAt(memory, CompletionQueueLayout, wire.cq.handle);
  memory.words[(ring + RING_TAIL) >> 2] = 0xc0000000;
  const start = performance.now();
  wire.qp.modify({ qpState: QpState.RESET });
  // 3 billion entries take longer.
  assert.ok(performance.now() - start < 3000, 'bounded by the entries of the queue');
});

test('2026-07: a send request with more SGEs than its queue has fails, and is not read past its end (S92)', () =>
  onWire({ device: { windowPackets: 2 } }, (wire) => {
    const { arena } = wire.context.device;
    const qp = structAt(arena.memory, QueuePairLayout, wire.qp.handle);
    wire.post(WrOpcode.RDMA_WRITE, 4096, { wrId: 1, ...SIGNALED });
    // The window is closed: the second request waits in the ring.
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2 });
    const entry = qp.sendRing + RING_HEADER_SIZE + qp.sendStride;
    const sgeCount = arena.memory.words.subarray(entry >> 2).indexOf(1, 8);
    arena.memory.words[(entry >> 2) + sgeCount] = 0xffff;
    wire.acknowledge(0x101);
    wire.acknowledge(0x103);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 LOC_QP_OP_ERR']);
  }));

test('2026-07: max_dest_rd_atomic is changed while a READ is being answered, and it is answered whole (S66)', () =>
  onWire({ mtu: 1, device: { sendBuffers: 1 } }, (wire) => {
    wire.buffer.set(pattern(51200));
    wire.link.holds = true;
    wire.sendPacket({ ...READ, ...wire.reth(0, 51200) });
    wire.qp.modify({ qpState: QpState.SQD });
    wire.qp.modify({ qpState: QpState.SQD, maxDestRdAtomic: 0 });
    wire.link.release();
    const sent = wire.takePackets();
    assert.is(sent.length, 200);
    assert.equal(Uint8Array.from(sent.flatMap(({ payload }) => [...payload])), pattern(51200));
    wire.sendPacket({ ...READ, psn: 0x200 + 200, ...wire.reth(0, 8) });
    wire.expectPacket({ syndrome: NakCode.INVALID_REQUEST });
  }));

test('2026-07: a packet whose completion overflows the queue is executed once, not once per receive (S61)', (wire) => {
  const recvCq = wire.context.createCq(1);
  Object.assign(wire, { qp: wire.pd.createQp({ sendCq: wire.cq, recvCq }) });
  wire.connect();
  for (let wrId = 1; wrId <= 100; wrId++) wire.receive(wrId, wrId * 16, 16);
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x201 }, 8);
  assert.equal(wire.takeEvents(), ['CQ_ERR', 'QP_FATAL']);
  assert.is(recvCq.poll(200).length, 1);
  assert.is(wire.buffer[48], 0, 'the third receive request was not written to');
});

test('2025-08: a queue that is polled, resized and filled in turns never hangs or loses (S76)', (wire) => {
  let posted = 0;
  let polled = 0;
  for (const cqe of [16, 4096, 32, 64, 16, 256]) {
    wire.cq.resize(cqe);
    for (let turn = 0; turn < 12; turn++) {
      wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: posted, ...SIGNALED });
      wire.acknowledge(0x100 + posted++);
    }
    while (posted - polled > 3) assert.is(wire.cq.poll(1)[0]?.wrId, BigInt(polled++));
  }
});

test('2025-09: a completion callback polls its queue without a deadlock (S77)', async (wire) => {
  const channel = wire.context.createCompChannel();
  const cq = wire.context.createCq(64, channel);
  Object.assign(wire, { qp: wire.pd.createQp({ sendCq: cq, recvCq: cq }) });
  wire.connect();
  const statuses: number[] = [];
  cq.reqNotify();
  const loop = (async () => {
    for await (const queue of channel) {
      queue.reqNotify();
      statuses.push(...queue.poll(16).map(({ status }) => status));
      if (statuses.length === 5) return;
    }
  })();
  for (let turn = 0; turn < 5; turn++) {
    wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
    wire.acknowledge(0x100 + turn);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await loop;
  assert.equal(statuses, [0, 0, 0, 0, 0]);
});

test('2025-08: an atomic whose result has a wrong local key completes, and with an error (S57)', (wire) => {
  const atomic = { remoteAddr: 0x40n, rkey: 5, compareAdd: 1n };
  const sgList = [{ addr: wire.mr.addr, length: 8, lkey: 1 }];
  wire.qp.postSend({ wrId: 3, opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList, atomic });
  const { RC_ATOMIC_ACKNOWLEDGE: opcode } = Opcode;
  wire.sendPacket({ opcode, psn: 0x100, syndrome: 0x1f, original: 1n });
  assert.equal(wire.completions(), ['3 LOC_PROT_ERR']);
});

test('2024-05: a datagram that is too long leaves the queue pair up and its peers served (S54)', () =>
  onWire({ qp: { qpType: QpType.UD } }, (wire) => {
    wire.receive(1, 0, 48);
    const datagram = { opcode: Opcode.UD_SEND_ONLY, qkey: 0x1111, sourceQp: 1 };
    for (const size of [4096, 9, 8]) wire.sendPacket({ ...datagram, psn: 1 }, size);
    assert.is(wire.qp.state, QpState.RTS);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('2023-11: a datagram to a group that its sender joined comes back to the sender’s host (S55)', async () => {
  const pair = await makePair({ connect: false, qp: { qpType: QpType.UD } });
  const { a } = pair;
  makeDatagramsReady(a.qp, 1);
  a.qp.attachMcast('ff0e::7');
  a.qp.postRecv({ wrId: 1, sgList: [{ addr: a.mr.addr, length: 100, lkey: a.mr.lkey }] });
  const ud = { ah: a.pd.createAh({ dgid: 'ff0e::7' }), remoteQpn: 0xffffff, remoteQkey: 1 };
  const sgList = [{ addr: a.mr.addr + 512n, length: 8, lkey: a.mr.lkey }];
  a.qp.postSend({ opcode: WrOpcode.SEND, sgList, ud });
  pair.settle();
  assert.is(a.cq.poll(2)[0]?.byteLen, 48);
  await pair.close();
});

test('2022: a repeated atomic is answered with its own value, not with the newest (S29)', (wire) => {
  const add = { opcode: Opcode.RC_FETCH_ADD, ...wire.reth(64, 0), swapAdd: 7n };
  for (let turn = 0; turn < 10; turn++) wire.sendPacket({ ...add, psn: 0x200 + turn });
  wire.takePackets();
  for (let turn = 0; turn < 10; turn++) {
    wire.sendPacket({ ...add, psn: 0x200 + turn });
    wire.expectPacket({ psn: 0x200 + turn, original: BigInt(turn * 7) });
  }
  assert.is(wire.buffer[64], 70);
});

test('2022: the retransmit timer does not cut the wait after an RNR NAK short (S40)', () =>
  onWire({ attributes: { timeout: 2, retryCnt: 7 } }, (wire) => {
    wire.post(WrOpcode.SEND, 8, SIGNALED);
    wire.takePackets();
    wire.acknowledge(0x100, 0x20 | 31);
    wire.clock.advance(491_519);
    wire.expectSilence();
    wire.clock.advance(33);
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x100 });
  }));

test('2022: ten seconds of idling send nothing: the timer of finished work is gone (S39)', () =>
  onWire({ attributes: { timeout: 12 } }, (wire) => {
    for (let turn = 0; turn < 5; turn++) {
      wire.post(WrOpcode.SEND, 8, SIGNALED);
      wire.takePackets();
      wire.acknowledge(0x100 + turn);
      wire.clock.advance(10e6);
      wire.expectSilence();
    }
  }));

test('2022: a FENCE behind WRITEs alone does not wait (S1)', (wire) => {
  for (let turn = 0; turn < 3; turn++) wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.post(WrOpcode.SEND, 8, { sendFlags: SendFlag.FENCE });
  assert.is(wire.takePackets().length, 4);
});

test('2022: two bad requests in a row complete both (S59)', (wire) => {
  const sgList = [{ addr: wire.mr.addr, length: 8, lkey: 1 }];
  const rdma = { remoteAddr: 0n, rkey: 1 };
  const bad = { opcode: WrOpcode.RDMA_WRITE, sgList, rdma };
  wire.qp.postSend([
    { ...bad, wrId: 1 },
    { ...bad, wrId: 2 },
  ]);
  assert.equal(wire.completions(), ['1 LOC_PROT_ERR', '2 WR_FLUSH_ERR']);
});

test('2022: receives are flushed when the queue pair goes to ERR (S59)', (wire) => {
  wire.receive(1);
  wire.receive(2);
  wire.qp.modify({ qpState: QpState.ERR });
  assert.equal(wire.completions(), ['1 WR_FLUSH_ERR', '2 WR_FLUSH_ERR']);
});

test('2026-05: the length of a message is the sum of its SGEs, not the first one times their number (S90)', (wire) => {
  const sgList = [...wire.sge(0, 100), ...wire.sge(1000, 1), ...wire.sge(2000, 7)];
  wire.post(WrOpcode.RDMA_WRITE, 0, { sgList });
  wire.expectPacket({ dmaLength: 108, payloadLength: 108 });
});

test.run();
