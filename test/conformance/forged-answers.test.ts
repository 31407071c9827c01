/** Answers that a blind attacker forges: it knows the queue pair number, and tries PSNs. */
import * as assert from 'uvu/assert';
import { PeerState, NakCode, Opcode } from '#build/abi.js';
import { lookFor } from '../../host/cm/keep-alive.js';
import { QpState, SendFlag, WrOpcode } from '../../host/index.js';
import { makePair } from '../support/pair.js';
import { onWire, type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { REMOTE_ACCESS_ERROR } = NakCode;
const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const IN_FLIGHT = 64;
/** The default `sendPsn` of a Wire. */
const FIRST = 0x100;
/** Answers that fail a check before a fatal NAK is confirmed. */
const SUSPICIOUS = 16;

/** An ACKNOWLEDGE packet. */
function answer(wire: Wire, psn: number, msn: number, syndrome = 0x1f): void {
  wire.sendPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: psn & 0xffffff, msn, syndrome });
}

function writes(wire: Wire, count: number): void {
  for (let wrId = 1; wrId <= count; wrId++) {
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId, ...SIGNALED });
  }
  wire.takePackets();
}

test('a sweep of NAKs over four million PSNs ends no queue pair, and is not answered', () =>
  onWire({ sendPsn: 0x345678, attributes: { timeout: 22 } }, (wire) => {
    writes(wire, IN_FLIGHT);
    for (let psn = 0x200000; psn < 0x600000; psn += IN_FLIGHT) {
      answer(wire, psn, 0, REMOTE_ACCESS_ERROR);
    }
    assert.is(wire.qp.state, QpState.RTS);
    assert.equal(wire.completions(), []);
    wire.expectSilence();
    answer(wire, 0x345678 + IN_FLIGHT - 1, IN_FLIGHT);
    assert.is(wire.completions().length, IN_FLIGHT);
  }));

test('an answer is believed with the MSN of a message that was sent, and with no other', (wire) => {
  writes(wire, 4);
  for (const syndrome of [0x1f, REMOTE_ACCESS_ERROR, 0x20]) {
    for (const msn of [5, 6, 0x800000, 0xffffff]) {
      const ghosts = wire.counted(() => answer(wire, FIRST, msn, syndrome));
      assert.equal(ghosts, { dropGhost: 1 }, `MSN ${msn}, syndrome ${syndrome}`);
    }
  }
  answer(wire, FIRST + 1, 2);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  answer(wire, FIRST + 2, 1);
  assert.equal(wire.completions(), [], 'it goes back');
  answer(wire, FIRST + 3, 4);
  assert.equal(wire.completions(), ['3 SUCCESS', '4 SUCCESS']);
});

test('a peer that counts no WRITEs, as Linux rxe, is believed, and so is one that counts requests of a READ', (wire) => {
  writes(wire, 3);
  answer(wire, FIRST + 2, 0);
  assert.is(wire.completions().length, 3);
  wire.post(WrOpcode.RDMA_READ, 65536, SIGNALED);
  const requests = wire.takePackets().length;
  assert.ok(requests > 1, `${requests} READ requests`);
  // The first response is lost; one in the middle has no MSN.
  answer(wire, FIRST + 3 + 63, 3 + requests);
  wire.post(WrOpcode.RDMA_WRITE, 8);
  assert.is(wire.qp.state, QpState.RTS);
  wire.expectCounted({}, () => answer(wire, FIRST + 3 + 63, 3 + requests));
});

test('after a sweep a NAK ends a queue pair when the peer is silent, with the status of the NAK', (wire) => {
  writes(wire, 2);
  for (let guess = 0; guess < SUSPICIOUS; guess++) answer(wire, 0x800000 + guess, 0);
  answer(wire, FIRST + 1, 1, REMOTE_ACCESS_ERROR);
  assert.equal(wire.completions(), []);
  for (let seconds = 0; seconds < 10 && wire.qp.state === QpState.RTS; seconds++) {
    wire.clock.step();
  }
  assert.equal(wire.completions(), ['1 SUCCESS', '2 REM_ACCESS_ERR']);
});

