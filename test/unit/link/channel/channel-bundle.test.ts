/** Several channels to one peer: which of them carries what, and whose end is the end. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ChannelBundle } from '../../../../host/link/channel/channel-bundle.js';
import {
  FrameFlag,
  HEADER_BYTES,
  Kind,
  ORDER_BYTES,
} from '../../../../host/link/channel/channel-frame.js';
import { Endpoint, Gid } from '../../../../host/link/endpoint.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { FakeChannel, FakeLink, LIMITS } from '../../../support/fake-channel.js';
import { eventually, RecordingReceiver, settle } from '../../../support/receiver.js';

const PEER = Gid.parse('fd00::2');
const to = new Endpoint(PEER, 4791);
const LENGTH = 1056;

/** A peer behind `count` channels, all of them open. */
async function open(count: number) {
  const link = new FakeLink();
  const receiver = Object.assign(new RecordingReceiver(), {
    gone: [] as string[],
    peerGone: (_peer: Endpoint, reason: string) => void receiver.gone.push(reason),
  });
  await link.open(receiver);
  const channels = Array.from({ length: count }, () => new FakeChannel());
  const bundle = new ChannelBundle(channels);
  const adding = link.add(PEER, bundle);
  for (const channel of channels) channel.receiver!.opened();
  await adding;
  return { link, receiver, channels, bundle };
}

async function send(link: FakeLink, count: number): Promise<void> {
  const packets = Array.from({ length: count }, (_, i) => ({ bytes: pattern(LENGTH, i), to }));
  link.send(new TestBatch(packets));
  await Promise.resolve();
}

/** The peer says that it has seen all that this channel brought. */
function see(channel: FakeChannel): void {
  const { length } = channel.sent;
  const last = channel.sent[length - 1]!;
  const seen = Uint8Array.of(Kind.ACKNOWLEDGE, FrameFlag.SEEN, 0, 0, last[2]!, last[3]!);
  channel.receiver!.message(seen);
}

const counts = (channels: FakeChannel[]): number[] => channels.map(({ sent }) => sent.length);
const isOrdered = (message: Uint8Array): boolean => (message[1]! & FrameFlag.ORDERED) !== 0;
const orderOf = (message: Uint8Array): number => {
  const at = message.length - ORDER_BYTES;
  return message[at]! | (message[at + 1]! << 8);
};

test('a light load uses the first channel, a heavier one spreads', async () => {
  const { link, channels } = await open(3);
  await send(link, 1);
  assert.equal(counts(channels), [1, 0, 0]);
  see(channels[0]!);
  await send(link, 1);
  assert.equal(counts(channels), [2, 0, 0]);
  see(channels[0]!);
  await send(link, 12);
  assert.equal(counts(channels), [6, 4, 4]);
  await link.close();
});

test('every channel has a window of its own, and the numbers of all are one row', async () => {
  const { link, channels } = await open(3);
  await send(link, 40);
  assert.equal(counts(channels), [7, 7, 7], '7 messages of 1064 bytes are below 8192, on each');
  const sent = channels.flatMap((channel) => channel.sent);
  assert.ok(sent.every(isOrdered));
  assert.equal(
    sent.map(orderOf).sort((a, b) => a - b),
    Array.from({ length: 21 }, (_, i) => i),
  );
  see(channels[1]!);
  assert.equal(counts(channels), [7, 14, 7]);
  await link.close();
});

test('a channel that stands still gets no more than its window, the others go on', async () => {
  const { link, channels } = await open(3);
  await send(link, 60);
  for (let turn = 0; turn < 4; turn++) {
    see(channels[1]!);
    see(channels[2]!);
  }
  assert.equal(counts(channels)[0], 7);
  assert.is(counts(channels)[1]! + counts(channels)[2]!, 53);
  await link.close();
});

test('a channel carries again after the answer to its request is lost', async () => {
  const { link, channels } = await open(2);
  await send(link, 4);
  assert.equal(counts(channels), [2, 2]);
  // The second one has requested an acknowledgement; the first one is always answered.
  await eventually(() => {
    see(channels[0]!);
    void send(link, 3);
    return channels[1]!.sent.length > 2;
  });
  assert.is(link.counters.silences, 1);
  await link.close();
});

test('a channel beside others whose answers take long is not taken for silent', async () => {
  const { link, channels } = await open(2);
  const begin = performance.now();
  await send(link, 4);
  while (performance.now() - begin < 300) {
    see(channels[0]!);
    await send(link, 1);
    await settle(10);
  }
  assert.equal([link.counters.silences, channels[1]!.sent.length], [0, 2]);
  see(channels[1]!);
  const trip = performance.now() - begin;
  // Its round trip is known: closed windows end a wait that was a patient one.
  await send(link, 40);
  const { length } = channels[1]!.sent;
  await eventually(() => channels[1]!.sent.length > length, 2 * trip + 400);
  assert.ok(channels[1]!.sent.length > length, `${length} messages`);
  await link.close();
});

