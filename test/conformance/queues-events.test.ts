/** Completion queues, shared receive queues, and the events that they raise. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { QpState, SendFlag, WrOpcode, type CompletionQueue } from '../../host/index.js';
import { onWire, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { SIGNALED, SOLICITED } = SendFlag;
const { RC_SEND_ONLY, RC_ACKNOWLEDGE } = Opcode;

/** A queue pair whose completions go to `cq`, in place of the wire's own. */
function useCq(wire: Wire, recvCq: CompletionQueue, sendCq = wire.cq): void {
  Object.assign(wire, { qp: wire.pd.createQp({ sendCq, recvCq }) });
  wire.connect();
}

/** One whose receive requests come from an SRQ of `entries`. */
function useSrq(wire: Wire, srqLimit = 0) {
  const srq = wire.pd.createSrq({ maxWr: 16, srqLimit });
  Object.assign(wire, { qp: wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, srq }) });
  wire.connect();
  return srq;
}

function send(wire: Wire, psn: number, more = {}): void {
  wire.sendPacket({ opcode: RC_SEND_ONLY, psn, ackRequest: 1, ...more }, 8);
}

test('arming is one shot, and what came before it does not ring (S69)', (wire) => {
  for (let wrId = 1; wrId <= 5; wrId++) wire.receive(wrId);
  send(wire, 0x200);
  wire.cq.reqNotify();
  assert.equal(wire.rings, [], 'the completion was there before');
  send(wire, 0x201);
  send(wire, 0x202);
  assert.equal(wire.rings.splice(0), [wire.cq.handle], 'one ring for two completions');
  wire.cq.reqNotify();
  wire.cq.poll(9);
  assert.equal(wire.rings, []);
  send(wire, 0x203);
  assert.is(wire.rings.length, 1);
});

test('wait arms and polls again, so that nothing is missed in between (S69)', async (wire) => {
  wire.receive(1);
  wire.receive(2);
  send(wire, 0x200);
  assert.is((await wire.cq.wait()).length, 1, 'what is there is there at once');
  const waiting = wire.cq.wait();
  send(wire, 0x201);
  assert.is((await waiting)[0]?.wrId, 2n);
});

test('solicited-only is woken by a solicited receive, not by others and not by sends (S70)', (wire) => {
  for (let wrId = 1; wrId <= 3; wrId++) wire.receive(wrId);
  wire.cq.reqNotify(true);
  send(wire, 0x200);
  wire.post(WrOpcode.SEND, 8, { sendFlags: SIGNALED | SOLICITED });
  wire.acknowledge(0x100);
  assert.equal(wire.rings, []);
  send(wire, 0x201, { solicited: 1 });
  assert.equal(wire.rings, [wire.cq.handle]);
});

test('solicited-only is woken by any completion in error (S70)', (wire) => {
  wire.post(WrOpcode.SEND, 8);
  wire.cq.reqNotify(true);
  wire.acknowledge(0x100, 0x61);
  assert.equal(wire.rings, [wire.cq.handle]);
});

test('the solicited bit is on the last packet of a SEND and of a WRITE with immediate data (S70)', (wire) => {
  const bits = (opcode: number, length: number): number[] => {
    wire.post(opcode, length, { sendFlags: SOLICITED });
    return wire.takePackets().map(({ solicited }) => solicited);
  };
  assert.equal(bits(WrOpcode.SEND, 3000), [0, 0, 1]);
  assert.equal(bits(WrOpcode.SEND, 8), [1]);
  assert.equal(bits(WrOpcode.SEND_WITH_IMM, 0), [1]);
  assert.equal(bits(WrOpcode.SEND_WITH_INV, 8), [1]);
  assert.equal(bits(WrOpcode.RDMA_WRITE_WITH_IMM, 2000), [0, 1]);
});

test('a plain WRITE and a READ have no solicited bit, whatever their flags (S70)', (wire) => {
  for (const opcode of [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ]) {
    wire.post(opcode, 8, { sendFlags: SOLICITED });
    wire.expectPacket({ solicited: 0 });
  }
});

test('a send queue’s CQ that overflows dies: CQ_ERR, QP_FATAL, ERR, nothing is overwritten (S71)', (wire) => {
  const cq = wire.context.createCq(2);
  useCq(wire, wire.cq, cq);
  for (let wrId = 1; wrId <= 4; wrId++) {
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId, sendFlags: SIGNALED });
  }
  wire.acknowledge(0x103);
  assert.equal(wire.takeEvents(), ['CQ_ERR', 'QP_FATAL']);
  assert.is(wire.qp.state, QpState.ERR);
  assert.equal(
    cq.poll(9).map(({ wrId }) => wrId),
    [1n, 2n],
  );
  assert.is(cq.poll(9).length, 0, 'a dead queue stays empty');
  assert.throws(() => cq.resize(64), /EINVAL/);
});