test('after a sweep a NAK is forged where the peer answers', (wire) => {
  writes(wire, 2);
  for (let guess = 0; guess < SUSPICIOUS; guess++) answer(wire, 0x800000 + guess, 0);
  answer(wire, FIRST + 1, 1, REMOTE_ACCESS_ERROR);
  let repeated = 0;
  for (let time = 0; time < 10 && repeated === 0; time++) {
    wire.clock.step();
    repeated = wire.takePackets().length;
  }
  assert.ok(repeated > 0, 'the requests are repeated');
  answer(wire, FIRST, 1);
  answer(wire, FIRST + 1, 2);
  assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  // A peer that is not ready answers as well.
  wire.post(WrOpcode.SEND, 8, { wrId: 3, ...SIGNALED });
  wire.takePackets();
  answer(wire, FIRST + 2, 2, REMOTE_ACCESS_ERROR);
  answer(wire, FIRST + 2, 2, 0x20 | 1);
  repeated = 0;
  for (let time = 0; time < 100 && wire.qp.state === QpState.RTS; time++) {
    wire.clock.step();
    repeated += wire.takePackets().length;
  }
  assert.equal(wire.completions(), ['3 RETRY_EXC_ERR']);
  assert.ok(repeated >= 7, `${repeated} packets: all retries are there again`);
});

test('an acknowledgement with another MSN is no sign of life', (wire) => {
  lookFor(wire.qp);
  for (const [psn, msn] of [
    [FIRST - 1, 7],
    [FIRST - 5000, 0],
  ] as const) {
    answer(wire, psn, msn);
    assert.is(lookFor(wire.qp), PeerState.SILENT, `PSN ${psn}, MSN ${msn}`);
  }
  answer(wire, FIRST - 1, 0);
  assert.is(lookFor(wire.qp), PeerState.HEARD);
});

test('an honest NAK ends a queue pair at once', async () => {
  const pair = await makePair();
  pair.a.qp.postSend({
    wrId: 1,
    opcode: WrOpcode.RDMA_WRITE,
    sgList: [{ addr: pair.a.mr.addr, length: 8, lkey: pair.a.mr.lkey }],
    rdma: { remoteAddr: pair.b.mr.addr, rkey: pair.b.mr.rkey ^ 0x100 },
    sendFlags: SendFlag.SIGNALED,
  });
  pair.settle();
  assert.is(pair.a.qp.state, QpState.ERR);
  await pair.close();
});

test('an acknowledgement is late up to 4,096 packets, and forged beyond', (wire) => {
  wire.expectCounted({}, () => answer(wire, FIRST - 4096, 0));
  wire.expectCounted({ dropGhost: 1 }, () => answer(wire, FIRST - 4097, 0));
});

const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_MIDDLE } = Opcode;

test('a response without an MSN makes one message more plausible', (wire) => {
  wire.post(WrOpcode.RDMA_READ, 4096, SIGNALED);
  wire.takePackets();
  const first = { opcode: RC_RDMA_READ_RESPONSE_FIRST, psn: FIRST, msn: 1, syndrome: 0x1f };
  wire.sendPacket(first, 1024);
  wire.sendPacket({ opcode: RC_RDMA_READ_RESPONSE_MIDDLE, psn: FIRST + 1 }, 1024);
  // Two packets are in flight, and one was answered without an MSN.
  wire.expectCounted({ dropGhost: 1 }, () => answer(wire, FIRST + 2, 5));
});

test('an MSN that is believed ends what earlier responses made plausible', (wire) => {
  wire.post(WrOpcode.RDMA_READ, 3072, SIGNALED);
  wire.takePackets();
  const whole = { syndrome: 0x1f, msn: 1 };
  wire.sendPacket({ opcode: RC_RDMA_READ_RESPONSE_FIRST, psn: FIRST, ...whole }, 1024);
  wire.sendPacket({ opcode: RC_RDMA_READ_RESPONSE_MIDDLE, psn: FIRST + 1 }, 1024);
  const last = { opcode: Opcode.RC_RDMA_READ_RESPONSE_LAST, psn: FIRST + 2, ...whole };
  wire.sendPacket(last, 1024);
  assert.equal(wire.statuses(), ['SUCCESS']);
  writes(wire, 1);
  wire.expectCounted({ dropGhost: 1 }, () => answer(wire, FIRST + 3, 3));
  answer(wire, FIRST + 3, 2);
  assert.equal(wire.completions(), ['1 SUCCESS']);
});

test.run();
