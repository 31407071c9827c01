import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { spawnSync } from 'node:child_process';
import { networkInterfaces } from 'node:os';
import { LinkError } from '../../../../host/errors/errors.js';
import { Endpoint } from '../../../../host/link/endpoint.js';
import * as sys from '../../../../host/link/posix.js';
import { UdpBatchLink } from '../../../../host/link/udp/udp-batch.js';
import { UdpLink } from '../../../../host/link/udp/udp.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { root } from '../../../support/paths.js';
import { eventually, RecordingReceiver } from '../../../support/receiver.js';
import { expectMisuse, rejection } from '../../../support/refusal.js';
import { packets, repeat, LinkEnds, take } from '../../../support/link-ends.js';
import { WITHOUT_KOFFI } from '../../../support/without-koffi.js';

const test = suite('link/udp/udp-batch');
const { posix } = await sys.loadPosix();
const hasIpv6 = Object.values(networkInterfaces()).some((list) =>
  list?.some(({ address }) => address === '::1'),
);
const ADDRESSES = hasIpv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1'];
const linkModule = new URL('build/host/link/udp/udp-batch.js', root).href;
/** <asm/socket.h> */
const SO_NO_CHECK = 11;
const ends = new LinkEnds();

test.after.each(() => ends.close());

for (const address of ADDRESSES) {
  test(`packets of equal length to a peer of our kind leave and arrive as one, ${address}`, async () => {
    const a = await ends.open(address);
    const b = await ends.open(address);
    const sent = packets(b.local, [...repeat(4160, 15), 100]);
    a.link.setPeerSegments(b.local, true);
    a.link.send(new TestBatch(sent));
    assert.equal(
      take(b, 16),
      sent.map(({ bytes }) => bytes),
    );
    assert.equal(b.receiver.runs, [{ length: 15 * 4160 + 100, segmentSize: 4160 }]);
    assert.equal(
      [a.link.counters.sendCalls, a.link.counters.sentMessages, a.link.counters.sent],
      [1, 1, 16],
    );
    const { receiveCalls, receivedMessages, received, receivedBytes } = b.link.counters;
    assert.equal([receiveCalls, receivedMessages, received], [1, 1, 16]);
    assert.is(receivedBytes, 15 * 4160 + 100);
    assert.is(b.receiver.flushCount, 1);
  });
}

test('packets leave from the port that their destination names', async () => {
  const a = await ends.open('127.0.0.1', { sendSockets: 2 });
  const b = await ends.open();
  const [one, two] = a.link.info.flowPorts as [number, number];
  const to = (port: number): Endpoint => new Endpoint(b.local.gid, b.local.port, port);
  const places = [0, one, one, two, 0, 9].map(to);
  a.link.send(new TestBatch(places.map((place) => packets(place, [100])[0]!)));
  take(b, places.length);
  assert.equal(
    b.receiver.received.map(({ source }) => source.port).sort(),
    [a.local.port, one, one, two, a.local.port, a.local.port].sort(),
  );
  assert.is(a.link.counters.sendCalls, 4);
  await a.link.close();
  // Their ports are free again.
  const c = await ends.open('127.0.0.1', { port: a.local.port, sendSockets: 64 });
  assert.is(new Set(c.link.info.flowPorts).size, 64);
});

test('a foreign peer gets every packet by itself, in one system call', async () => {
  const a = await ends.open();
  const b = await ends.open();
  const sent = packets(b.local, repeat(1000, 16));
  a.link.send(new TestBatch(sent));
  assert.is(take(b, 16).length, 16);
  assert.ok(b.receiver.runs.every(({ segmentSize }) => segmentSize === 0));
  assert.equal([a.link.counters.sendCalls, a.link.counters.sentMessages], [1, 16]);
  // And again, once the peer has turned out to be foreign after all.
  a.link.setPeerSegments(b.local, true);
  a.link.setPeerSegments(b.local, false);
  a.link.send(new TestBatch(sent));
  assert.is(a.link.counters.sentMessages, 32);
});

