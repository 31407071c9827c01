/** FLUSH and ATOMIC WRITE at the requester, and ATOMIC WRITE at the responder, by hand. */
import { asPosted } from '../support/any-request.js';
import * as assert from 'uvu/assert';
import { NakCode, Opcode, PlacementType, SelectivityLevel } from '#build/abi.js';
import {
  AccessFlag,
  MisuseError,
  QpExWith,
  SendFlag,
  WcOpcodeName,
  WrOpcode,
} from '../../host/index.js';
import { FULL_ACCESS, onWire, pattern, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { GLOBAL, PERSISTENT } = PlacementType;
const { SIGNALED, FENCE, INLINE } = SendFlag;
const { RC_ACKNOWLEDGE, RC_ATOMIC_WRITE, RC_FLUSH, RC_RDMA_READ_RESPONSE_ONLY } = Opcode;
const { RC_RDMA_READ_REQUEST, RC_RDMA_WRITE_ONLY } = Opcode;
const DONE = { opcode: RC_RDMA_READ_RESPONSE_ONLY, syndrome: 0x1f };
const INLINES = { qp: { cap: { maxInlineData: 64 } } };
const where = { remoteAddr: 0x10000n, rkey: 0x77 };

function flush(wire: Wire, more: object = {}, flags: number = SIGNALED, wrId = 1): void {
  const flush = { ...where, length: 64, type: PERSISTENT as number, ...more };
  wire.qp.postSend({ wrId, opcode: WrOpcode.FLUSH, sendFlags: flags, flush });
}

function done(wire: Wire, psn: number): void {
  wire.sendPacket({ ...DONE, psn });
}

/** Completions: `wrId OPCODE`, and the status unless that is SUCCESS. */
function completed(wire: Wire): string[] {
  return wire.cq.poll(100).map(({ wrId, opcode, status }) => {
    return `${wrId} ${WcOpcodeName[opcode]}${status === 0 ? '' : ` ${status}`}`;
  });
}

test('a FLUSH is BTH, FETH, RETH and no payload, and completes when its own answer comes (S11)', (wire) => {
  flush(wire, { type: GLOBAL | PERSISTENT, level: SelectivityLevel.MR });
  const packet = wire.expectPacket({ opcode: RC_FLUSH, psn: 0x100, ackRequest: 1 });
  assert.is(packet.flush, GLOBAL | PERSISTENT | (SelectivityLevel.MR << 4));
  assert.equal([packet.virtualAddress, packet.key, packet.dmaLength], [0x10000n, 0x77, 64]);
  assert.is(packet.bytes.length, 36);
  done(wire, 0x100);
  assert.equal(completed(wire), ['1 FLUSH']);
});

test('an SGE of a FLUSH is not looked at: it carries nothing (oA19-2)', (wire) => {
  const sgList = [{ addr: 1n, length: 4096, lkey: 99 }];
  const opcode = WrOpcode.FLUSH;
  wire.qp.postSend(asPosted({ opcode, sgList, flush: { ...where, length: 8, type: GLOBAL } }));
  wire.expectPacket({ opcode: RC_FLUSH, payloadLength: 0, dmaLength: 8 });
});

test('an ATOMIC WRITE is BTH, RETH and eight bytes as they lie in memory, from SGEs or inline (S17)', () =>
  onWire(INLINES, (wire) => {
    wire.buffer.set([1, 2, 3, 4, 5, 6, 7, 8], 16);
    const post = { opcode: WrOpcode.ATOMIC_WRITE, sendFlags: SIGNALED, rdma: where };
    wire.qp.postSend({ wrId: 1, ...post, sgList: [...wire.sge(16, 3), ...wire.sge(19, 5)] });
    const payload = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
    wire.expectPacket({
      opcode: RC_ATOMIC_WRITE,
      psn: 0x100,
      ackRequest: 1,
      dmaLength: 8,
      payload,
    });
    const inline = Uint8Array.of(8, 7, 6, 5, 4, 3, 2, 1);
    wire.qp.postSend({ wrId: 2, ...post, sendFlags: SIGNALED | INLINE, inline });
    wire.expectPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x101, payload: inline });
    done(wire, 0x100);
    done(wire, 0x101);
    assert.equal(completed(wire), ['1 ATOMIC_WRITE', '2 ATOMIC_WRITE']);
  }));

