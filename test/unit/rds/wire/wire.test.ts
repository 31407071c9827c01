/** The wire of RDS: the bytes that Linux wrote, and malformed ones. */
import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { IP_CM_BYTES } from '../../../../host/cm/address.js';
import { parseMad } from '../../../../host/cm/mad.js';
import { CongestionMap } from '../../../../host/rds/wire/congestion-map.js';
import {
  CONGESTION_MAP_BYTES,
  HEADER_BYTES,
  HeaderFlag,
} from '../../../../host/rds/wire/constants.js';
import { ControlKind, buildControl, parseControl } from '../../../../host/rds/wire/peer-control.js';
import { buildHandshake, parseHandshake } from '../../../../host/rds/wire/handshake.js';
import { explainPacketMessage } from '../../../../host/rds/wire/explain.js';
import {
  noExtensions,
  readHeader,
  writeHeader,
  type RdsHeader,
} from '../../../../host/rds/wire/header.js';
import { HAS_HEADER, HeaderElision, portsOf } from '../../../../host/rds/wire/header-elision.js';
import { Gid } from '../../../../host/link/endpoint.js';
import { Random } from '../../../simulation/random.js';
import { loadCaptures } from '../../../vectors/captures.js';

const BTH = 12;
const BTH_DETH = 20;
const ICRC = 4;
/** cm messages of each capture, and first packets of SENDs. */
const CAPTURES = loadCaptures('linux').filter(({ name }) => name.startsWith('rds-'));

function written(header: RdsHeader): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES);
  writeHeader(new DataView(bytes.buffer, bytes.byteOffset, HEADER_BYTES), 0, header);
  return bytes;
}

/** First packets of all SENDs of a capture, without BTH and ICRC. */
function sends(packets: (typeof CAPTURES)[number]['packets']): Uint8Array[] {
  return packets
    .filter(
      ({ payload }) => payload[0] === Opcode.RC_SEND_ONLY || payload[0] === Opcode.RC_SEND_FIRST,
    )
    .map(({ payload }) => payload.subarray(BTH, payload.length - ICRC));
}

function headerOf(fields: Partial<RdsHeader> = {}): RdsHeader {
  return {
    sequence: 7,
    ack: 3,
    length: 10,
    sourcePort: 4000,
    destinationPort: 4001,
    flags: 0,
    credit: 0,
    extensions: {},
    ...fields,
  };
}

test('every header that Linux sent is read and built again, byte for byte', () => {
  assert.is(CAPTURES.length, 4);
  let count = 0;
  for (const { packets } of CAPTURES) {
    for (const bytes of sends(packets)) {
      const header = readHeader(bytes);
      assert.ok(header);
      assert.equal(written(header), Buffer.from(bytes.subarray(0, HEADER_BYTES)));
      count++;
    }
  }
  assert.is(count, 66);
});

test('packets of Linux are explained in words', () => {
  const sentences = CAPTURES.flatMap(({ packets }) =>
    packets.map(({ payload }) => explainPacketMessage(payload)).filter((text) => text !== ''),
  );
  assert.is(sentences.length, 66);
  for (const pattern of [
    /^RDS message \d+ from port \d+ to port \d+, 65536 bytes/,
    /^RDS congestion map, 8192 bytes/,
    /^RDS acknowledgement, acknowledges \d+/,
    /gives key 0x[0-9a-f]+, offset \d+/,
    /behind RDMA with key 0x[0-9a-f]+/,
    /to port 0\b/,
  ]) {
    assert.ok(
      sentences.some((text) => pattern.test(text)),
      `${pattern}`,
    );
  }
  const bytes = written(headerOf());
  const packet = Buffer.concat([Buffer.from([4]), Buffer.alloc(11), bytes, Buffer.alloc(14)]);
  const sentence = 'RDS message 7 from port 4000 to port 4001, 10 bytes, acknowledges 3';
  assert.is(explainPacketMessage(packet), sentence);
  for (const length of [0, 12, 16, 40, 63]) {
    assert.is(explainPacketMessage(packet.subarray(0, length)), '');
  }
  packet[30] = 1;
  assert.is(explainPacketMessage(packet), '');
});

