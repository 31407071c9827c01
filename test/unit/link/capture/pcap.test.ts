import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RefusalError } from '../../../../host/errors/errors.js';
import { Endpoint, type Gid } from '../../../../host/link/endpoint.js';
import { IcrcCheck } from '../../../../host/link/capture/icrc-check.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../../../../host/link/link.js';
import { createLoopbackPair } from '../../../../host/link/loopback.js';
import { pcapFile, pcapLink, readPcap, type PcapSink } from '../../../../host/link/capture/pcap.js';
import { UdpLink } from '../../../../host/link/udp/udp.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { icrc, icrcMatches } from '../../../support/icrc.js';
import { eventually, RecordingReceiver } from '../../../support/receiver.js';
import { loadAllCaptures } from '../../../vectors/captures.js';

const scratch = mkdtempSync(join(tmpdir(), 'verbena-pcap-'));
test.after(() => rmSync(scratch, { recursive: true, force: true }));

/** A sink in memory. */
class MemorySink implements PcapSink {
  readonly chunks: Uint8Array[] = [];
  full = false;
  closed = 0;

  write(bytes: Uint8Array): boolean {
    if (!this.full) this.chunks.push(bytes);
    return !this.full;
  }

  async close(): Promise<void> {
    this.closed++;
  }

  get file(): Uint8Array {
    return Buffer.concat(this.chunks);
  }
}

/** A SEND ONLY between two endpoints with the ICRC that the engine would give it. */
function packetWithIcrc(from: Endpoint, to: Endpoint): Uint8Array {
  const bytes = Uint8Array.from([4, 0, 255, 255, 0, 0, 0, 17, 0, 0, 1, 0, ...pattern(64, 1)]);
  const isIpv4 = from.gid.isIpv4;
  const ip = new Uint8Array((isIpv4 ? 20 : 40) + 8 + bytes.length + 4);
  const view = new DataView(ip.buffer);
  if (isIpv4) {
    view.setUint32(0, 0x45000000 + ip.length);
    view.setUint16(6, 0x4000);
    view.setUint8(9, 17);
    ip.set(from.gid.bytes.subarray(12), 12);
    ip.set(to.gid.bytes.subarray(12), 16);
  } else {
    view.setUint32(0, 0x60000000);
    view.setUint16(4, ip.length - 40);
    view.setUint8(6, 17);
    ip.set(from.gid.bytes, 8);
    ip.set(to.gid.bytes, 24);
  }
  const udpAt = isIpv4 ? 20 : 40;
  view.setUint16(udpAt, from.port);
  view.setUint16(udpAt + 2, to.port);
  view.setUint16(udpAt + 4, ip.length - udpAt);
  ip.set(bytes, udpAt + 8);
  const word = new Uint8Array(4);
  new DataView(word.buffer).setUint32(0, icrc(ip), true);
  return Buffer.concat([bytes, word]);
}

test('packets of a UDP link are captured with ICRCs that match', async () => {
  const sinks = [new MemorySink(), new MemorySink()];
  const [a, b] = sinks.map((sink) =>
    pcapLink(new UdpLink({ address: '127.0.0.1', port: 0 }), sink, { nowMicros: () => 1.5e15 + 3 }),
  );
  const receiver = new RecordingReceiver();
  const from = (await a!.open(new RecordingReceiver())).local;
  const to = (await b!.open(receiver)).local;
  const bytes = packetWithIcrc(from, to);
  a!.send(new TestBatch([1, 2, 3].map(() => ({ bytes, to }))));
  await receiver.until(3);
  await Promise.all([a!.close(), b!.close()]);
  await a!.close();
  for (const sink of sinks) {
    // A new snapshot at each access.
    const { file } = sink;
    const capture = readPcap(file, { port: to.port });
    const packets = [...capture];
    assert.is(packets.length, 3);
    assert.is(capture.linkType, 101);
    assert.is(capture.skipped.size, 0);
    for (const packet of packets) {
      assert.equal(Uint8Array.from(packet.payload), Uint8Array.from(bytes));
      assert.ok(packet.source.equals(from) && packet.destination.equals(to));
      assert.ok(icrcMatches(file, packet));
      assert.equal([packet.ipId, packet.ttl], [0, 64]);
      assert.is(packet.timestampMicros, 1.5e15 + 3);
      // The header's own checksum is right too: summed up, it gives ones.
      const view = new DataView(file.buffer, file.byteOffset + packet.ipOffset, 20);
      let sum = 0;
      for (let at = 0; at < 20; at += 2) sum += view.getUint16(at);
      assert.is((sum & 0xffff) + (sum >>> 16), 0xffff);
    }
    assert.is(sink.closed, 1);
  }
  assert.equal(a!.counters, { captured: 3, omitted: 0 });
  assert.is(a!.info.name, 'pcap(udp)');
});

