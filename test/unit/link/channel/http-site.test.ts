/** Which requests, sockets and offers a server of ours takes, and how many of one source. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { Worker } from 'node:worker_threads';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { WebSocket } from 'ws';
import { MisuseError, WebSocketLink, answerRequest } from '../../../../host/index.js';
import { createSignallingServer } from '../../../../host/mesh/index.js';
import {
  checkSite,
  pathOf,
  queryOf,
  refusalOfRequest,
} from '../../../../host/link/channel/http-site.js';
import type { Description } from '../../../../host/link/rtc/connection.js';
import { withOwnCandidates } from '../../../../host/link/signalling/candidates.js';
import { SessionCount } from '../../../../host/link/signalling/session-count.js';
import { SourceShares, sourceOf } from '../../../../host/link/source-shares.js';
import {
  acceptUpgrades,
  type UpgradeOptions,
} from '../../../../host/link/channel/websocket-server.js';
import { eventually, settle, RecordingReceiver } from '../../../support/receiver.js';
import { expectMisuse, rejection } from '../../../support/refusal.js';

const asked = (url: string, headers: IncomingMessage['headers'] = {}): IncomingMessage =>
  ({ url, headers }) as IncomingMessage;
const statusOf = (headers: IncomingMessage['headers'], site = {}): number | undefined =>
  refusalOfRequest(asked('/', headers), site)?.status;

test('a request target is a path or nothing, and never throws', () => {
  assert.is(pathOf(asked('/signal?id=1')), '/signal');
  for (const url of ['//', '//[', '/%', '/\\']) assert.is(pathOf(asked(url)), url);
  for (const url of ['', '*', 'http://', 'http://[::']) assert.is(pathOf(asked(url)), undefined);
  assert.is(queryOf(asked('/relay?id=7&loss=0.5')).get('loss'), '0.5');
  assert.is(queryOf(asked('/relay')).get('id'), null);
});

test('a host name that is not ours is refused: DNS may lead any name here', () => {
  for (const host of ['127.0.0.1:8080', '192.0.2.7', '[::1]:80', 'localhost:1', 'a.localhost']) {
    assert.is(statusOf({ host }), undefined, host);
  }
  assert.is(statusOf({}), undefined, 'no browser');
  for (const host of ['attacker.example', 'localhost.attacker.example', '127.0.0.1.example:80']) {
    assert.is(statusOf({ host }), 421, host);
  }
  for (const host of ['', 'a b', 'a/b', 'user@127.0.0.1', '127.0.0.1; script-src *']) {
    assert.is(statusOf({ host }), 400, host);
  }
  assert.is(statusOf({ host: 'Box.lan:80' }, { hosts: ['box.LAN'] }), undefined);
});

test('a page of another origin is refused', () => {
  const host = '127.0.0.1:8080';
  assert.is(statusOf({ host, origin: `http://${host}` }), undefined);
  assert.is(statusOf({ host: '192.0.2.7', origin: 'https://192.0.2.7' }), undefined);
  for (const origin of ['http://127.0.0.1:8081', 'http://127.0.0.1', 'null', 'nonsense', '']) {
    assert.is(statusOf({ host, origin }), 403, origin);
  }
  assert.is(statusOf({ origin: 'null' }), 403, 'without a host');
  const origins = ['https://app.example'];
  assert.is(statusOf({ host, origin: origins[0]! }, { origins }), undefined);
});

test('hosts and origins are arrays of names as browsers send them, and are copied', async () => {
  const origins = ['https://app.example', 'http://127.0.0.1:8081', 'null'];
  const site = checkSite('call', { hosts: ['box.lan'], origins });
  origins.push('https://later.example');
  assert.equal(site, { hosts: ['box.lan'], origins: origins.slice(0, 3) });
  assert.equal(checkSite('call', {}), { hosts: [], origins: [] });
  const wrong = [
    // As a text it would contain the origin https://app.
    { origins: 'https://app.example' },
    { origins: ['https://app.example/'] },
    { origins: ['app.example'] },
    { origins: ['https://APP.example'] },
    { origins: [5] },
    { origins: 5 },
    { hosts: 'box.lan' },
    { hosts: ['box.lan:80'] },
    { hosts: [''] },
    { hosts: null },
  ];
  for (const each of wrong as never[]) {
    const [argument] = Object.keys(each);
    expectMisuse(() => checkSite('call', each), argument);
    const calls = [
      acceptUpgrades({} as WebSocketLink, createServer(), '/packets', each),
      createSignallingServer(createServer(), each),
      answerRequest({} as never, {} as never, {} as never, each),
    ];
    for (const call of calls) {
      const error = await rejection(call);
      assert.instance(error, MisuseError, `${JSON.stringify(each)}: ${error}`);
    }
  }
});

test('a source is an IPv4 address, or a network of 64 bits', () => {
  assert.is(sourceOf('::ffff:192.0.2.1'), '192.0.2.1');
  assert.is(sourceOf('192.0.2.1'), '192.0.2.1');
  assert.is(sourceOf('2001:db8::1'), sourceOf('2001:db8::ffff:2'));
  assert.is.not(sourceOf('2001:db8::1'), sourceOf('2001:db8:0:1::1'));
  assert.is(sourceOf('fe80::1%eth0'), sourceOf('fe80::2'));
  const shares = new SourceShares(3, 2);
  const first = shares.take('192.0.2.1')!;
  assert.ok(shares.take('192.0.2.1'));
  assert.is(shares.take('192.0.2.1'), undefined, 'its share');
  assert.ok(shares.take('192.0.2.2'));
  assert.is(shares.take('192.0.2.3'), undefined, 'all there are');
  first();
  first();
  assert.ok(shares.take('192.0.2.1'));
  assert.is(shares.take('192.0.2.3'), undefined, 'a share returned twice counts once');
});

test('an offer names no address but its own, and few', () => {
  const line = (address: string, port: number): string =>
    `a=candidate:1 1 UDP 2114977791 ${address} ${port} typ host`;
  const sdp = ['v=0', line('192.0.2.1', 1), line('198.51.100.9', 2), `\ta=Candidate:x 1 u 1 a.b 3`];
  const offer = { type: 'offer', sdp: sdp.join('\r'), more: [sdp.join('\n')] } as const;
  const wanted = ['v=0', line('192.0.2.1', 1)].join('\r\n');
  const own = withOwnCandidates(offer, '::ffff:192.0.2.1');
  assert.equal(own, { type: 'offer', sdp: wanted, more: [wanted] });
  const relay = withOwnCandidates(offer, '192.0.2.5', (_address, port) => port === 2);
  assert.is(relay.sdp, ['v=0', line('198.51.100.9', 2)].join('\r\n'));
  const many = Array.from({ length: 40 }, (_, port) => line('192.0.2.1', port + 1)).join('\r\n');
  const few = withOwnCandidates({ type: 'offer', sdp: many }, '192.0.2.1').sdp;
  assert.is(few.split('\r\n').length, 8);
});

test('offers count for their source while they may become connections, and while those last', () => {
  let now = 0;
  const count = new SessionCount(() => now);
  const present = new Set<string>();
  const enter = (address: string, gid: string): boolean =>
    count.enter(address, gid, 2, (other) => present.has(other));
  assert.ok(enter('192.0.2.1', 'a') && enter('192.0.2.1', 'b'));
  assert.not(enter('192.0.2.1', 'c'));
  assert.ok(enter('192.0.2.2', 'd'), 'another source');
  present.add('a');
  now = 16_000;
  assert.ok(enter('192.0.2.1', 'c'), 'b came to nothing');
  assert.not(enter('192.0.2.1', 'e'), 'a is connected');
});

test('offers by HTTP are judged before they are answered', async () => {
  const heard: Description[] = [];
  const link = {
    answer: async (offer: unknown): Promise<Description> => {
      heard.push(offer as Description);
      return { type: 'answer', sdp: '' };
    },
  };
  const server = createServer((request, response) => {
    void answerRequest(link, request, response, { peersPerSource: 2 });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const post = async (sdp: string, headers = {}): Promise<number> => {
    const body = JSON.stringify({ type: 'offer', sdp });
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers, body });
    return response.status;
  };
  const media = 'm=application 9 UDP/DTLS/SCTP webrtc-datachannel';
  const print = `a=fingerprint:sha-256 ${new Array(32).fill('AB').join(':')}`;
  const lines = ['v=0', media, print];
  const foreign = 'a=candidate:1 1 UDP 2114977791 198.51.100.9 53 typ host';
  assert.is(await post(lines.join('\r\n'), { origin: 'http://attacker.example' }), 403);
  assert.is(await post([...lines, foreign].join('\r\n')), 200);
  assert.equal(heard, [{ type: 'offer', sdp: lines.join('\r\n') }]);
  assert.is(await post(lines.join('\r\n')), 200);
  assert.is(await post(lines.join('\r\n')), 429);
  assert.is(heard.length, 2);
  server.closeAllConnections();
  server.close();
});

interface World {
  readonly server: Server;
  readonly url: string;
  readonly link: WebSocketLink;
}

async function withServer(
  options: UpgradeOptions,
  work: (world: World) => Promise<void>,
): Promise<void> {
  const link = new WebSocketLink();
  await link.open(new RecordingReceiver());
  const server = createServer();
  await acceptUpgrades(link, server, '/packets', options);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  try {
    await work({ server, link, url: `ws://127.0.0.1:${port}/packets` });
  } finally {
    await link.close();
    server.closeAllConnections();
    server.close();
  }
}

/** The HTTP status of an upgrade; 101: it is open. */
function open(url: string, options: object = {}): Promise<{ status: number; socket: WebSocket }> {
  const socket = new WebSocket(url, options);
  return new Promise((resolve) => {
    socket.on('error', () => {});
    socket.once('open', () => resolve({ status: 101, socket }));
    socket.once('unexpected-response', (_request, { statusCode }) => {
      resolve({ status: statusCode!, socket });
    });
  });
}

