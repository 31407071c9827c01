/** Requests of a hostile peer, or of an attacker that guesses PSNs; and silence as an answer. */
import * as assert from 'uvu/assert';
import { PeerState, NakCode, Opcode } from '#build/abi.js';
import { lookFor } from '../../host/cm/keep-alive.js';
import { Mtu, QpState, QpType, SendFlag, WrOpcode } from '../../host/index.js';
import { markOf, onWire, pattern } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const SIGNALED = { sendFlags: SendFlag.SIGNALED };
const KEPT = { reorderPackets: 8, mtu: Mtu.MTU_256 };
const test = testsOnWire(KEPT);
const [OURS, THEIRS] = [0x100, 0x200];
const SEND = Opcode.RC_SEND_ONLY;
const WRONG_KEYS_MAX = 16;
const RESPONSE_WINDOW = 1024;

test('a packet ahead of its turn is kept with the mark of the peer, and with no other', (wire) => {
  for (let wrId = 0; wrId < 3; wrId++) wire.receive(wrId, wrId * 64, 64);
  wire.mark = 0;
  const right = markOf(OURS);
  for (const mark of [0, right - 1, right + 1, 127]) {
    wire.mark = mark;
    wire.sendPacket({ opcode: SEND, psn: THEIRS + 2, ackRequest: 1 }, pattern(8, 99));
    wire.expectSilence(`mark ${mark}`);
  }
  wire.mark = right;
  for (const index of [0, 1, 2]) {
    wire.sendPacket({ opcode: SEND, psn: THEIRS + index }, pattern(8, index));
  }
  assert.equal([...wire.buffer.subarray(128, 136)], [...pattern(8, 2)]);
});

test('of two packets with one PSN ahead of its turn none is kept; the same one again is', (wire) => {
  for (let wrId = 0; wrId < 4; wrId++) wire.receive(wrId, wrId * 64, 64);
  const send = (index: number, seed: number, ackRequest = 0): void => {
    wire.sendPacket({ opcode: SEND, psn: THEIRS + index, ackRequest }, pattern(8, seed));
  };
  const opcode = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  send(2, 2);
  send(3, 3);
  wire.expectPacket({ opcode, psn: THEIRS, aheadLow: 0b110n });
  send(3, 3, 1);
  wire.expectPacket({ opcode, psn: THEIRS, aheadLow: 0b110n });
  // Forged: other bytes under the PSN of one that is kept.
  send(3, 99);
  wire.expectPacket({ opcode, psn: THEIRS, aheadLow: 0b010n });
  for (const index of [0, 1, 3]) send(index, index);
  assert.equal([...wire.buffer.subarray(192, 200)], [...pattern(8, 3)]);
});

test('requests carry the mark between peers that keep packets, and none otherwise', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.post(WrOpcode.RDMA_READ, 8);
  const marks = wire.takePackets().map(({ bytes }) => bytes[8]! & 0x7f);
  assert.equal(marks, [markOf(THEIRS), markOf(THEIRS)]);
});

test.with({})('a peer like Linux gets zeros in the reserved bits', (wire) => {
  wire.post(WrOpcode.RDMA_WRITE, 8);
  wire.post(WrOpcode.RDMA_READ, 8);
  assert.equal(
    wire.takePackets().map(({ bytes }) => bytes[8]! & 0x7f),
    [0, 0],
  );
});

test('UC: the sixteenth WRITE with a wrong key ends the queue pair', () =>
  onWire({ qp: { qpType: QpType.UC } }, (wire) => {
    const opcode = Opcode.UC_RDMA_WRITE_ONLY;
    const { key, ...reth } = wire.reth(0, 4);
    for (let guess = 1; guess <= WRONG_KEYS_MAX; guess++) {
      assert.is(wire.qp.state, QpState.RTS, `guess ${guess}`);
      wire.sendPacket({ opcode, psn: THEIRS + guess, ...reth, key: key! ^ (guess << 8) }, 4);
    }
    assert.is(wire.qp.state, QpState.ERR);
    assert.equal(wire.takeEvents(), ['QP_ACCESS_ERR']);
    wire.expectSilence();
    wire.sendPacket({ opcode, psn: THEIRS, key, ...reth }, pattern(4, 99));
    assert.is.not(wire.buffer[0], pattern(4, 99)[0]);
  }));

