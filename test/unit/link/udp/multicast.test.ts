/** Multicast groups of both UDP links. */
import { createSocket } from 'node:dgram';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { networkInterfaces } from 'node:os';
import { LinkError } from '../../../../host/errors/errors.js';
import { Endpoint, Gid } from '../../../../host/link/endpoint.js';
import { PACKET_SIZE_LIMIT, type Link } from '../../../../host/link/link.js';
import { GROUPS_MAX } from '../../../../host/link/udp/group-table.js';
import { UdpBatchLink } from '../../../../host/link/udp/udp-batch.js';
import { UdpLink } from '../../../../host/link/udp/udp.js';
import { TestBatch } from '../../../support/batch.js';
import { packets } from '../../../support/link-ends.js';
import { eventually, RecordingReceiver, settle } from '../../../support/receiver.js';

const GROUP = Gid.parse('239.74.1.1');
const OTHER = Gid.parse('239.74.1.2');
const hasIpv6 = Object.values(networkInterfaces()).some((list) =>
  list?.some(({ address }) => address === '::1'),
);
const LINKS = [UdpLink, UdpBatchLink];
type AnyLink = UdpLink | UdpBatchLink;

const test = suite('link/udp: multicast');
let opened: AnyLink[] = [];

test.after.each(async () => {
  for (const link of opened) await link.close();
  opened = [];
});

interface End {
  readonly link: AnyLink & Link;
  readonly receiver: RecordingReceiver;
  readonly local: Endpoint;
}

async function open(Made: (typeof LINKS)[number], address: string, port = 0): Promise<End> {
  const link: AnyLink & Link = new Made({ address, port });
  opened.push(link);
  const receiver = new RecordingReceiver();
  const { local } = await link.open(receiver);
  return { link, receiver, local };
}

/** At two addresses, with the same port: a group is one of that port. */
async function openTwo(Made: (typeof LINKS)[number]): Promise<[End, End]> {
  const first = await open(Made, '127.74.0.1');
  return [first, await open(Made, '127.74.0.2', first.local.port)];
}

function poll(...ends: readonly End[]): void {
  for (const { link } of ends) link.poll?.();
}

async function arrive(end: End, count: number): Promise<void> {
  await eventually(() => {
    poll(end);
    return end.receiver.received.length >= count;
  });
}

async function expectQuiet(...ends: readonly End[]): Promise<void> {
  await settle();
  poll(...ends);
  for (const { receiver } of ends) assert.is(receiver.received.length, 0);
}

function send(from: End, to: Gid, lengths: number[] = [100]): void {
  const target = new Endpoint(to, from.local.port);
  from.link.send(new TestBatch(packets(target, lengths)));
}

function refused(work: () => void): LinkError {
  try {
    work();
  } catch (error) {
    assert.instance(error, LinkError);
    return error as LinkError;
  }
  throw new Error('it was not refused');
}

