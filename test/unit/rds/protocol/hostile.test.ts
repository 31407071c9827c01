/** Messages of a hostile node cost at most its connection: no throw, no memory, no other peer. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../../../host/link/endpoint.js';
import { HEADER_BYTES, HeaderFlag } from '../../../../host/rds/wire/constants.js';
import { ControlKind, buildControl } from '../../../../host/rds/wire/peer-control.js';
import type { Path } from '../../../../host/rds/protocol/path.js';
import { Random } from '../../../simulation/random.js';
import { NOW, PORT, Victim, packet } from '../../../support/rds-victim.js';

/** A control message of a peer of our own kind. */
function tell(victim: Victim, kind: number, isSet: boolean, ports: number[]): void {
  const payload = buildControl({ kind, isSet, isReset: false, ports });
  const [flags, { length }] = [HeaderFlag.CONTROL, payload];
  const bytes = packet({ sequence: 0, flags, length, sourcePort: 0, destinationPort: 0 });
  bytes.set(payload, HEADER_BYTES);
  victim.send(bytes);
}

test('a message that violates the protocol ends the connection', () => {
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
    ['a malformed control message', true, [packet({ flags: HeaderFlag.CONTROL, length: 3 })]],
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

test('a message without a header continues one, or ends the connection', () => {
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

test('a peer that names a missing message holds its own receives only, while it is connected', () => {
  const victim = new Victim(true);
  victim.send(packet({ length: 3, extensions: { after: { connectionIndex: 1, sequence: 10 } } }));
  assert.is(victim.received, 0);
  assert.is(victim.packetsHeld, 1);
  // Unknown connections delay no message.
  victim.send(
    packet({
      length: 3,
      sequence: 2,
      sourcePort: 8,
      extensions: { after: { connectionIndex: 200, sequence: 1 } },
    }),
  );
  assert.is(victim.received, 1);
  const { heartbeatMicros } = victim.core;
  victim.core.close(NOW + heartbeatMicros);
  assert.is(victim.packetsHeld, 0);
});

/** A path in use: a message came, and one is in flight. */
function inUse(): { victim: Victim; path: Path } {
  const victim = new Victim(true);
  victim.send(packet({ length: 3 }));
  tell(victim, ControlKind.PORTS, true, [5]);
  const peer = Endpoint.parse('10.0.0.9', 4791);
  victim.core.send(NOW, victim.port, peer, 5, [new Uint8Array(1)]);
  return { victim, path: victim.core.pathTo(peer)! };
}

test('a request with a forged source changes nothing of the path that it names', () => {
  const requests = [
    { connectionIndex: 0, incarnation: 8, generation: 3 },
    { connectionIndex: 0, incarnation: 7, generation: 0 },
    { connectionIndex: 2, incarnation: 9, generation: 0 },
    undefined,
  ];
  for (const own of requests) {
    const { victim, path } = inUse();
    const forged = Array.from({ length: 10 }, () => victim.forge(own));
    // Its place goes to later requests.
    assert.ok(forged[0]!.isClosed());
    for (const each of forged) each.down();
    assert.equal([path.state, path.kind, path.pending], ['ACTIVE', 'own', 1]);
    assert.not(victim.isClosed);
    assert.equal([victim.core.statistics.lost, path.incarnations.incarnation], [0, 7]);
    // The peer retransmits after an outage: the message is known.
    victim.down();
    victim.ask();
    victim.up();
    victim.send(packet({ length: 3, flags: HeaderFlag.RETRANSMITTED }));
    assert.equal([victim.received, victim.core.statistics.duplicates], [1, 1]);
    victim.end();
  }
});

test('a forged request without the mark of our own kind admits no peer', () => {
  const victim = new Victim(true, false);
  victim.forge(undefined).down();
  const [path] = victim.core.paths;
  assert.equal([path!.kind, path!.isAdmitted], [undefined, false]);
  victim.end();
});

test('a peer that answers a further connection is on that one, and after a start another node', () => {
  const { victim, path } = inUse();
  const [earlier, again] = [7, 7].map((incarnation) =>
    victim.forge({ connectionIndex: 0, incarnation, generation: 0 }),
  ) as [ReturnType<Victim['forge']>, ReturnType<Victim['forge']>];
  again.up();
  assert.ok(victim.isClosed && earlier.isClosed());
  assert.equal([path.state, path.pending, victim.core.statistics.lost], ['ACTIVE', 1, 0]);
  const { generation } = path.incarnations;
  const started = victim.forge({ connectionIndex: 0, incarnation: 8, generation: 0 });
  assert.not(again.isClosed());
  started.up();
  assert.ok(again.isClosed());
  assert.equal([path.pending, victim.core.statistics.lost], [0, 1]);
  assert.equal([path.connections, path.incarnations.generation], [1, generation + 1]);
  started.down();
  victim.end();
});

test('control messages of a peer before its path is up are kept', () => {
  const victim = new Victim(true, false);
  const peer = Endpoint.parse('10.0.0.9', 4791);
  const send = (): unknown => {
    return victim.core.send(NOW, victim.port, peer, 5, [new Uint8Array(1)]);
  };
  assert.throws(send, /EWOULDBLOCK/);
  // The path is down from here on, and would fail.
  victim.down();
  victim.ask();
  tell(victim, ControlKind.PORTS, true, [5]);
  assert.throws(send, /EWOULDBLOCK/);
  const { writables } = victim;
  victim.up();
  assert.is(victim.writables, writables + 1);
  send();
  victim.core.advance(NOW + 2 * victim.core.heartbeatMicros);
  const [path] = victim.core.paths;
  assert.equal([path!.state, victim.core.statistics.lost], ['ACTIVE', 0]);
  victim.end();
});

test('queued messages of a failed path are dropped after a time, on any connection', () => {
  const victim = new Victim(true);
  victim.send(packet({ length: 3, extensions: { after: { connectionIndex: 1, sequence: 10 } } }));
  tell(victim, ControlKind.PORTS, true, [5]);
  // Another connection, which is never made.
  const peer = Endpoint.parse('10.0.0.9', 4791);
  victim.core.send(NOW, victim.port, peer, 5, [new Uint8Array(1000)]);
  const { heartbeatMicros } = victim.core;
  victim.core.advance(NOW + 1);
  victim.unanswered(NOW + 1);
  // The peer lives: its process may be busy, for a minute.
  victim.core.advance(NOW + 12 * heartbeatMicros);
  assert.equal([victim.core.statistics.lost, victim.packetsHeld], [0, 1]);
  victim.core.advance(NOW + 13 * heartbeatMicros + 1);
  assert.equal([victim.core.statistics.lost, victim.packetsHeld], [1, 1]);
  victim.core.advance(NOW + 18 * heartbeatMicros);
  assert.is(victim.packetsHeld, 0);
  victim.end();
});

test('a peer lives while its transport acknowledges or has no receive; then its silence ends it', () => {
  for (const sign of ['acknowledges', 'is busy', 'is silent', 'this node slept'] as const) {
    const victim = new Victim(true);
    tell(victim, ControlKind.HEARTBEAT, false, []);
    const { heartbeatMicros } = victim.core;
    const step = sign === 'this node slept' ? 3 * heartbeatMicros : heartbeatMicros / 3;
    victim.isPeerBusy = sign === 'is busy';
    for (let beat = 1; beat <= 12; beat++) {
      victim.core.advance(NOW + beat * step + 1);
      if (sign === 'acknowledges') victim.sent(NOW + beat * step + 2);
    }
    assert.is(victim.isClosed, sign === 'is silent', sign);
    victim.end();
  }
});

test('pings whose answers are never acknowledged take a bounded amount of memory', () => {
  const victim = new Victim(false);
  for (let sequence = 1; sequence < 1000; sequence++) {
    victim.send(packet({ sequence, length: 0, destinationPort: 0 }));
  }
  assert.ok(victim.buffersUsed > 0 && victim.buffersUsed <= 65, `${victim.buffersUsed}`);
  victim.end();
});

test('unknown flags, credits and extension headers change nothing', () => {
  for (const isOwnKind of [false, true]) {
    const victim = new Victim(isOwnKind);
    for (const [index, flags] of [0x08, 0x10, 0x20, 0x38].entries()) {
      const bytes = packet({ sequence: index + 1, length: 3, flags, credit: 255 });
      // An unknown type, any fields, and a wrong checksum.
      bytes.set([77, 1, 2, 3], 32);
      bytes.set([0, 0], 30);
      victim.send(bytes);
    }
    assert.not(victim.isClosed);
    assert.is(victim.received, 4);
    victim.end();
  }
});

test('forged maps and stalls stop only senders to their forger, until the next map', () => {
  const peer = Endpoint.parse('10.0.0.9', 4791);
  const codeTo = (victim: Victim, port: number): string => {
    try {
      victim.core.send(NOW, victim.port, peer, port, [new Uint8Array(1)]);
      return 'OK';
    } catch (error) {
      return (error as { code: string }).code;
    }
  };
  const linux = new Victim(false);
  const map = (filler: number, sequence: number): void => {
    for (const length of [4096, 4096]) {
      const bytes = packet({ sequence, flags: HeaderFlag.CONG_BITMAP, length: 8192 }, length);
      linux.send(bytes.fill(filler, HEADER_BYTES));
    }
  };
  map(0xff, 0);
  assert.equal([codeTo(linux, 1), codeTo(linux, 65535)], ['EWOULDBLOCK', 'EWOULDBLOCK']);
  map(0, 0);
  assert.equal([codeTo(linux, 1), codeTo(linux, 65535)], ['OK', 'OK']);
  linux.end();
  const own = new Victim(true);
  const say = (kind: number, isSet: boolean, ports: number[]): void =>
    tell(own, kind, isSet, ports);
  // Ports that are not bound are slow, one is bound twice, another freed that never was.
  say(ControlKind.STALLS, true, [0, 5, 65535]);
  say(ControlKind.PORTS, true, [5, 5, 65535]);
  say(ControlKind.PORTS, false, [7]);
  assert.equal(
    [5, 65535, 7].map((port) => codeTo(own, port)),
    ['EWOULDBLOCK', 'EWOULDBLOCK', 'EFAULT'],
  );
  say(ControlKind.STALLS, false, [5, 5, 65535]);
  assert.equal([codeTo(own, 5), codeTo(own, 65535)], ['OK', 'OK']);
  assert.is(own.core.statistics.stallEventsIgnored, 1);
  own.end();
});

test('a peer that takes no control messages is disconnected after two heartbeats', () => {
  const victim = new Victim(true);
  victim.room = 0;
  const user = { readable: () => {}, writable: () => {}, released: () => {} };
  const churn = (times: number): void => {
    for (let left = times; left > 0; left--) {
      victim.core.unbind(NOW, victim.core.bind(NOW, 9, user));
    }
  };
  churn(500);
  victim.core.advance(NOW + victim.core.heartbeatMicros);
  assert.not(victim.isClosed);
  churn(100);
  victim.core.advance(NOW + 2 * victim.core.heartbeatMicros);
  assert.ok(victim.isClosed);
  victim.end();
});

test('Linux is sent the last map of slow ports, not each one, and with no memory left as well', () => {
  const victim = new Victim(false);
  assert.is(victim.map?.[PORT >> 3], 0);
  Object.assign(victim, { room: 0, hasMemory: false });
  const { buffersUsed } = victim;
  for (let round = 0; round < 100; round++) {
    victim.core.stalled(victim.port, true);
    victim.core.stalled(victim.port, false);
  }
  victim.core.stalled(victim.port, true);
  assert.ok(victim.buffersUsed <= buffersUsed + 1, `${victim.buffersUsed} buffers`);
  victim.room = 100;
  victim.sent();
  assert.is(victim.map?.[PORT >> 3], 1 << (PORT & 7));
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
