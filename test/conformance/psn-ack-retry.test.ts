/** The requester: PSNs, acknowledgements, retries and their timers, against a peer made by hand. */
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import { Mtu, QpState, SendFlag, WrOpcode } from '../../host/index.js';
import { FULL_ACCESS, Wire, onWire, pattern } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const SIGNALED = { sendFlags: SendFlag.SIGNALED };
/** 4.096 us * 2^10, the timeout of a wire that is not told another. */
const TIMEOUT = 4194.304;

/** RNR NAK timer codes in microseconds (IBA vol. 1, table 45), typed apart from the engine's. */
const RNR_MICROS = [
  655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120,
  7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
];

function psns(wire: Wire): number[] {
  return wire.takePackets().map(({ psn }) => psn);
}

/** Lets time pass until something is sent; how long that took, in microseconds. */
function waitForPacket(wire: Wire, limitMicros = 10e6): number {
  const start = wire.clock.now();
  while (wire.link.sent.length === 0) {
    assert.ok(wire.clock.step(), 'a timer is armed');
    assert.ok(wire.clock.now() - start <= limitMicros, 'nothing was sent in time');
  }
  return wire.clock.now() - start;
}

test('the requester counts over the wrap of 24 bits, and completes over it (S23)', () =>
  onWire({ sendPsn: 0xffffff }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 3000, SIGNALED);
    assert.equal(psns(wire), [0xffffff, 0, 1]);
    wire.acknowledge(0);
    assert.equal(wire.statuses(), []);
    wire.acknowledge(1);
    assert.equal(wire.statuses(), ['SUCCESS']);
  }));

test('an acknowledgement of what was never sent changes nothing (S23)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 10, SIGNALED);
  wire.takePackets();
  wire.expectCounted({ dropGhost: 1 }, () => wire.acknowledge(0x101));
  wire.acknowledge(0xff);
  wire.acknowledge(0x800100 & 0xffffff);
  assert.equal(wire.statuses(), []);
  wire.acknowledge(0x100);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('a NAK for a gap acknowledges all before its PSN and is sent again from there (S25)', (wire) => {
  for (let wrId = 1; wrId <= 4; wrId++) wire.post(WrOpcode.RDMA_WRITE, 8, { wrId, ...SIGNALED });
  wire.takePackets();
  wire.acknowledge(0x102, NakCode.PSN_SEQUENCE_ERROR);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  assert.equal(psns(wire), [0x102, 0x103]);
});

test('any NAK acknowledges what came before it (S25)', (wire) => {
  for (let wrId = 1; wrId <= 3; wrId++) wire.post(WrOpcode.RDMA_WRITE, 8, { wrId });
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 4 });
  wire.acknowledge(0x102, NakCode.REMOTE_ACCESS_ERROR);
  assert.equal(wire.completions(), ['3 REM_ACCESS_ERR', '4 WR_FLUSH_ERR']);
});

test('a READ takes as many PSNs as it has responses, an empty one takes one (S26)', (wire) => {
  wire.post(WrOpcode.RDMA_READ, 2500);
  wire.post(WrOpcode.RDMA_READ, 0);
  wire.post(WrOpcode.RDMA_READ, 1024);
  wire.post(WrOpcode.RDMA_WRITE, 1);
  assert.equal(psns(wire), [0x100, 0x103, 0x104, 0x105]);
});

test('an ACK beyond a READ is an implied NAK: earlier requests complete, the READ is retransmitted (S27)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1, ...SIGNALED });
  wire.post(WrOpcode.RDMA_READ, 2000, { wrId: 2, ...SIGNALED });
  wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 3, ...SIGNALED });
  wire.takePackets();
  wire.acknowledge(0x103);
  assert.equal(wire.completions(), ['1 SUCCESS']);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x101, dmaLength: 2000 });
  wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x103 });
  wire.acknowledge(0x103);
  wire.expectSilence('the same gap is acted upon once');
  const data = pattern(2000);
  const syndrome = 0x1f;
  const first = { opcode: Opcode.RC_RDMA_READ_RESPONSE_FIRST, psn: 0x101, syndrome };
  const last = { opcode: Opcode.RC_RDMA_READ_RESPONSE_LAST, psn: 0x102, syndrome };
  wire.sendPacket(first, data.slice(0, 1024));
  wire.sendPacket(last, data.slice(1024));
  assert.equal(wire.completions(), ['2 SUCCESS']);
  wire.acknowledge(0x103);
  assert.equal(wire.completions(), ['3 SUCCESS']);
  assert.equal(wire.buffer.slice(0, 2000), data);
});

