/** Packets in messages, the window, and connections to peers. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  HEADER_BYTES,
  LENGTH_BYTES,
  FrameFlag,
  Kind,
} from '../../../../host/link/channel/channel-frame.js';
import { LinkError } from '../../../../host/errors/errors.js';
import { EventReader, eventsFor, type EventTarget } from '../../../../host/base/event-reader.js';
import type { PeerEvent } from '../../../../host/link/channel/channel-link.js';
import { Endpoint, Gid } from '../../../../host/link/endpoint.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { FakeChannel, FakeLink, LIMITS } from '../../../support/fake-channel.js';
import { eventually, RecordingReceiver, settle } from '../../../support/receiver.js';

const PEER = Gid.parse('fd00::2');
const to = new Endpoint(PEER, 4791);

class Receiver extends RecordingReceiver {
  readonly gone: string[] = [];

  peerGone(peer: Endpoint, reason: string): void {
    this.gone.push(`${peer.gid}: ${reason}`);
  }
}

async function open(limits = {}) {
  const link = new FakeLink(limits);
  const receiver = new Receiver();
  await link.open(receiver);
  const channel = await link.connect(PEER);
  return { link, receiver, channel };
}

function send(link: FakeLink, ...lengths: number[]): void {
  link.send(new TestBatch(lengths.map((length, i) => ({ bytes: pattern(length, i), to }))));
}

const sequenceOf = (message: Uint8Array): number => message[2]! | (message[3]! << 8);
const asks = (message: Uint8Array): boolean => (message[1]! & FrameFlag.ASK) !== 0;

/** A message of the peer; without packets an acknowledgement. */
function message(seen: number | undefined, sequence: number, ...packets: Uint8Array[]): Uint8Array {
  const bytes = [
    packets.length ? Kind.PACKETS : Kind.ACKNOWLEDGE,
    seen === undefined ? 0 : FrameFlag.SEEN,
  ];
  bytes.push(sequence & 255, sequence >> 8, (seen ?? 0) & 255, (seen ?? 0) >> 8);
  for (const packet of packets) bytes.push(packet.length & 255, packet.length >> 8, ...packet);
  return Uint8Array.from(bytes);
}

/** The packets of a message. */
function packetsOf(bytes: Uint8Array): Uint8Array[] {
  const packets: Uint8Array[] = [];
  for (let at = HEADER_BYTES; at < bytes.length;) {
    const length = bytes[at]! | (bytes[at + 1]! << 8);
    packets.push(bytes.slice(at + LENGTH_BYTES, at + LENGTH_BYTES + length));
    at += LENGTH_BYTES + length;
  }
  return packets;
}

test('packets that are sent in one breath share messages', async () => {
  const { link, channel } = await open();
  send(link, 20, 24);
  send(link, 80, 1056, 16);
  assert.is(channel.sent.length, 1, 'a full message leaves at once');
  await Promise.resolve();
  assert.equal(
    channel.sent.map((bytes) => packetsOf(bytes).map(({ length }) => length)),
    [
      [20, 24, 80],
      [1056, 16],
    ],
  );
  assert.equal(packetsOf(channel.sent[1]!)[0], pattern(1056, 1));
  assert.equal(channel.sent.map(sequenceOf), [0, 1]);
  await link.close();
});

test('no message is longer than a datagram carries', async () => {
  const { link, channel } = await open({ windowBytes: 2 ** 20 });
  for (let length = 0; length <= 1088; length += 17) send(link, length, 1088 - length);
  await Promise.resolve();
  assert.ok(channel.sent.every(({ length }) => length <= LIMITS.messageBytes));
  assert.is(channel.sent.flatMap(packetsOf).length, 130);
  await link.close();
});

test('no more than the window is under way, and what is seen opens it', async () => {
  const { link, channel } = await open();
  send(link, ...new Array<number>(20).fill(1056));
  await Promise.resolve();
  assert.is(channel.sent.length, 7, '7 messages of 1064 bytes are below 8192');
  const asked = channel.sent.map(asks);
  assert.equal(asked, [false, true, false, true, false, true, false], 'four times a window');
  channel.receiver!.message(message(2, 0));
  assert.is(channel.sent.length, 10);
  channel.receiver!.message(message(9, 0));
  assert.is(channel.sent.length, 17);
  await link.close();
});

