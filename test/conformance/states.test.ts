/** Behaviour of a queue pair in SQD, SQE, RESET and ERR, and the effect of its limits. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { QpState, QpType, SendFlag, WrOpcode } from '../../host/index.js';
import { onWire, pattern } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const WRITE = Opcode.RC_RDMA_WRITE_ONLY;

test('RESET forgets PSNs, message count, what is posted and what is under way (S63)', (wire) => {
  wire.receive(1);
  wire.sendPacket({ opcode: Opcode.RC_RDMA_WRITE_FIRST, psn: 0x200, ...wire.reth(0, 3000) }, 1024);
  wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
  wire.post(WrOpcode.RDMA_READ, 8, SIGNALED);
  wire.takePackets();
  wire.qp.modify({ qpState: QpState.RESET });
  wire.qp.modify({ qpState: QpState.RESET });
  wire.clock.advance(60e6);
  wire.expectSilence('its timer is gone');
  assert.equal(wire.completions(), [], 'nothing is flushed');
  wire.connect({ sendPsn: 0x500, receivePsn: 0x600 });
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x600 }, 8);
  wire.expectPacket({ syndrome: 0x20 | 12, psn: 0x600, msn: 0 });
  wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
  wire.expectPacket({ opcode: WRITE, psn: 0x500 });
  wire.acknowledge(0x100);
  assert.equal(wire.completions(), []);
  wire.acknowledge(0x500);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('RESET removes the completions of its queue pair from the queue, and no others (S63)', (wire) => {
  const other = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq });
  other.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  for (let turn = 0; turn < 3; turn++) {
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: turn, ...SIGNALED });
    wire.acknowledge(0x100 + turn);
  }
  other.postRecv({ wrId: 50 });
  other.modify({ qpState: QpState.ERR });
  wire.receive(9);
  wire.qp.modify({ qpState: QpState.ERR });
  wire.qp.modify({ qpState: QpState.RESET });
  assert.equal(wire.completions(), ['50 WR_FLUSH_ERR']);
});

test('a queue pair that is reset leaves its peer’s old packets unanswered (S63)', (wire) => {
  wire.qp.modify({ qpState: QpState.RESET });
  wire.connect({ receivePsn: 0x900000 });
  wire.sendPacket({ opcode: WRITE, psn: 0x200, ackRequest: 1, ...wire.reth(0, 8) }, 8);
  assert.is(wire.buffer[0], 0);
});

test('SQD finishes the message that was begun, begins none, and says when it is done (S64)', () =>
  onWire({ device: { windowPackets: 2 } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 4096, { wrId: 1, ...SIGNALED });
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, ...SIGNALED });
    wire.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 3, ...SIGNALED });
    assert.throws(() => wire.qp.modify({ qpState: QpState.RTS }), /EINVAL/);
    assert.throws(() => wire.qp.modify({ qpState: QpState.SQD, timeout: 3 }), /EINVAL/);
    assert.equal(wire.takeEvents(), []);
    wire.acknowledge(0x101);
    const sent = wire.takePackets();
    assert.equal(
      sent.map(({ psn }) => psn),
      [0x100, 0x101, 0x102, 0x103],
    );
    assert.is(sent.at(-1)?.ackRequest, 1, 'nothing follows: its end asks for an acknowledgement');
    wire.acknowledge(0x103);
    assert.equal(wire.completions(), ['1 SUCCESS']);
    assert.equal(wire.takeEvents(), ['SQ_DRAINED']);
    wire.expectSilence();
    wire.qp.modify({ qpState: QpState.RTS });
    assert.equal(
      wire.takePackets().map(({ psn }) => psn),
      [0x104, 0x105],
    );
    wire.acknowledge(0x105);
    assert.equal(wire.completions(), ['2 SUCCESS', '3 SUCCESS']);
  }));

test('in SQD the end of the last message asks for its acknowledgement, whatever else is posted (S64)', () =>
  onWire({ device: { windowPackets: 16 }, attributes: { timeout: 0 } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 18 * 1024, { wrId: 1, ...SIGNALED });
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, ...SIGNALED });
    wire.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
    wire.takePackets();
    wire.acknowledge(0x10f);
    const sent = wire.takePackets();
    assert.equal(
      sent.map(({ psn }) => psn),
      [0x110, 0x111],
    );
    assert.is(sent.at(-1)?.ackRequest, 1);
  }));

test('SQD of an idle queue drains at once; without the wish for it no event comes (S64)', (wire) => {
  wire.qp.modify({ qpState: QpState.SQD });
  assert.equal(wire.takeEvents(), []);
  wire.qp.modify({ qpState: QpState.SQD, timeout: 3, maxRdAtomic: 1 });
  assert.is(wire.qp.query().timeout, 3);
  wire.qp.modify({ qpState: QpState.RTS });
  wire.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
  assert.equal(wire.takeEvents(), ['SQ_DRAINED']);
});

test('SQD sends again what is lost, and still serves the peer (S64)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
  wire.takePackets();
  wire.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
  wire.clock.advance(5000);
  wire.expectPacket({ opcode: WRITE, psn: 0x100 });
  wire.sendPacket({ opcode: WRITE, psn: 0x200, ackRequest: 1, ...wire.reth(64, 8) }, pattern(8));
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
  assert.equal(wire.buffer.slice(64, 72), pattern(8));
  wire.acknowledge(0x100);
  assert.equal(wire.takeEvents(), ['SQ_DRAINED']);
});

test('SQD can be left for ERR and RESET before it is drained (S64)', (wire) => {
  for (const qpState of [QpState.ERR, QpState.RESET]) {
    wire.qp.modify({ qpState: QpState.RESET });
    wire.connect();
    wire.post(WrOpcode.RDMA_WRITE, 8);
    wire.qp.modify({ qpState: QpState.SQD });
    wire.qp.modify({ qpState });
    assert.is(wire.qp.state, qpState);
  }
});

test('a local error of an unreliable queue pair is SQE: sends are flushed, receiving goes on (S65)', () =>
  onWire({ qp: { qpType: QpType.UC } }, (wire) => {
    wire.receive(1);
    wire.post(WrOpcode.SEND, 0, { wrId: 5, sgList: [{ addr: 0, length: 1, lkey: 0 }] });
    assert.is(wire.qp.state, QpState.SQE);
    wire.post(WrOpcode.SEND, 8, { wrId: 6 });
    wire.sendPacket({ opcode: Opcode.UC_SEND_ONLY, psn: 0x200 }, 8);
    assert.equal(wire.completions(), ['5 LOC_PROT_ERR', '6 WR_FLUSH_ERR', '1 SUCCESS']);
    wire.expectSilence();
    wire.qp.modify({ qpState: QpState.RTS, curQpState: QpState.SQE });
    wire.post(WrOpcode.SEND, 8, SIGNALED);
    wire.expectPacket({ opcode: Opcode.UC_SEND_ONLY });
    assert.equal(wire.statuses(), ['SUCCESS']);
  }));

test('the same error takes a reliable queue pair to ERR (S65)', (wire) => {
  wire.receive(1);
  wire.post(WrOpcode.SEND, 0, { wrId: 5, sgList: [{ addr: 0, length: 1, lkey: 0 }] });
  assert.is(wire.qp.state, QpState.ERR);
  assert.equal(wire.completions(), ['5 LOC_PROT_ERR', '1 WR_FLUSH_ERR']);
  assert.throws(() => wire.qp.modify({ qpState: QpState.RTS }), /EINVAL/);
});

test('no more READs and atomics are in flight than max_rd_atomic says (S66)', () =>
  onWire({ attributes: { maxRdAtomic: 2 } }, (wire) => {
    for (let wrId = 1; wrId <= 4; wrId++) wire.post(WrOpcode.RDMA_READ, 8, { wrId, ...SIGNALED });
    assert.is(wire.takePackets().length, 2);
    const { RC_RDMA_READ_RESPONSE_ONLY: opcode } = Opcode;
    wire.sendPacket({ opcode, psn: 0x100, syndrome: 0x1f }, 8);
    assert.is(wire.takePackets().length, 1);
    wire.sendPacket({ opcode, psn: 0x101, syndrome: 0x1f }, 8);
    assert.is(wire.takePackets().length, 1);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  }));

test('with max_rd_atomic 0 a READ fails locally, before a packet is sent (S66)', () =>
  onWire({ attributes: { maxRdAtomic: 0 } }, (wire) => {
    wire.post(WrOpcode.RDMA_READ, 8, { wrId: 1 });
    wire.expectSilence();
    assert.equal(wire.completions(), ['1 LOC_QP_OP_ERR']);
  }));

test('max_dest_rd_atomic reduced in SQD: what is no longer remembered is not repeated (S66)', (wire) => {
  const add = { opcode: Opcode.RC_FETCH_ADD, ...wire.reth(64, 0), swapAdd: 1n };
  for (let turn = 0; turn < 4; turn++) wire.sendPacket({ ...add, psn: 0x200 + turn });
  wire.takePackets();
  wire.qp.modify({ qpState: QpState.SQD });
  wire.qp.modify({ qpState: QpState.SQD, maxDestRdAtomic: 1 });
  wire.sendPacket({ ...add, psn: 0x202 });
  wire.expectSilence();
  wire.sendPacket({ ...add, psn: 0x203 });
  wire.expectPacket({ opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, psn: 0x203, original: 3n });
  assert.is(wire.buffer[64], 4);
});

test('modify names what is missing, and whether the change exists (S62)', () =>
  onWire({ state: QpState.INIT }, ({ qp }) => {
    assert.throws(() => qp.modify({ qpState: QpState.RTS }), /does not go from INIT to RTS/);
    assert.throws(
      () => qp.modify({ qpState: QpState.RTR }),
      /INIT to RTR needs AV, PATH_MTU, .*RQ_PSN/,
    );
  }));

test.run();
