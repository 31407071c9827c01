/** Congestion notifications (IBA A17.9.3): an attacker needs the queue pair number to forge one. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { SendFlag, WrOpcode } from '../../host/index.js';
import { type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const FIRST = 0x100;
/** Window that remains after any number of notifications (path-control.ts). */
const LEAST_PACKETS = 4;

function notify(wire: Wire, count: number): void {
  for (let index = 0; index < count; index++) wire.sendPacket({ opcode: Opcode.CNP, psn: 0 });
}

function posted(wire: Wire, count: number): number {
  for (let wrId = 1; wrId <= count; wrId++) {
    wire.post(WrOpcode.RDMA_WRITE, 8, { wrId, sendFlags: SendFlag.SIGNALED });
  }
  return wire.takePackets().length;
}

/** An unknown round trip counts as this time. */
const ROUND_MICROS = 50;

test('any number of notifications leaves four packets of the window', (wire) => {
  wire.expectCounted({ cnpsReceived: 100 }, () => {
    for (let round = 0; round < 100; round++) {
      notify(wire, 1);
      wire.clock.advance(ROUND_MICROS);
    }
  });
  assert.is(posted(wire, 16), LEAST_PACKETS);
});

test('a notification halves the window, and seldom ones shave it (DCQCN)', (wire) => {
  const window = (): number => wire.qp.pathState()!.windowPackets;
  const whole = window();
  notify(wire, 1);
  assert.is(window(), whole / 2);
  // After 1,023 round trips without a mark a mark is worth 1/32.
  wire.clock.advance(1024 * ROUND_MICROS);
  notify(wire, 1);
  const left = (whole / 2) * (1 - 1 / 32);
  assert.ok(Math.abs(window() - left) <= 1, `${window()} of ${whole / 2} packets`);
});

test('a marked packet is answered by a notification, at most one each 50 us', (wire) => {
  let psn = 0x200;
  const write = { opcode: Opcode.RC_RDMA_WRITE_ONLY, ackRequest: 1, ...wire.reth(0, 4) };
  const marked = (): number => {
    wire.sendPacket({ ...write, psn: psn++, congestion: 0x80 }, 4);
    return wire.takePackets().filter(({ opcode }) => opcode === Opcode.CNP).length;
  };
  const sent = [marked(), marked()];
  wire.clock.advance(49);
  sent.push(marked());
  wire.clock.advance(1);
  sent.push(marked(), marked());
  assert.equal(sent, [1, 0, 0, 1, 0]);
});

test('notifications while packets are in flight lower the window once', (wire) => {
  const open = posted(wire, 64);
  notify(wire, 100);
  wire.sendPacket({
    opcode: Opcode.RC_ACKNOWLEDGE,
    psn: FIRST + open - 1,
    msn: open,
    syndrome: 0x1f,
  });
  assert.is(wire.completions().length, open);
  assert.ok(posted(wire, 64) >= open / 2, 'packets that leave at once');
});

test.run();
