/** parse(build(x)) is x, for whatever x. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import fc from 'fast-check';
import { PacketStatus } from '#build/abi.js';
import { Codec, fieldsOf, zlibIcrc, type Fields, type Flow } from '../../support/codec.js';
import {
  FIELD_BITS,
  ICRC_SIZE,
  OPCODES,
  fieldNamesOf,
  type OpcodeSpecification,
} from './specification.js';

const RUNS = 60;
const MTU_BYTES = 4096;

/** Any value in every field, also in those that the packet does not carry. */
function anyFields(): fc.Arbitrary<Fields> {
  const fields = Object.entries(FIELD_BITS).map(([name, bits]) => [
    name,
    bits === 64 ? fc.bigInt(0n, 2n ** 64n - 1n) : fc.integer({ min: 0, max: 2 ** bits - 1 }),
  ]);
  return fc.record(Object.fromEntries(fields)) as fc.Arbitrary<Fields>;
}

function anyPayload({ hasPayload }: OpcodeSpecification): fc.Arbitrary<Uint8Array> {
  if (!hasPayload) return fc.constant(new Uint8Array());
  const any = fc.uint8Array({ maxLength: MTU_BYTES, size: 'max' });
  return fc.oneof(any, fc.uint8Array({ maxLength: 9 }), fc.constant(new Uint8Array(MTU_BYTES)));
}

const anyFlow: fc.Arbitrary<Flow> = fc
  .tuple(fc.constantFrom(4 as const, 6 as const), fc.uint8Array({ minLength: 32, maxLength: 32 }))
  .chain(([ipVersion, addresses]) => {
    const size = ipVersion === 4 ? 4 : 16;
    const sixteenBits = fc.integer({ min: 0, max: 65535 });
    return fc.record({
      ipVersion: fc.constant(ipVersion),
      source: fc.constant(addresses.subarray(0, size)),
      destination: fc.constant(addresses.subarray(16, 16 + size)),
      sourcePort: sixteenBits,
      destinationPort: sixteenBits,
      ipId: ipVersion === 4 ? sixteenBits : fc.constant(0),
    });
  });

/** Fields that the parser must find: those of `given` that this opcode has. */
function carried(given: Fields, row: OpcodeSpecification): Partial<Fields> {
  const names = fieldNamesOf(row);
  const found = Object.entries(given).filter(([name]) => names.has(name as keyof Fields));
  return Object.fromEntries(found);
}

for (const shared of [false, true]) {
  const codec = new Codec(shared);
  const memory = shared ? 'shared' : 'unshared';
  for (const row of OPCODES) {
    test(`${row.name} in ${memory} memory: what was built is parsed, whatever its fields`, () => {
      const property = fc.property(
        anyFields(),
        anyPayload(row),
        anyFlow,
        (given, payload, flow) => {
          const padCount = -payload.length & 3;
          const fields = { ...given, opcode: row.opcode, padCount };
          const packet = codec.build(fields, payload, flow);
          assert.is(packet.length, row.length + payload.length + padCount + ICRC_SIZE);
          const parsed = codec.parse(packet);
          assert.is(parsed.status, PacketStatus.OK);
          assert.equal(parsed.fields, {
            ...fieldsOf(carried(fields, row)),
            headers: parsed.fields.headers,
            headersLength: row.length,
            payloadLength: payload.length,
            icrc: zlibIcrc(flow, packet),
          });
          assert.equal(codec.bytesInPlace(packet.length), packet);
          const from = row.length + payload.length;
          assert.equal(packet.slice(row.length, from), payload);
          assert.ok(packet.slice(from, from + padCount).every((byte) => byte === 0));
        },
      );
      fc.assert(property, { numRuns: RUNS });
    });
  }
}

test('fields that are too wide are cut to what the header holds, and touch no neighbour', () => {
  const codec = new Codec();
  const property = fc.property(
    anyFields(),
    fc.constantFrom(...OPCODES),
    fc.integer({ min: 0, max: 255 }),
    (given, row, excess) => {
      const narrow = { ...given, opcode: row.opcode };
      const above = excess * 2 ** 24;
      const wide = {
        ...narrow,
        targetQp: narrow.targetQp + above,
        psn: narrow.psn + above,
        msn: narrow.msn + above,
        sourceQp: narrow.sourceQp + above,
      };
      assert.equal(codec.buildHeaders(wide), codec.buildHeaders(narrow));
    },
  );
  fc.assert(property, { numRuns: 500 });
});

test.run();