test('an ACK never completes an atomic: the atomic is retransmitted (S27)', (wire) => {
  const atomic = { remoteAddr: 64n, rkey: 1, compareAdd: 1n };
  wire.qp.postSend({ opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList: wire.sge(0, 8), atomic });
  wire.expectPacket({ opcode: Opcode.RC_FETCH_ADD, psn: 0x100 });
  wire.acknowledge(0x100);
  assert.equal(wire.completions(), []);
  wire.expectPacket({ opcode: Opcode.RC_FETCH_ADD, psn: 0x100, swapAdd: 1n });
});

test('a READ whose responses stopped goes on behind what arrived, with its PSNs (S31)', (wire) => {
  const data = pattern(3000);
  const syndrome = 0x1f;
  wire.post(WrOpcode.RDMA_READ, 3000, SIGNALED);
  wire.expectPacket({ psn: 0x100, virtualAddress: 0x10000n, dmaLength: 3000 });
  const first = { opcode: Opcode.RC_RDMA_READ_RESPONSE_FIRST, psn: 0x100, syndrome };
  wire.sendPacket(first, data.slice(0, 1024));
  waitForPacket(wire);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x100 }); // path-mtu.test.ts
  wire.expectPacket({ psn: 0x101, virtualAddress: 0x10400n, dmaLength: 1976 });
  wire.sendPacket({ ...first, psn: 0x101 }, data.slice(1024, 2048));
  waitForPacket(wire);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x101 });
  wire.expectPacket({ psn: 0x102, virtualAddress: 0x10800n, dmaLength: 952 });
  const only = { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x102, syndrome };
  wire.sendPacket(only, data.slice(2048));
  assert.equal(wire.statuses(), ['SUCCESS']);
  assert.equal(wire.buffer.slice(0, 3000), data);
});

test('a WRITE that goes on in its middle keeps its opcodes, and only its start has a RETH (S32)', (wire) => {
  wire.buffer.set(pattern(3000));
  wire.post(WrOpcode.RDMA_WRITE, 3000, SIGNALED);
  const sent = wire.takePackets();
  wire.acknowledge(0x101, NakCode.PSN_SEQUENCE_ERROR);
  const again = wire.takePackets();
  assert.equal(
    again.map(({ name, psn }) => [name, psn]),
    [
      ['RC_RDMA_WRITE_MIDDLE', 0x101],
      ['RC_RDMA_WRITE_LAST', 0x102],
    ],
  );
  assert.equal(again[0]?.payload, sent[1]?.payload);
  waitForPacket(wire);
  wire.takePackets();
  wire.acknowledge(0x101);
  wire.acknowledge(0x102);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('a WRITE that starts over names the same place with the same length (S32)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 2000);
  const [first] = wire.takePackets();
  waitForPacket(wire);
  const { virtualAddress, dmaLength, key } = first!;
  wire.expectPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0xff }); // path-mtu.test.ts
  wire.expectPacket({
    opcode: Opcode.RC_RDMA_WRITE_FIRST,
    virtualAddress,
    dmaLength,
    key,
    psn: 0x100,
  });
});

test('the end of what is posted asks for an acknowledgement (S33)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 3000);
  assert.equal(
    wire.takePackets().map(({ ackRequest }) => ackRequest),
    [0, 0, 1],
  );
  const rdma = { remoteAddr: 0n, rkey: 1 };
  const one = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 4), rdma };
  wire.qp.postSend([one, one, one]);
  assert.is(wire.takePackets().at(-1)?.ackRequest, 1);
});

