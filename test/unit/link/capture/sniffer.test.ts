/** Packets of network interfaces: the kernel's filter, messages that the interface cuts, refusals. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { readPcap } from '../../../../host/link/capture/pcap.js';
import { portFilter } from '../../../../host/link/capture/port-filter.js';
import { Sniffer, segmentsOf } from '../../../../host/link/capture/sniffer.js';
import { RefusalError } from '../../../../host/errors/errors.js';
import { vectors } from '../../../support/paths.js';

const [captured] = [...readPcap(readFileSync(new URL('rxe/rc_write_multi.pcap', vectors)))];
const packet = captured!;

/** Classic BPF over an IP packet, as the kernel runs it: true if the frame is kept. */
function passes(program: Uint8Array, ip: Uint8Array): boolean {
  const code = new DataView(program.buffer, program.byteOffset, program.length);
  const frame = new DataView(ip.buffer, ip.byteOffset, ip.length);
  let accumulator = 0;
  for (let at = 0; at < program.length; at += 8) {
    const operation = code.getUint16(at, true);
    const value = code.getUint32(at + 4, true);
    const offset = (value | 0) + 0x100000;
    if (operation === 0x06) return value !== 0;
    if (operation === 0x54) accumulator &= value;
    else if (operation === 0x15) {
      at += 8 * code.getUint8(at + (accumulator === value ? 2 : 3));
    } else {
      const bytes = operation === 0x30 ? 1 : 2;
      if (offset + bytes > ip.length) return false;
      accumulator = bytes === 1 ? frame.getUint8(offset) : frame.getUint16(offset);
    }
  }
  throw new Error('the program has no end');
}

function ipv4(protocol: number, port: number, options = 0): Uint8Array {
  const bytes = Buffer.alloc(28 + options);
  bytes[0] = 0x45 + options / 4;
  bytes[9] = protocol;
  bytes.writeUInt16BE(port, 22 + options);
  return bytes;
}

function ipv6(next: number, port: number): Uint8Array {
  const bytes = Buffer.alloc(48);
  bytes[0] = 0x60;
  bytes[6] = next;
  bytes.writeUInt16BE(port, 42);
  return bytes;
}

test('the filter passes UDP to its ports, and headers that it cannot walk', () => {
  const program = portFilter([4791, 5000]);
  for (const kept of [ipv4(17, 4791), ipv4(17, 5000), ipv6(17, 4791), ipv6(17, 5000)]) {
    assert.ok(passes(program, kept));
  }
  for (const kept of [ipv4(17, 1, 4), ipv6(0, 1), ipv6(43, 1), ipv6(60, 1)]) {
    assert.ok(passes(program, kept));
  }
  for (const dropped of [ipv4(17, 53), ipv4(6, 4791), ipv6(17, 53), ipv6(6, 4791)]) {
    assert.not.ok(passes(program, dropped));
  }
});

test('a message that the interface cuts is several packets, with consecutive IP identifications', () => {
  const payload = Uint8Array.from({ length: 250 }, (_, index) => index);
  const long = { ...packet, payload, ipVersion: 4 as const, ipId: 0xffff };
  const pieces = [...segmentsOf(long, 100)];
  assert.equal(
    pieces.map(({ payload: piece, ipId }) => [piece.length, piece[0], ipId]),
    [
      [100, 0, 0xffff],
      [100, 100, 0],
      [50, 200, 1],
    ],
  );
  assert.equal([...segmentsOf(long, 0)], [long]);
  assert.equal([...segmentsOf(long, 250)], [long]);
});

test('an interface that does not exist is refused, with the command that lists them', async () => {
  let thrown: unknown;
  try {
    (await Sniffer.open({ name: 'no-such-name', ports: [4791] })).close();
  } catch (error) {
    thrown = error;
  }
  assert.instance(thrown, RefusalError);
  // Without koffi or on another system: EOPNOTSUPP; each names a remedy.
  assert.match((thrown as RefusalError).message, /ip link|verbena decode -/);
});

test.run();