test('Linux’s congestion maps, pings and RDMA destinations are what they are', () => {
  const all = CAPTURES.flatMap(({ packets }) => sends(packets).map((bytes) => readHeader(bytes)!));
  const maps = all.filter(({ flags }) => flags & HeaderFlag.CONG_BITMAP);
  assert.ok(maps.length >= 16);
  for (const { length, sequence } of maps) {
    assert.is(length, CONGESTION_MAP_BYTES);
    assert.is(sequence, 0);
  }
  const pings = all.filter(({ destinationPort, sourcePort }) => !destinationPort && sourcePort);
  assert.ok(pings.length > 0);
  assert.ok(pings.every(({ length }) => length === 0));
  const destinations = all.flatMap(({ extensions }) => extensions.rdmaDestination ?? []);
  assert.equal(destinations, [{ rkey: 0x5400, offset: 0 }]);
  const used = all.flatMap(({ extensions }) => extensions.rdmaRkey ?? []);
  assert.equal(used, [0x5400]);
});

test('a congestion map of Linux names the port whose reader slept', () => {
  const { packets } = CAPTURES.find(({ name }) => name === 'rds-congestion')!;
  const bits = new Set<string>();
  for (const bytes of sends(packets)) {
    const { flags } = readHeader(bytes)!;
    if ((flags & HeaderFlag.CONG_BITMAP) === 0) continue;
    const map = new CongestionMap();
    map.bytes.set(bytes.subarray(HEADER_BYTES, HEADER_BYTES + 4096));
    const ports: number[] = [];
    map.forEach((port) => ports.push(port));
    bits.add(ports.join());
  }
  assert.equal([...bits].sort(), ['', '4000']);
});

test('private data of Linux is read, and ours differs in what Linux leaves 0 alone', () => {
  let count = 0;
  for (const { packets } of CAPTURES) {
    for (const { payload: bytes } of packets) {
      if (bytes[0] !== Opcode.UD_SEND_ONLY) continue;
      const mad = parseMad(bytes.subarray(BTH_DETH, bytes.length - ICRC));
      if (typeof mad === 'string' || (mad.name !== 'REQ' && mad.name !== 'REP')) continue;
      const said = mad.privateData.subarray(mad.name === 'REQ' ? IP_CM_BYTES : 0);
      const handshake = parseHandshake(said, true);
      assert.ok(handshake);
      assert.is(handshake.own, undefined);
      assert.is(handshake.ack, 0);
      assert.match(`${handshake.source} ${handshake.target}`, /^10\.88\.0\.[23] 10\.88\.0\.[23]$/);
      assert.equal(buildHandshake(handshake), said.slice(0, 32));
      count++;
    }
  }
  assert.is(count, 8);
});

test('a header that is left out is known to the other end', () => {
  const { ACK_REQUIRED, RETRANSMITTED } = HeaderFlag;
  const random = new Random(5);
  const [here, there] = [new HeaderElision(), new HeaderElision()];
  const counts = { header: 0, 'but ports': 0, all: 0 };
  let sequence = 100;
  for (let count = 0; count < 5000; count++) {
    if (random.chance(0.01)) for (const one of [here, there]) one.begin();
    const isMessage = random.chance(0.9);
    if (isMessage) sequence += random.chance(0.95) ? 1 : 2;
    const header = {
      sequence: isMessage ? sequence : 0,
      ack: random.chance(0.9) ? 5 : 6,
      length: random.below(100),
      sourcePort: isMessage ? random.pick([0, 1, 65535, 65535]) : 0,
      destinationPort: random.pick([0, 9, 9]),
      flags: random.pick([0, ACK_REQUIRED, ACK_REQUIRED, RETRANSMITTED]),
      credit: 0,
      extensions: random.chance(0.9) ? noExtensions() : { rdmaRkey: 1 },
    };
    const bare = here.bareness(header);
    here.hear(header);
    counts[bare ?? 'header']++;
    if (bare) {
      const known = there.next(header.length, bare === 'all' ? undefined : portsOf(header));
      assert.equal(known, { ...header, flags: ACK_REQUIRED });
      // The immediate value for a header differs from any pair of ports.
      assert.is.not(portsOf(header), HAS_HEADER);
    }
    there.hear(header);
  }
  assert.ok(
    Object.values(counts).every((count) => count > 300),
    JSON.stringify(counts),
  );
});