test('an ATOMIC WRITE of other than eight bytes, or to no multiple of eight, fails here', () =>
  onWire(INLINES, (wire) => {
    const post = { opcode: WrOpcode.ATOMIC_WRITE, rdma: where };
    wire.qp.postSend({ wrId: 1, ...post, sgList: wire.sge(0, 7) });
    assert.equal(completed(wire), ['1 ATOMIC_WRITE 1']);
  }));

test.with(INLINES)('an inline ATOMIC WRITE of four bytes fails here', (wire) => {
  const inline = new Uint8Array(4);
  wire.qp.postSend({ wrId: 1, opcode: WrOpcode.ATOMIC_WRITE, rdma: where, inline });
  assert.equal(completed(wire), ['1 ATOMIC_WRITE 1']);
  wire.expectSilence();
});

test.with(INLINES)('a misaligned ATOMIC WRITE fails here (S15)', (wire) => {
  const rdma = { ...where, remoteAddr: 0x10004n };
  wire.qp.postSend({ wrId: 1, opcode: WrOpcode.ATOMIC_WRITE, rdma, sgList: wire.sge(0, 8) });
  assert.equal(completed(wire), ['1 ATOMIC_WRITE 2']);
  wire.expectSilence();
});

test('bytes that may not be read fail an ATOMIC WRITE in its turn', (wire) => {
  const sgList = [{ addr: wire.mr.addr, length: 8, lkey: 0x1234 }];
  wire.qp.postSend({ wrId: 1, opcode: WrOpcode.ATOMIC_WRITE, rdma: where, sgList });
  assert.equal(completed(wire), ['1 ATOMIC_WRITE 4']);
});

test('a FLUSH follows what was posted before it at once; with FENCE it waits until that is complete', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1, sendFlags: SIGNALED });
  flush(wire, {}, SIGNALED, 2);
  wire.expectPacket({ opcode: RC_RDMA_WRITE_ONLY, psn: 0x100 });
  wire.expectPacket({ opcode: RC_FLUSH, psn: 0x101 });
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 3, sendFlags: SIGNALED });
  flush(wire, {}, SIGNALED | FENCE, 4);
  wire.expectPacket({ opcode: RC_RDMA_WRITE_ONLY, psn: 0x102 });
  wire.expectSilence('the FLUSH waits');
  done(wire, 0x101);
  assert.equal(completed(wire), ['1 RDMA_WRITE', '2 FLUSH']);
  wire.expectSilence('it waits for the WRITE as well');
  wire.acknowledge(0x102);
  wire.expectPacket({ opcode: RC_FLUSH, psn: 0x103 });
  done(wire, 0x103);
  assert.equal(completed(wire), ['3 RDMA_WRITE', '4 FLUSH']);
});

test('a write with a FENCE waits for the FLUSHes before it', (wire) => {
  flush(wire);
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, sendFlags: SIGNALED | FENCE });
  wire.expectPacket({ opcode: RC_FLUSH, psn: 0x100 });
  wire.expectSilence();
  done(wire, 0x100);
  wire.expectPacket({ opcode: RC_RDMA_WRITE_ONLY, psn: 0x101 });
});

test('FLUSH and ATOMIC WRITE count as READs do: maxRdAtomic of them are in flight (S18)', () =>
  onWire({ attributes: { maxRdAtomic: 2 } }, (wire) => {
    flush(wire);
    const sgList = wire.sge(0, 8);
    wire.qp.postSend({ wrId: 2, opcode: WrOpcode.ATOMIC_WRITE, rdma: where, sgList });
    flush(wire, {}, SIGNALED, 3);
    wire.expectPacket({ opcode: RC_FLUSH, psn: 0x100 });
    wire.expectPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x101 });
    wire.expectSilence();
    done(wire, 0x100);
    wire.expectPacket({ opcode: RC_FLUSH, psn: 0x102 });
  }));