test('where many small messages close the window the last one asks', async () => {
  const { link, channel } = await open({ windowBytes: 2 ** 20 });
  for (let sent = 0; sent < 1030; sent++) {
    send(link, 1);
    await Promise.resolve();
  }
  assert.equal(
    channel.sent.map((bytes, index) => (asks(bytes) ? index : -1)).filter((index) => index >= 0),
    [1023],
  );
  channel.receiver!.message(message(1023, 0));
  assert.is(channel.sent.length, 1025, 'what waited shares a message');
  await link.close();
});

test('an acknowledgement of an unsent or already acknowledged message is ignored', async () => {
  const { link, channel } = await open();
  send(link, ...new Array<number>(40).fill(1056));
  await Promise.resolve();
  for (const seen of [7, 8, 100, 32767, 32768, 65535]) channel.receiver!.message(message(seen, 0));
  assert.is(channel.sent.length, 7);
  channel.receiver!.message(message(6, 0));
  assert.is(channel.sent.length, 14);
  channel.receiver!.message(message(6, 0));
  channel.receiver!.message(message(0, 0));
  assert.is(channel.sent.length, 14);
  await link.close();
});

test('after a silence one message asks, and an answer opens the whole window', async () => {
  const { link, channel } = await open();
  send(link, ...new Array<number>(30).fill(1056));
  await Promise.resolve();
  await eventually(() => channel.sent.length > 7);
  await settle(10);
  assert.is(channel.sent.length, 8);
  assert.ok(asks(channel.sent[7]!));
  assert.is(link.counters.silences, 1);
  channel.receiver!.message(message(7, 0));
  assert.is(channel.sent.length, 15);
  await link.close();
});

test('the numbers of messages wrap', async () => {
  const { link, channel } = await open({ windowBytes: 2 ** 20, queueBytes: 2 ** 20 });
  const batch = new Array<{ bytes: Uint8Array; to: Endpoint }>(200).fill({
    bytes: pattern(1000, 0),
    to,
  });
  for (let count = 0; count < 66_000; count += batch.length) {
    link.send(new TestBatch(batch));
    await Promise.resolve();
    const last = channel.sent.at(-1)!;
    assert.is(sequenceOf(last), (count + batch.length - 1) & 0xffff);
    channel.receiver!.message(message(sequenceOf(last), 0));
    channel.sent.length = 0;
  }
  assert.is(link.counters.silences, 0);
  await link.close();
});

test('an acknowledgement rides along, and goes by itself only when nothing else does', async () => {
  const { link, channel } = await open();
  const asking = message(undefined, 5, pattern(20, 1));
  asking[1] = FrameFlag.ASK;
  channel.receiver!.message(asking);
  await eventually(() => channel.sent.length > 0);
  assert.equal(channel.sent, [message(5, 0)]);
  asking[2] = 6;
  channel.receiver!.message(asking);
  send(link, 12);
  await Promise.resolve();
  await settle(5);
  assert.is(channel.sent.length, 2, 'the packet had it');
  assert.is(channel.sent[1]![4], 6);
  // Without the ASK flag there is no acknowledgement.
  channel.receiver!.message(message(undefined, 7, pattern(20, 1)));
  await settle(5);
  assert.is(channel.sent.length, 2);
  await link.close();
});

test('messages that come late count as seen no more, but their packets come', async () => {
  const { link, receiver, channel } = await open();
  channel.receiver!.message(message(undefined, 3, pattern(20, 3)));
  channel.receiver!.message(message(undefined, 2, pattern(20, 2)));
  send(link, 12);
  await Promise.resolve();
  assert.is(channel.sent[0]![4], 3);
  await receiver.until(2);
  assert.equal(receiver.bytes, [pattern(20, 3), pattern(20, 2)]);
  await link.close();
});

