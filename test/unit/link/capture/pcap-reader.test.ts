import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { readdirSync, readFileSync } from 'node:fs';
import { VerbenaError } from '../../../../host/errors/errors.js';
import { splitmix32 } from '../../../../host/link/faults/fault.js';
import { PcapError, readPcap, type CapturedPacket } from '../../../../host/link/capture/pcap.js';
import { pattern } from '../../../support/batch.js';
import { icrcMatches } from '../../../support/icrc.js';
import { vectors } from '../../../support/paths.js';

function rxe(name: string): Uint8Array {
  return readFileSync(new URL(`rxe/${name}`, vectors));
}

function collect(capture: Iterable<CapturedPacket>): CapturedPacket[] {
  return [...capture];
}

/** A pcap file of these frames. `u32` and `u16` in the byte order asked for. */
function pcap(
  frames: Uint8Array[],
  { linkType = 101, little = true, magic = 0xa1b2c3d4, fraction = 7, cut = 0 } = {},
): Uint8Array {
  const header = new DataView(new ArrayBuffer(24));
  header.setUint32(0, magic, little);
  header.setUint16(4, 2, little);
  header.setUint16(6, 4, little);
  header.setUint32(16, 65535, little);
  header.setUint32(20, linkType, little);
  const parts: Uint8Array[] = [new Uint8Array(header.buffer)];
  for (const frame of frames) {
    const record = new DataView(new ArrayBuffer(16));
    record.setUint32(0, 1_700_000_000, little);
    record.setUint32(4, fraction, little);
    record.setUint32(8, frame.length - cut, little);
    record.setUint32(12, frame.length, little);
    parts.push(new Uint8Array(record.buffer), frame.subarray(0, frame.length - cut));
  }
  return Buffer.concat(parts);
}

interface Datagram {
  protocol?: number;
  fragment?: number;
  options?: number;
  port?: number;
  udpLength?: number;
  totalLength?: number;
}

const PAYLOAD = pattern(20, 3);

function ipv4(given: Datagram = {}): Uint8Array {
  const { protocol = 17, fragment = 0x4000, options = 0, port = 4791 } = given;
  const ip = new DataView(new ArrayBuffer(20 + options));
  ip.setUint8(0, 0x40 | ((20 + options) / 4));
  ip.setUint16(2, given.totalLength ?? 20 + options + 8 + PAYLOAD.length);
  ip.setUint16(4, 0x1234);
  ip.setUint16(6, fragment);
  ip.setUint8(8, 63);
  ip.setUint8(9, protocol);
  ip.setUint32(12, 0x0a000001);
  ip.setUint32(16, 0x0a000002);
  return Buffer.concat([new Uint8Array(ip.buffer), udp(port, given.udpLength)]);
}

function ipv6(extensions: Uint8Array = new Uint8Array(0), next = 17): Uint8Array {
  const ip = new DataView(new ArrayBuffer(40));
  ip.setUint32(0, 0x60000000);
  ip.setUint16(4, extensions.length + 8 + PAYLOAD.length);
  ip.setUint8(6, next);
  ip.setUint8(7, 62);
  ip.setUint16(8, 0xfe80);
  ip.setUint8(23, 1);
  ip.setUint16(24, 0xfe80);
  ip.setUint8(39, 2);
  return Buffer.concat([new Uint8Array(ip.buffer), extensions, udp(4791)]);
}

function udp(port: number, length = 8 + PAYLOAD.length): Uint8Array {
  const header = new DataView(new ArrayBuffer(8));
  header.setUint16(0, 50000);
  header.setUint16(2, port);
  header.setUint16(4, length);
  return Buffer.concat([new Uint8Array(header.buffer), PAYLOAD]);
}

function ethernet(type: number[], packet: Uint8Array): Uint8Array {
  return Buffer.concat([new Uint8Array(12), Uint8Array.from(type), packet]);
}

