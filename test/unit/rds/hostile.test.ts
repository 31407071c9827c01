/** What a hostile node sends costs it the connection at most: no throw, no memory, no peer. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../../host/link/endpoint.js';
import type { Connection, SendBuffer } from '../../../host/rds/carrier.js';
import { HEADER_BYTES, HeaderFlag } from '../../../host/rds/constants.js';
import { RdsCore } from '../../../host/rds/core.js';
import { buildHandshake } from '../../../host/rds/handshake.js';
import { writeHeader, type RdsHeader } from '../../../host/rds/header.js';
import { HAS_HEADER } from '../../../host/rds/last-said.js';
import type { OutgoingMessage } from '../../../host/rds/message.js';
import type { Port } from '../../../host/rds/port.js';
import { Random } from '../../simulation/random.js';

const PORT = 4000;
const NOW = 1_000_000;

/** A connection that takes everything, and a node that it leads to. */
class Victim {
  buffersUsed = 0;
  packetsHeld = 0;
  isClosed = false;
  received = 0;
  readonly said: RdsHeader[] = [];
  readonly core: RdsCore;
  readonly port: Port;
  readonly #posted: OutgoingMessage[] = [];
  readonly #connection: Connection;
  readonly #owner;
  readonly #marks: number | undefined;

  constructor(isOwnKind: boolean) {
    const carrier = {
      connect: () => this.#connection,
      random: () => 1,
      receiveBytesMax: 2 ** 24,
      allocate: (length: number): SendBuffer => {
        this.buffersUsed++;
        return { payload: new Uint8Array(length), free: () => this.buffersUsed-- };
      },
    };
    this.#connection = {
      room: 100,
      marksHeaders: false,
      hold: () => true,
      post: (message, header) => {
        this.said.push(header);
        this.#posted.push(message);
      },
      postCopy: (header) => this.said.push(header),
      close: () => {
        this.isClosed = true;
        for (const message of this.#posted.splice(0)) message.letGo();
      },
    };
    this.#marks = isOwnKind ? HAS_HEADER : undefined;
    const local = Endpoint.parse('10.0.0.2', 4791);
    this.core = new RdsCore(carrier, { local, incarnation: 1, firstSequence: 500 });
    const user = { readable: () => this.#read(), writable: () => {}, released: () => {} };
    this.port = this.core.bind(NOW, PORT, user);
    const peer = Endpoint.parse('10.0.0.9', 4791);
    const own = isOwnKind ? { lane: 0, incarnation: 7, generation: 0 } : undefined;
    const request = buildHandshake({ source: peer.gid, target: local.gid, ack: 0, own });
    const acceptance = this.core.request(NOW, peer, request)!;
    const { lane } = acceptance;
    this.core.accepted(NOW, acceptance, this.#connection, request);
    lane.up(NOW, this.#connection, undefined);
    this.#owner = lane;
  }

  /** `immData`: what says, between our own, what the header is, or that there is one. */
  send(bytes: Uint8Array, immData: number | undefined = this.#marks): void {
    this.packetsHeld++;
    const release = (): void => void this.packetsHeld--;
    const memoryBytes = bytes.length;
    this.#owner.received(NOW, this.#connection, { bytes, immData, memoryBytes, release });
  }

  /** Nothing is held once the connection and the node are gone. */
  end(): void {
    this.#owner.down(NOW, this.#connection, false);
    this.core.close(NOW);
    assert.is(this.packetsHeld, 0);
    assert.is(this.buffersUsed, 0);
  }

  #read(): void {
    this.received++;
    this.core.read(NOW, this.port);
  }
}

function packet(fields: Partial<RdsHeader>, payloadBytes = fields.length ?? 0): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + payloadBytes);
  writeHeader(new DataView(bytes.buffer), 0, {
    sequence: 1,
    ack: 0,
    length: payloadBytes,
    sourcePort: 9,
    destinationPort: PORT,
    flags: 0,
    credit: 0,
    extensions: {},
    ...fields,
  });
  return bytes;
}

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
      victim.send(bytes);
    }
    if (victim.isClosed) closed++;
    received += victim.received;
    victim.end();
  }
  // Both happen: or nothing was tried.
  assert.ok(closed > 500 && received > 200, `${closed} closed, ${received} received`);
});

test.run();
