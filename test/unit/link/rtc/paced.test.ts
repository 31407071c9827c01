/** The rate of each peer of a link over data channels, with channels in the test's hand. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { DataChannelLink, MisuseError } from '../../../../host/index.js';
import { Gid } from '../../../../host/link/endpoint.js';
import type { Description, RtcConnection } from '../../../../host/link/rtc/connection.js';
import { pacedConnector } from '../../../../host/link/rtc/paced.js';
import { pacedConnector as ofPage } from '../../../../host/link/rtc/paced.browser.js';
import { FakeChannel } from '../../../support/fake-channel.js';
import { eventually, settle } from '../../../support/receiver.js';

const test = suite('unit/link/rtc/paced');

const RATE = 200_000;
/** A quarter of a second. */
const BURST = RATE / 4;
const MESSAGE_BYTES = 1000;

/** A description of the peer whose certificate has this byte. */
function from(type: Description['type'], peer: number): Description {
  const print = Array.from({ length: 32 }, () => peer.toString(16).padStart(2, '0')).join(':');
  const lines = [
    'm=application 9 UDP/DTLS/SCTP webrtc-datachannel',
    `a=fingerprint:sha-256 ${print}`,
  ];
  return { type, sdp: lines.join('\r\n') };
}

/** A connector of fake channels, and what of them the link sees. */
function world(rate = RATE) {
  const channels: FakeChannel[] = [];
  const counters = { paced: 0, dropped: 0 };
  const make = (): Promise<RtcConnection> => {
    const channel = new FakeChannel();
    channels.push(channel);
    return Promise.resolve({
      description: from('offer', 1),
      channel,
      accept: () => Promise.resolve(),
    });
  };
  const inner = { address: () => Promise.resolve(Gid.parse('fd00::1')), offer: make, answer: make };
  const connector = pacedConnector(inner, { peerBytesPerSecond: rate }, counters);
  /** A connection to that peer; the messages that the link receives. */
  const connect = async (peer: number, isOffer = false) => {
    const made = isOffer ? await connector.offer() : await connector.answer(from('offer', peer));
    if (isOffer) await made.accept(from('answer', peer));
    const received: Uint8Array[] = [];
    made.channel.start({
      opened: () => undefined,
      message: (bytes) => void received.push(bytes),
      interrupted: () => undefined,
      closed: () => undefined,
    });
    return { channel: made.channel, inner: channels.at(-1)!, received };
  };
  return { connect, counters };
}

const message = (number: number, bytes = MESSAGE_BYTES): Uint8Array =>
  new Uint8Array(bytes).fill(number & 255);

test('what exceeds the rate waits, in order, both ways', async () => {
  const { connect, counters } = world();
  const { channel, inner, received } = await connect(1);
  const start = performance.now();
  for (let number = 0; number < 100; number++) {
    inner.receiver!.message(message(number));
    assert.is(channel.send(message(number)), true);
  }
  const first = BURST / MESSAGE_BYTES;
  for (const list of [received, inner.sent]) {
    assert.ok(list.length >= first && list.length < first + 10, `${list.length} at once`);
  }
  assert.ok(channel.bufferedBytes > 0);
  await eventually(() => received.length === 100 && inner.sent.length === 100);
  const millis = performance.now() - start;
  assert.ok(millis > (1000 * (100 * MESSAGE_BYTES - BURST - MESSAGE_BYTES)) / RATE, `${millis} ms`);
  const numbers = Array.from({ length: 100 }, (_, number) => number);
  for (const list of [received, inner.sent]) {
    assert.equal(
      list.map(([number]) => number),
      numbers,
    );
  }
  assert.is(channel.bufferedBytes, 0);
  assert.ok(counters.paced > 80, `${counters.paced} waited`);
  assert.is(counters.dropped, 0);
});