test('an invalid message is counted and dropped; the whole packets of a truncated one arrive', async () => {
  const { link, receiver, channel } = await open();
  const whole = message(undefined, 0, pattern(10, 1), pattern(10, 2));
  const noise = [
    new Uint8Array(0),
    Uint8Array.of(Kind.PACKETS),
    new Uint8Array(5).fill(Kind.PACKETS),
    new Uint8Array(100),
    new Uint8Array(LIMITS.receiveBytes + 1).fill(Kind.PACKETS),
  ];
  for (const bytes of noise) channel.receiver!.message(bytes);
  await settle(5);
  assert.is(link.counters.malformed, noise.length);
  assert.is(receiver.received.length, 0);
  // Cut in the second packet, in its length, or with more behind it.
  channel.receiver!.message(whole.subarray(0, whole.length - 1));
  channel.receiver!.message(whole.subarray(0, HEADER_BYTES + LENGTH_BYTES + 10 + 1));
  channel.receiver!.message(Uint8Array.of(...whole, 9));
  await receiver.until(4);
  assert.is(link.counters.malformed, noise.length + 3);
  assert.equal(receiver.bytes, [pattern(10, 1), pattern(10, 1), pattern(10, 1), pattern(10, 2)]);
  await link.close();
});

test('the send backlog is bounded: beyond, packets are dropped and counted', async () => {
  const { link, channel } = await open({ queueBytes: 10_000 });
  send(link, ...new Array<number>(60).fill(1056));
  await Promise.resolve();
  const waiting = 60 - channel.sent.length - link.counters.dropped;
  assert.is(waiting, 9);
  send(link, 1200);
  assert.is(link.counters.dropped, 60 - channel.sent.length - 9 + 1, 'longer than any message');
  await link.close();
});

test('a channel that is full, or holds too much back, loses messages and nothing else', async () => {
  const { link, channel } = await open();
  channel.isFull = true;
  send(link, 100);
  await Promise.resolve();
  channel.isFull = false;
  channel.bufferedBytes = LIMITS.bufferedBytesMax + 1;
  send(link, 100);
  await Promise.resolve();
  channel.bufferedBytes = 0;
  send(link, 100);
  await Promise.resolve();
  assert.is(link.counters.refused, 2);
  assert.equal(channel.sent.map(sequenceOf), [2]);
  await link.close();
});

test('packets to an unknown peer are counted as unroutable', async () => {
  const { link, channel } = await open();
  const unknown = Endpoint.parse('fd00::9', 4791);
  const otherPort = new Endpoint(PEER, 4792);
  const peers = [unknown, otherPort];
  link.send(new TestBatch(peers.map((peer) => ({ bytes: pattern(9, 1), to: peer }))));
  await Promise.resolve();
  assert.is(link.counters.unroutable, 2);
  assert.is(channel.sent.length, 0);
  await link.close();
});

function packetCount({ sent }: FakeChannel): number {
  return sent.flatMap(packetsOf).length;
}

/** The smaller address chooses among connections to one peer: FakeLink has fd00::1. */
const CHOSEN_FOR = Gid.parse('fd00::2');
const FOLLOWED = Gid.parse('fd00::');

test('a connection takes an address over when it opens, not when it is requested', async () => {
  const { link, channel, receiver } = await open();
  const impostor = new FakeChannel();
  const refused = link.add(PEER, impostor).catch((error: LinkError) => error.code);
  impostor.receiver!.message(message(undefined, 0, pattern(10, 1)));
  assert.is(channel.isClosed, false);
  assert.is(await refused, 'ETIMEDOUT');
  assert.ok(impostor.isClosed);
  assert.is(receiver.received.length, 0, 'it never was a peer');
  const next = await link.connect(PEER);
  assert.ok(channel.isClosed);
  send(link, 20);
  await Promise.resolve();
  assert.is(next.sent.length, 1);
  assert.equal(receiver.gone, [], 'the peer was there all the time');
  await link.close();
});

test('a connection is registered before its acceptance is sent', async () => {
  const { link, channel, receiver } = await open();
  const next = new FakeChannel();
  let accepted = (): void => {};
  const accepting = new Promise<void>((resolve) => (accepted = resolve));
  const adding = link.add(PEER, next, () => accepting);
  // The other side has it open, and drops the old one, before the acceptance arrives.
  channel.receiver!.closed('the other side closed it', false);
  await settle(20);
  next.receiver!.opened();
  accepted();
  await adding;
  await settle(150);
  assert.equal(receiver.gone, []);
  assert.is(link.peers.length, 1);
  await link.close();
});

test('a connection whose answer is refused leaves no peer', async () => {
  const { link, receiver } = await open({ peersMax: 2 });
  for (let again = 0; again < 2; again++) {
    const channel = new FakeChannel();
    const refusal = new LinkError('EPROTO', 'no answer');
    assert.is(await codeOf(link.add(PEER, channel, () => Promise.reject(refusal))), 'EPROTO');
    assert.ok(channel.isClosed);
  }
  assert.equal(receiver.gone, []);
  await link.close();
});

