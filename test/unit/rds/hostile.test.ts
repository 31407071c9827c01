/** What a hostile node sends costs it the connection at most: no throw, no memory, no peer. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { HEADER_BYTES, HeaderFlag } from '../../../host/rds/constants.js';
import { Random } from '../../simulation/random.js';
import { NOW, PORT, Victim, packet } from '../../support/rds-victim.js';

test('what is out of the rules ends the connection', () => {
  const rows: readonly [string, boolean, readonly Uint8Array[]][] = [
    ['nothing', false, [new Uint8Array(0)]],
    ['a header cut short', false, [packet({}).subarray(0, 47)]],
    ['a message without a number', false, [packet({ sequence: 0, length: 5 })]],
    ['more than a message may have', false, [packet({ length: 2 ** 20 + 1 }, 4096)]],
    ['2^32 - 1 bytes', false, [packet({ length: 2 ** 32 - 1 }, 4096)]],
    ['more bytes than it says', false, [packet({ length: 5 }, 6)]],
    ['fewer bytes than a fragment has', false, [packet({ length: 5000 }, 4095)]],
    ['an empty fragment', false, [packet({ length: 5000 }, 0)]],
    [
      'fragments of two messages',
      false,
      [packet({ length: 5000 }, 4096), packet({ length: 5000, sequence: 2 }, 904)],
    ],
    ['a map that is no map', false, [packet({ flags: HeaderFlag.CONG_BITMAP, length: 100 })]],
    ['an acknowledgement of what was not sent', false, [packet({ ack: 500 })]],
    ['control messages of Linux', false, [packet({ flags: HeaderFlag.CONTROL, length: 2 })]],
    ['a control message that is none', true, [packet({ flags: HeaderFlag.CONTROL, length: 3 })]],
    ['a gap', true, [packet({ length: 1 }), packet({ length: 1, sequence: 3 })]],
  ];
  for (const [name, isOwnKind, packets] of rows) {
    const victim = new Victim(isOwnKind);
    for (const bytes of packets) victim.send(bytes);
    assert.ok(victim.isClosed, name);
    assert.is(victim.core.statistics.protocolErrors, 1, name);
    victim.end();
  }
});

test('what comes without a header follows on one, or ends the connection', () => {
  const ports = (9 << 16) | PORT;
  const victim = new Victim(true);
  victim.send(packet({ sequence: 7, length: 3 }));
  victim.send(new Uint8Array(5), 'nothing');
  victim.send(new Uint8Array(0), ports);
  victim.send(packet({ sequence: 10, length: 1 }));
  assert.is(victim.received, 4);
  assert.not(victim.isClosed);
  victim.end();
  const rows: readonly [string, (victim: Victim) => void][] = [
    ['no header before', (one) => one.send(new Uint8Array(5), ports)],
    ['no ports before', (one) => one.send(new Uint8Array(5), 'nothing')],
    [
      'no message before',
      (one) => {
        one.send(packet({ sequence: 0, sourcePort: 0, destinationPort: 0 }));
        one.send(new Uint8Array(5), ports);
      },
    ],
    [
      'more than one SEND has',
      (one) => {
        one.send(packet({ length: 3 }));
        one.send(new Uint8Array(4097), ports);
      },
    ],
    [
      'between the fragments of another',
      (one) => {
        one.send(packet({ length: 5000 }, 4096));
        one.send(new Uint8Array(904), 'nothing');
      },
    ],
    [
      'behind the last number that there is',
      (one) => {
        one.send(packet({ sequence: Number.MAX_SAFE_INTEGER, length: 3 }));
        one.send(new Uint8Array(5), ports);
      },
    ],
  ];
  for (const [name, send] of rows) {
    const other = new Victim(true);
    send(other);
    assert.ok(other.isClosed, name);
    assert.is(other.core.statistics.protocolErrors, 1, name);
    other.end();
  }
});

test('a message that came before is taken once, as Linux and as our own tell it', () => {
  for (const isOwnKind of [false, true]) {
    const victim = new Victim(isOwnKind);
    victim.send(packet({ length: 3 }));
    victim.send(packet({ length: 3, flags: HeaderFlag.RETRANSMITTED }));
    assert.is(victim.received, 1);
    assert.is(victim.core.statistics.duplicates, 1);
    assert.not.ok(victim.isClosed);
    victim.end();
  }
});

test('a message for a port that is not there is dropped and acknowledged', () => {
  const victim = new Victim(false);
  victim.send(packet({ length: 3, destinationPort: 1, flags: HeaderFlag.ACK_REQUIRED }));
  assert.is(victim.core.statistics.recvPacketsDropped, 1);
  victim.core.advance(NOW + 1000);
  assert.is(victim.said.at(-1)!.ack, 1);
  victim.end();
});

test('whoever names a message that never comes keeps its own receives, and only while it is there', () => {
  const victim = new Victim(true);
  victim.send(packet({ length: 3, extensions: { after: { lane: 1, sequence: 10 } } }));
  assert.is(victim.received, 0);
  assert.is(victim.packetsHeld, 1);
  // Lanes that do not exist hold nobody up.
  victim.send(
    packet({
      length: 3,
      sequence: 2,
      sourcePort: 8,
      extensions: { after: { lane: 200, sequence: 1 } },
    }),
  );
  assert.is(victim.received, 1);
  const { heartbeatMicros } = victim.core;
  victim.core.close(NOW + heartbeatMicros);
  assert.is(victim.packetsHeld, 0);
});

test('pings that nobody acknowledges the answers of take a bounded amount of memory', () => {
  const victim = new Victim(false);
  for (let sequence = 1; sequence < 1000; sequence++) {
    victim.send(packet({ sequence, length: 0, destinationPort: 0 }));
  }
  assert.ok(victim.buffersUsed > 0 && victim.buffersUsed <= 65, `${victim.buffersUsed}`);
  victim.end();
});

test('random headers, flags, lengths and payloads: no throw, nothing held, in 3,000 connections', () => {
  const random = new Random(17);
  let [closed, received] = [0, 0];
  for (let run = 0; run < 3000; run++) {
    const victim = new Victim(random.chance(0.5));
    for (let count = 0; count < 4 && !victim.isClosed; count++) {
      const length = random.pick([0, 1, 3, 64, 4096, 5000, 8192]);
      const bytes = packet(
        {
          sequence: random.pick([0, 1, 1 + count, 2 ** 40]),
          ack: random.pick([0, 0, 0, 499, 2 ** 33]),
          length,
          sourcePort: random.pick([0, 1, 65535]),
          destinationPort: random.pick([0, PORT, PORT, PORT, 65535]),
          flags: random.pick([0, 0, 1, 2, 4, 6, 0x80, 0xff, 0x40]),
          credit: random.below(256),
        },
        random.chance(0.8) ? Math.min(length, 4096) : random.below(64),
      );
      random.fill(bytes.subarray(HEADER_BYTES));
      if (random.chance(0.05)) random.fill(bytes);
      const immData = random.pick([0, 0, 0, 'nothing' as const, (9 << 16) | PORT, 1, 0xffffffff]);
      victim.send(bytes, immData);
    }
    if (victim.isClosed) closed++;
    received += victim.received;
    victim.end();
  }
  // Both happen: or nothing was tried.
  assert.ok(closed > 500 && received > 200, `${closed} closed, ${received} received`);
});

test.run();
