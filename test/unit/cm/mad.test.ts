/** Management datagrams: the bytes that Linux wrote, and malformed ones. */
import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  IP_CM_BYTES,
  buildIpCm,
  caGuidOf,
  parseIpCm,
  serviceIdOf,
  traitsOf,
} from '../../../host/cm/address.js';
import { PortSpace } from '../../../host/cm/enums.js';
import {
  MAD_BYTES,
  buildMad,
  explainMad,
  parseMad,
  privateDataMax,
  type Message,
  type MessageName,
} from '../../../host/cm/mad.js';
import { Endpoint, Gid } from '../../../host/link/endpoint.js';
import { loadAllCaptures } from '../../vectors/captures.js';
import { MESSAGE_NAMES } from '../../support/cm-world.js';

const BTH_DETH = 20;
const ICRC = 4;

/** Every datagram to queue pair 1 that Linux sent. */
function recorded(): { readonly name: string; readonly mad: Uint8Array }[] {
  return loadAllCaptures().flatMap(({ name, packets }) =>
    packets
      .map(({ payload }) => payload)
      .filter((bytes) => bytes[0] === Opcode.UD_SEND_ONLY && bytes[7] === 1)
      .map((bytes) => ({
        name,
        mad: Uint8Array.from(bytes.subarray(BTH_DETH, bytes.length - ICRC)),
      })),
  );
}

function rebuilt(message: Message): Uint8Array {
  const { name, transactionId, ...fields } = message;
  return buildMad(name, transactionId, fields as never);
}

function only<Name extends MessageName>(capture: string, name: Name): Message<Name> {
  const found = recorded()
    .filter((datagram) => datagram.name === capture)
    .map(({ mad }) => parseMad(mad))
    .find((message) => typeof message !== 'string' && message.name === name);
  assert.ok(found, `${capture} has no ${name}`);
  return found as unknown as Message<Name>;
}

test('messages of Linux are parsed, and built again byte for byte', () => {
  const counts = new Map<string, number>();
  for (const { name, mad } of recorded()) {
    const message = parseMad(mad);
    if (typeof message === 'string') throw new Error(`${name}: ${message}`);
    assert.equal(rebuilt(message), mad, `${name} ${message.name}`);
    counts.set(message.name, (counts.get(message.name) ?? 0) + 1);
  }
  for (const name of ['REQ', 'REP', 'RTU', 'DREQ', 'DREP', 'REJ', 'SIDR_REQ', 'SIDR_REP']) {
    assert.ok((counts.get(name) ?? 0) > 0, `no ${name} was recorded`);
  }
});

test('the fields of a recorded connection are those that the programs requested', () => {
  const request = only('cm_rping', 'REQ');
  assert.is(request.serviceId, serviceIdOf(PortSpace.TCP, 7174));
  assert.equal(
    [request.localQpn, request.startingPsn, request.responderResources, request.initiatorDepth],
    [0x4b, 0x908be9, 1, 1],
  );
  assert.equal(
    [request.remoteCmResponseTimeout, request.localCmResponseTimeout, request.maxCmRetries],
    [20, 20, 15],
  );
  assert.equal([request.retryCount, request.rnrRetryCount, request.pathMtu], [7, 7, 5]);
  assert.equal([request.pkey, request.primaryLocalAckTimeout], [0xffff, 17]);
  const header = parseIpCm(request.privateData);
  assert.is(
    `${header?.source} ${header?.target} ${header?.sourcePort}`,
    '10.77.0.2 10.77.0.3 39596',
  );
  assert.is(only('cm_rping', 'REP').remoteCommId, request.localCommId);
  assert.is(only('cm_rping', 'DREQ').remoteQpn, 0x4b);
  assert.is(only('cm_rping_reject', 'REJ').reason, 8);
  const resolved = only('cm_udaddy_sidr', 'SIDR_REP');
  assert.equal([resolved.status, resolved.qpn, resolved.qkey], [0, 0x4d, 0x01234567]);
});

test('the header of rdma_cm is built as Linux builds it', () => {
  for (const { name, mad } of recorded()) {
    const message = parseMad(mad) as Message;
    if (message.name !== 'REQ' && message.name !== 'SIDR_REQ') continue;
    const header = parseIpCm(message.privateData);
    assert.ok(header, name);
    assert.equal(buildIpCm(header), message.privateData.slice(0, IP_CM_BYTES), name);
  }
  const ipv6 = { source: Gid.parse('fd77::2'), target: Gid.parse('fd77::3'), sourcePort: 5 };
  const again = parseIpCm(buildIpCm(ipv6));
  assert.is(`${again?.source} ${again?.target} ${again?.sourcePort}`, 'fd77::2 fd77::3 5');
});

test('every field keeps its own bits, and none of its neighbours’', () => {
  for (const name of MESSAGE_NAMES) {
    const privateData = new Uint8Array(privateDataMax(name));
    const empty = parseMad(buildMad(name, 0n, { privateData } as never));
    assert.type(empty, 'object');
    const fields = Object.entries(empty).filter(
      ([key]) => key !== 'name' && key !== 'transactionId',
    );
    for (const [field, zero] of fields) {
      const full = fullOf(zero);
      const message = parseMad(
        buildMad(name, 0n, { privateData, [field]: full } as never),
      ) as Message;
      for (const [other, value] of Object.entries(message)) {
        if (other === 'name' || other === field) continue;
        const want = other === 'transactionId' ? 0n : fields.find(([key]) => key === other)![1];
        assert.equal(value, want, `${name}.${field} changed ${other}`);
      }
      assert.not.equal((message as unknown as Record<string, unknown>)[field], zero, field);
    }
  }
});