test('an RNR NAK for what needs no receive request ends the queue pair', async () => {
  for (const opcode of [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ]) {
    await onWire({}, (wire) => {
      wire.post(opcode, 8, { wrId: 1, ...SIGNALED });
      wire.takePackets();
      wire.acknowledge(OURS, 0x20 | 31);
      assert.equal(wire.completions(), ['1 BAD_RESP_ERR']);
      assert.is(wire.qp.state, QpState.ERR);
    });
  }
  for (const opcode of [WrOpcode.SEND, WrOpcode.RDMA_WRITE_WITH_IMM]) {
    await onWire({}, (wire) => {
      wire.post(opcode, 8, { wrId: 1, ...SIGNALED });
      wire.takePackets();
      wire.acknowledge(OURS, 0x20 | 1);
      wire.clock.step();
      wire.expectPacket({ psn: OURS });
      wire.acknowledge(OURS);
      assert.equal(wire.completions(), ['1 SUCCESS']);
    });
  }
});

test.with({})('a peer that is never ready is distinguished from a live one', (wire) => {
  wire.post(WrOpcode.SEND, 8, { wrId: 1, ...SIGNALED });
  wire.takePackets();
  lookFor(wire.qp);
  assert.is(lookFor(wire.qp), PeerState.HEARD, 'nothing was answered: retries decide');
  for (let time = 0; time < 3; time++) {
    wire.acknowledge(OURS, 0x20 | 1);
    assert.is(lookFor(wire.qp), PeerState.NOT_READY);
    wire.clock.step();
    assert.is(lookFor(wire.qp), PeerState.NOT_READY, 'between two RNR NAKs as well');
  }
  wire.acknowledge(OURS);
  assert.is(lookFor(wire.qp), PeerState.HEARD);
  wire.post(WrOpcode.SEND, 8);
  assert.is(lookFor(wire.qp), PeerState.HEARD);
  assert.is(lookFor(wire.qp), PeerState.HEARD);
});

test('READ responses wait for a sign of the peer after a window of them', () =>
  onWire({ bytes: 2 ** 20, mtu: Mtu.MTU_256 }, (wire) => {
    const packets = 2 ** 20 / 256;
    const asked = { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: THEIRS, ...wire.reth(0, 2 ** 20) };
    wire.sendPacket(asked);
    const first = wire.takePackets();
    const probes = first.filter(({ opcode }) => opcode === Opcode.RC_RDMA_WRITE_ONLY);
    assert.equal(
      probes.map(({ psn, dmaLength, ackRequest }) => [psn, dmaLength, ackRequest]),
      [[OURS - 1, 0, 1]],
    );
    assert.is(first.length - probes.length, RESPONSE_WINDOW);
    wire.clock.step();
    wire.expectSilence('the peer is silent');
    // A packet that is not the peer's opens nothing.
    wire.acknowledge(OURS + 0x100000);
    wire.acknowledge(OURS - 1, NakCode.REMOTE_ACCESS_ERROR);
    let sent = RESPONSE_WINDOW;
    sent += wire.takePackets().filter(({ opcode }) => opcode !== Opcode.RC_RDMA_WRITE_ONLY).length;
    for (let time = 0; time < 8 && sent < packets; time++) {
      wire.acknowledge(OURS - 1);
      const more = wire.takePackets();
      sent += more.filter(({ opcode }) => opcode !== Opcode.RC_RDMA_WRITE_ONLY).length;
    }
    assert.is(sent, packets);
  }));

test.run();