test('a window never closes without an acknowledgement asked for, however small it is (S33)', async () => {
  for (const windowPackets of [2, 3, 16, 128]) {
    const wire = await Wire.open({ device: { windowPackets }, bytes: 1 << 18 });
    wire.post(WrOpcode.RDMA_WRITE, 1 << 18, SIGNALED);
    for (let next = 0x100; next < 0x200;) {
      const sent = wire.takePackets();
      assert.ok(sent.length > 0 && sent.length <= windowPackets, `${sent.length} in flight`);
      const asking = sent.filter(({ ackRequest }) => ackRequest === 1);
      assert.ok(asking.length > 0, 'no packet of the window asks');
      assert.is(sent[0]?.psn, next);
      next = sent.at(-1)!.psn + 1;
      wire.acknowledge(next - 1);
    }
    assert.equal(wire.statuses(), ['SUCCESS']);
    await wire.close();
  }
});

test('a request that waits for those before it does not wait for their timer (S33)', () =>
  onWire({ attributes: { timeout: 0 } }, (wire) => {
    const { lkey } = wire.pd.regMr(wire.buffer.subarray(0, 64), 1, { invalidatable: true });
    const rdma = { remoteAddr: 0n, rkey: 1 };
    const write = { opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 4), rdma, ...SIGNALED };
    wire.qp.postSend([
      { wrId: 1, ...write },
      { wrId: 2, opcode: WrOpcode.LOCAL_INV, invalidateRkey: lkey, ...SIGNALED },
    ]);
    const asking = wire.takePackets().filter(({ ackRequest }) => ackRequest === 1);
    assert.equal(
      asking.map(({ psn }) => psn),
      [0x100],
      'the WRITE asks for an acknowledgement',
    );
    wire.acknowledge(0x100);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  }));

test('a request that fails locally completes after the earlier ones, whose ACK is requested (S33)', () =>
  onWire({ attributes: { timeout: 0 } }, (wire) => {
    const rdma = { remoteAddr: 0n, rkey: 1 };
    const write = { opcode: WrOpcode.RDMA_WRITE, rdma, ...SIGNALED };
    wire.qp.postSend([
      { wrId: 1, ...write, sgList: wire.sge(0, 4) },
      {
        wrId: 2,
        ...write,
        sgList: [{ addr: wire.mr.addr, length: 4, lkey: (wire.mr.lkey ^ 1) >>> 0 }],
      },
    ]);
    assert.ok(
      wire.takePackets().some(({ ackRequest }) => ackRequest === 1),
      'the first WRITE requests an acknowledgement',
    );
    wire.acknowledge(0x100);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 LOC_PROT_ERR']);
  }));

test('READ data behind a gap is dropped: nothing is written past it (S35)', (wire) => {
  const data = pattern(3000);
  const syndrome = 0x1f;
  wire.post(WrOpcode.RDMA_READ, 3000, SIGNALED);
  wire.takePackets();
  const first = { opcode: Opcode.RC_RDMA_READ_RESPONSE_FIRST, psn: 0x100, syndrome };
  const last = { opcode: Opcode.RC_RDMA_READ_RESPONSE_LAST, psn: 0x102, syndrome };
  wire.sendPacket(first, data.slice(0, 1024));
  wire.sendPacket(last, data.slice(2048));
  assert.is(wire.buffer[2048], 0);
  assert.equal(wire.statuses(), []);
  wire.expectPacket({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x101, dmaLength: 1976 });
  wire.sendPacket({ ...first, psn: 0x101 }, data.slice(1024, 2048));
  wire.sendPacket(last, data.slice(2048));
  assert.equal(wire.statuses(), ['SUCCESS']);
  assert.equal(wire.buffer.slice(0, 3000), data);
});