test('a queue pair that may have none in flight fails them here', () =>
  onWire({ attributes: { maxRdAtomic: 0 } }, (wire) => {
    flush(wire);
    assert.equal(completed(wire), ['1 FLUSH 2']);
    wire.expectSilence();
  }));

test('an ACK beyond a FLUSH does not complete it: the FLUSH is retransmitted (S27)', (wire) => {
  flush(wire);
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, sendFlags: SIGNALED });
  wire.takePackets();
  wire.acknowledge(0x101);
  assert.equal(completed(wire), []);
  wire.expectPacket({ opcode: RC_FLUSH, psn: 0x100 });
  done(wire, 0x100);
  wire.acknowledge(0x101);
  assert.equal(completed(wire), ['1 FLUSH', '2 RDMA_WRITE']);
});

test('but of Linux rxe it does, which does not answer a FLUSH twice and has executed it (quirk)', (wire) => {
  const ahAttr = { dgid: wire.peer.gid, port: wire.peer.port, doubledFlushIcrc: true };
  wire.qp.modify({ qpState: 0 });
  wire.qp.modify({ qpState: 1, pkeyIndex: 0, portNum: 1, qpAccessFlags: FULL_ACCESS });
  const rtr = { pathMtu: 3, destQpNum: 0x51, rqPsn: 0x200, maxDestRdAtomic: 4, minRnrTimer: 12 };
  wire.qp.modify({ qpState: 2, ahAttr, ...rtr });
  const rts = { timeout: 10, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 4 };
  wire.qp.modify({ qpState: 3, sqPsn: 0x100, ...rts });
  flush(wire);
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, sendFlags: SIGNALED });
  wire.link.sent.length = 0;
  wire.acknowledge(0x101);
  assert.equal(completed(wire), ['1 FLUSH', '2 RDMA_WRITE']);
  wire.post(WrOpcode.RDMA_READ, 8, { wrId: 3, sendFlags: SIGNALED });
  wire.expectPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x102 });
  wire.sendPacket({ ...DONE, psn: 0x102 }, 8);
  assert.equal(completed(wire), ['3 RDMA_READ']);
});

test('a response with payload does not complete a FLUSH', (wire) => {
  flush(wire);
  wire.takePackets();
  wire.sendPacket({ ...DONE, psn: 0x100 }, 64);
  assert.equal(completed(wire), ['1 FLUSH 7']);
});

test('a peer that is at work on a FLUSH may take its time: its RNR NAKs use up neither count', () =>
  onWire({ attributes: { retryCnt: 1, rnrRetry: 0 } }, (wire) => {
    flush(wire);
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, sendFlags: SIGNALED });
    wire.takePackets();
    for (let round = 0; round < 20; round++) {
      wire.clock.advance(round === 0 ? 5000 : 20_600);
      const again = wire.takePackets();
      assert.is(again[0]?.opcode, RC_FLUSH, `round ${round}`);
      wire.acknowledge(0x100, 0x20 | 22);
      wire.expectSilence('the peer said how long');
    }
    done(wire, 0x100);
    wire.acknowledge(0x101);
    assert.equal(completed(wire), ['1 FLUSH', '2 RDMA_WRITE']);
  }));

test('while the peer is at work on a FLUSH the queue goes on', (wire) => {
  flush(wire);
  wire.takePackets();
  wire.acknowledge(0x100, 0x20 | 31);
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2, sendFlags: SIGNALED });
  wire.expectPacket({ opcode: RC_RDMA_WRITE_ONLY, psn: 0x101 });
  done(wire, 0x100);
  wire.acknowledge(0x101);
  assert.equal(completed(wire), ['1 FLUSH', '2 RDMA_WRITE']);
  wire.expectSilence('nothing is sent twice');
});