test('a receive whose completion finds no room is not acknowledged as delivered (S71)', (wire) => {
  const cq = wire.context.createCq(1);
  useCq(wire, cq);
  for (let wrId = 1; wrId <= 3; wrId++) wire.receive(wrId);
  send(wire, 0x200);
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x1f });
  send(wire, 0x201);
  assert.equal(wire.takeEvents(), ['CQ_ERR', 'QP_FATAL']);
  assert.ok(
    wire.takePackets().every(({ psn, syndrome }) => psn !== 0x201 || syndrome !== 0x1f),
    'its sender is not told that all is well',
  );
});

test('a request that is not signalled gives its place back when it is acknowledged (S72)', () =>
  onWire({ qp: { cap: { maxSendWr: 4 } } }, (wire) => {
    for (let turn = 0; turn < 20; turn++) {
      for (let index = 0; index < 4; index++) wire.post(WrOpcode.RDMA_WRITE, 8);
      assert.throws(() => wire.post(WrOpcode.RDMA_WRITE, 8), /ENOMEM/);
      wire.acknowledge(0x100 + turn * 4 + 3);
    }
    assert.equal(wire.completions(), []);
  }));

test('taking an event acknowledges it: nothing is left that would hold an object (S73)', async (wire) => {
  const channel = wire.context.createCompChannel();
  const cq = wire.context.createCq(4, channel);
  useCq(wire, cq);
  wire.receive(1);
  cq.reqNotify();
  send(wire, 0x200);
  wire.qp.destroy();
  cq.destroy();
  const other = wire.context.createCq(4, channel);
  useCq(wire, other);
  wire.receive(2);
  other.reqNotify();
  send(wire, 0x200);
  assert.is(await channel.getCqEvent(), other, 'the event of the destroyed queue went with it');
});

test('the SRQ limit fires once, when fewer are left after taking one, and must be armed again (S74)', (wire) => {
  const srq = useSrq(wire, 2);
  const post = (count: number): void => {
    for (let index = 0; index < count; index++) srq.postRecv({ sgList: wire.sge(0, 64) });
  };
  post(3);
  send(wire, 0x200);
  assert.equal(wire.takeEvents(), [], 'two are left');
  send(wire, 0x201);
  assert.equal(wire.takeEvents(), ['SRQ_LIMIT_REACHED'], 'one is left');
  send(wire, 0x202);
  post(3);
  send(wire, 0x203);
  send(wire, 0x204);
  assert.equal(wire.takeEvents(), [], 'not armed');
  srq.modify({ srqLimit: 1 });
  send(wire, 0x205);
  assert.equal(wire.takeEvents(), ['SRQ_LIMIT_REACHED'], 'none is left');
  post(1);
  srq.modify({ srqLimit: 1 });
  srq.modify({ srqLimit: 0 });
  send(wire, 0x206);
  assert.equal(wire.takeEvents(), [], 'disarmed');
});

test('an empty SRQ is an RNR NAK (S74)', (wire) => {
  useSrq(wire);
  send(wire, 0x200);
  wire.expectPacket({ psn: 0x200, syndrome: 0x20 | 12 });
});

test('a queue pair with an SRQ that goes to ERR flushes no receive, and reports its last one (S75)', (wire) => {
  const srq = useSrq(wire);
  srq.postRecv({ wrId: 1, sgList: wire.sge(0, 4096) });
  srq.postRecv({ wrId: 2, sgList: wire.sge(0, 4096) });
  wire.sendPacket({ opcode: Opcode.RC_SEND_FIRST, psn: 0x200 }, 1024);
  wire.qp.modify({ qpState: QpState.ERR });
  assert.equal(wire.takeEvents(), ['QP_LAST_WQE_REACHED']);
  assert.equal(wire.completions(), ['1 WR_FLUSH_ERR'], 'the one that was in use');
  wire.qp.modify({ qpState: QpState.ERR });
  assert.equal(wire.takeEvents(), [], 'said once');
  const qp = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, srq });
  Object.assign(wire, { qp });
  wire.connect();
  send(wire, 0x200);
  assert.equal(wire.completions(), ['2 SUCCESS']);
});