test('without an answer a request is sent retry_cnt times more, then fails (S37)', () =>
  onWire({ attributes: { retryCnt: 3 } }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 1 });
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId: 2 });
    wire.clock.advance(1e6);
    const sent = psns(wire);
    // From the second retry on only the oldest packet is sent, twice.
    assert.equal(sent, [0x100, 0x101, 0x100, 0x101, 0x100, 0x100, 0x100, 0x100]);
    assert.equal(wire.completions(), ['1 RETRY_EXC_ERR', '2 WR_FLUSH_ERR']);
    assert.is(wire.qp.state, QpState.ERR);
    assert.is(wire.context.counters().retryExceededErr, 1n);
  }));

test.with({ attributes: { retryCnt: 7 } })('retry_cnt 7 is seven, not for ever (S37)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.clock.advance(10e6);
  // The first retry is one packet, six are two.
  assert.is(wire.takePackets().length, 2 + 6 * 2);
  assert.equal(wire.statuses(), ['RETRY_EXC_ERR']);
});

/** Of a probe: the WRITE of this test has more packets, and the last one is LAST. */
const PROBE = Opcode.RC_RDMA_WRITE_ONLY;

test.with({ attributes: { retryCnt: 2 } })('progress gives all retries back (S37)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 5 * 1024, SIGNALED);
  for (let psn = 0x100; psn < 0x105; psn++) {
    wire.takePackets();
    waitForPacket(wire);
    waitForPacket(wire);
    // Behind a probe (path-mtu.test.ts).
    assert.is(wire.takePackets().find(({ opcode }) => opcode !== PROBE)?.psn, psn);
    wire.acknowledge(psn);
  }
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('rnr_retry 7 is for ever, and counts apart from retry_cnt (S37)', () =>
  onWire({ attributes: { rnrRetry: 7, retryCnt: 0 } }, (wire) => {
    wire.post(WrOpcode.SEND, 8, SIGNALED);
    for (let turn = 0; turn < 60; turn++) {
      wire.takePackets();
      wire.acknowledge(0x100, 0x21);
      waitForPacket(wire);
    }
    wire.acknowledge(0x100);
    assert.equal(wire.statuses(), ['SUCCESS']);
  }));

test('rnr_retry below 7 is counted, and progress gives it back (S37)', () =>
  onWire({ attributes: { rnrRetry: 2 } }, (wire) => {
    wire.post(WrOpcode.SEND, 8, { wrId: 1, ...SIGNALED });
    wire.post(WrOpcode.SEND, 8, { wrId: 2, ...SIGNALED });
    for (const psn of [0x100, 0x100, 0x101, 0x101]) {
      wire.takePackets();
      wire.acknowledge(psn, 0x21);
      waitForPacket(wire);
    }
    wire.acknowledge(0x101, 0x21);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 RNR_RETRY_EXC_ERR']);
    assert.is(wire.context.counters().retryRnrExceededErr, 1n);
  }));

test.with({ attributes: { timeout: 0 } })('timeout 0 arms no timer at all (S38)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
  wire.takePackets();
  assert.is(wire.clock.nextMicros(), undefined);
  wire.clock.advance(3600e6);
  wire.expectSilence();
  wire.acknowledge(0x100);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test('the timer is 4.096 us * 2^timeout: not less, not four times as long (S38)', async () => {
  for (const timeout of [1, 5, 10, 14, 20, 31]) {
    const wire = await Wire.open({ attributes: { timeout } });
    wire.post(WrOpcode.RDMA_WRITE, 8);
    wire.takePackets();
    const waited = waitForPacket(wire, 36000e6);
    const nominal = 4.096 * 2 ** timeout;
    assert.ok(waited >= nominal, `timeout ${timeout}: ${waited} us, less than ${nominal}`);
    assert.ok(waited <= 4 * nominal, `timeout ${timeout}: ${waited} us, too long`);
    await wire.close();
  }
});

test('progress arms the timer anew, and the last answer disarms it (S39)', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 2048, SIGNALED);
  wire.takePackets();
  wire.clock.advance(TIMEOUT * 0.75);
  wire.acknowledge(0x100);
  wire.clock.advance(TIMEOUT * 0.75);
  wire.expectSilence('the timer counts from the progress');
  wire.acknowledge(0x101);
  assert.equal(wire.statuses(), ['SUCCESS']);
  wire.clock.advance(60e6);
  wire.expectSilence('nothing is outstanding');
  assert.is(wire.context.counters().timeouts, 0n);
});