function fullOf(zero: unknown): number | bigint | Uint8Array {
  if (zero instanceof Uint8Array) return new Uint8Array(zero.length).fill(0xff);
  return typeof zero === 'bigint' ? 0xffff_ffff_ffff_ffffn : 0xffffffff;
}

test('private data arrive with the length that they were sent with', () => {
  for (const name of MESSAGE_NAMES) {
    const most = privateDataMax(name);
    for (const length of [0, 1, 36, most - 1, most]) {
      // The last bytes are zeros, which only a length distinguishes from padding.
      const privateData = new Uint8Array(length).fill(7, 0, length >> 1);
      const message = parseMad(buildMad(name, 0n, { privateData } as never)) as Message;
      assert.equal(message.privateData, privateData, `${name} ${length}`);
    }
  }
});

test('private data fill their field where the sender states no length, or one past the field', () => {
  const mad = buildMad('REP', 0n, { privateData: Uint8Array.of(1, 2) });
  const view = new DataView(mad.buffer);
  for (const modifier of [0, 0x5645_ffff, 0x5645_00c5, 0x1234_0002]) {
    view.setUint32(20, modifier);
    assert.is((parseMad(mad) as Message).privateData.length, 196, modifier.toString(16));
  }
});

test('private data has the lengths of the specification', () => {
  const lengths = MESSAGE_NAMES.map((name) => [name, privateDataMax(name)]);
  assert.equal(Object.fromEntries(lengths), {
    REQ: 92,
    MRA: 222,
    REJ: 148,
    REP: 196,
    RTU: 224,
    DREQ: 220,
    DREP: 224,
    SIDR_REQ: 216,
    SIDR_REP: 136,
    LAP: 168,
    APR: 148,
  });
});

test('a malformed message is reported with its first fault', () => {
  const good = buildMad('RTU', 7n, { localCommId: 1 });
  const broken = (at: number, value: number): Uint8Array => {
    const mad = good.slice();
    mad[at] = value;
    return mad;
  };
  assert.is(parseMad(good.subarray(0, 255)), 'LENGTH');
  assert.is(parseMad(new Uint8Array(0)), 'LENGTH');
  assert.is(parseMad(new Uint8Array(257)), 'LENGTH');
  assert.is(parseMad(broken(0, 2)), 'BASE_VERSION');
  assert.is(parseMad(broken(1, 3)), 'MANAGEMENT_CLASS');
  assert.is(parseMad(broken(2, 1)), 'CLASS_VERSION');
  assert.is(parseMad(broken(3, 1)), 'METHOD');
  assert.is(parseMad(broken(17, 0x01)), 'ATTRIBUTE');
  assert.is(parseMad(broken(17, 0x1b)), 'ATTRIBUTE');
});

test('a message keeps no view of what it was read from', () => {
  const mad = buildMad('REP', 1n, { privateData: Uint8Array.of(1, 2, 3) });
  const message = parseMad(mad) as Message<'REP'>;
  mad.fill(0xee);
  assert.equal(message.privateData, Uint8Array.of(1, 2, 3));
});

test('whatever comes is parsed to a message that is the same when it is built again, or refused', () => {
  const header = fc
    .constantFrom(...MESSAGE_NAMES)
    .map((name) => buildMad(name, 0n, {}).subarray(0, 24));
  const body = fc.uint8Array({ minLength: MAD_BYTES - 24, maxLength: MAD_BYTES - 24 });
  fc.assert(
    fc.property(header, body, (head, tail) => {
      const mad = new Uint8Array(MAD_BYTES);
      mad.set(head);
      mad.set(tail, 24);
      const message = parseMad(mad) as Message;
      assert.equal(parseMad(rebuilt(message)), message);
      assert.type(explainMad(mad), 'string');
    }),
    { numRuns: 300 },
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      assert.type(parseMad(bytes), 'string');
      assert.match(explainMad(bytes), /^no message/);
    }),
    { numRuns: 300 },
  );
});

test('a datagram is put in words', () => {
  const mad = buildMad('REJ', 1n, { remoteCommId: 0x1234, reason: 8 });
  assert.is(explainMad(mad), 'connect reject: remoteCommId 0x1234, reason 8');
});

test('a Verbena peer announces port, buffer and reorder limit; any other peer is treated as Linux', () => {
  const info = {
    name: 'udp',
    pseudoHeader: 'ip',
    local: Endpoint.parse('10.0.0.1', 40791),
    packetSizeMax: 4160,
    windowBytes: 1,
    receiveBufferBytes: 425984,
  } as const;
  const guid = caGuidOf(info, 64);
  assert.is(guid >> 32n, 0x56455242n);
  assert.ok((guid >> 56n) & 2n, 'locally administered');
  assert.equal(traitsOf(guid), {
    isOwnKind: true,
    udpPort: 40791,
    receiveBufferBytes: 2 ** 18,
    reorderPackets: 64,
    skipsIcrc: false,
  });
  assert.ok(traitsOf(caGuidOf(info, 64, true)).skipsIcrc);
  for (const kept of [0, 1, 2, 4, 8, 16, 32, 64, 128, 8192]) {
    assert.is(traitsOf(caGuidOf(info, kept)).reorderPackets, kept);
  }
  const linux = {
    isOwnKind: false,
    udpPort: 4791,
    receiveBufferBytes: 212992,
    reorderPackets: 0,
    skipsIcrc: false,
  };
  const impossible = [0n, 0x505400fffe770001n, 0x56455242_0000_1200n, 0x56455242_12b7_2000n];
  for (const other of [...impossible, 0x56455242_12b7_120fn]) assert.equal(traitsOf(other), linux);
});

test.run();