test('the smaller address closes the older connection, the larger one waits for that', async () => {
  const { link, receiver } = await open({ peersMax: 4 });
  const chosen = await link.connect(CHOSEN_FOR);
  await link.connect(CHOSEN_FOR);
  assert.ok(chosen.isClosed);
  const followed = await link.connect(FOLLOWED);
  const newer = await link.connect(FOLLOWED);
  assert.is(followed.isClosed, false);
  const to = new Endpoint(FOLLOWED, 4791);
  link.send(new TestBatch([{ bytes: pattern(12, 1), to }]));
  await Promise.resolve();
  assert.equal([followed.sent.length, newer.sent.length], [0, 1]);
  // A message of the peer over the older channel, its only one, arrives, and is answered there.
  followed.receiver!.message(message(undefined, 0, pattern(10, 1)));
  await receiver.until(1);
  link.send(new TestBatch([{ bytes: pattern(12, 2), to }]));
  await Promise.resolve();
  assert.equal([packetCount(followed), packetCount(newer)], [1, 1]);
  followed.receiver!.closed('the other side closed it', false);
  assert.ok(followed.isClosed);
  assert.equal(receiver.gone, []);
  await link.close();
});

test('several connections to one peer are probed, until one is left', async () => {
  const { link } = await open({ askMillis: 1, peersMax: 4 });
  const older = await link.connect(FOLLOWED);
  await settle(10);
  assert.is(older.sent.length, 0, 'one alone is not asked');
  const newer = await link.connect(FOLLOWED);
  await eventually(() => older.sent.length > 1 && newer.sent.length > 1);
  for (const { sent } of [older, newer]) {
    assert.equal(sent[0], Uint8Array.of(Kind.ACKNOWLEDGE, FrameFlag.ASK, 0, 0, 0, 0));
  }
  // A probe is answered though no packets have arrived.
  const asked = new FakeChannel();
  await link.connect(Gid.parse('fd00::4'), asked);
  asked.receiver!.message(newer.sent[0]!);
  await eventually(() => asked.sent.length > 0);
  assert.equal(asked.sent, [message(undefined, 0)]);
  older.receiver!.closed('the other side closed it', false);
  await settle(5);
  const count = newer.sent.length;
  await settle(10);
  assert.is(newer.sent.length, count);
  await link.close();
});

/** Answers each request of an acknowledgement, up to a number of them. */
class AnsweringChannel extends FakeChannel {
  asked = 0;

  constructor(readonly answers: number) {
    super();
  }

  override send(bytes: Uint8Array): boolean {
    const isSent = super.send(bytes);
    if (asks(bytes) && ++this.asked <= this.answers) {
      queueMicrotask(() => this.receiver!.message(message(undefined, 0)));
    }
    return isSent;
  }
}

test('a peer that goes while it is probed for an earlier reason ends as soon', async () => {
  const { link, receiver } = await open({ askMillis: 1, peersMax: 4 });
  const channel = new AnsweringChannel(36);
  await link.connect(FOLLOWED, channel);
  link.probe(`${FOLLOWED}`);
  await eventually(() => channel.asked === 35);
  link.probe(`${FOLLOWED}`);
  await eventually(() => receiver.gone.length > 0);
  assert.equal(receiver.gone, [`${FOLLOWED}: it does not answer any more`]);
  assert.is(channel.asked, 56);
  await link.close();
});

test('a peer that may be gone is probed: a silent one ends, one that answers stays', async () => {
  const { link, receiver } = await open({ askMillis: 1, peersMax: 4 });
  const alive = new AnsweringChannel(Infinity);
  // The answers before its end were under way.
  const late = new AnsweringChannel(5);
  await link.connect(CHOSEN_FOR, alive);
  await link.connect(FOLLOWED, late);
  link.probe('fd00::99');
  for (const gid of [CHOSEN_FOR, FOLLOWED])
    for (let twice = 0; twice < 2; twice++) link.probe(`${gid}`);
  await eventually(() => receiver.gone.length > 0);
  assert.equal(receiver.gone, [`${FOLLOWED}: it does not answer any more`]);
  assert.ok(late.isClosed);
  assert.is(late.asked, 25, '20 in a row, and once at a time');
  // The second call comes behind the first request, and begins anew.
  await eventually(() => alive.asked === 41);
  await settle(20);
  assert.is(alive.asked, 41);
  assert.is(receiver.gone.length, 1);
  link.probe(`${CHOSEN_FOR}`);
  assert.is(alive.asked, 42, 'a later probe');
  await link.close();
});