for (const Made of LINKS) {
  test(`${Made.name}: each link that has joined receives, the sender as well, with the group`, async () => {
    const [a, b] = await openTwo(Made);
    a.link.join(GROUP);
    b.link.join(GROUP);
    send(a, GROUP, [100, 4160]);
    for (const end of [a, b]) {
      await arrive(end, 2);
      const { received, groups } = end.receiver;
      assert.equal(
        received.map(({ bytes }) => bytes),
        packets(a.local, [100, 4160]).map(({ bytes }) => bytes),
      );
      assert.ok(received.every(({ source }) => source.equals(a.local)));
      assert.equal(groups.map(String), [`${GROUP}`, `${GROUP}`]);
      assert.is(end.receiver.unflushed, 0);
      assert.is(end.link.counters.received, 2);
    }
  });

  test(`${Made.name}: nothing arrives before joining, of another group, or after leaving`, async () => {
    const [a, b] = await openTwo(Made);
    send(a, GROUP);
    b.link.join(GROUP);
    send(a, OTHER);
    await expectQuiet(a, b);
    b.link.leave(GROUP);
    send(a, GROUP);
    await expectQuiet(a, b);
    b.link.leave(GROUP);
    b.link.join(GROUP);
    send(a, GROUP);
    await arrive(b, 1);
    await expectQuiet(a);
  });

  test(`${Made.name}: a group of two links stays with the one when the other leaves`, async () => {
    const [a, b] = await openTwo(Made);
    a.link.join(GROUP);
    b.link.join(GROUP);
    a.link.leave(GROUP);
    send(a, GROUP);
    await arrive(b, 1);
    await expectQuiet(a);
  });

  test(`${Made.name}: packets to its own address have no group`, async () => {
    const [a, b] = await openTwo(Made);
    b.link.join(GROUP);
    a.link.send(new TestBatch(packets(b.local, [100])));
    await arrive(b, 1);
    assert.equal(b.receiver.groups, [undefined]);
  });

  test(`${Made.name}: a group goes along to another address`, async () => {
    const [a, b] = await openTwo(Made);
    b.link.join(GROUP);
    await b.link.moveTo('127.74.0.3', a.local.port);
    send(a, GROUP);
    await arrive(b, 1);
    b.link.leave(GROUP);
    send(a, GROUP);
    await settle();
    poll(b);
    assert.is(b.receiver.received.length, 1);
  });

  test(`${Made.name}: a group of another family is refused, and so is IPv6 on loopback`, async () => {
    const [a] = await openTwo(Made);
    const { code, message } = refused(() => a.link.join(Gid.parse('ff0e::1')));
    assert.is(code, 'EAFNOSUPPORT');
    assert.match(message, /ff0e::1 .*127\.74\.0\.1: use an IPv4 group/);
    if (!hasIpv6) return;
    const six = await open(Made, '::1');
    assert.is(refused(() => six.link.join(GROUP)).code, 'EAFNOSUPPORT');
    assert.is(refused(() => six.link.join(Gid.parse('ff0e::1'))).code, 'EOPNOTSUPP');
  });

  test(`${Made.name}: a port that another program has for itself is named`, async () => {
    const [a] = await openTwo(Made);
    const holder = createSocket('udp4');
    // In a worker of a cluster, a socket that is not exclusive shares its port.
    const place = { port: a.local.port, address: `${GROUP}`, exclusive: true };
    await new Promise<void>((resolve) => void holder.bind(place, resolve));
    const { code, message } = refused(() => a.link.join(GROUP));
    assert.is(code, 'EADDRINUSE');
    assert.ok(message.includes(`UDP port ${a.local.port}`), message);
    await new Promise<void>((resolve) => void holder.close(resolve));
    a.link.join(GROUP);
  });

  test(`${Made.name}: a closed link has left its groups`, async () => {
    const [a, b] = await openTwo(Made);
    a.link.join(GROUP);
    b.link.join(GROUP);
    await b.link.close();
    send(a, GROUP);
    await arrive(a, 1);
    assert.is(b.receiver.received.length, 0);
    assert.throws(() => b.link.join(GROUP), /not open/);
  });
}

test('UdpBatchLink: a datagram longer than any packet is not handed on', async () => {
  const [a, b] = await openTwo(UdpBatchLink);
  b.link.join(GROUP);
  send(a, GROUP, [PACKET_SIZE_LIMIT + 1, 8000, 50]);
  await arrive(b, 1);
  assert.equal(
    b.receiver.bytes.map(({ length }) => length),
    [50],
  );
});

test('UdpBatchLink: the limit of groups is named; a group that was left makes room', async () => {
  const [a, b] = await openTwo(UdpBatchLink);
  const group = (index: number): Gid => Gid.parse(`239.74.2.${index}`);
  for (let index = 0; index < GROUPS_MAX; index++) b.link.join(group(index));
  const { code, message } = refused(() => b.link.join(GROUP));
  assert.is(code, 'ENOMEM');
  assert.match(message, /at most 64 groups/);
  b.link.leave(group(0));
  poll(b);
  b.link.join(GROUP);
  send(a, GROUP);
  send(a, group(0));
  send(a, group(GROUPS_MAX - 1));
  await arrive(b, 2);
  assert.equal(b.receiver.groups.map(String).sort(), [`${GROUP}`, '239.74.2.63'].sort());
});

test('UdpBatchLink: a wait ends when a packet of a group arrives', async () => {
  const [a, b] = await openTwo(UdpBatchLink);
  b.link.join(GROUP);
  send(a, GROUP);
  const began = performance.now();
  b.link.wait!(20_000_000);
  b.link.poll!();
  assert.is(b.receiver.received.length, 1);
  assert.ok(performance.now() - began < 10_000);
});

test.run();