test('resizing keeps unpolled completions in order, and is refused if one were lost (S76)', (wire) => {
  const cq = wire.context.createCq(8);
  useCq(wire, cq);
  let psn = 0x200;
  let next = 0;
  const fill = (count: number): void => {
    for (let index = 0; index < count; index++) {
      wire.receive(psn - 0x200);
      send(wire, psn++);
    }
  };
  const take = (count: number): void => {
    const wrIds = cq.poll(count).map(({ wrId }) => Number(wrId));
    assert.equal(
      wrIds,
      Array.from({ length: count }, () => next++),
    );
  };
  fill(8);
  take(5);
  fill(5);
  assert.throws(() => cq.resize(4), /EINVAL/);
  assert.is(cq.cqe, 8);
  cq.resize(32);
  fill(10);
  take(7);
  cq.resize(16);
  fill(5);
  take(16);
  assert.equal(cq.poll(9), []);
  assert.equal(wire.takeEvents(), []);
});

test('an armed queue stays armed when it is resized (S76)', (wire) => {
  wire.receive(1);
  wire.cq.reqNotify();
  wire.cq.resize(16);
  send(wire, 0x200);
  assert.equal(wire.rings, [wire.cq.handle]);
});

test('a completion callback may poll, arm, post and destroy (S77)', (wire) => {
  const { device } = wire.context;
  const inner = device.events!;
  const seen: bigint[] = [];
  device.events = {
    ...inner,
    completion: (cq) => {
      inner.completion(cq);
      wire.cq.reqNotify();
      seen.push(...wire.cq.poll(9).map(({ wrId }) => wrId));
      wire.receive(100 + seen.length);
      wire.post(WrOpcode.RDMA_WRITE, 8);
    },
  };
  wire.receive(100);
  wire.cq.reqNotify();
  for (let psn = 0x200; psn < 0x204; psn++) send(wire, psn);
  assert.equal(seen, [100n, 101n, 102n, 103n]);
  const writes = wire.takePackets().filter(({ name }) => name === 'RC_RDMA_WRITE_ONLY');
  assert.equal(
    writes.map(({ psn }) => psn),
    [0x100, 0x101, 0x102, 0x103],
  );
});

test('queues may be larger than asked for, and say how large they are (S78)', (wire) => {
  const cq = wire.context.createCq(5);
  assert.ok(cq.cqe >= 5);
  const srq = wire.pd.createSrq({ maxWr: 5, maxSge: 3 });
  assert.ok(srq.maxWr >= 5 && srq.maxSge >= 3);
  const cap = { maxSendWr: 5, maxRecvWr: 9, maxSendSge: 3, maxRecvSge: 2, maxInlineData: 33 };
  const qp = wire.pd.createQp({ sendCq: cq, recvCq: cq, cap });
  for (const [name, wanted] of Object.entries(cap)) {
    assert.ok(qp.cap[name as keyof typeof cap] >= wanted, name);
  }
  for (let index = 0; index < srq.maxWr; index++) srq.postRecv({});
  assert.throws(() => srq.postRecv({}), /ENOMEM/);
});

test('a wait for completions leaves them to callers of poll', async (wire) => {
  const { cq, qp } = wire;
  // Waits poll this device.
  Object.assign(wire.link, { poll: () => 0 });
  // Long enough that others are let have a turn.
  wire.clock.advance(1_000_000);
  const complete = (wrId: number): void => {
    qp.postSend({ wrId, opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList: [] });
    wire.acknowledge(0x100 + wrId);
  };
  const seen: number[] = [];
  complete(0);
  const other = new Promise<void>((resolve) => {
    setImmediate(() => {
      complete(1);
      seen.push(...cq.poll(1).map(({ wrId }) => Number(wrId)));
      resolve();
    });
  });
  const waiting = cq.wait(1).then((taken) => seen.push(...taken.map(({ wrId }) => Number(wrId))));
  await Promise.all([other, waiting]);
  assert.equal(seen, [0, 1]);
});

test('a shared receive queue of another size keeps its requests, and their order, whatever the size', (wire) => {
  const srq = useSrq(wire);
  let psn = 0x200;
  const post = (wrId: number) =>
    srq.postRecv({ wrId, sgList: wire.sge(64 * (wrId % 16), 8 + wrId) });
  const take = (wrId: number) => {
    wire.sendPacket({ opcode: RC_SEND_ONLY, psn, ackRequest: 1 }, 8 + wrId);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: psn++ });
    assert.equal(wire.completions(), [`${wrId} SUCCESS`]);
  };
  // The first of the requests that move is not the first of the ring.
  for (let wrId = 1; wrId <= 11; wrId++) post(wrId);
  for (let wrId = 1; wrId <= 5; wrId++) take(wrId);
  srq.modify({ maxWr: 64 });
  for (let wrId = 12; wrId <= 20; wrId++) post(wrId);
  for (let wrId = 6; wrId <= 14; wrId++) take(wrId);
  srq.modify({ maxWr: 8 });
  for (let wrId = 15; wrId <= 20; wrId++) take(wrId);
});

test.run();