test('a probe does not end a peer whose connection is interrupted and may come back', async () => {
  const { link, receiver } = await open({ askMillis: 1, peersMax: 4 });
  const channel = await link.connect(CHOSEN_FOR);
  channel.receiver!.interrupted!(true);
  link.probe(`${CHOSEN_FOR}`);
  await settle(100);
  assert.equal(receiver.gone, []);
  channel.receiver!.interrupted!(false);
  link.probe(`${CHOSEN_FOR}`);
  await eventually(() => receiver.gone.length > 0);
  await link.close();
});

test('when the peer closes the newer of two connections, the older one goes on', async () => {
  const { link, receiver } = await open();
  const older = await link.connect(FOLLOWED);
  const newer = await link.connect(FOLLOWED);
  newer.receiver!.closed('the other side closed it', false);
  assert.equal(receiver.gone, []);
  link.send(new TestBatch([{ bytes: pattern(12, 1), to: new Endpoint(FOLLOWED, 4791) }]));
  await Promise.resolve();
  assert.is(older.sent.length, 1);
  older.receiver!.closed('the other side closed it', false);
  assert.equal(receiver.gone, ['fd00::: the other side closed it']);
  await link.close();
});

test('older connections count as peers, and end with theirs', async () => {
  const { link, receiver } = await open();
  const older = await link.connect(FOLLOWED);
  const newer = await link.connect(FOLLOWED);
  assert.is(await codeOf(link.add(Gid.parse('fd00::5'), new FakeChannel())), 'ENOSPC');
  link.disconnect(new Endpoint(FOLLOWED, 4791));
  assert.ok(older.isClosed && newer.isClosed);
  assert.is(receiver.gone.length, 1);
  const last = [await link.connect(FOLLOWED), await link.connect(FOLLOWED)];
  await link.close();
  assert.ok(last.every(({ isClosed }) => isClosed));
});

test('there are as many peers as there may be, those included that are not open yet', async () => {
  const { link } = await open();
  const pending = new FakeChannel();
  const waits = link.add(Gid.parse('fd00::3'), pending).catch((error: LinkError) => error.code);
  await link.connect(Gid.parse('fd00::4'));
  const beyond = new FakeChannel();
  assert.is(await codeOf(link.add(Gid.parse('fd00::5'), beyond)), 'ENOSPC');
  assert.ok(beyond.isClosed);
  assert.is(await codeOf(link.add(link.info.local.gid, new FakeChannel())), 'EADDRINUSE');
  assert.is(await waits, 'ETIMEDOUT');
  await link.connect(Gid.parse('fd00::5'));
  assert.is(link.peers.length, 3);
  await link.close();
});

test('connections of one address that do not open take eight places, and the oldest one ends', async () => {
  const { link } = await open({ peersMax: 20 });
  const one = Gid.parse('fd00::3');
  const channels = Array.from({ length: 10 }, () => new FakeChannel());
  const ends: string[] = [];
  for (const [index, channel] of channels.entries()) {
    link.add(one, channel).catch(({ code }: LinkError) => ends.push(`${index} ${code}`));
  }
  const other = new FakeChannel();
  void link.add(Gid.parse('fd00::4'), other).catch(() => undefined);
  await settle();
  assert.equal(ends, ['0 ECONNRESET', '1 ECONNRESET']);
  assert.equal(
    channels.map(({ isClosed }) => isClosed),
    channels.map((_channel, index) => index < 2),
  );
  assert.is(other.isClosed, false);
  await link.close();
});

test('offers in the name of a peer end no connection that this side has begun', async () => {
  const { link } = await open({ peersMax: 20 });
  const one = Gid.parse('fd00::3');
  const own = new FakeChannel();
  void link.add(one, own).catch(() => undefined);
  const answers = Array.from({ length: 9 }, () => new FakeChannel());
  for (const channel of answers) {
    void link.add(one, channel, () => Promise.resolve()).catch(() => undefined);
  }
  await settle();
  assert.is(own.isClosed, false);
  assert.equal(
    answers.map(({ isClosed }) => isClosed),
    answers.map((_channel, index) => index < 2),
  );
  await link.close();
});

