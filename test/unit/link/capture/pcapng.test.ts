/** pcapng files: reading of any section, writing with comments, captures that arrive in pieces. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../../../host/link/endpoint.js';
import { splitmix32 } from '../../../../host/link/faults/fault.js';
import { createLoopbackPair } from '../../../../host/link/loopback.js';
import {
  PcapError,
  pcapLink,
  readPcap,
  type CapturedPacket,
  type PcapSink,
} from '../../../../host/link/capture/pcap.js';
import { CaptureParser } from '../../../../host/link/capture/pcap-reader.js';
import { COMMENT_BYTES_MAX } from '../../../../host/link/capture/record-writer.js';
import { TestBatch, pattern } from '../../../support/batch.js';
import { RecordingReceiver } from '../../../support/receiver.js';
import { vectors } from '../../../support/paths.js';

const SECTION = 0x0a0d0d0a;
const classic = readFileSync(new URL('rxe/rc_write_multi.pcap', vectors));
const expected = [...readPcap(classic)];

type Option = readonly [code: number, value: Uint8Array];

/** Blocks in one byte order. */
class Blocks {
  readonly #parts: Uint8Array[] = [];
  readonly #little: boolean;

  constructor(little = true) {
    this.#little = little;
    this.add(SECTION, this.words(0x1a2b3c4d, little ? 1 : 0x10000, 0xffffffff, 0xffffffff));
  }

