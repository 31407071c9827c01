/** How a queue pair fails: statuses, the order of flushed requests, what may still be posted. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import { AccessFlag, QpState, SendFlag, WcStatus, WrOpcode } from '../../host/index.js';
import { onWire, pattern } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const ADD = {
  opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
  atomic: { remoteAddr: 64n, rkey: 1, compareAdd: 1n },
};

test('an SGE of length 0 names no byte, in sends, receives and READs (S49)', (wire) => {
  wire.buffer.set(pattern(100));
  const none = { addr: 0n, length: 0, lkey: 0 };
  const [some] = wire.sge(10, 20);
  wire.post(WrOpcode.RDMA_WRITE, 0, { sgList: [none, some!, none] });
  wire.expectPacket({ dmaLength: 20, payload: pattern(100).slice(10, 30) });
  wire.post(WrOpcode.RDMA_WRITE, 0, { sgList: [none, none] });
  wire.expectPacket({ dmaLength: 0, payloadLength: 0 });
  const [into] = wire.sge(1000, 8);
  wire.qp.postRecv({ wrId: 1, sgList: [none, into!, none] });
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, pattern(8, 3));
  assert.equal(wire.completions(), ['1 SUCCESS']);
  assert.equal(wire.buffer.slice(1000, 1008), pattern(8, 3));
  wire.post(WrOpcode.RDMA_READ, 0, { wrId: 2, sgList: [none, into!, none], ...SIGNALED });
  const response = { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x102, syndrome: 0x1f };
  wire.sendPacket(response, pattern(8, 5));
  assert.equal(wire.completions(), ['2 SUCCESS']);
  assert.equal(wire.buffer.slice(1000, 1008), pattern(8, 5));
});

test('each NAK code becomes the status that it stands for, and flushes what follows (S50)', async () => {
  for (const [syndrome, status] of [
    [NakCode.INVALID_REQUEST, 'REM_INV_REQ_ERR'],
    [NakCode.REMOTE_ACCESS_ERROR, 'REM_ACCESS_ERR'],
    [NakCode.REMOTE_OPERATIONAL_ERROR, 'REM_OP_ERR'],
  ] as const) {
    await onWire({}, (wire) => {
      wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1, ...SIGNALED });
      wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2 });
      wire.post(WrOpcode.RDMA_READ, 8, { wrId: 3 });
      wire.acknowledge(0x101, syndrome);
      assert.equal(wire.completions(), ['1 SUCCESS', `2 ${status}`, '3 WR_FLUSH_ERR']);
    });
  }
});

test('a wrong local key found when READ data arrives fails the READ, not the peer (S57)', (wire) => {
  const sgList = [{ addr: wire.mr.addr, length: 8, lkey: (wire.mr.lkey ^ 0x100) >>> 0 }];
  wire.post(WrOpcode.RDMA_READ, 0, { wrId: 1, sgList });
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST });
  wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x100, syndrome: 0x1f }, 8);
  assert.equal(wire.completions(), ['1 LOC_PROT_ERR']);
  assert.is(wire.qp.state, QpState.ERR);
});

test('a local region without LOCAL_WRITE takes no READ data (S57)', (wire) => {
  const { lkey, addr } = wire.pd.regMr(wire.buffer, AccessFlag.REMOTE_READ);
  wire.post(WrOpcode.RDMA_READ, 0, { wrId: 1, sgList: [{ addr, length: 8, lkey }] });
  wire.sendPacket({ opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x100, syndrome: 0x1f }, 8);
  assert.equal(wire.completions(), ['1 LOC_PROT_ERR']);
  assert.is(wire.buffer[0], 0);
});

test('a wrong local key found when an atomic’s answer arrives is LOC_PROT_ERR (S57)', (wire) => {
  const sgList = [{ addr: wire.mr.addr, length: 8, lkey: (wire.mr.lkey ^ 0x100) >>> 0 }];
  wire.qp.postSend({ wrId: 1, ...ADD, sgList });
  const { RC_ATOMIC_ACKNOWLEDGE: opcode } = Opcode;
  wire.sendPacket({ opcode, psn: 0x100, syndrome: 0x1f, original: 5n });
  assert.equal(wire.completions(), ['1 LOC_PROT_ERR']);
});

test('READ data of the wrong length is a bad response (S57)', async () => {
  for (const length of [104, 96, 0]) {
    await onWire({}, (wire) => {
      wire.post(WrOpcode.RDMA_READ, 100, { wrId: 1 });
      const opcode = Opcode.RC_RDMA_READ_RESPONSE_ONLY;
      wire.sendPacket({ opcode, psn: 0x100, syndrome: 0x1f }, length);
      assert.equal(wire.completions(), ['1 BAD_RESP_ERR'], `${length} bytes`);
      assert.is(wire.buffer[0], 0);
    });
  }
});

test('an answer of the wrong kind for a request is dropped and counted (S57)', (wire) => {
  const response = { psn: 0x100, syndrome: 0x1f };
  wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
  const { RC_RDMA_READ_RESPONSE_ONLY, RC_ATOMIC_ACKNOWLEDGE } = Opcode;
  for (const opcode of [RC_RDMA_READ_RESPONSE_ONLY, RC_ATOMIC_ACKNOWLEDGE]) {
    const size = opcode === RC_ATOMIC_ACKNOWLEDGE ? 0 : 8;
    wire.expectCounted({ dropGhost: 1 }, () => wire.sendPacket({ ...response, opcode }, size));
  }
  assert.equal(wire.completions(), []);
  wire.acknowledge(0x100);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('an error completion has wrId, status, queue pair and the NAK that caused it (S58)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 0xfedcba9876543210n });
  wire.acknowledge(0x100, NakCode.REMOTE_ACCESS_ERROR);
  const [wc] = wire.cq.poll(1);
  assert.is(wc?.wrId, 0xfedcba9876543210n);
  assert.is(wc?.status, WcStatus.REM_ACCESS_ERR);
  assert.is(wc?.qpNum, wire.qp.qpNum);
  assert.is(wc?.vendorErr, NakCode.REMOTE_ACCESS_ERROR);
});

test('unsignalled requests complete when they fail, and all behind are flushed in order (S59)', (wire) => {
  for (let wrId = 1; wrId <= 5; wrId++) {
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId });
    wire.receive(100 + wrId);
  }
  wire.acknowledge(0x101, NakCode.INVALID_REQUEST);
  const completions = wire.completions();
  const sends = completions.filter((text) => !text.startsWith('10'));
  assert.equal(sends[0], '2 REM_INV_REQ_ERR');
  assert.equal(sends.slice(1), ['3 WR_FLUSH_ERR', '4 WR_FLUSH_ERR', '5 WR_FLUSH_ERR']);
  const receives = completions.filter((text) => text.startsWith('10'));
  assert.equal(
    receives,
    [101, 102, 103, 104, 105].map((wrId) => `${wrId} WR_FLUSH_ERR`),
  );
});

test('moving to ERR flushes what was posted, in order, and takes its timer away (S59)', (wire) => {
  for (let wrId = 1; wrId <= 3; wrId++) wire.post(WrOpcode.RDMA_WRITE, 8, { wrId });
  wire.takePackets();
  wire.qp.modify({ qpState: QpState.ERR });
  assert.equal(wire.completions(), ['1 WR_FLUSH_ERR', '2 WR_FLUSH_ERR', '3 WR_FLUSH_ERR']);
  wire.clock.advance(60e6);
  wire.expectSilence();
});

test('what is posted in ERR is accepted and flushed at once: the way to drain a queue (S60)', (wire) => {
  wire.qp.modify({ qpState: QpState.ERR });
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1 });
  wire.receive(2);
  assert.equal(wire.completions(), ['1 WR_FLUSH_ERR', '2 WR_FLUSH_ERR']);
  wire.expectSilence();
});

test('before RTS nothing can be sent; receives can be posted from INIT on (S60)', () =>
  onWire({ state: QpState.RESET }, (wire) => {
    const { qp } = wire;
    assert.throws(() => wire.post(WrOpcode.SEND, 8), /RESET sends nothing \(EINVAL\)/);
    assert.throws(() => wire.receive(1), /RESET takes no receives \(EINVAL\)/);
    wire.connect({ state: QpState.INIT });
    assert.throws(() => wire.post(WrOpcode.SEND, 8), /INIT sends nothing \(EINVAL\)/);
    wire.receive(2);
    qp.modify({ qpState: QpState.RESET });
    wire.connect({ state: QpState.RTR });
    assert.throws(() => wire.post(WrOpcode.SEND, 8), /RTR sends nothing \(EINVAL\)/);
    wire.receive(3);
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
    assert.equal(wire.completions(), ['3 SUCCESS'], 'RESET emptied the queue');
  }));

test('a packet that puts the queue pair into ERR completes one receive request, once (S61)', (wire) => {
  for (let wrId = 1; wrId <= 100; wrId++) wire.receive(wrId, 0, 4);
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
  const completions = wire.completions();
  assert.is(completions.length, 100);
  assert.is(completions[0], '1 LOC_LEN_ERR');
  assert.is(new Set(completions).size, 100);
  assert.ok(completions.slice(1).every((text) => text.endsWith('WR_FLUSH_ERR')));
});

test('what a class C error meets half answered is answered first: READs before it complete (S50)', (wire) => {
  const bad = { opcode: Opcode.RC_RDMA_WRITE_ONLY, key: 1, dmaLength: 4 };
  wire.deliver([
    wire.packet({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 2000) }),
    wire.packet({ ...bad, psn: 0x202 }, 4),
  ]);
  assert.equal(
    wire.takePackets().map(({ psn, name, syndrome }) => [psn, name, syndrome]),
    [
      [0x200, 'RC_RDMA_READ_RESPONSE_FIRST', 0x1f],
      [0x201, 'RC_RDMA_READ_RESPONSE_LAST', 0x1f],
      [0x202, 'RC_ACKNOWLEDGE', NakCode.REMOTE_ACCESS_ERROR],
    ],
  );
});

test('an atomic that was executed before a class C error is answered (S50)', (wire) => {
  const bad = { opcode: Opcode.RC_RDMA_WRITE_ONLY, key: 1, dmaLength: 4 };
  wire.deliver([
    wire.packet({ opcode: Opcode.RC_FETCH_ADD, psn: 0x200, ...wire.reth(64, 0), swapAdd: 1n }),
    wire.packet({ ...bad, psn: 0x201 }, 4),
  ]);
  assert.is(wire.buffer[64], 1);
  wire.expectPacket({ opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE, psn: 0x200, original: 0n });
  wire.expectPacket({ syndrome: NakCode.REMOTE_ACCESS_ERROR, psn: 0x201 });
});

test.run();
