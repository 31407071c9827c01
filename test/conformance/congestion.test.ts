/** Congestion notifications (IBA A17.9.3): an attacker needs the queue pair number to forge one. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { SendFlag, WrOpcode } from '../../host/index.js';
import { type Wire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const FIRST = 0x100;
/** What stays open, however many notifications arrive (path-control.ts). */
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

test('any number of notifications leaves four packets of the window', (wire) => {
  wire.expectCounted({ cnpsReceived: 100 }, () => notify(wire, 100));
  assert.is(posted(wire, 16), LEAST_PACKETS);
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