test('packets of several channels are delivered in the order in which they were sent', async () => {
  const from = await open(3);
  await send(from.link, 12);
  const { link, receiver, channels } = await open(3);
  // The last channel is the quickest.
  for (const at of [2, 1, 0]) {
    for (const message of from.channels[at]!.sent) channels[at]!.receiver!.message(message);
  }
  await receiver.until(12);
  assert.equal(
    receiver.bytes,
    Array.from({ length: 12 }, (_, i) => pattern(LENGTH, i)),
  );
  await from.link.close();
  await link.close();
});

test('messages behind a lost one are delivered, and flushed', async () => {
  const from = await open(2);
  await send(from.link, 4);
  const { link, receiver, channels } = await open(2);
  for (const message of from.channels[1]!.sent) channels[1]!.receiver!.message(message);
  await receiver.until(from.channels[1]!.sent.length);
  assert.is(receiver.received.length, from.channels[1]!.sent.length);
  await from.link.close();
  await link.close();
});

test('a channel that ends, or stands still, takes nothing with it but what was on it', async () => {
  const { link, receiver, channels } = await open(3);
  channels[2]!.receiver!.closed('lost', true);
  assert.ok(channels[2]!.isClosed);
  channels[1]!.receiver!.interrupted(true);
  await send(link, 5);
  assert.equal(counts(channels), [5, 0, 0]);
  assert.not.ok(channels[0]!.sent.some(isOrdered), 'one alone needs no order');
  channels[1]!.receiver!.interrupted(false);
  await send(link, 6);
  assert.ok(channels[1]!.sent.length > 0);
  assert.is(channels[2]!.sent.length, 0);
  assert.equal(receiver.gone, []);
  assert.equal(link.peers.length, 1);
  await link.close();
});

test('the end of the first connection ends all of them', async () => {
  const { link, receiver, channels } = await open(3);
  channels[0]!.receiver!.closed('the other side closed it', false);
  assert.ok(channels.every(({ isClosed }) => isClosed));
  assert.equal(receiver.gone, ['the other side closed it']);
  await link.close();
});

test('when all stand still the first one is tried', async () => {
  const { link, channels } = await open(2);
  for (const channel of channels) channel.receiver!.interrupted(true);
  await send(link, 3);
  assert.equal(counts(channels), [3, 0]);
  await link.close();
});

test('several are one peer, and are replaced together', async () => {
  const { link, receiver, channels } = await open(3);
  const next = [new FakeChannel(), new FakeChannel()];
  const adding = link.add(PEER, new ChannelBundle(next));
  for (const channel of next) channel.receiver!.opened();
  await adding;
  assert.ok(channels.every(({ isClosed }) => isClosed));
  assert.is(link.peers.length, 1);
  await send(link, 14);
  assert.equal(counts(next), [7, 7]);
  assert.equal(receiver.gone, []);
  await link.close();
});

test('a channel that has kept messages for a while takes further ones last', async () => {
  const { link, channels } = await open(3);
  channels[0]!.bufferedBytes = 3000;
  channels[1]!.bufferedBytes = 1000;
  await settle();
  await send(link, 6);
  assert.equal(counts(channels).slice(0, 2), [0, 0]);
  // All have a backlog: the smallest one.
  channels[2]!.bufferedBytes = 2000;
  const before = counts(channels);
  await settle();
  await send(link, 1);
  assert.equal(counts(channels), [before[0], before[1]! + 1, before[2]]);
  await link.close();
});

test('an acknowledgement goes by the channel that requested it', async () => {
  const { link, channels } = await open(2);
  const asking = Uint8Array.of(Kind.ACKNOWLEDGE, FrameFlag.ASK, 0, 0, 0, 0);
  channels[1]!.receiver!.message(asking);
  await eventually(() => channels[1]!.sent.length > 0);
  assert.equal(counts(channels), [0, 1]);
  await link.close();
});

test('a place in an order that there is not, or is not whole, is malformed', async () => {
  const { link, channels } = await open(2);
  const short = Uint8Array.of(Kind.PACKETS, FrameFlag.ORDERED, 0, 0, 0, 0, 1, 2, 3);
  assert.ok(short.length < HEADER_BYTES + ORDER_BYTES);
  channels[1]!.receiver!.message(short);
  assert.is(link.counters.malformed, 1);
  const alone = new FakeLink();
  const receiver = new RecordingReceiver();
  await alone.open(receiver);
  const only = await alone.connect(PEER);
  const place = [0, 0, 0, 0];
  only.receiver!.message(Uint8Array.of(Kind.PACKETS, FrameFlag.ORDERED, 0, 0, 0, 0, ...place));
  assert.is(alone.counters.malformed, 1);
  await link.close();
  await alone.close();
});

test('no message is longer than a datagram carries, its place included', async () => {
  const { link, channels } = await open(2);
  await send(link, 14);
  const longest = Math.max(...channels.flatMap(({ sent }) => sent.map(({ length }) => length)));
  assert.is(longest, HEADER_BYTES + 2 + LENGTH + ORDER_BYTES);
  assert.ok(longest <= LIMITS.messageBytes + ORDER_BYTES);
  await link.close();
});

test.run();