  words(...values: number[]): Uint8Array {
    const view = new DataView(new ArrayBuffer(4 * values.length));
    values.forEach((value, index) => view.setUint32(4 * index, value >>> 0, this.#little));
    return new Uint8Array(view.buffer);
  }

  halves(...values: number[]): Uint8Array {
    const view = new DataView(new ArrayBuffer(2 * values.length));
    values.forEach((value, index) => view.setUint16(2 * index, value, this.#little));
    return new Uint8Array(view.buffer);
  }

  add(type: number, body: Uint8Array, options: readonly Option[] = []): this {
    const parts = [pad(body)];
    for (const [code, value] of options) parts.push(this.halves(code, value.length), pad(value));
    if (options.length > 0) parts.push(this.halves(0, 0));
    const inner = Buffer.concat(parts);
    const length = inner.length + 12;
    this.#parts.push(this.words(type, length), inner, this.words(length));
    return this;
  }

  interface(linkType: number, options: readonly Option[] = []): this {
    const head = Buffer.concat([this.halves(linkType, 0), this.words(0)]);
    return this.add(1, head, options);
  }

  packet(id: number, ticks: bigint, frame: Uint8Array, options: readonly Option[] = []): this {
    const [high, low] = [Number(ticks >> 32n), Number(ticks & 0xffffffffn)];
    const head = this.words(id, high, low, frame.length, frame.length);
    return this.add(6, Buffer.concat([head, frame]), options);
  }

  get file(): Uint8Array {
    return Buffer.concat(this.#parts);
  }
}

function pad(bytes: Uint8Array): Uint8Array {
  return Buffer.concat([bytes, new Uint8Array(-bytes.length & 3)]);
}

function frameOf({ frameOffset, frameLength }: CapturedPacket): Uint8Array {
  return classic.subarray(frameOffset, frameOffset + frameLength);
}

function asPcapng(little = true): Uint8Array {
  const blocks = new Blocks(little).interface(readPcap(classic).linkType);
  for (const packet of expected) blocks.packet(0, BigInt(packet.timestampMicros), frameOf(packet));
  return blocks.file;
}

/** Fields of a packet that both formats have. */
function content({ frameNumber, timestampMicros, payload, source, ipId }: CapturedPacket) {
  return [frameNumber, timestampMicros, Buffer.from(payload).toString('hex'), `${source}`, ipId];
}

test('a pcapng file of either byte order has the packets of the pcap file', () => {
  for (const little of [true, false]) {
    const file = asPcapng(little);
    const capture = readPcap(file);
    assert.is(capture.linkType, readPcap(classic).linkType);
    const packets = [...capture];
    assert.equal(packets.map(content), expected.map(content));
    for (const { payload, payloadOffset } of packets) {
      assert.equal(file.subarray(payloadOffset, payloadOffset + payload.length), payload);
    }
  }
});

test('the time of a frame has the resolution and the offset of its interface', () => {
  const [first] = expected;
  const micros = first!.timestampMicros;
  const { linkType } = readPcap(classic);
  const shift = new Blocks().words(1000, 0);
  const cases: [ticks: bigint, options: Option[]][] = [
    [BigInt(micros), []],
    [BigInt(micros) * 1000n + 999n, [[9, Uint8Array.of(9)]]],
    [(BigInt(micros) * 2n ** 30n) / 1_000_000n + 1n, [[9, Uint8Array.of(0x80 | 30)]]],
    [BigInt(micros) - 1000n * 1_000_000n, [[14, Uint8Array.from(shift)]]],
  ];
  for (const [ticks, options] of cases) {
    const { file } = new Blocks().interface(linkType, options).packet(0, ticks, frameOf(first!));
    assert.is([...readPcap(file)][0]!.timestampMicros, micros);
  }
});

test('sections, interfaces and blocks of other kinds are distinguished', () => {
  const [first, second] = expected;
  const { linkType } = readPcap(classic);
  const blocks = new Blocks()
    .interface(147)
    .interface(linkType)
    .add(0x0bad, new Uint8Array(16))
    .add(4, new Uint8Array(8))
    .packet(0, 1n, frameOf(first!))
    .packet(1, 2n, frameOf(first!), [[1, Buffer.from('first of two')]]);
  const simple = new Blocks(false).interface(linkType);
  const body = Buffer.concat([simple.words(second!.frameLength), frameOf(second!)]);
  simple.add(3, body);
  const obsolete = new Blocks().interface(linkType);
  const head = [
    obsolete.halves(0, 0),
    obsolete.words(0, 7, first!.frameLength, first!.frameLength),
  ];
  obsolete.add(2, Buffer.concat([...head, frameOf(first!)]));
  const file = Buffer.concat([blocks.file, simple.file, obsolete.file]);
  const capture = readPcap(file);
  assert.is(capture.linkType, 147);
  const packets = [...capture];
  assert.equal(
    packets.map(({ frameNumber, comment }) => [frameNumber, comment]),
    [
      [2, 'first of two'],
      [3, ''],
      [4, ''],
    ],
  );
  assert.equal(packets[1]!.payload, second!.payload);
  assert.equal([...capture.skipped], [['of an unknown link type', 1]]);
});

test('a malformed block is refused with its offset', () => {
  const { linkType } = readPcap(classic);
  const frame = frameOf(expected[0]!);
  const whole = new Blocks().interface(linkType).packet(0, 1n, frame).file;
  const at = new Blocks().interface(linkType).file.length;
  const changed = (offset: number, value: number): Uint8Array => {
    const file = Uint8Array.from(whole);
    new DataView(file.buffer).setUint32(offset, value, true);
    return file;
  };
  const cases: [file: Uint8Array, offset: number, sentence: RegExp][] = [
    [changed(at + 4, 7), at, /claims 7 bytes, expected a multiple of 4/],
    [changed(at + 4, 0xfffffff0), at, /frame 1 claims 4294967280 bytes/],
    [changed(at + 20, frame.length + 4), at + 20, /claims a frame of/],
    [changed(at + 20, 0xffffffff), at + 20, /claims a frame of 4294967295/],
    [changed(at + 8, 1), at, /interface 1, and the section has 1/],
    [changed(whole.length - 4, 0), whole.length - 4, /claims 0 bytes at its end/],
    [changed(12, 0x00010002), 12, /pcapng version 1, found 2/],
    [whole.subarray(0, whole.length - 3), at, /the file has/],
    [whole.subarray(0, at + 5), at, /at least 12 bytes, the file has 5 more/],
  ];
  for (const [file, offset, sentence] of cases) {
    assert.throws(
      () => [...readPcap(file)],
      (error: Error) =>
        error instanceof PcapError && error.offset === offset && sentence.test(error.message),
      `${sentence}`,
    );
  }
});

test('no bytes make the reader of pcapng throw anything but PcapError', () => {
  const random = splitmix32(29);
  const base = [asPcapng(true), asPcapng(false)];
  for (let round = 0; round < 3000; round++) {
    const file = Uint8Array.from(base[round % 2]!.subarray(0, 1500));
    for (let flips = random() % 24; flips > 0; flips--) {
      const at = random() % (random() % 2 ? 140 : file.length);
      file[at] = random() % 3 ? random() & 255 : [0, 1, 6, 0x80, 0xff][random() % 5]!;
    }
    try {
      for (const { payloadOffset, payload, frameOffset, frameLength } of readPcap(file)) {
        assert.ok(payloadOffset + payload.length <= frameOffset + frameLength);
      }
    } catch (error) {
      assert.instance(error, PcapError, `round ${round}: ${error}`);
    }
  }
});

test('a capture in pieces of any size has the same packets and offsets', () => {
  for (const file of [classic, asPcapng(true), asPcapng(false)]) {
    const whole = [...readPcap(file)];
    for (const size of [1, 7, 64, 1000]) {
      const parser = new CaptureParser([4791]);
      const packets: CapturedPacket[] = [];
      for (let at = 0; at < file.length; at += size) {
        parser.push(file.subarray(at, at + size));
        for (let packet = parser.next(); packet; packet = parser.next()) packets.push(packet);
      }
      parser.end();
      assert.equal(packets.map(content), whole.map(content));
      assert.equal(
        packets.map(({ payloadOffset }) => payloadOffset),
        whole.map(({ payloadOffset }) => payloadOffset),
      );
    }
  }
});

test('a stream is refused when a record claims more than 16 MiB', () => {
  const parser = new CaptureParser([4791]);
  const file = Uint8Array.from(classic.subarray(0, 40));
  new DataView(file.buffer).setUint32(32, 0x7fffffff, true);
  parser.push(file);
  parser.next();
  parser.push(new Uint8Array(17 * 2 ** 20));
  parser.next();
  assert.throws(() => parser.push(new Uint8Array(1)), /more than 16 MiB/);
});

class MemorySink implements PcapSink {
  readonly format = 'pcapng';
  readonly #chunks: Uint8Array[] = [];

  write(bytes: Uint8Array): boolean {
    this.#chunks.push(bytes);
    return true;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  get file(): Uint8Array {
    return Buffer.concat(this.#chunks);
  }
}

async function captured(sent: readonly Uint8Array[], comment?: () => string): Promise<Uint8Array> {
  const { network, a, b } = createLoopbackPair({ auto: false });
  const sink = new MemorySink();
  const options = { nowMicros: () => 1.5e15 + 3.7, ...(comment && { comment }) };
  const link = pcapLink(a, sink, options);
  await link.open(new RecordingReceiver());
  await b.open(new RecordingReceiver());
  const to = b.info.local;
  for (const bytes of sent) link.send(new TestBatch([{ bytes, to }]));
  network.deliver();
  await link.close();
  return sink.file;
}

test('a link is captured into pcapng with a sentence and a verdict for each packet', async () => {
  const sent = [expected[0]!.payload, pattern(61, 4), pattern(65000, 5)];
  const packets = [...readPcap(await captured(sent))];
  assert.equal(
    packets.map(({ payload }) => Buffer.from(payload)),
    sent.map((bytes) => Buffer.from(bytes)),
  );
  assert.is(packets[0]!.timestampMicros, 1.5e15 + 3);
  assert.match(packets[0]!.comment, /^RC RDMA WRITE First, .* \[ICRC WRONG\]$/);
  for (const { comment } of packets) assert.match(comment, / \[ICRC (WRONG|not checked)\]$/);
});

test('a comment of the caller is cut at its limit, at a whole character', async () => {
  const texts = ['', 'x', 'ä'.repeat(COMMENT_BYTES_MAX)];
  let index = 0;
  const sent = texts.map((_, at) => pattern(40 + at, at));
  const packets = [...readPcap(await captured(sent, () => texts[index++]!))];
  assert.is(packets[0]!.comment, '');
  assert.is(packets[1]!.comment, 'x [ICRC not checked]');
  assert.is(packets[2]!.comment, 'ä'.repeat(COMMENT_BYTES_MAX / 2));
  assert.ok(packets.every(({ source }) => source.equals(new Endpoint(source.gid, 4791))));
});

test.run();