test('runs end where lengths grow, after a short one, at 128 packets and at 65,000 bytes', async () => {
  const cases: { lengths: number[]; runs: number[] }[] = [
    // FIRST is longer than MIDDLE: it takes one follower.
    { lengths: [1056, 1040, 1040, 1040, 500], runs: [2, 3] },
    { lengths: [100, 100, 101, 101], runs: [2, 2] },
    { lengths: [100, 50, 50, 50], runs: [2, 2] },
    { lengths: [1, 2, 3], runs: [1, 1, 1] },
    { lengths: [50, 0, 50], runs: [1, 1, 1] },
    { lengths: repeat(64, 258), runs: [128, 128, 2] },
    { lengths: repeat(4096, 17), runs: [15, 2] },
  ];
  for (const { lengths, runs } of cases) {
    const a = await ends.open();
    const b = await ends.open();
    a.link.setPeerSegments(b.local, true);
    const sent = packets(b.local, lengths);
    a.link.send(new TestBatch(sent));
    assert.equal(
      take(b, lengths.length),
      sent.map(({ bytes }) => bytes),
      lengths.join(),
    );
    assert.is(a.link.counters.sentMessages, runs.length, lengths.join());
    assert.is(a.link.counters.sent, lengths.length);
    assert.equal([...a.link.counters.sendErrors], []);
    const came = b.receiver.runs.map(({ length, segmentSize }) =>
      segmentSize === 0 ? 1 : Math.ceil(length / segmentSize),
    );
    // The kernel may join two runs of one length again, never cut one.
    if (!lengths.includes(0)) assert.ok(came.length <= runs.length, came.join());
  }
});

test('packets that do not lie in a row are no run', async () => {
  const a = await ends.open();
  const b = await ends.open();
  a.link.setPeerSegments(b.local, true);
  const sent = packets(b.local, repeat(100, 4));
  const batch = new TestBatch(sent);
  const { count, buffer } = batch;
  a.link.send({
    count,
    buffer,
    addressOf: (index) => batch.addressOf(count - 1 - index),
    lengthOf: (index) => batch.lengthOf(index),
    destinationOf: (index) => batch.destinationOf(index),
    bytesOf: (index) => batch.bytesOf(count - 1 - index),
    release: () => batch.release(),
  });
  const backwards = sent.map(({ bytes }) => bytes).reverse();
  assert.equal(take(b, 4), backwards);
  assert.is(a.link.counters.sentMessages, 4);
});

test('a packet after a run, longer than its packets, is not cut up', async () => {
  const a = await ends.open();
  const b = await ends.open();
  a.link.setPeerSegments(b.local, true);
  for (const lengths of [[50, 50], [500]]) {
    const before = b.receiver.received.length;
    a.link.send(new TestBatch(packets(b.local, lengths)));
    take(b, before + lengths.length);
  }
  assert.equal(b.receiver.runs, [
    { length: 100, segmentSize: 50 },
    { length: 500, segmentSize: 0 },
  ]);
});

test('alternating destinations are kept apart; runs do not mix them', async () => {
  const a = await ends.open();
  const others = [await ends.open(), await ends.open(), await ends.open()];
  for (const { local } of others) a.link.setPeerSegments(local, true);
  const sent = Array.from({ length: 100 }, (_, index) => ({
    bytes: pattern(200, index),
    to: others[(index >> 1) % 3]!.local,
  }));
  a.link.send(new TestBatch(sent));
  for (const end of others) {
    const wanted = sent.filter(({ to }) => to === end.local).map(({ bytes }) => bytes);
    assert.equal(take(end, wanted.length), wanted);
  }
  assert.is(a.link.counters.sentMessages, 50);
  assert.is(a.link.counters.sendCalls, 1);
});

test('more messages than fit one call take another one', async () => {
  const a = await ends.open();
  const b = await ends.open();
  const sent = packets(b.local, repeat(60, 128));
  a.link.send(new TestBatch(sent));
  assert.is(a.link.counters.sendCalls, 2);
  assert.equal(
    take(b, 128),
    sent.map(({ bytes }) => bytes),
  );
});