test('a peer that connects again has what is left of its rate, both ways', async () => {
  const { connect } = world();
  const flood = async (): Promise<readonly number[]> => {
    const { channel, inner, received } = await connect(1);
    for (let number = 0; number < 100; number++) {
      inner.receiver!.message(message(number));
      channel.send(message(number));
    }
    channel.close();
    return [received.length, inner.sent.length];
  };
  const first = BURST / MESSAGE_BYTES;
  for (const count of await flood()) assert.ok(count >= first, `${count} of ${first}`);
  let passed = 0;
  const start = performance.now();
  // Behind the moment at which the first flood would be forgotten, too.
  for (const millis of [0, 0, 0, 200, 0, 60, 0]) {
    await settle(millis);
    passed += Math.max(...(await flood()));
  }
  // The last one of each may exceed it.
  const most = ((performance.now() - start) / 1000) * (RATE / MESSAGE_BYTES) + 10;
  assert.ok(passed <= most, `${passed}, and ${most} within the rate`);
  await settle(300);
  for (const count of await flood()) assert.ok(count >= first, `${count} of ${first}, rested`);
});

test('a message that waits is a copy, since its bytes change after the call', async () => {
  const { connect } = world();
  const { inner, received } = await connect(1);
  inner.receiver!.message(message(0, BURST));
  inner.receiver!.message(message(0));
  const last = message(5);
  inner.receiver!.message(last);
  last.fill(9);
  await eventually(() => received.length === 3);
  assert.is(received[2]![0], 5);
});

test('connections of one peer share its rate, and another peer has its own', async () => {
  const { connect } = world();
  const one = await connect(1);
  const two = await connect(1, true);
  one.inner.receiver!.message(message(1, BURST + MESSAGE_BYTES));
  two.inner.receiver!.message(message(2));
  assert.equal([one.received.length, two.received.length], [1, 0]);
  const other = await connect(2);
  other.inner.receiver!.message(message(3));
  assert.is(other.received.length, 1);
  await eventually(() => two.received.length === 1);
});

test('a flood is dropped beyond 2 MiB, and short messages count more than their bytes', async () => {
  const { connect, counters } = world();
  const { inner, channel } = await connect(1);
  for (let count = 0; count < 20_000; count++) inner.receiver!.message(message(1, 6));
  // 256 bytes each: 8,192 wait, and 196 came at once.
  assert.ok(counters.paced <= 8192 && counters.paced > 8000, `${counters.paced} wait`);
  assert.ok(counters.dropped > 11_000, `${counters.dropped} dropped`);
  channel.close();
});

test('a connection that has ended delivers and sends nothing that waited', async () => {
  const { connect } = world();
  const { channel, inner, received } = await connect(1);
  for (let number = 0; number < 100; number++) {
    inner.receiver!.message(message(number));
    channel.send(message(number));
  }
  const [came, went] = [received.length, inner.sent.length];
  channel.close();
  channel.close();
  await settle(100);
  assert.equal([received.length, inner.sent.length], [came, went]);
  assert.is(inner.isClosed, true);
  // The peer comes back, with a connection whose messages travel.
  const again = await connect(1);
  again.inner.receiver!.message(message(1));
  assert.is(again.received.length, 1);
});

test('a channel that takes nothing reports that, as without a rate', async () => {
  const { connect } = world();
  const { channel, inner } = await connect(1);
  inner.isFull = true;
  assert.is(channel.send(message(1)), false);
});

test('several connections are those of the link, and not of its connector', async () => {
  const inner = new FakeChannel();
  const bundle = Object.assign(new FakeChannel(), { connections: [inner] });
  const make = (): Promise<RtcConnection> =>
    Promise.resolve({
      description: from('offer', 1),
      channel: bundle,
      accept: () => Promise.resolve(),
    });
  const address = (): Promise<Gid> => Promise.resolve(Gid.parse('fd00::1'));
  const counters = { paced: 0, dropped: 0 };
  const options = { peerBytesPerSecond: RATE };
  const connector = pacedConnector({ address, offer: make, answer: make }, options, counters);
  for (const making of [connector.offer(), connector.answer(from('offer', 1))]) {
    const error = (await making.catch((reason: unknown) => reason)) as MisuseError;
    assert.is(error.argument, 'connector');
  }
  assert.is(bundle.isClosed, true);
});

test('the rate is checked, and a page has no such option', async () => {
  for (const peerBytesPerSecond of [0, 131_071, 1.5, '1e6', NaN] as number[]) {
    assert.throws(
      () => new DataChannelLink({ peerBytesPerSecond }),
      (error: MisuseError) => error.argument === 'peerBytesPerSecond',
    );
  }
  const connector = { address: () => undefined } as never;
  assert.is(ofPage(connector), connector);
});

test.run();