test('reads every packet of the captures of Linux rxe, each with an ICRC that matches', () => {
  let packets = 0;
  let flushes = 0;
  const names = readdirSync(new URL('rxe/', vectors)).filter((name) => name.endsWith('.pcap'));
  assert.ok(names.length > 60);
  for (const name of names) {
    const file = rxe(name);
    const capture = readPcap(file);
    for (const packet of capture) {
      packets++;
      // rxe covers the headers of its FLUSH requests twice.
      if (packet.payload[0] === 0x1c) flushes++;
      else assert.ok(icrcMatches(file, packet), `${name} frame ${packet.frameNumber}`);
    }
    assert.is(capture.skipped.size, 0, name);
  }
  assert.ok(packets > 400);
  assert.is(flushes, 10);
});

test('reads addresses, ports, id, TTL, time and offsets', () => {
  const [first, second] = collect(readPcap(rxe('rc_send_only.pcap')));
  assert.is(first!.source.toString(), `10.77.0.2:${0xc121}`);
  assert.is(first!.destination.toString(), '10.77.0.3:4791');
  assert.is(first!.timestampMicros, 0x6b000686 * 1e6 + 0x0735f9);
  assert.is(first!.ipVersion, 4);
  assert.is(first!.ipId, 0x3a72);
  assert.is(first!.ttl, 64);
  assert.is(first!.payload.length, 24);
  assert.equal([...first!.payload.subarray(0, 4)], [4, 0x30, 0xff, 0xff]);
  assert.equal(
    [first!.frameOffset, first!.frameLength, first!.ipOffset, first!.udpOffset],
    [40, 66, 54, 74],
  );
  assert.is(first!.payloadOffset, 82);
  assert.is(second!.frameNumber, 2);
  const [six] = collect(readPcap(rxe('rc_send_only_ipv6.pcap')));
  assert.is(six!.source.toString(), `[fe80::5054:ff:fe77:1]:${0xd210}`);
  assert.is(six!.ipVersion, 6);
  assert.is(six!.ttl, 64);
});

test('a view of a larger buffer is read like a file of its own', () => {
  const file = rxe('rc_send_only.pcap');
  const padded = Buffer.concat([new Uint8Array(13), file]).subarray(13);
  assert.equal(
    collect(readPcap(padded)).map(({ payload }) => payload),
    collect(readPcap(file)).map(({ payload }) => payload),
  );
});

test('reads both byte orders and both resolutions', () => {
  for (const little of [true, false]) {
    const micro = collect(readPcap(pcap([ipv4()], { little })));
    assert.is(micro[0]!.timestampMicros, 1_700_000_000_000_007);
    const nano = collect(readPcap(pcap([ipv4()], { little, magic: 0xa1b23c4d, fraction: 7999 })));
    assert.is(nano[0]!.timestampMicros, 1_700_000_000_000_007);
    assert.equal(nano[0]!.payload, micro[0]!.payload);
  }
});

test('reads every link type that it names, with IPv4 and IPv6', () => {
  const sll = new Uint8Array(14);
  const sll2 = new Uint8Array(18);
  const forms: [linkType: number, frame: Uint8Array][] = [];
  for (const [type, packet] of [
    [[0x08, 0x00], ipv4()],
    [[0x86, 0xdd], ipv6()],
  ] as const) {
    const family = packet[0]! >> 4 === 4 ? 2 : 30;
    forms.push(
      [1, ethernet([...type], packet)],
      [1, ethernet([0x81, 0x00, 0x00, 0x05, ...type], packet)],
      [101, packet],
      [packet[0]! >> 4 === 4 ? 228 : 229, packet],
      [113, Buffer.concat([sll, Uint8Array.from(type), packet])],
      [276, Buffer.concat([Uint8Array.from(type), sll2, packet])],
      [0, Buffer.concat([Uint8Array.of(family, 0, 0, 0), packet])],
      [0, Buffer.concat([Uint8Array.of(0, 0, 0, family), packet])],
      [108, Buffer.concat([Uint8Array.of(0, 0, 0, family), packet])],
    );
  }
  for (const [linkType, frame] of forms) {
    const capture = readPcap(pcap([frame], { linkType }));
    const [packet] = collect(capture);
    assert.is(capture.linkType, linkType);
    assert.equal(Uint8Array.from(packet!.payload), PAYLOAD, `link type ${linkType}`);
  }
});