test('upgrades of foreign pages, of other paths and beyond a share are refused', () =>
  withServer({ socketsPerSource: 2 }, async ({ url }) => {
    assert.is((await open(url, { origin: 'http://attacker.example' })).status, 403);
    assert.is((await open(url, { headers: { host: 'attacker.example' } })).status, 421);
    assert.is((await open(url.replace('packets', 'other'))).status, 404);
    const { port } = new URL(url);
    const raw = connect(Number(port), '127.0.0.1');
    raw.write('GET // HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    const [status] = await new Promise<string[]>((resolve) => {
      raw.once('data', (data) => resolve(String(data).split('\r\n')));
    });
    assert.match(status!, / 404 /);
    raw.destroy();
    const first = await open(url);
    const second = await open(url);
    assert.equal([first.status, second.status], [101, 101]);
    assert.is((await open(url)).status, 503);
    assert.is((await open(url, { localAddress: '127.0.0.2' })).status, 101);
    first.socket.terminate();
    let last = 0;
    while (last !== 101) last = (await open(url)).status;
  }));

test('of two listeners of one server exactly one refuses a path that neither has', () =>
  withServer({}, async ({ server, url }) => {
    const rooms = await createSignallingServer(server);
    const other = url.replace('packets', 'other');
    assert.is((await open(other)).status, 404);
    assert.is((await open(url)).status, 101);
    assert.is((await open(url.replace('packets', 'rooms'))).status, 101);
    // A peer that resets the connection meanwhile ends no process.
    for (let count = 0; count < 20; count++) {
      const raw = connect(Number(new URL(url).port), '127.0.0.1');
      raw.on('error', () => {});
      raw.write('GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n');
      raw.write('Upgrade: websocket\r\n\r\n');
      await new Promise((resolve) => setTimeout(resolve, 2));
      raw.resetAndDestroy();
    }
    await rooms.close();
    assert.is((await open(other)).status, 404);
  }));