test('a NAK reports the failure of a FLUSH', (wire) => {
  flush(wire);
  wire.takePackets();
  wire.acknowledge(0x100, NakCode.REMOTE_OPERATIONAL_ERROR);
  assert.equal(completed(wire), ['1 FLUSH 11']);
});

test('what postSend and wrFlush refuse of a FLUSH', (wire) => {
  const { qp } = wire;
  const isMisuse = (argument: string) => (error: Error) =>
    error instanceof MisuseError && error.message.startsWith(argument);
  const opcode = WrOpcode.FLUSH;
  assert.throws(() => qp.postSend(asPosted({ opcode })), isMisuse('flush'));
  for (const type of [0, 4, 3.5, -1]) {
    assert.throws(() => flush(wire, { type }), isMisuse('flush.type'));
  }
  assert.throws(() => flush(wire, { level: 2 }), isMisuse('flush.level'));
  assert.throws(() => flush(wire, { length: 2 ** 32 }), isMisuse('flush.length'));
  assert.throws(() => qp.postSend(asPosted({ opcode: WrOpcode.ATOMIC_WRITE })), isMisuse('rdma'));
  wire.expectSilence();
});

test('a device says that it has all three, by the bits of the kernel (IB_DEVICE_FLUSH_GLOBAL)', () =>
  onWire({}, ({ context }) => {
    const bits = (1n << 38n) | (1n << 39n) | (1n << 40n);
    assert.is(context.queryDeviceEx().deviceCapFlagsEx & bits, bits);
  }));

test('the extended queue pair posts both (ibv_wr_flush, ibv_wr_atomic_write)', (wire) => {
  const { context, pd, cq } = wire;
  const sendOpsFlags = QpExWith.FLUSH | QpExWith.ATOMIC_WRITE | QpExWith.RDMA_WRITE;
  const cap = { maxInlineData: 8 };
  const qp = context.createQpEx({ pd, sendCq: cq, recvCq: cq, sendOpsFlags, cap });
  assert.throws(() => {
    qp.wrStart();
    qp.wrAtomicWrite(1, 0, new Uint8Array(7));
  }, /8 bytes/);
  qp.wrAbort();
  qp.modify({ qpState: 1, pkeyIndex: 0, portNum: 1, qpAccessFlags: FULL_ACCESS });
  const ahAttr = { dgid: wire.peer.gid, port: wire.peer.port };
  const rtr = { pathMtu: 3, destQpNum: 0x51, rqPsn: 0x200, maxDestRdAtomic: 4, minRnrTimer: 12 };
  qp.modify({ qpState: 2, ahAttr, ...rtr });
  const rts = { timeout: 10, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 4 };
  qp.modify({ qpState: 3, sqPsn: 0x100, ...rts });
  qp.wrStart();
  qp.wrFlags = SIGNALED;
  const word = Buffer.from(pattern(8));
  qp.wrAtomicWrite(0x77, 0x10008n, word);
  word.fill(0); // It was copied, though the slice of a Buffer is no copy.
  qp.wrFlush(0x77, 0x10000n, 16, PERSISTENT, SelectivityLevel.RANGE);
  qp.wrComplete();
  wire.expectPacket({ opcode: RC_ATOMIC_WRITE, virtualAddress: 0x10008n, payload: pattern(8) });
  wire.expectPacket({ opcode: RC_FLUSH, flush: PERSISTENT, dmaLength: 16 });
});