test('packets that the kernel refuses are counted by errno, and later ones are sent', async () => {
  const a = await ends.open();
  const b = await ends.open();
  const ok = pattern(40, 7);
  const batch = new TestBatch([
    { bytes: ok, to: b.local },
    { bytes: pattern(66000, 1), to: b.local },
    { bytes: ok, to: b.local },
    { bytes: ok, to: new Endpoint(b.local.gid, 0) },
    { bytes: ok, to: b.local },
    { bytes: ok, to: Endpoint.parse('::1', 4791) },
    { bytes: ok, to: b.local },
  ]);
  a.link.send(batch);
  assert.is(batch.releaseCount, 1);
  assert.equal(take(b, 4), [ok, ok, ok, ok]);
  assert.equal(
    [...a.link.counters.sendErrors],
    [
      ['EAFNOSUPPORT', 1],
      ['EMSGSIZE', 1],
      ['EINVAL', 1],
    ],
  );
  assert.is(a.link.counters.sent, 4);
});

test('a run that is refused as such goes out packet by packet, and is lost only where these are', async () => {
  const a = await ends.open();
  const nowhere = new Endpoint(a.local.gid, 0);
  a.link.setPeerSegments(nowhere, true);
  a.link.send(new TestBatch(packets(nowhere, [100, 100, 100, 30])));
  assert.equal([...a.link.counters.sendErrors], [['EINVAL', 4]]);
  assert.is(a.link.counters.sent, 0);
});

test('where runs are not possible the packets go one by one, from then on at once', async () => {
  const a = await ends.open();
  const b = await ends.open();
  a.link.setPeerSegments(b.local, true);
  // The kernel cuts nothing up for a socket that sends without checksums.
  posix!.setOption(a.link.socketDescriptor, sys.SOL_SOCKET, SO_NO_CHECK, 1);
  const sent = packets(b.local, [200, 200, 200, 50]);
  for (const sentMessages of [4, 8]) {
    a.link.send(new TestBatch(sent));
    assert.equal([...a.link.counters.sendErrors], []);
    assert.is(a.link.counters.sentMessages, sentMessages);
  }
  // Five calls: the refused run, and each packet; then one for all.
  assert.is(a.link.counters.sendCalls, 6);
  assert.equal(
    take(b, 8),
    [...sent, ...sent].map(({ bytes }) => bytes),
  );
});

test('a kernel without UDP GSO is shown in the info, and gets packets one by one', async () => {
  const { setOption } = posix!;
  posix!.setOption = function (fd, level, option, value) {
    const isRun = option === sys.UDP_SEGMENT || option === sys.UDP_GRO;
    if (level === sys.SOL_UDP && isRun) throw new sys.PosixError('setsockopt', 'ENOPROTOOPT');
    return setOption.call(this, fd, level, option, value);
  };
  const [a, b] = await Promise.all([ends.open(), ends.open()]).finally(() => {
    posix!.setOption = setOption;
  });
  for (const name of ['UDP_SEGMENT', 'UDP_GRO']) {
    const option = a.link.info.socketOptions!.find((each) => each.name === name)!;
    assert.equal([option.granted, option.reason], [false, 'setsockopt ENOPROTOOPT']);
  }
  a.link.setPeerSegments(b.local, true);
  const sent = packets(b.local, repeat(700, 10));
  a.link.send(new TestBatch(sent));
  assert.equal(
    take(b, 10),
    sent.map(({ bytes }) => bytes),
  );
  assert.equal([a.link.counters.sentMessages, a.link.counters.sendErrors.size], [10, 0]);
});

test('a destination without a receiver is no error of the link', async () => {
  const a = await ends.open();
  const b = await ends.open();
  await b.link.close();
  for (let turn = 0; turn < 3; turn++) {
    const batch = new TestBatch(packets(b.local, [100, 100]));
    a.link.send(batch);
    assert.is(batch.releaseCount, 1);
    a.link.poll();
  }
  assert.equal(a.receiver.failures, []);
  const c = await ends.open();
  a.link.send(new TestBatch(packets(c.local, [55])));
  assert.is(take(c, 1).length, 1);
});