test('an answer at once, while the clock stands at a multiple of 2^32, leaves the timer short (S38)', (wire) => {
  wire.clock.advance(2 ** 32 - (wire.clock.now() % 2 ** 32));
  wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
  wire.acknowledge(psns(wire)[0]!);
  wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
  wire.takePackets();
  assert.ok(waitForPacket(wire) < 4 * TIMEOUT);
});

test('after an RNR NAK nothing is sent before its time, whatever the retransmit timer says (S40)', () =>
  onWire({ attributes: { timeout: 1, retryCnt: 0 } }, (wire) => {
    wire.post(WrOpcode.SEND, 8, SIGNALED);
    wire.post(WrOpcode.SEND, 8, SIGNALED);
    wire.takePackets();
    wire.acknowledge(0x100, 0x20 | 20);
    wire.post(WrOpcode.SEND, 8, SIGNALED);
    wire.clock.advance(10239);
    wire.expectSilence('10.24 ms are not over');
    wire.acknowledge(0x100, NakCode.PSN_SEQUENCE_ERROR);
    wire.acknowledge(0x100, 0x20 | 1);
    wire.expectSilence('no answer shortens the wait');
    wire.clock.advance(40);
    assert.equal(psns(wire).slice(0, 3), [0x100, 0x101, 0x102]);
  }));

test('every RNR code waits as long as the table says; code 0 is the longest (S40)', () =>
  onWire({ attributes: { rnrRetry: 7 } }, (wire) => {
    wire.post(WrOpcode.SEND, 8);
    for (const [code, micros] of RNR_MICROS.entries()) {
      wire.takePackets();
      wire.acknowledge(0x100, 0x20 | code);
      const waited = waitForPacket(wire);
      assert.ok(waited >= micros && waited <= micros + 32, `code ${code}: ${waited} us`);
    }
  }));

test('an acknowledgement during the wait after an RNR NAK still counts (S40)', (wire) => {
  wire.post(WrOpcode.SEND, 8, SIGNALED);
  wire.takePackets();
  wire.acknowledge(0x100, 0x20 | 20);
  wire.acknowledge(0x100);
  assert.equal(wire.statuses(), ['SUCCESS']);
  wire.clock.advance(1e6);
  wire.expectSilence('nothing is left to send again');
});

test('rnr_retry belongs to the requester, min_rnr_timer to the responder (S42)', () =>
  onWire({ attributes: { rnrRetry: 1, minRnrTimer: 7 } }, (wire) => {
    wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200, ackRequest: 1 }, 8);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x20 | 7 });
    wire.post(WrOpcode.SEND, 8);
    wire.takePackets();
    wire.acknowledge(0x100, 0x20 | 20);
    assert.ok(waitForPacket(wire) >= 10240, 'the peer’s time counts, not our own');
    wire.acknowledge(0x100, 0x20 | 20);
    assert.equal(wire.statuses(), ['RNR_RETRY_EXC_ERR']);
  }));

test('READ data whose AETH is no ACK is not believed', (wire) => {
  wire.post(WrOpcode.RDMA_READ, 8, SIGNALED);
  wire.takePackets();
  const only = { opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY, psn: 0x100 };
  wire.sendPacket({ ...only, syndrome: 0x62 }, 8);
  assert.equal(wire.statuses(), []);
  wire.sendPacket({ ...only, syndrome: 0x1f }, 8);
  assert.equal(wire.statuses(), ['SUCCESS']);
});

test.with({ mtu: Mtu.MTU_256 })('min_rnr_timer changes in RTS take effect (S42)', (wire) => {
  wire.qp.modify({ qpState: QpState.RTS, minRnrTimer: 3, qpAccessFlags: FULL_ACCESS });
  wire.sendPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 }, 8);
  wire.expectPacket({ syndrome: 0x20 | 3, psn: 0x200 });
});

test.run();