test('a peer that closes is gone at once', async () => {
  const { link, channel, receiver } = await open();
  channel.receiver!.closed('it went', false);
  assert.equal(receiver.gone, ['fd00::2: it went']);
  assert.equal(link.peers, []);
  assert.equal(await kinds(link, 2), ['connected', 'disconnected']);
  await link.close();
});

test('a peer that got lost is sought, and returns or is abandoned', async () => {
  const { link, channel, receiver } = await open();
  channel.receiver!.interrupted(true);
  channel.receiver!.interrupted(false);
  channel.receiver!.closed('no network', true);
  assert.equal(link.sought.length, 2);
  assert.equal(receiver.gone, []);
  const again = await link.connect(PEER);
  await settle(150);
  assert.equal(receiver.gone, []);
  again.receiver!.closed('no network', true);
  await eventually(() => receiver.gone.length > 0);
  assert.equal(receiver.gone, ['fd00::2: no network']);
  const told = ['connected', 'interrupted', 'restored', 'interrupted', 'restored', 'interrupted'];
  assert.equal(await kinds(link, 7), [...told, 'disconnected']);
  await link.close();
});

test('a connection that closes because a new one takes its place is not missed', async () => {
  const { link, channel, receiver } = await open();
  const next = new FakeChannel();
  const adding = link.add(PEER, next);
  // The other side is quicker: it has the new one, and drops the old one.
  channel.receiver!.closed('the other side closed it', false);
  next.receiver!.opened();
  await adding;
  await settle(150);
  assert.equal(receiver.gone, []);
  assert.is(link.peers.length, 1);
  await link.close();
});

test('each loop over the events of peers has all of them from its call on', async () => {
  const { link, channel } = await open();
  const read = async (events: AsyncIterable<PeerEvent>, count = Infinity): Promise<string[]> => {
    const seen: string[] = [];
    for await (const { kind } of events) if (seen.push(kind) === count) break;
    return seen;
  };
  // The first loop has what no loop has seen; the second one begins with its call.
  const all = link.peerEvents();
  const later = read(link.peerEvents(), 1);
  const first = read(all, 2);
  channel.receiver!.interrupted(true);
  assert.equal(await first, ['connected', 'interrupted']);
  assert.equal(await later, ['interrupted']);
  // No loop is there: the next one has what happened meanwhile.
  channel.receiver!.interrupted(false);
  const loops = [read(link.peerEvents()), read(link.peerEvents())];
  channel.receiver!.closed('the other side closed it', false);
  await settle();
  await link.close();
  assert.equal(await Promise.all(loops), [['restored', 'disconnected'], ['disconnected']]);
  assert.equal(await read(link.peerEvents()), []);
});

test('a loop over the events of peers that never begins keeps nothing', async () => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  const readers = new Set<EventTarget<number>>();
  for (let count = 0; count < 50; count++) eventsFor(readers, new EventReader(), () => false);
  const kept = eventsFor(readers, new EventReader<number>(), () => false);
  const begun = eventsFor(readers, new EventReader<number>(), () => false);
  const first = begun.next();
  assert.is(readers.size, 52);
  await settle();
  gc();
  for (const reader of readers) reader.push(7);
  assert.is(readers.size, 2);
  assert.is((await first).value, 7);
  assert.is((await kept.next()).value, 7);
  for (const loop of [kept, begun]) await loop.return();
  assert.is(readers.size, 0);
});

test('closing ends pending connections and pending waits', async () => {
  const { link, channel } = await open();
  const pending = link.add(Gid.parse('fd00::3'), new FakeChannel());
  assert.equal(await kinds(link, 1), ['connected']);
  const event = link.nextPeerEvent();
  await link.close();
  assert.is(await codeOf(pending), 'ECONNRESET');
  assert.is(await event, undefined);
  assert.ok(channel.isClosed);
});

async function codeOf(promise: Promise<unknown>): Promise<string | undefined> {
  return promise.then(
    () => undefined,
    (error: LinkError) => error.code,
  );
}

async function kinds(link: FakeLink, count: number): Promise<string[]> {
  const told: string[] = [];
  for (let index = 0; index < count; index++) told.push((await link.nextPeerEvent())!.kind);
  return told;
}

test.run();