test('reads over IPv4 options and IPv6 extension headers', () => {
  const extension = (next: number, words: number): Uint8Array =>
    Uint8Array.from({ length: 8 * (1 + words) }, (_, index) => [next, words][index] ?? 0);
  const frames = [
    ipv4({ options: 40 }),
    ipv6(extension(17, 0), 0),
    ipv6(Buffer.concat([extension(60, 0), extension(17, 2)]), 0),
  ];
  const packets = collect(readPcap(pcap(frames)));
  assert.is(packets.length, 3);
  for (const { payload } of packets) assert.equal(Uint8Array.from(payload), PAYLOAD);
});

test('leaves out what pads a short Ethernet frame', () => {
  const frame = Buffer.concat([ethernet([8, 0], ipv4()), new Uint8Array(30)]);
  const [packet] = collect(readPcap(pcap([frame], { linkType: 1 })));
  assert.equal(Uint8Array.from(packet!.payload), PAYLOAD);
});

test('counts what it passes over, and why', () => {
  const manyExtensions = Buffer.concat(
    Array.from({ length: 9 }, () => Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0)),
  );
  // An extension header is announced, but the packet ends before it; the frame does not.
  const emptyIpv6 = ipv6(Uint8Array.of(17, 0, 0, 0, 0, 0, 0, 0), 0);
  emptyIpv6.fill(0, 4, 6);
  const cases = [
    ['not IP', ethernet([8, 6], new Uint8Array(28))],
    ['not IP', new Uint8Array(5)],
    ['not IP', ethernet([8, 0], Uint8Array.of(0x15))],
    ['not UDP', ethernet([8, 0], ipv4({ protocol: 6 }))],
    ['not UDP', ethernet([0x86, 0xdd], ipv6(undefined, 6))],
    ['another UDP port', ethernet([8, 0], ipv4({ port: 53 }))],
    ['an IP fragment', ethernet([8, 0], ipv4({ fragment: 0x2000 }))],
    ['an IP fragment', ethernet([8, 0], ipv4({ fragment: 0x0010 }))],
    ['an IP fragment', ethernet([0x86, 0xdd], ipv6(undefined, 44))],
    ['a malformed header', ethernet([8, 0], ipv4({ totalLength: 10 }))],
    ['a malformed header', ethernet([8, 0], ipv4({ totalLength: 24 }))],
    ['a malformed header', ethernet([8, 0], ipv4({ totalLength: 60000, udpLength: 59000 }))],
    ['a malformed header', ethernet([8, 0], ipv4({ udpLength: 7 }))],
    ['a malformed header', ethernet([8, 0], ipv4({ udpLength: 500 }))],
    ['a malformed header', ethernet([8, 0], new Uint8Array(0))],
    ['a malformed header', ethernet([0x86, 0xdd], ipv6(manyExtensions, 0))],
    ['a malformed header', ethernet([0x86, 0xdd], ipv6(undefined, 0).subarray(0, 44))],
    ['a malformed header', ethernet([0x86, 0xdd], emptyIpv6)],
  ] as const;
  for (const [reason, frame] of cases) {
    const capture = readPcap(pcap([frame], { linkType: 1 }));
    assert.equal(collect(capture), []);
    assert.equal([...capture.skipped], [[reason, 1]]);
  }
  const all = readPcap(
    pcap(
      cases.map(([, frame]) => frame),
      { linkType: 1 },
    ),
  );
  collect(all);
  collect(all);
  assert.is(all.skipped.get('not IP'), 3, 'each iteration counts anew');
});

test('a packet that the capture cut short is passed over', () => {
  for (const cut of [1, 20, 25, 40, 47]) {
    const capture = readPcap(pcap([ipv4()], { cut }));
    assert.equal(collect(capture), []);
    assert.equal([...capture.skipped], [['cut short by the capture', 1]], `cut by ${cut}`);
  }
});

