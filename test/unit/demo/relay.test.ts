/** The demo's relay: real sockets, both ways, and what it drops. */
import { createSocket, type Socket } from 'node:dgram';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RelayServer } from '../../../host/demo/relay-server.js';
import { Relay, type RelayAddress } from '../../../host/demo/relay.js';
import {
  RelayedSignalling,
  askForRelay,
  endRelay,
  leadTo,
} from '../../../host/demo/relayed-signalling.js';
import { eventually, settle } from '../../support/receiver.js';
import { rejection } from '../../support/refusal.js';

/** A peer that records its messages. */
class Peer {
  readonly heard: string[] = [];
  readonly #socket: Socket = createSocket('udp4');

  /** At that address, or at the usual one. */
  constructor(address?: string) {
    this.#socket.on('message', (bytes) => this.heard.push(bytes.toString()));
    if (address !== undefined) this.#socket.bind(0, address);
  }

  say(text: string, { address, port }: RelayAddress): Promise<void> {
    return new Promise((resolve) => this.#socket.send(text, port, address, () => resolve()));
  }

  close(): void {
    this.#socket.close();
  }
}

async function inWorld(
  work: (relay: Relay, peers: Peer[]) => Promise<void>,
  random?: () => number,
) {
  const relay = await Relay.open('127.0.0.1', random);
  const peers = [new Peer(), new Peer(), new Peer()];
  try {
    await work(relay, peers);
  } finally {
    for (const peer of peers) peer.close();
    relay.close();
  }
}

test('a forwarded datagram comes from the address that the receiver expects', () =>
  inWorld(async (relay, [a, b]) => {
    await a!.say('too early', relay.offerer);
    await b!.say('one', relay.answerer);
    await eventually(() => a!.heard.length === 1);
    await a!.say('two', relay.offerer);
    await eventually(() => b!.heard.length === 1);
    assert.equal(a!.heard, ['one']);
    assert.equal(b!.heard, ['two'], 'the first one had no receiver');
    assert.equal(relay.counters, { forwarded: 2, dropped: 0 });
  }));

test('datagrams of an unknown sender are dropped while the peer is there', () =>
  inWorld(async (relay, [a, b, stranger]) => {
    await a!.say('here', relay.offerer);
    await b!.say('one', relay.answerer);
    await eventually(() => a!.heard.length === 1);
    await stranger!.say('boo', relay.offerer);
    await a!.say('two', relay.offerer);
    await eventually(() => b!.heard.length === 1);
    assert.equal(b!.heard, ['two']);
    await b!.say('three', relay.answerer);
    await eventually(() => a!.heard.length === 2);
    assert.equal(stranger!.heard, [], 'nor told anything');
  }));

test('datagrams of an address that the relay does not accept make no peer', async () => {
  const relay = await Relay.open('127.0.0.1', Math.random, (address) => address === '127.0.0.1');
  const [stranger, a, b] = [new Peer('127.0.41.9'), new Peer(), new Peer()];
  try {
    await stranger.say('first', relay.offerer);
    await a.say('here', relay.offerer);
    await b.say('one', relay.answerer);
    await eventually(() => a.heard.length === 1);
    assert.equal([stranger.heard, a.heard], [[], ['one']]);
  } finally {
    for (const peer of [stranger, a, b]) peer.close();
    relay.close();
  }
});

test('of all that comes the share that is wanted is dropped, and counted', () => {
  let turn = 0;
  return inWorld(
    async (relay, [a, b]) => {
      await a!.say('here', relay.offerer);
      // The relay reads its sockets in any order: each side repeats until the other is known.
      while (a!.heard.length === 0) {
        await b!.say('here', relay.answerer);
        await settle(1);
      }
      await a!.say('first', relay.offerer);
      await eventually(() => b!.heard.at(-1) === 'first');
      const [before, heard] = [relay.counters.forwarded, b!.heard.length];
      relay.loss = 0.25;
      turn = 0;
      for (let count = 1; count <= 40; count++) await a!.say(`${count}`, relay.offerer);
      await eventually(() => b!.heard.length === heard + 30);
      assert.equal(relay.counters, { forwarded: before + 30, dropped: 10 });
    },
    () => (turn++ % 4) / 4,
  );
});

test('a delayed datagram is late and in order, and does not leave a closed relay', () =>
  inWorld(async (relay, [a, b]) => {
    await a!.say('here', relay.offerer);
    await b!.say('at once', relay.answerer);
    await eventually(() => a!.heard.length === 1);
    relay.delayMillis = 60;
    const start = performance.now();
    for (let count = 0; count < 20; count++) await a!.say(`${count}`, relay.offerer);
    // Datagrams with a shorter delay do not overtake them.
    await eventually(() => relay.counters.forwarded === 21);
    relay.delayMillis = 0;
    await a!.say('last', relay.offerer);
    await eventually(() => b!.heard.length === 21);
    assert.ok(performance.now() - start >= 55, 'not sooner');
    assert.equal(b!.heard, [...Array(20).keys()].map(String).concat('last'));
    relay.delayMillis = 200;
    await a!.say('never', relay.offerer);
    await eventually(() => relay.counters.forwarded === 23);
    assert.is(b!.heard.length, 21);
  }));

test('a description leads to the relay alone', async () => {
  const sdp = [
    'v=0',
    'm=application 9 UDP/DTLS/SCTP webrtc-datachannel',
    'a=candidate:7 1 udp 2122260223 192.168.1.2 50000 typ host',
    'a=candidate:8 1 tcp 1518280447 192.168.1.2 9 typ host tcptype active',
    'a=end-of-candidates',
    'a=mid:0',
    '',
  ].join('\r\n');
  const led = leadTo({ address: '127.0.0.1', port: 7 }, { type: 'offer', sdp });
  assert.equal(led.sdp.split('\r\n'), [
    'v=0',
    'm=application 9 UDP/DTLS/SCTP webrtc-datachannel',
    'a=mid:0',
    'a=candidate:1 1 udp 2130706431 127.0.0.1 7 typ host',
    'a=end-of-candidates',
    '',
  ]);
  const places = { offerer: { address: '::1', port: 1 }, answerer: { address: '::1', port: 2 } };
  const relay = { id: '', ...places, forwarded: 0, dropped: 0 };
  const asked: string[] = [];
  const exchange = async (offer: { sdp: string }): Promise<unknown> => {
    asked.push(offer.sdp);
    return { type: 'answer', sdp };
  };
  const { signal } = new AbortController();
  const relayed = new RelayedSignalling({ name: 'x', exchange }, relay);
  const answer = (await relayed.exchange({ type: 'offer', sdp }, signal)) as { sdp: string };
  assert.match(asked[0]!, /::1 2 typ host/);
  assert.match(answer.sdp, /::1 1 typ host/);
  const silent = new RelayedSignalling({ name: 'x', exchange: async () => null }, relay);
  const error = await rejection(silent.exchange({ type: 'offer', sdp }, signal));
  assert.is((error as { code: string }).code, 'EPROTO');
});

test('the desk makes relays up to a limit, and changes those it has', async () => {
  const desk = new RelayServer(4);
  const server = createServer((request, response) => void desk.answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/relay`);
  const refusal = async (id?: string, loss?: number): Promise<string> => {
    try {
      await askForRelay(url, id, loss === undefined ? undefined : { loss });
      return 'none';
    } catch (error) {
      return (error as { code: string }).code;
    }
  };
  try {
    const made = await askForRelay(url);
    // Firefox sends nothing to a loopback address.
    const places = Object.values(networkInterfaces()).flatMap((some) => some ?? []);
    const outer = places.filter(({ family, internal }) => family === 'IPv4' && !internal);
    assert.is(made.offerer.address, outer[0]?.address ?? '127.0.0.1');
    assert.is(made.answerer.address, made.offerer.address);
    const changed = await askForRelay(url, made.id, { loss: 0.5 });
    assert.is(changed.id, made.id);
    assert.is(desk.relays[0]!.loss, 0.5);
    await askForRelay(url, made.id, { loss: 0.5, delay: 20 });
    assert.is(desk.relays[0]!.delayMillis, 20);
    const late = await rejection(askForRelay(url, made.id, { loss: 0, delay: 201 }));
    assert.match(`${late}`, /delay is from 0 to 200 ms/);
    const other = await askForRelay(url);
    await endRelay(url, other.id);
    assert.is(desk.relays.length, 1);
    assert.match(`${await rejection(endRelay(url, other.id))}`, /no such relay/);
    for (const loss of [2, -1, NaN]) assert.is(await refusal(made.id, loss), 'ECONNREFUSED');
    assert.is(desk.relays[0]!.loss, 0.5);
    assert.is(await refusal('another'), 'ENOENT');
    assert.is((await fetch(url)).status, 405);
    for (let count = 1; count < 4; count++) await askForRelay(url);
    assert.is(await refusal(), 'ECONNREFUSED', 'the fifth');
    assert.is(desk.relays.length, 4);
  } finally {
    desk.close();
    server.closeAllConnections();
    server.close();
  }
});

test('a relay that is still being opened when its server is closed ends as well', async () => {
  const relays = new RelayServer();
  const server = createServer((request, response) => {
    const answered = relays.answer(request, response);
    relays.close();
    void answered;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    const { port } = server.address() as AddressInfo;
    const { status } = await fetch(`http://127.0.0.1:${port}/relay`, { method: 'POST' });
    assert.is(status, 503);
    assert.equal(relays.relays, []);
  } finally {
    server.closeAllConnections();
    server.close();
    relays.close();
  }
});

test.run();
