/** The ICRC of both engines, against zlib over a pseudo header that is written out. */
import * as assert from 'uvu/assert';
import { splitmix32 } from '../../../host/link/faults/fault.js';
import { Codec, ipIdEffect, zlibIcrc, type Flow, type IcrcForm } from '../../support/codec.js';
import { test } from '../../support/suite.js';

/** BTH and ICRC; path MTU 4096 and all headers, with room to spare. */
const LENGTH_MIN = 16;
const LENGTH_MAX = 4224;
const FORMS: readonly IcrcForm[] = ['standard', 'doubled'];

const codec = new Codec();
const random = splitmix32(4791);

function randomBytes(length: number): Uint8Array {
  return Uint8Array.from({ length }, () => random());
}

function randomFlow(ipVersion: 4 | 6, ipId = 0): Flow {
  const size = ipVersion === 4 ? 4 : 16;
  return {
    ipVersion,
    source: randomBytes(size),
    destination: randomBytes(size),
    sourcePort: random() & 0xffff,
    destinationPort: random() & 0xffff,
    ipId,
  };
}

for (const shared of [false, true]) {
  const engine = new Codec(shared);
  for (const ipVersion of [4, 6] as const) {
    const memory = shared ? 'shared' : 'unshared';
    test(`packets of all lengths over IPv${ipVersion} in ${memory} memory agree with zlib`, () => {
      for (let length = LENGTH_MIN; length <= LENGTH_MAX; length += 4) {
        const packet = randomBytes(length);
        const flow = randomFlow(ipVersion);
        for (const form of FORMS) {
          const told = `${length} bytes, ${form}`;
          assert.is(engine.icrc(flow, packet, form), zlibIcrc(flow, packet, form), told);
        }
        assert.is(Buffer.compare(engine.bytesInPlace(length), packet), 0, `${length}: changed`);
      }
    });
  }
}

test('byte 4 of the BTH may change on the way, the standard form does not see it', () => {
  const packet = randomBytes(1064);
  const flow = randomFlow(6);
  const [standard, doubled] = FORMS.map((form) => codec.icrc(flow, packet, form));
  for (let value = 0; value < 256; value++) {
    if (value === packet[4]) continue;
    const marked = Uint8Array.from(packet);
    marked[4] = value;
    assert.is(codec.icrc(flow, marked), standard, `byte ${value}`);
    assert.is.not(codec.icrc(flow, marked, 'doubled'), doubled, `byte ${value}`);
  }
});

test('every flipped bit of packet, addresses and ports changes the ICRC', () => {
  for (const ipVersion of [4, 6] as const) {
    for (const length of [16, 32, 84, 292]) {
      const packet = randomBytes(length);
      const flow = randomFlow(ipVersion);
      const intact = codec.icrc(flow, packet);
      for (let bit = 0; bit < (length - 4) * 8; bit++) {
        if (bit >> 3 === 4) continue;
        const flipped = flip(packet, bit);
        assert.is.not(codec.icrc(flow, flipped), intact, `bit ${bit} of ${length} bytes`);
      }
      for (let bit = 0; bit < flow.source.length * 8; bit++) {
        const [source, destination] = [flip(flow.source, bit), flip(flow.destination, bit)];
        assert.is.not(codec.icrc({ ...flow, source }, packet), intact);
        assert.is.not(codec.icrc({ ...flow, destination }, packet), intact);
      }
      for (let bit = 0; bit < 16; bit++) {
        const sourcePort = flow.sourcePort ^ (1 << bit);
        const destinationPort = flow.destinationPort ^ (1 << bit);
        assert.is.not(codec.icrc({ ...flow, sourcePort }, packet), intact);
        assert.is.not(codec.icrc({ ...flow, destinationPort }, packet), intact);
      }
    }
  }
});

function flip(bytes: Uint8Array, bit: number): Uint8Array {
  const flipped = Uint8Array.from(bytes);
  flipped[bit >> 3]! ^= 1 << (bit & 7);
  return flipped;
}

test('every IP id is solved for, in both forms, in short and long packets', () => {
  for (const length of [16, 20, 36, 100, 1064, 2112, 4160, LENGTH_MAX]) {
    const packet = randomBytes(length);
    // Only FLUSH requests are doubled. They have 36 bytes.
    const forms = FORMS.filter((form) => form === 'standard' || 2 * length - 4 <= LENGTH_MAX);
    for (let ipId = 0; ipId < 65536; ipId += length === 16 ? 1 : 251) {
      for (const form of forms) {
        const flow = randomFlowOf(ipId);
        const effect = ipIdEffect(flow, length, form);
        assert.is(codec.ipIdOf(effect, length, form), ipId, `${form}, ${length} bytes`);
      }
    }
    const flow = randomFlow(4, 1 + (random() & 0x7fff));
    for (const form of forms) {
      const difference = codec.icrc(flow, packet, form) ^ zlibIcrc(flow, packet, form);
      assert.is(codec.ipIdOf(difference, length, form), flow.ipId);
    }
  }
});

/** Only version and id count for what an id changes. */
function randomFlowOf(ipId: number): Flow {
  const none = new Uint8Array(4);
  const ports = { sourcePort: 0, destinationPort: 0 };
  return { ipVersion: 4, source: none, destination: none, ...ports, ipId };
}

test('corrupted packets are explained by an IP id as often as chance has it', () => {
  let explained = 0;
  const count = 2 ** 22;
  for (let round = 0; round < count; round++) {
    const ipId = codec.ipIdOf(random(), LENGTH_MIN + 4 * (random() % 256));
    assert.ok(ipId >= -1 && ipId < 65536, `id ${ipId}`);
    if (ipId >= 0) explained++;
  }
  // One in 65536 is 64, with a standard deviation of 8. The seed is fixed.
  assert.ok(explained > 32 && explained < 96, `${explained} of ${count}`);
});

test('no id explains a packet that is longer than any', () => {
  for (const length of [LENGTH_MAX + 4, 65536, 2 ** 32 - 4]) {
    assert.is(codec.ipIdOf(0x12345678, length), -1, String(length));
  }
});
