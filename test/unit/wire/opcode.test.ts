/** The opcode table, against numbers that were typed by hand (./specification.ts). */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Header, Opcode, OpcodeName, PacketFlag, PacketStatus } from '#build/abi.js';
import { Codec, fieldsOf, type Fields } from '../../support/codec.js';
import { BTH_SIZE, HEADERS, ICRC_SIZE, OPCODES, opcodeSpecification } from './specification.js';

const codec = new Codec();

const BTH: Partial<Fields> = {
  targetQp: 0x222324,
  psn: 0x252627,
  pkey: 0x1234,
  solicited: 1,
  migration: 1,
  ackRequest: 1,
  congestion: 0xc0,
};
const BTH_BYTES = 'c01234c022232480252627';

const fromHex = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, 'hex'));
const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

test('there are 40 opcodes with the numbers of the specification, and one of ours', () => {
  assert.is(OPCODES.length, 41);
  for (const { opcode, name } of OPCODES) {
    assert.is((OpcodeName as Record<number, string>)[opcode], name);
    assert.is((Opcode as Record<string, number>)[name], opcode);
  }
  assert.is(Object.keys(Opcode).length, 41);
});

for (const { opcode, name, length, headers, hasPayload } of OPCODES) {
  const samples = headers.map((header) => HEADERS[header]);
  const expected = opcode.toString(16).padStart(2, '0') + BTH_BYTES;
  const bytes = [expected, ...samples.map((sample) => sample.bytes)].join('');
  const fields = Object.assign({ opcode, ...BTH }, ...samples.map((sample) => sample.fields));

  test(`${name} has ${length} bytes of headers, each field where it belongs`, () => {
    assert.is(bytes.length / 2, length);
    assert.is(toHex(codec.buildHeaders(fields)), bytes);
    const { status, fields: parsed } = codec.parse(fromHex(`${bytes}01020304`));
    assert.is(status, PacketStatus.OK);
    assert.equal(parsed, {
      ...fieldsOf(fields),
      headers: headers.reduce((bits, header) => bits | Header[header], Header.BTH as number),
      headersLength: length,
      icrc: 0x04030201,
    });
  });

  test(`${name} ${hasPayload ? 'carries payload' : 'carries no payload'}`, () => {
    const { status, fields: parsed } = codec.parse(fromHex(`${bytes}aabbccdd01020304`));
    assert.is(status, hasPayload ? PacketStatus.OK : PacketStatus.UNEXPECTED_PAYLOAD);
    if (hasPayload) assert.is(parsed.payloadLength, 4);
  });
}

test('all other opcodes are refused by parser and builder', () => {
  let count = 0;
  for (let opcode = 0; opcode < 256; opcode++) {
    if (opcodeSpecification(opcode)) continue;
    count++;
    assert.is(codec.buildHeaders({ opcode }).length, 0, `opcode ${opcode}`);
    const packet = new Uint8Array(64);
    packet[0] = opcode;
    assert.is(codec.parse(packet).status, PacketStatus.UNKNOWN_OPCODE);
  }
  assert.is(count, 215);
});

test('the sizes of headers are those of the specification', () => {
  for (const [name, { size, bytes }] of Object.entries(HEADERS)) {
    assert.is(bytes.length / 2, size, name);
  }
  assert.is(BTH_SIZE + HEADERS.FETH.size + HEADERS.RETH.size + ICRC_SIZE, 36);
  // Every kind of header is in some opcode, and in the table of bits.
  const used = new Set(OPCODES.flatMap(({ headers }) => headers));
  assert.equal([...used].sort(), Object.keys(HEADERS).sort());
  assert.equal(['BTH', ...used].sort(), Object.keys(Header).sort());
});

test('flags and headers of a row fit its 16 bits', () => {
  for (const bits of [...Object.values(PacketFlag), ...Object.values(Header)]) {
    assert.ok(bits < 0x10000, `${bits}`);
  }
});

test.run();