test('the identity of a node is parsed back, over IPv4 and IPv6', () => {
  for (const [one, other] of [
    ['10.0.0.1', '10.0.0.2'],
    ['fd77::1', 'fd77::2'],
  ]) {
    const source = Gid.parse(one!);
    const own = { connectionIndex: 2, incarnation: 0xfedcba98, generation: 63 };
    const said = buildHandshake({ source, target: Gid.parse(other!), ack: 2 ** 51 + 5, own });
    assert.is(said.length, source.isIpv4 ? 32 : 56);
    const read = parseHandshake(said, source.isIpv4)!;
    assert.equal(read.own, own);
    assert.is(read.ack, 2 ** 51 + 5);
    assert.is(`${read.source} ${read.target}`, `${one} ${other}`);
  }
});

test('private data that is short, of another version, or with impossible counts is refused; credits are not', () => {
  const source = Gid.parse('10.0.0.1');
  const good = buildHandshake({ source, target: source, ack: 0, own: undefined });
  assert.ok(parseHandshake(good, true));
  for (let length = 0; length < 32; length++) {
    assert.is(parseHandshake(good.subarray(0, length), true), undefined);
  }
  for (const [at, value] of [
    [8, 4],
    [11, 1],
    [16, 0xff],
  ] as const) {
    const bad = good.slice();
    bad[at] = value;
    assert.is(parseHandshake(bad, true), undefined, `byte ${at}`);
  }
  const withCredits = good.slice();
  withCredits[27] = 1;
  assert.equal(parseHandshake(withCredits, true), parseHandshake(good, true));
});

test('a header with any bit flipped is refused, one without a checksum is not', () => {
  const good = written(headerOf());
  assert.ok(readHeader(good));
  for (let bit = 0; bit < HEADER_BYTES * 8; bit++) {
    const bad = Buffer.from(good);
    bad[bit >> 3]! ^= 1 << (bit & 7);
    assert.is(readHeader(bad), undefined, `bit ${bit}`);
  }
  const unchecked = Buffer.from(good);
  unchecked.writeUInt16BE(0, 30);
  assert.equal(readHeader(unchecked), headerOf());
  for (let length = 0; length < HEADER_BYTES; length++) {
    assert.is(readHeader(good.subarray(0, length)), undefined);
  }
});

test('extension headers end where one is not known, and never beyond the header', () => {
  const extensions = { after: { connectionIndex: 1, sequence: 2 ** 40 + 1 } };
  const after = headerOf({ extensions });
  assert.equal(readHeader(written(after)), after);
  const both = headerOf({
    extensions: { rdmaRkey: 0xfedcba98, rdmaDestination: { rkey: 1, offset: 2 } },
  });
  assert.equal(readHeader(written(both)), both);
  for (const others of [{}, extensions, both.extensions]) {
    const marked = headerOf({ extensions: { ...others, isAfterUdp: true } });
    assert.equal(readHeader(written(marked)), marked);
  }
  const unknown = written(headerOf({ extensions: { rdmaRkey: 9 } }));
  unchecked(unknown)[32] = 77;
  assert.equal(readHeader(unknown)!.extensions, {});
  const beyond = unchecked(written(headerOf()));
  beyond.set([2, 0, 0, 0, 1, 2, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0], 32);
  assert.equal(readHeader(beyond)!.extensions, { rdmaRkey: 2 });
});

function unchecked(header: Buffer): Buffer {
  header.writeUInt16BE(0, 30);
  return header;
}

test('a sequence number out of range is refused', () => {
  for (const at of [0, 8]) {
    const header = unchecked(written(headerOf()));
    header[at] = 0x20;
    assert.is(readHeader(header), undefined);
  }
});

test('anything at all is read without a throw, and what is read is built again', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 0, maxLength: 64 }), (bytes) => {
      readHeader(bytes);
      parseHandshake(bytes, true);
      parseHandshake(bytes, false);
      parseControl(bytes);
      if (bytes.length < HEADER_BYTES) return;
      const header = readHeader(unchecked(Buffer.from(bytes)));
      if (header) assert.equal(readHeader(written(header)), header);
    }),
    { numRuns: 3000, seed: 11 },
  );
});

test('control messages are read as they were built, and nothing else is one', () => {
  const control = { kind: ControlKind.STALLS, isSet: true, isReset: false, ports: [1, 65535, 300] };
  assert.equal(parseControl(buildControl(control)), control);
  for (const bytes of [[], [1], [9, 0], [0, 0], [1, 4], [1, 1, 2]]) {
    assert.is(parseControl(Uint8Array.from(bytes)), undefined);
  }
});

test.run();