for (const address of ADDRESSES) {
  test(`node:dgram and we understand each other both ways, ${address}`, async () => {
    const plain = new UdpLink({ address, port: 0 });
    ends.add(plain);
    const receiver = new RecordingReceiver();
    const { local } = await plain.open(receiver);
    const batch = await ends.open(address);
    // Runs as well: the kernel cuts them up for a socket that does not take them.
    batch.link.setPeerSegments(local, true);
    const sent = packets(local, [1100, 1100, 1100, 300, 7]);
    batch.link.send(new TestBatch(sent));
    await receiver.until(5);
    assert.equal(
      receiver.bytes,
      sent.map(({ bytes }) => bytes),
    );
    assert.ok(receiver.received[0]!.source.equals(batch.local));
    const answer = packets(batch.local, [64, 64, 9, 0, 4000]);
    plain.send(new TestBatch(answer));
    await eventually(() => {
      batch.link.poll();
      return batch.receiver.received.length === 5;
    });
    assert.equal(
      batch.receiver.bytes,
      answer.map(({ bytes }) => bytes),
    );
    assert.ok(batch.receiver.received[4]!.source.equals(local));
  });

  test(`packets that met congestion arrive with FECN, all of a run, ${address}`, async () => {
    const a = await ends.open(address);
    const b = await ends.open(address);
    a.link.setPeerSegments(b.local, true);
    const bytes = new Uint8Array(60);
    const send = (tos: number): Uint8Array[] => {
      const isIpv4 = address.includes('.');
      const option = isIpv4 ? sys.IP_TOS : sys.IPV6_TCLASS;
      posix!.setOption(a.link.socketDescriptor, isIpv4 ? sys.SOL_IP : sys.SOL_IPV6, option, tos);
      a.link.send(new TestBatch([1, 2, 3].map(() => ({ bytes, to: b.local }))));
      const before = b.receiver.received.length;
      return take(b, before + 3).slice(before);
    };
    // Not ECN-capable, capable, congested.
    for (const tos of [0, 2]) assert.equal(send(tos), [bytes, bytes, bytes]);
    const marked = Uint8Array.from(bytes);
    marked[4] = 0x80;
    assert.equal(send(3), [marked, marked, marked]);
    assert.equal(b.receiver.runs.at(-1), { length: 180, segmentSize: 60 });
    assert.equal(send(0), [bytes, bytes, bytes]);
    // A mark is not mistaken for that of a later packet without control data.
    send(3);
    const [level, option] = address.includes('.')
      ? [sys.SOL_IP, sys.IP_RECVTOS]
      : [sys.SOL_IPV6, sys.IPV6_RECVTCLASS];
    posix!.setOption(b.link.socketDescriptor, level, option, 0);
    assert.equal(send(0), [bytes, bytes, bytes]);
  });
}

for (const address of ADDRESSES) {
  test(`datagrams leave with ECT(0) and the DSCP of the option, ${address}`, async () => {
    const isIpv4 = address.includes('.');
    const place = [
      isIpv4 ? sys.SOL_IP : sys.SOL_IPV6,
      isIpv4 ? sys.IP_TOS : sys.IPV6_TCLASS,
    ] as const;
    for (const [dscp, trafficClass] of [
      [undefined, 0x02],
      [26, 0x6a],
      [63, 0xfe],
    ] as const) {
      const options = { sendSockets: 1, ...(dscp !== undefined && { dscp }) };
      const { link } = await ends.open(address, options);
      const { fd, flows } = link.share;
      for (const each of [fd, flows[0]!.fd]) {
        assert.is(posix!.getOption(each, ...place), trafficClass);
      }
      const name = `${isIpv4 ? 'IP_TOS' : 'IPV6_TCLASS'} = DSCP ${dscp ?? 0}, ECT(0)`;
      const option = link.info.socketOptions!.find((each) => each.name === name);
      assert.is(option?.granted, true);
    }
    for (const dscp of [-1, 64, 1.5]) {
      expectMisuse(() => new UdpBatchLink({ address, dscp }), 'dscp');
    }
  });
}

