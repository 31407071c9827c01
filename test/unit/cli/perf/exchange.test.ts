/** The notes of perftest: our codec against its bytes on the wire, and malformed notes. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import * as wire from '../../../../host/cli/perf/exchange.js';
import { Gid } from '../../../../host/index.js';
import { readPcap } from '../../../../host/link/capture/pcap.js';
import { vectors } from '../../../support/paths.js';
import { expectRefusal } from '../../../support/refusal.js';

const SEND_ONLY = 0x04;
const BTH_BYTES = 12;
const ICRC_BYTES = 4;

/** The payloads of all SENDs of `ib_write_bw -R -n 5 -s 4096`: client and server by turns. */
function capturedMessages(): Buffer[] {
  const file = readFileSync(new URL('linux/perftest-ib_write_bw.pcap', vectors));
  return [...readPcap(file)]
    .filter(({ payload }) => payload[0] === SEND_ONLY)
    .map(({ payload }) => {
      const pad = (payload[1]! >> 4) & 3;
      return Buffer.from(payload.subarray(BTH_BYTES, payload.length - ICRC_BYTES - pad));
    });
}

test('every message of a capture of perftest is what it should be, in order', () => {
  const messages = capturedMessages();
  const lengths = messages.map(({ length }) => length);
  const both = (...list: number[]): number[] => list.flatMap((length) => [length, length]);
  assert.equal(lengths, both(16, 4, 4, 2, 56, 56, 56, 56, 56, 56, 8, 8, 8, 8, 8, 56));
  const [version, , cycle, , line, , mtu] = messages;
  assert.equal(wire.decodeVersion(version!), { version: '6.06', isOwnKind: false });
  assert.is(wire.decodeNumber(cycle!), 4096);
  assert.is(wire.decodeNumber(line!), 64);
  assert.is(wire.decodeMtu(mtu!), 5);
  assert.equal(wire.encodeNumber(4096), cycle);
  assert.equal(wire.encodeMtu(5), mtu);
});

test('destinations of a capture are read, and written byte for byte', () => {
  const messages = capturedMessages();
  const [client, server] = [messages[12]!, messages[13]!];
  const theirs = wire.decodeDestination(client);
  assert.equal(theirs, {
    outs: 1,
    qpn: 0x68,
    psn: 0x9cc58a,
    rkey: 0xdf63,
    vaddr: 0x55f588c9c000n,
    gid: Gid.parse('10.88.0.3'),
  });
  for (const bytes of [client, server]) {
    assert.equal(wire.encodeDestination(wire.decodeDestination(bytes)), bytes);
  }
  // Without -R the same as text.
  const text = wire.encodeDestinationText(theirs);
  assert.is(text.length, wire.DESTINATION_TEXT_BYTES);
  assert.equal(wire.decodeDestinationText(text), theirs);
  const gid = '00:00:00:00:00:00:00:00:00:00:ff:ff:0a:58:00:03';
  const start = `0000:0001:000068:9cc58a:0000df63:000055f588c9c000:${gid}:00000000:`;
  assert.is(text.toString('latin1').replace(/\0+$/, ''), start);
});

test('the client’s report of a capture is what it printed; the server’s is no number', () => {
  const messages = capturedMessages().slice(20, 30);
  const client = messages.filter((_, index) => index % 2 === 0);
  const report = wire.decodeReport(client);
  assert.is(report.bytes, 4096);
  assert.is(report.iters, 5);
  assert.ok(report.average > 10 && report.average < 11, `${report.average}`);
  assert.is(report.peak, report.average);
  assert.ok(Math.abs((report.messageRate * 1e6 * 4096) / 2 ** 20 - report.average) < 1e-9);
  assert.equal(wire.encodeReport(report), client);
  const server = wire.decodeReport(messages.filter((_, index) => index % 2 === 1));
  for (const value of Object.values(server)) assert.ok(Number.isFinite(value));
});

test('our own kind is known by what is behind the version, which perftest does not look at', () => {
  const ours = wire.encodeVersion();
  assert.is(ours.length, wire.VERSION_BYTES);
  assert.equal(wire.decodeVersion(ours), { version: '6.06', isOwnKind: true });
  // As C reads it.
  assert.is(ours.subarray(0, ours.indexOf(0)).toString('latin1'), '6.06');
});

test('an invalid version, MTU, destination or note is refused in words', () => {
  const version = (text: string): Buffer => Buffer.from(text.padEnd(16, '\0'), 'latin1');
  assert.is(wire.decodeVersion(version('25.10.0-0.128')).version, '25.10');
  expectRefusal(
    () => wire.decodeVersion(version('5.69')),
    'EPROTO',
    /perftest 5.69; it must be 5.70/,
  );
  for (const text of ['', 'GET / HTTP/1.1', '6', '6.06x6.06x6.06x6', '\x1b[2J']) {
    expectRefusal(
      () => wire.decodeVersion(Buffer.from(text.padEnd(16, ' '))),
      'EPROTO',
      /is not perftest/,
    );
  }
  for (const text of ['0\0', '6\0', '5', '55', '\0\0', '-1']) {
    expectRefusal(() => wire.decodeMtu(Buffer.from(text)), 'EPROTO', /invalid path MTU from peer/);
  }
  const good = wire.encodeDestinationText(wire.decodeDestination(Buffer.alloc(56, 1)));
  const bad = [good.subarray(1), good.fill(0x78, 5, 6), Buffer.alloc(108), Buffer.alloc(108, 58)];
  for (const bytes of bad) {
    expectRefusal(
      () => wire.decodeDestinationText(bytes),
      'EPROTO',
      /invalid destination from peer/,
    );
  }
  for (const text of ['', '{', '[]', 'null', '1', '"x"', '{"a":1}x']) {
    expectRefusal(
      () => wire.decodeNote(Buffer.from(text.padEnd(64, '\0'))),
      'EPROTO',
      /invalid note from peer/,
    );
  }
  expectRefusal(
    () => wire.encodeNote({ long: 'x'.repeat(2000) }),
    'EPROTO',
    /a note of \d+ bytes exceeds/,
  );
});

test('text of a peer is escaped before it reaches a terminal', () => {
  assert.is(wire.quoted('\x1b[31m\u202e"'), '"\\u001b[31m?\\""');
  assert.ok(wire.quoted('x'.repeat(1000)).length < 50);
});

test('numbers of a note are numbers, or what they are otherwise', () => {
  assert.is(wire.numberOf(1.5), 1.5);
  for (const value of [-1, NaN, Infinity, '1', null, undefined, {}, []]) {
    assert.is(wire.numberOf(value, 7), 7);
  }
});

test('destinations are cut to what queue pair numbers and PSNs can be', () => {
  const { qpn, psn, rkey, vaddr } = wire.decodeDestination(Buffer.alloc(56, 0xff));
  assert.equal([qpn, psn, rkey, vaddr], [0xffffff, 0xffffff, 0xffffffff, 2n ** 64n - 1n]);
});

test.run();