const hello = (last: number): string => JSON.stringify({ verbena: 1, gid: `fd12::${last}` });

test('a peer that answers no ping is ended, one that does stays', () =>
  withServer({ aliveMillis: 1000 }, async ({ url, link }) => {
    const [deaf, there] = [await open(url, { autoPong: false }), await open(url)];
    deaf.socket.send(hello(1));
    there.socket.send(hello(2));
    await eventually(() => link.peers.length === 2);
    await eventually(() => link.peers.length === 1);
    await new Promise((resolve) => setTimeout(resolve, 1500));
    assert.equal(
      link.peers.map(({ gid }) => `${gid}`),
      ['fd12::2'],
    );
    there.socket.terminate();
  }));

/** A peer in a thread of its own: it answers a ping 50 ms after it has said that one came. */
const ANSWERS_LATE = `
const { workerData: { url, words, hello } } = require('node:worker_threads');
const { WebSocket } = require('ws');
const socket = new WebSocket(url, { autoPong: false });
socket.on('open', () => socket.send(hello));
socket.on('ping', (data) => {
  Atomics.add(words, 0, 1);
  Atomics.notify(words, 0);
  setTimeout(() => socket.pong(data), 50);
});`;

test('an answer that came while the server’s process stood still counts', () =>
  withServer({ aliveMillis: 400 }, async ({ url, link }) => {
    const words = new Int32Array(new SharedArrayBuffer(8));
    const workerData = { url, words, hello: hello(1) };
    const peer = new Worker(ANSWERS_LATE, { eval: true, workerData });
    await eventually(() => link.peers.length === 1);
    await eventually(() => Atomics.load(words, 0) > 0);
    // The next ping is due in the meantime.
    Atomics.wait(words, 1, 0, 600);
    await settle();
    assert.is(link.peers.length, 1);
    await peer.terminate();
  }));

test('an address goes to a newcomer when its holder is dead, and stays with one that lives', () =>
  withServer({ aliveMillis: 60_000 }, async ({ url, link }) => {
    const [dead, alive] = [await open(url, { autoPong: false }), await open(url)];
    dead.socket.send(hello(1));
    alive.socket.send(hello(2));
    await eventually(() => link.peers.length === 2);
    const ended: number[] = [];
    const [second, third] = [await open(url), await open(url)];
    second.socket.on('close', () => ended.push(1));
    third.socket.on('close', () => ended.push(2));
    second.socket.send(hello(1));
    third.socket.send(hello(2));
    await eventually(() => dead.socket.readyState === WebSocket.CLOSED);
    await eventually(() => ended.length > 0 && link.peers.length === 2);
    assert.equal(ended, [2], 'the address of a peer that lives is not taken over');
    for (const { socket } of [alive, second]) socket.terminate();
  }));

test('packets before the address of a peer are dropped', () =>
  withServer({}, async ({ url, link }) => {
    const { socket } = await open(url);
    for (let count = 0; count < 4; count++) socket.send(new Uint8Array(100));
    socket.send(hello(1));
    await eventually(() => link.peers.length === 1);
    socket.send(new Uint8Array(100));
    await eventually(() => link.counters.malformed > 0);
    assert.is(link.counters.malformed, 1);
    socket.terminate();
  }));

test.run();