/** A link over IP: the test injects packets, and sent packets are dropped. */
class PacketsByHand implements Link {
  readonly info: LinkInfo;
  #receiver: LinkReceiver | undefined;

  constructor(local: Endpoint, flowPorts: readonly number[] = []) {
    const sizes = { packetSizeMax: 4160, windowBytes: 65536, receiveBufferBytes: 65536 };
    this.info = { name: 'by hand', pseudoHeader: 'ip', local, ...sizes, flowPorts };
  }

  open(receiver: LinkReceiver): Promise<LinkInfo> {
    this.#receiver = receiver;
    return Promise.resolve(this.info);
  }

  arrives(bytes: Uint8Array, source: Endpoint, group?: Gid): void {
    this.#receiver!.packet(bytes, source, group);
  }

  send(batch: PacketBatch): void {
    batch.release();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

async function captured(link: PacketsByHand, use: (link: Link) => void): Promise<Uint8Array> {
  const sink = new MemorySink();
  const capture = pcapLink(link, sink);
  await capture.open(new RecordingReceiver());
  use(capture);
  await capture.close();
  return sink.file;
}

test('packets from Linux are captured with the identification that their ICRC covers', async () => {
  const judge = new IcrcCheck();
  let [ids, doubled] = [0, 0];
  for (const { name, packets } of loadAllCaptures()) {
    const recorded = packets.filter(({ ipVersion }) => ipVersion === 4);
    for (const receiver of new Set(recorded.map(({ destination }) => `${destination}`))) {
      const theirs = recorded.filter(({ destination }) => `${destination}` === receiver);
      const link = new PacketsByHand(theirs[0]!.destination);
      const file = await captured(link, () => {
        for (const { payload, source } of theirs) link.arrives(Uint8Array.from(payload), source);
      });
      const again = [...readPcap(file)];
      assert.is(again.length, theirs.length);
      again.forEach((packet, index) => {
        const where = `${name}, packet ${index} to ${receiver}`;
        assert.is(packet.ipId, theirs[index]!.ipId, where);
        ids++;
        // The only form outside the standard is rxe's, of FLUSH.
        const isDoubled = judge.judge(packet) === 'FLUSH doubled';
        if (isDoubled) doubled++;
        else assert.ok(icrcMatches(file, packet), where);
      });
    }
  }
  assert.ok(ids > 800, `${ids} packets`);
  assert.is(doubled, 10);
});

test('a packet with an ICRC that no identification explains is captured with identification 0', async () => {
  const [from, to] = [Endpoint.parse('10.0.0.1', 55000), Endpoint.parse('10.0.0.2', 4791)];
  const bytes = packetWithIcrc(from, to);
  bytes[20]! ^= 1;
  const link = new PacketsByHand(to);
  const file = await captured(link, () => {
    for (const odd of [bytes, bytes.slice(0, 15), new Uint8Array(0)]) link.arrives(odd, from);
  });
  assert.equal(
    [...readPcap(file)].map(({ ipId }) => ipId),
    [0, 0, 0],
  );
});

test('a multicast packet is captured as sent to its group, a flow’s packet from its own port', async () => {
  const [here, there] = [Endpoint.parse('10.0.0.2', 4791), Endpoint.parse('10.0.0.1', 4791)];
  const group = Endpoint.parse('224.1.2.3', 4791);
  const link = new PacketsByHand(here, [50001, 50002]);
  const file = await captured(link, (capture) => {
    link.arrives(packetWithIcrc(there, group), there, group.gid);
    for (const port of [50002, 0, 50003]) {
      const to = new Endpoint(there.gid, 4791, port);
      const from = new Endpoint(here.gid, port === 50002 ? port : 4791);
      capture.send(new TestBatch([{ bytes: packetWithIcrc(from, to), to }]));
    }
  });
  const packets = [...readPcap(file)];
  assert.equal(
    packets.map(({ source, destination }) => `${source} ${destination}`),
    [
      `${there} ${group}`,
      `${new Endpoint(here.gid, 50002)} ${there}`,
      `${here} ${there}`,
      `${here} ${there}`,
    ],
  );
  for (const packet of packets) assert.ok(icrcMatches(file, packet), `${packet.source}`);
});

test('a link without IP is captured as the IPv6 packets that its ICRC assumes', async () => {
  const { network, a, b } = createLoopbackPair({ auto: false });
  const sink = new MemorySink();
  const link = pcapLink(a, sink);
  const from = (await link.open(new RecordingReceiver())).local;
  const to = (await b.open(new RecordingReceiver())).local;
  const bytes = pattern(40, 6);
  link.send(new TestBatch([{ bytes, to }]));
  network.deliver();
  await link.close();
  const [packet] = [...readPcap(sink.file)];
  assert.is(packet!.ipVersion, 6);
  assert.ok(packet!.source.equals(from) && packet!.destination.equals(to));
  assert.equal([packet!.source.port, packet!.destination.port], [4791, 4791]);
  assert.equal(Uint8Array.from(packet!.payload), bytes);
});

test('hands frames on once per turn, whole, and counts those that the sink refuses', async () => {
  const { network, a, b } = createLoopbackPair({ auto: false });
  const sink = new MemorySink();
  const link = pcapLink(a, sink);
  await link.open(new RecordingReceiver());
  await b.open(new RecordingReceiver());
  const to = b.info.local;
  const batch = (count: number, length: number): TestBatch =>
    new TestBatch(Array.from({ length: count }, (_, i) => ({ bytes: pattern(length, i), to })));
  link.send(batch(2, 30));
  assert.is(sink.chunks.length, 1, 'only the header of the file');
  await eventually(() => sink.chunks.length > 1);
  assert.is([...readPcap(sink.file)].length, 2);
  link.send(batch(40, 4000));
  assert.ok(sink.chunks.length > 2, 'a full chunk does not wait');
  sink.full = true;
  await eventually(() => link.counters.omitted > 0);
  link.send(batch(1, 65535));
  network.deliver();
  await link.close();
  const { captured, omitted } = link.counters;
  assert.is(captured + omitted, 43);
  const packets = [...readPcap(sink.file)];
  assert.is(packets.length, captured);
  packets.slice(2).forEach(({ payload }, index) => {
    assert.equal(Uint8Array.from(payload), pattern(4000, index));
  });
});

test('a capture file holds everything once it is closed', async () => {
  const path = join(scratch, 'all.pcap');
  const { network, a, b } = createLoopbackPair({ auto: false });
  const link = pcapLink(a, pcapFile(path));
  await link.open(new RecordingReceiver());
  await b.open(new RecordingReceiver());
  const to = b.info.local;
  for (let i = 0; i < 100; i++) {
    link.send(new TestBatch([{ bytes: pattern(1000, i), to }]));
    if (i % 10 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  network.deliver();
  await link.close();
  const packets = [...readPcap(readFileSync(path))];
  assert.equal(
    packets.map(({ payload }) => Uint8Array.from(payload)),
    Array.from({ length: 100 }, (_, i) => pattern(1000, i)),
  );
  const times = packets.map(({ timestampMicros }) => timestampMicros);
  assert.equal(
    times,
    times.slice().sort((x, y) => x - y),
  );
  assert.ok(Math.abs(times[0]! / 1000 - statSync(path).mtimeMs) < 60_000, 'the time of day');
});

test('a capture that cannot be written is refused with its path', () => {
  const path = join(scratch, 'missing', 'x.pcap');
  assert.throws(
    () => pcapFile(path),
    (error: Error) =>
      error instanceof RefusalError && error.code === 'ENOENT' && error.message.includes(path),
  );
});

test('a disk that is full shows at close, after the link is closed', async () => {
  let full: PcapSink;
  try {
    full = pcapFile('/dev/full');
  } catch {
    return; // Only Linux has it.
  }
  const { network, a, b } = createLoopbackPair({ auto: false });
  const link = pcapLink(a, full);
  const receiver = new RecordingReceiver();
  await link.open(new RecordingReceiver());
  await b.open(receiver);
  link.send(new TestBatch([{ bytes: pattern(30, 1), to: b.info.local }]));
  assert.is(network.deliver(), 1, 'the packet travels all the same');
  let thrown: unknown;
  await link.close().catch((error: unknown) => (thrown = error));
  assert.instance(thrown, RefusalError);
  assert.is((thrown as RefusalError).code, 'ENOSPC');
});

test.run();