test('captures of other ports are read with the option `port`', () => {
  const file = pcap([ipv4(), ipv4({ port: 5000 }), ipv4({ port: 5001 })]);
  const ports = (port?: number | number[]): number[] =>
    collect(readPcap(file, port === undefined ? {} : { port })).map((p) => p.destination.port);
  assert.equal(ports(), [4791]);
  assert.equal(ports(5000), [5000]);
  assert.equal(ports([4791, 5001]), [4791, 5001]);
});

test('a foreign file is refused with what was expected and where', () => {
  const cases: [bytes: Uint8Array, offset: number, sentence: RegExp][] = [
    [new Uint8Array(0), 0, /header of 24 bytes, the file has 0/],
    [new Uint8Array(23), 0, /the file has 23/],
    [Buffer.from('#!/bin/sh\necho this is no capture\n'), 0, /magic number .* found 23212f62/],
    [
      Buffer.concat([Uint8Array.of(0x0a, 0x0d, 0x0d, 0x0a), new Uint8Array(24)]),
      8,
      /byte-order magic 1a2b3c4d/,
    ],
    [pcap([], { magic: 0xa1b2cd34 }), 0, /editcap -F pcap/],
    [pcap([], { linkType: 147 }), 20, /link type 147 is unknown/],
    [pcap([]).fill(9, 4, 6), 4, /version 2, found 2313/],
  ];
  for (const [bytes, offset, sentence] of cases) {
    assert.throws(
      () => readPcap(bytes),
      (error: Error) =>
        error instanceof PcapError &&
        error instanceof VerbenaError &&
        error.offset === offset &&
        error.message.startsWith(`at byte ${offset}: `) &&
        sentence.test(error.message),
    );
  }
});

test('a truncated file gives its whole packets, then an error with the offset', () => {
  const file = rxe('rc_send_only.pcap');
  const whole = collect(readPcap(file));
  const starts = whole.map(({ frameOffset }) => frameOffset - 16);
  for (let length = 24; length < file.length; length++) {
    const seen: CapturedPacket[] = [];
    let thrown: unknown;
    try {
      for (const packet of readPcap(file.subarray(0, length))) seen.push(packet);
    } catch (error) {
      thrown = error;
    }
    const complete = whole.filter((p) => p.frameOffset + p.frameLength <= length).length;
    assert.is(seen.length, complete);
    if (length === 24 || starts.includes(length)) {
      assert.is(thrown, undefined);
    } else {
      assert.instance(thrown, PcapError);
      assert.is((thrown as PcapError).offset, starts[complete]);
    }
  }
});

test('no bytes make the reader throw anything but PcapError', () => {
  const random = splitmix32(20);
  const seeds = ['rc_send_only.pcap', 'ud_send_ipv6_global.pcap', 'cm_rping.pcap'].map(rxe);
  const linkTypes = [0, 1, 101, 108, 113, 228, 229, 276];
  for (let round = 0; round < 3000; round++) {
    const file = Uint8Array.from(seeds[round % seeds.length]!.subarray(0, 1500));
    if (round % 2) new DataView(file.buffer).setUint32(20, linkTypes[random() % 8]!, true);
    for (let flips = random() % 24; flips > 0; flips--) {
      // Mostly headers: there lengths are.
      const at = 24 + (random() % (random() % 2 ? 120 : file.length - 24));
      file[at] = random() % 3 ? random() & 255 : [0, 1, 0x7f, 0x80, 0xff][random() % 5]!;
    }
    try {
      for (const { payload, payloadOffset, frameOffset, frameLength } of readPcap(file)) {
        assert.ok(payloadOffset >= frameOffset);
        assert.ok(payloadOffset + payload.length <= frameOffset + frameLength);
      }
    } catch (error) {
      assert.instance(error, PcapError, `round ${round}: ${error}`);
    }
  }
});

test.run();