test('packets too short for a BTH take no mark', async () => {
  const a = await ends.open();
  const b = await ends.open();
  posix!.setOption(a.link.socketDescriptor, sys.SOL_IP, sys.IP_TOS, 3);
  a.link.send(new TestBatch(packets(b.local, [4, 5])));
  const marked = pattern(5, 1);
  marked[4]! |= 0x80;
  assert.equal(take(b, 2), [pattern(4, 0), marked]);
});

test('a source is the same object from packet to packet, whichever peer sends between', async () => {
  const a = await ends.open();
  const b = await ends.open();
  const c = await ends.open();
  for (const end of [a, c, a, c]) end.link.send(new TestBatch(packets(b.local, [20])));
  take(b, 4);
  const [first, second, third, fourth] = b.receiver.received.map(({ source }) => source);
  assert.ok(first!.equals(a.local) && second!.equals(c.local));
  assert.is(first, third);
  assert.is(second, fourth);
});

test('without memory, or without a taker of runs, packets come one by one', async () => {
  const link = new UdpBatchLink({ address: '127.0.0.1', port: 0 });
  ends.add(link);
  const receiver = new RecordingReceiver();
  const { local } = await link.open(receiver);
  const a = await ends.open();
  a.link.setPeerSegments(local, true);
  const sent = packets(local, [512, 512, 512, 1]);
  a.link.send(new TestBatch(sent));
  let came = 0;
  // Perhaps not all at once.
  for (let turn = 0; turn < 10 && came < 4; turn++) {
    link.wait(1e6);
    came += link.poll();
  }
  assert.is(came, 4);
  assert.equal(
    receiver.bytes,
    sent.map(({ bytes }) => bytes),
  );
});

test('invalid options, addresses and states are refused with a reason', async () => {
  const { link, local } = await ends.open();
  const names = link.info.socketOptions!.map(({ name, granted }) => `${name} ${granted}`);
  assert.equal(names.slice(-3), ['UDP_SEGMENT true', 'UDP_GRO true', 'IP_RECVTOS true']);
  assert.is(link.info.name, 'udp-batch');
  assert.ok(local.port > 0);
  assert.ok(link.info.receiveBufferBytes >= 2 ** 18);
  expectMisuse(() => new UdpBatchLink({ address: 'here' }), 'address');
  assert.throws(() => new UdpBatchLink({ address: '127.0.0.1' }).info, /once the link is open/);
  for (const address of ['0.0.0.0', '192.0.2.77']) {
    const error = await rejection(
      new UdpBatchLink({ address, port: 0 }).open(new RecordingReceiver()),
    );
    assert.is((error as LinkError).code, 'EADDRNOTAVAIL');
  }
});

test("without koffi the link's refusal names the package", () => {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [
      ...WITHOUT_KOFFI,
      '--input-type=module',
      '--eval',
      `const { UdpBatchLink } = await import('${linkModule}');
       const link = new UdpBatchLink({ address: '127.0.0.1', port: 0 });
       const error = await link.open({ packet() {}, flush() {}, failed() {} }).catch((e) => e);
       console.log(JSON.stringify([error.code, error.message, await UdpBatchLink.missing()]));`,
    ],
    { encoding: 'utf8' },
  );
  assert.is(stderr, '');
  const [code, message, missing] = JSON.parse(stdout) as string[];
  assert.is(code, 'EOPNOTSUPP');
  assert.match(message!, 'npm install koffi');
  assert.match(missing!, 'koffi is not installed');
});

if (posix) {
  test.run();
} else {
  const other = suite('link/udp/udp-batch, where it is not possible');
  other('says why', async () => assert.ok(await UdpBatchLink.missing()));
  other.run();
}