for (const [what, more, bytes, syndrome] of [
  ['of four bytes', { dmaLength: 4 }, 4, NakCode.INVALID_REQUEST],
  ['of no byte', { dmaLength: 8 }, 0, NakCode.INVALID_REQUEST],
  ['of sixteen bytes', { dmaLength: 16 }, 16, NakCode.INVALID_REQUEST],
  ['whose RETH says otherwise', { dmaLength: 16 }, 8, NakCode.INVALID_REQUEST],
  ['to no multiple of eight', { dmaLength: 8, offset: 4 }, 8, NakCode.INVALID_REQUEST],
  ['with a wrong key', { dmaLength: 8, key: 5 }, 8, NakCode.REMOTE_ACCESS_ERROR],
  ['beyond the region', { dmaLength: 8, offset: 65536 }, 8, NakCode.REMOTE_ACCESS_ERROR],
] as const) {
  test(`an ATOMIC WRITE ${what} is refused, and no byte written`, (wire) => {
    const { offset = 0, ...fields } = more as { offset?: number; dmaLength: number };
    const opcode = RC_ATOMIC_WRITE;
    wire.sendPacket({ opcode, psn: 0x200, ...wire.reth(offset, 8), ...fields }, bytes);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, psn: 0x200, syndrome });
    assert.not(wire.buffer.some((byte) => byte !== 0));
  });
}

test('an ATOMIC WRITE takes the right to write, not that of atomics, of queue pair and region', () =>
  onWire({ attributes: { qpAccessFlags: AccessFlag.REMOTE_WRITE } }, (wire) => {
    const access = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
    const mr = wire.pd.regMr(wire.buffer, access);
    const reth = { virtualAddress: mr.addr + 8n, key: mr.rkey, dmaLength: 8 };
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x200, ...reth }, pattern(8));
    wire.expectPacket({ ...DONE, psn: 0x200, msn: 1, payloadLength: 0 });
    assert.equal(wire.buffer.slice(8, 16), pattern(8));
    wire.buffer.fill(0);
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x200, ...reth }, pattern(8));
    wire.expectPacket({ ...DONE, psn: 0x200, msn: 1 });
    assert.not(
      wire.buffer.some((byte) => byte !== 0),
      'not executed again (S19)',
    );
    assert.is(mr.counters().writes, 1);
  }));

test('without the right to write an ATOMIC WRITE is refused', () =>
  onWire({ attributes: { qpAccessFlags: AccessFlag.REMOTE_ATOMIC } }, (wire) => {
    wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x200, ...wire.reth(0, 8) }, 8);
    wire.expectPacket({ opcode: RC_ACKNOWLEDGE, syndrome: NakCode.INVALID_REQUEST });
  }));

test('an ATOMIC WRITE where address and memory disagree modulo 8 is refused, and traps nothing', (wire) => {
  const mr = wire.pd.regMr(wire.buffer, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE, {
    iova: 4n,
  });
  const reth = { virtualAddress: 8n, key: mr.rkey, dmaLength: 8 };
  wire.sendPacket({ opcode: RC_ATOMIC_WRITE, psn: 0x200, ...reth }, 8);
  wire.expectPacket({ opcode: RC_ACKNOWLEDGE, syndrome: NakCode.REMOTE_ACCESS_ERROR });
});

test('an ATOMIC WRITE that would change what a READ has still to return waits for it', () =>
  onWire({ device: { sendBuffers: 1 } }, (wire) => {
    wire.link.holds = true;
    const count = 200;
    wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x200, ...wire.reth(0, 65536) });
    wire.sendPacket({ opcode: RC_RDMA_READ_REQUEST, psn: 0x240, ...wire.reth(0, 65536) });
    const word = { opcode: RC_ATOMIC_WRITE, psn: 0x280, ...wire.reth(65528, 8) };
    wire.sendPacket(word, pattern(8));
    assert.equal(wire.buffer.slice(65528), new Uint8Array(8), `${count}`);
    wire.link.release();
    const last = wire.takePackets().at(-1)!;
    assert.equal([last.psn, last.syndrome], [0x280, NakCode.PSN_SEQUENCE_ERROR]);
    wire.sendPacket(word, pattern(8));
    wire.expectPacket({ ...DONE, psn: 0x280 });
    assert.equal(wire.buffer.slice(65528), pattern(8));
  }));

test.run();
