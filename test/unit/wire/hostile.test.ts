/**
 * Bytes from the wire that mean harm. The packets lie at the very end of the memory, so that a
 * parser that reads beyond a packet traps; its answer is compared with ./specification.ts.
 */
import * as assert from 'uvu/assert';
import fc from 'fast-check';
import { PacketStatus, PacketStatusName } from '#build/abi.js';
import { splitmix32 } from '../../../host/link/faults/fault.js';
import { Codec } from '../../support/codec.js';
import { loadAllCaptures } from '../../vectors/captures.js';
import { ICRC_SIZE, OPCODES, PACKET_SIZE_MAX, defectsOf } from './specification.js';
import { test } from '../../support/suite.js';

const codec = new Codec();

/** The parser's answer fits what is wrong with the bytes, and it has written nothing amiss. */
function assertJudged(packet: Uint8Array): PacketStatus {
  const { status, fields, isUntouched } = codec.parse(packet);
  const defects = defectsOf(packet);
  const names = [...defects].map((defect) => PacketStatusName[defect]);
  const hex = Buffer.from(packet).toString('hex');
  const told = `${PacketStatusName[status]} where [${names}]: ${hex}`;
  if (defects.size === 0) {
    assert.is(status, PacketStatus.OK, told);
    const { headersLength, payloadLength, padCount } = fields;
    assert.is(headersLength + payloadLength + padCount + ICRC_SIZE, packet.length, told);
  } else {
    assert.ok(defects.has(status), told);
    assert.ok(isUntouched, `${told}: the fields were written to`);
  }
  assert.is(
    Buffer.compare(codec.bytesInPlace(packet.length), packet),
    0,
    `${told}: it was changed`,
  );
  return status;
}

function packetOf(length: number, opcode: number, bits = 0): Uint8Array {
  const packet = new Uint8Array(length).fill(0x5a);
  packet.set([opcode, bits].slice(0, length));
  return packet;
}

const MALFORMED: [what: string, packet: Uint8Array, status: PacketStatus][] = [
  ['no byte at all', packetOf(0, 0), PacketStatus.TRUNCATED],
  ['one byte', packetOf(1, 0x04), PacketStatus.TRUNCATED],
  ['a BTH without ICRC', packetOf(12, 0x04), PacketStatus.TRUNCATED],
  ['a BTH and three bytes of ICRC', packetOf(15, 0x04), PacketStatus.TRUNCATED],
  ['a BTH and an ICRC, opcode without row', packetOf(16, 0x15), PacketStatus.UNKNOWN_OPCODE],
  ['the opcode 0xff', packetOf(16, 0xff), PacketStatus.UNKNOWN_OPCODE],
  ['FLUSH of the service RD', packetOf(36, 0x5c), PacketStatus.UNKNOWN_OPCODE],
  ['version 1', packetOf(16, 0x04, 0x01), PacketStatus.VERSION],
  ['version 15', packetOf(16, 0x04, 0x0f), PacketStatus.VERSION],
  ['a length of 17', packetOf(17, 0x04), PacketStatus.UNALIGNED],
  ['a length of 4159', packetOf(4159, 0x04), PacketStatus.UNALIGNED],
  ['a pad of 3 in no payload', packetOf(16, 0x04, 0x30), PacketStatus.SHORT_HEADERS],
  ['a pad of 1 that reaches into the RETH', packetOf(32, 0x0a, 0x10), PacketStatus.SHORT_HEADERS],
  ['a WRITE that ends in its RETH', packetOf(28, 0x0a), PacketStatus.SHORT_HEADERS],
  ['a WRITE that is only a BTH', packetOf(16, 0x0a), PacketStatus.SHORT_HEADERS],
  ['an atomic one word short', packetOf(40, 0x13), PacketStatus.SHORT_HEADERS],
  ['a FLUSH without FETH', packetOf(32, 0x1c), PacketStatus.SHORT_HEADERS],
  ['a FLUSH with payload', packetOf(40, 0x1c), PacketStatus.UNEXPECTED_PAYLOAD],
  ['a READ request with payload', packetOf(36, 0x0c), PacketStatus.UNEXPECTED_PAYLOAD],
  ['an ACK with payload', packetOf(24, 0x11), PacketStatus.UNEXPECTED_PAYLOAD],
  ['an ACK with pad', packetOf(24, 0x11, 0x10), PacketStatus.UNEXPECTED_PAYLOAD],
  ['an ACK with payload of a whole MTU', packetOf(4116, 0x11), PacketStatus.UNEXPECTED_PAYLOAD],
  ['one word more than any packet', packetOf(4164, 0x04), PacketStatus.TOO_LONG],
  ['a datagram of 65507 bytes', packetOf(65507, 0x04), PacketStatus.TOO_LONG],
];

