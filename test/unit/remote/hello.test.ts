/** The first message of a peer is hostile: each field has bounds. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  PROTOCOL,
  REGIONS_MAX,
  buildHello,
  parseHello,
  speaksProtocol,
  type Hello,
} from '../../../host/remote/hello.js';
import { RemoteError } from '../../../host/index.js';
import { Random } from '../../simulation/random.js';

const encode = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const REGION = ['table', 'ff00', 4096, 7, 15] as const;
const FIELDS = { id: '1f', messageBytesMax: 100, regions: [REGION], wanted: [['mine', 8]] };

function refused(bytes: Uint8Array, what: string): void {
  assert.throws(
    () => parseHello('connect', bytes),
    (error: unknown) => {
      assert.instance(error, RemoteError, `${what}: ${String(error)}`);
      assert.is((error as RemoteError).code, 'EPROTO');
      return true;
    },
    what,
  );
}

test('a built hello is parsed', () => {
  const hello: Hello = {
    id: 0xffff_ffff_ffff_ffffn,
    secret: 'ff',
    messageBytesMax: 2 ** 31,
    regions: [
      { name: 'a', addr: 0n, length: 1, rkey: 0xffffffff, rights: 0 },
      { name: '\u{1f600}', addr: (1n << 64n) - 8n, length: 8, rkey: 0, rights: 15 },
    ],
    wanted: [['w', 2 ** 32]],
    refusal: 'because',
  };
  assert.equal(parseHello('connect', buildHello(hello)), hello);
  assert.equal(parseHello('connect', encode(FIELDS)).regions[0]!.addr, 0xff00n);
});

test('fields with a wrong type, out of range or missing are refused', () => {
  const wrong: Record<string, unknown> = {
    'no id': { ...FIELDS, id: undefined },
    'a long id': { ...FIELDS, id: '12345678901234567' },
    'an upper-case id': { ...FIELDS, id: 'FF' },
    'a secret that is no text': { ...FIELDS, secret: 5 },
    'a long secret': { ...FIELDS, secret: '12345678901234567' },
    'a negative size': { ...FIELDS, messageBytesMax: -1 },
    'a size as text': { ...FIELDS, messageBytesMax: '5' },
    'a huge size': { ...FIELDS, messageBytesMax: 1e300 },
    'regions as an object': { ...FIELDS, regions: {} },
    'a region as an object': { ...FIELDS, regions: [{ name: 'a' }] },
    'a field too many': { ...FIELDS, regions: [[...REGION, 1]] },
    'an empty name': { ...FIELDS, regions: [['', 'ff', 1, 1, 1]] },
    'a long name': { ...FIELDS, regions: [['n'.repeat(129), 'ff', 1, 1, 1]] },
    'no bytes': { ...FIELDS, regions: [['a', 'ff', 0, 1, 1]] },
    'part of a byte': { ...FIELDS, regions: [['a', 'ff', 1.5, 1, 1]] },
    'the end of the address space': { ...FIELDS, regions: [['a', 'ffffffffffffffff', 2, 1, 1]] },
    'a key of 33 bits': { ...FIELDS, regions: [['a', 'ff', 1, 2 ** 32, 1]] },
    'unknown rights': { ...FIELDS, regions: [['a', 'ff', 1, 1, 32]] },
    'a name twice': { ...FIELDS, regions: [REGION, REGION] },
    'too many regions': {
      ...FIELDS,
      regions: Array.from({ length: REGIONS_MAX + 1 }, (_, at) => [`${at}`, '0', 1, 1, 1]),
    },
    'wanted nothing': { ...FIELDS, wanted: [['a', 0]] },
    'wanted too much': { ...FIELDS, wanted: [['a', 2 ** 32 + 1]] },
    'a refusal that is no text': { ...FIELDS, refusal: 5 },
    null: null,
    'a list': [],
    'a number': 5,
  };
  for (const [what, fields] of Object.entries(wrong)) refused(encode(fields), what);
  refused(new Uint8Array(0), 'nothing');
  refused(Uint8Array.of(0xff, 0xfe), 'no UTF-8');
});

test('a name of the prototype is a name', () => {
  const regions = [['__proto__', 'ff', 1, 1, 1]];
  const { regions: parsed } = parseHello('connect', encode({ ...FIELDS, regions }));
  assert.is(parsed[0]!.name, '__proto__');
});

test('messages with damaged bytes are parsed or refused, never anything else', () => {
  const random = new Random(7);
  const good = encode(FIELDS);
  for (let count = 0; count < 5000; count++) {
    const bytes = good.slice(0, 1 + random.below(good.length));
    for (let hits = random.below(4); hits >= 0; hits--) {
      bytes[random.below(bytes.length)] = random.below(256);
    }
    try {
      parseHello('connect', bytes);
    } catch (error) {
      assert.instance(error, RemoteError);
    }
  }
});

test('private data names the protocol and its version', () => {
  const padded = new Uint8Array(196);
  padded.set(PROTOCOL);
  assert.ok(speaksProtocol(padded));
  assert.not.ok(speaksProtocol(new Uint8Array(196)));
  assert.not.ok(speaksProtocol(PROTOCOL.subarray(1)));
});

test.run();