for (const [what, packet, status] of MALFORMED) {
  test(`${what} is ${PacketStatusName[status]}`, () => {
    assert.is(PacketStatusName[assertJudged(packet)], PacketStatusName[status]);
  });
}

test('every length and every pad count of every opcode is judged right', () => {
  for (const { opcode } of OPCODES) {
    for (let length = 0; length <= 80; length++) {
      for (let pad = 0; pad < 4; pad++) assertJudged(packetOf(length, opcode, pad << 4));
    }
    for (let length = 4096; length <= PACKET_SIZE_MAX + 8; length++) {
      assertJudged(packetOf(length, opcode));
    }
  }
});

test('a length that lies has the parser look at nothing', () => {
  for (const length of [PACKET_SIZE_MAX + 4, 2 ** 16, 2 ** 31, 2 ** 32 - 4]) {
    const { status, isUntouched } = codec.parseInPlace(length);
    assert.is(status, PacketStatus.TOO_LONG);
    assert.ok(isUntouched);
  }
});

test('random bytes are judged right, and never trap', () => {
  const opcode = fc.oneof(
    fc.constantFrom(...OPCODES.map((row) => row.opcode)),
    fc.integer({ min: 0, max: 255 }),
  );
  const bits = fc.oneof(fc.constantFrom(0, 0x10, 0x20, 0x30), fc.integer({ min: 0, max: 255 }));
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 96, size: 'max' }),
    fc.uint8Array({ maxLength: PACKET_SIZE_MAX + 16, size: 'max' }),
  );
  const property = fc.property(bytes, opcode, bits, (packet, first, second) => {
    packet.set([first, second].slice(0, packet.length));
    assertJudged(packet);
  });
  fc.assert(property, { numRuns: 5000 });
});

test('packets of Linux with changed, missing and added bytes are judged right', () => {
  const random = splitmix32(20241120);
  const below = (limit: number): number => random() % limit;
  const statuses = new Set<PacketStatus>();
  for (const { packets } of loadAllCaptures()) {
    for (const { payload } of packets) {
      for (let round = 0; round < 12; round++) {
        const mutated = mutate(payload, below);
        statuses.add(assertJudged(mutated));
      }
    }
  }
  // It has met everything that a packet can be.
  assert.is(statuses.size, Object.keys(PacketStatus).length);
});

/** One to three changes: mostly in the headers, where they hurt. */
function mutate(packet: Uint8Array, below: (limit: number) => number): Uint8Array {
  let bytes = Uint8Array.from(packet);
  for (let changes = 1 + below(3); changes > 0; changes--) {
    const at = below(Math.min(bytes.length, below(4) ? 48 : bytes.length) || 1);
    switch (below(6)) {
      case 0:
        bytes = bytes.slice(0, below(bytes.length + 1));
        break;
      case 1:
        bytes = bytes.slice(0, at & ~3);
        break;
      case 2:
        bytes = Uint8Array.from([...bytes, ...new Uint8Array(4 * below(20))]);
        break;
      case 3:
        bytes = Uint8Array.from([...bytes.subarray(0, at), ...bytes.subarray(at + 1)]);
        break;
      case 4:
        // Pad count and version.
        if (bytes.length > 1) bytes[1]! ^= 1 << below(8);
        break;
      default:
        if (bytes.length > 0) bytes[at]! ^= 1 << below(8);
    }
  }
  return bytes;
}
