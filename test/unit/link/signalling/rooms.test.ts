/** Rooms of a signalling server: members, limits, hostile messages, several processes by Redis. */
import { createServer, type Server } from 'node:http';
import {
  connect as connectTcp,
  createServer as createTcpServer,
  type AddressInfo,
  type Socket,
} from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { WebSocket } from 'ws';
import { LinkError, MisuseError } from '../../../../host/index.js';
import type { Description } from '../../../../host/link/rtc/connection.js';
import { redisBus } from '../../../../host/link/signalling/redis-bus.js';
import { RoomSignalling } from '../../../../host/link/signalling/room.js';
import {
  createSignallingServer,
  type SignallingServer,
  type SignallingServerOptions,
} from '../../../../host/link/signalling/room-server.js';
import type { SignallingBus } from '../../../../host/link/signalling/signalling-bus.js';
import type { Signalling } from '../../../../host/link/signalling/signalling.js';
import { Workspace, freePort } from '../../../support/processes.js';
import { eventually, settle } from '../../../support/receiver.js';

interface Site {
  readonly server: Server;
  readonly rooms: SignallingServer;
  readonly url: string;
}

let sites: Site[] = [];
let leaves: (() => void)[] = [];

test.after.each(async () => {
  for (const leave of leaves) leave();
  for (const { server, rooms } of sites) {
    await rooms.close();
    server.closeAllConnections();
    server.close();
  }
  [sites, leaves] = [[], []];
});

async function serve(options: SignallingServerOptions = {}, port = 0): Promise<Site> {
  const server = createServer();
  const rooms = await createSignallingServer(server, { sessionsPerSource: 2000, ...options });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}/rooms`;
  const site = { server, rooms, url };
  sites.push(site);
  return site;
}

/** A member that answers each offer with its own name. */
class Member {
  readonly newcomers: string[] = [];
  readonly present: string[] = [];
  readonly left: string[] = [];
  readonly offers: string[] = [];
  readonly ways = new Map<string, Signalling>();
  refused: LinkError | undefined;
  readonly leave: () => void;

  constructor(
    url: string,
    room: string,
    readonly name: string,
  ) {
    const onRefused = (error: LinkError): void => void (this.refused = error);
    const rooms = new RoomSignalling(url, room, { onRefused, retryMillisMax: 300 });
    const answer = async (offer: unknown): Promise<Description> => {
      const { sdp } = offer as Description;
      this.offers.push(sdp);
      if (sdp === 'bad') throw new LinkError('EPROTO', 'the offer is bad');
      return { type: 'answer', sdp: `${name} answers ${sdp}` };
    };
    const newcomer = (way: Signalling, other = ''): void => {
      this.newcomers.push(other);
      this.ways.set(other, way);
    };
    this.leave = rooms.join(name, answer, newcomer, {
      present: (way, other) => {
        this.present.push(other);
        this.ways.set(other, way);
      },
      left: (other) => this.left.push(other),
    });
    leaves.push(this.leave);
  }

  async offer(to: string, sdp: string, signal = AbortSignal.timeout(5000)): Promise<string> {
    const answer = await this.ways.get(to)!.exchange({ type: 'offer', sdp }, signal);
    return (answer as Description).sdp;
  }
}

async function failure(promise: Promise<unknown>): Promise<LinkError> {
  return promise.then(
    () => assert.unreachable('it should have failed') as never,
    (error: LinkError) => error,
  );
}

test('members find each other, and offers and answers pass both ways', async () => {
  const { url, rooms } = await serve();
  const a = new Member(url, 'one', 'a');
  await eventually(() => rooms.counters.joined === 1);
  const b = new Member(url, 'one', 'b');
  await eventually(() => a.newcomers.length === 1 && b.present.length === 1);
  assert.equal([a.newcomers, a.present, b.newcomers, b.present], [['b'], [], [], ['a']]);
  assert.is(await a.offer('b', 'x'), 'b answers x');
  assert.is(await b.offer('a', 'y'), 'a answers y');
  const error = await failure(a.offer('b', 'bad'));
  assert.is(error.code, 'ECONNREFUSED');
  assert.match(error.message, /the offer is bad/);
  const other = new Member(url, 'two', 'c');
  await eventually(() => rooms.counters.joined === 3);
  assert.equal([other.present, a.newcomers.length, rooms.rooms], [[], 1, 2]);
  b.leave();
  await eventually(() => a.left.length === 1);
  assert.equal(a.left, ['b']);
  assert.is((await failure(a.offer('b', 'z'))).code, 'ECONNREFUSED');
  a.leave();
  other.leave();
  await eventually(() => rooms.rooms === 0 && rooms.sessions === 0);
});

/** Passes a port on, until its connections are cut. */
async function passOn(port: number): Promise<{ readonly url: string; cut(): void }> {
  const sockets = new Set<Socket>();
  const server = createTcpServer((near) => {
    const far = connectTcp(port, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined).on('close', () => to.destroy());
      from.pipe(to);
    }
  });
  const cut = (): void => sockets.forEach((socket) => socket.destroy());
  leaves.push(() => {
    server.close();
    cut();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/rooms`, cut };
}

test('a member that loses its WebSocket may rejoin unnoticed; otherwise it leaves', async () => {
  const { server, rooms } = await serve({ returnMillis: 600 });
  const { port } = server.address() as AddressInfo;
  const { url, cut } = await passOn(port);
  const a = new Member(url, 'room', 'a');
  const b = new Member(url, 'room', 'b');
  await eventually(() => a.ways.size === 1 && b.ways.size === 1);
  cut();
  await eventually(() => rooms.counters.joined === 4);
  assert.is(await a.offer('b', 'again'), 'b answers again');
  assert.equal([a.left, b.left], [[], []]);
  // A process that is killed closes its socket, and opens no other one.
  const killed = new WebSocket(`ws://127.0.0.1:${port}/rooms`);
  await new Promise((resolve) => killed.on('open', resolve));
  killed.send(JSON.stringify({ kind: 'join', room: 'room', name: 'c', key: 'k' }));
  await eventually(() => a.ways.has('c'));
  killed.terminate();
  await settle(100);
  assert.equal(a.left, []);
  await eventually(() => a.left.length === 1);
  assert.equal(a.left, ['c']);
});

test('a server that restarts has its members back, and they keep their peers', async () => {
  const first = await serve();
  const { port } = first.server.address() as AddressInfo;
  const a = new Member(first.url, 'room', 'a');
  const b = new Member(first.url, 'room', 'b');
  await eventually(() => a.ways.size === 1 && b.ways.size === 1);
  await first.rooms.close();
  first.server.closeAllConnections();
  await new Promise((resolve) => first.server.close(resolve));
  sites = [];
  const waiting = a.offer('b', 'during the outage');
  const second = await serve({}, port);
  assert.is(await waiting, 'b answers during the outage');
  assert.is(second.rooms.counters.joined, 2);
  assert.is(a.newcomers.length + a.present.length, 1, 'b is no newcomer');
});

test('a member that returns later than others to a server that restarts has not left', async () => {
  const first = await serve();
  const { port } = first.server.address() as AddressInfo;
  const path = await passOn(port);
  const a = new Member(first.url, 'room', 'a');
  const b = new Member(path.url, 'room', 'b');
  await eventually(() => a.ways.size === 1 && b.ways.size === 1);
  await first.rooms.close();
  first.server.closeAllConnections();
  await new Promise((resolve) => first.server.close(resolve));
  sites = [];
  const held = setInterval(path.cut, 5);
  const second = await serve({}, port);
  await eventually(() => second.rooms.counters.joined >= 1);
  await settle(500);
  clearInterval(held);
  path.cut();
  const { joined } = second.rooms.counters;
  await eventually(() => second.rooms.counters.joined > joined, 10_000);
  assert.is(await a.offer('b', 'x'), 'b answers x');
  assert.equal([a.left, b.left], [[], []]);
  assert.is(a.newcomers.length + a.present.length, 1, 'b is no newcomer');
});

test('a member that loses its WebSocket again and again learns which members have left', async () => {
  const first = await serve();
  const { port } = first.server.address() as AddressInfo;
  const path = await passOn(port);
  const a = new Member(path.url, 'room', 'a');
  const b = new Member(first.url, 'room', 'b');
  await eventually(() => a.ways.size === 1 && b.ways.size === 1);
  // `b` leaves while there is no server, so that none can report it.
  await first.rooms.close();
  first.server.closeAllConnections();
  await new Promise((resolve) => first.server.close(resolve));
  sites = [];
  b.leave();
  const { rooms } = await serve({}, port);
  const start = performance.now();
  await eventually(() => rooms.counters.joined === 1);
  const cutting = setInterval(path.cut, 1500);
  try {
    await eventually(() => a.left.length > 0, 14_000);
  } finally {
    clearInterval(cutting);
  }
  assert.equal(a.left, ['b']);
  assert.ok(performance.now() - start > 9500, 'it has 10 s to return');
  assert.ok(rooms.counters.joined >= 5, `${rooms.counters.joined} joins`);
});

test('pauses between attempts to reach the server differ', async () => {
  const server = createTcpServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}/rooms`;
  const losses: number[][] = [];
  const stops = Array.from({ length: 8 }, (_, index) => {
    const times: number[] = (losses[index] = []);
    const onLost = (): void => void times.push(performance.now());
    return new RoomSignalling(url, 'room', { onLost }).join(
      `${index}`,
      () => {
        throw new Error('no offer comes');
      },
      () => undefined,
    );
  });
  await eventually(() => losses.every(({ length }) => length >= 3), 10_000);
  for (const stop of stops) stop();
  server.close();
  const thirds = losses.map(([, , third]) => third!);
  const spread = Math.max(...thirds) - Math.min(...thirds);
  assert.ok(spread > 60, `${spread} ms`);
});

test('a name belongs to its first member, and rooms, sources and the rule of the application limit', async () => {
  const { url, rooms } = await serve({
    membersPerRoom: 2,
    authorize: (_request, { room }) => room !== 'private',
  });
  const a = new Member(url, 'room', 'a');
  await eventually(() => rooms.counters.joined === 1);
  const thief = new Member(url, 'room', 'a');
  const b = new Member(url, 'room', 'b');
  const third = new Member(url, 'room', 'c');
  const stranger = new Member(url, 'private', 'd');
  await eventually(() => Boolean((thief.refused && third.refused) ?? b.refused));
  await eventually(() => stranger.refused !== undefined);
  assert.match(thief.refused!.message, /another member has this name/);
  assert.match(stranger.refused!.message, /not authorized/);
  assert.is(a.refused, undefined);
  const few = await serve({ sessionsPerSource: 1 });
  new Member(few.url, 'room', 'a');
  await eventually(() => few.rooms.sessions === 1);
  const status = await new Promise<number>((resolve) => {
    new WebSocket(few.url)
      .on('error', () => undefined)
      .on('unexpected-response', (_, response) => {
        resolve(response.statusCode!);
      });
  });
  assert.is(status, 503);
});

test('a page of another origin is refused, and so is another path', async () => {
  const { url } = await serve();
  const statusOf = (at: string, origin?: string): Promise<number> =>
    new Promise((resolve) => {
      new WebSocket(at, origin === undefined ? {} : { origin })
        .on('error', () => undefined)
        .on('unexpected-response', (_, response) => resolve(response.statusCode!));
    });
  assert.is(await statusOf(url, 'https://elsewhere.example'), 403);
  assert.is(await statusOf(`${url}/no`), 404);
});

/** Messages that a WebSocket receives until the server ends it. */
async function until(
  url: string,
  messages: readonly (string | Buffer)[],
): Promise<{ readonly code: number; readonly received: string[] }> {
  const socket = new WebSocket(url);
  const received: string[] = [];
  socket.on('message', (data: Buffer) => received.push(data.toString()));
  socket.on('error', () => undefined);
  await new Promise((resolve) => socket.on('open', resolve));
  const closed = new Promise<number>((resolve) => socket.on('close', resolve));
  for (const message of messages) socket.send(message);
  return { code: await closed, received };
}

test('hostile messages end their session alone', async () => {
  const { url, rooms } = await serve({ messagesPerSecond: 10 });
  const a = new Member(url, 'room', 'a');
  const join = JSON.stringify({ kind: 'join', room: 'room', name: 'x', key: 'k' });
  const hostile: (readonly (string | Buffer)[])[] = [
    ['{'],
    ['null'],
    ['[]'],
    [Buffer.from('binary')],
    [JSON.stringify({ kind: 'offer', to: 'a', id: '1', description: {} })],
    [join, join],
    [JSON.stringify({ kind: 'join', room: '', name: 'x', key: 'k' })],
    [JSON.stringify({ kind: 'join', room: 'r'.repeat(129), name: 'x', key: 'k' })],
    [join, JSON.stringify({ kind: 'offer', to: 'a', id: '1', description: 7 })],
    [join, 'x'.repeat(70_000)],
    [join, 'x'.repeat(300_000)],
    [join, ...Array.from({ length: 100 }, () => '{"kind":"ping"}')],
  ];
  for (const messages of hostile) {
    const { code } = await until(url, messages);
    assert.ok(
      code === 1008 || code === 1009,
      `${code} after ${String(messages.at(-1)).slice(0, 60)}`,
    );
  }
  assert.is(a.refused, undefined);
  await eventually(() => rooms.sessions === 1);
  assert.ok(rooms.counters.ended >= hostile.length - 1, `${rooms.counters.ended}`);
});

/** A member as its WebSocket. */
async function rawMember(url: string): Promise<WebSocket> {
  const socket = new WebSocket(url);
  leaves.push(() => socket.terminate());
  await new Promise((resolve) => socket.on('open', resolve));
  const welcome = new Promise((resolve) => socket.on('message', resolve));
  socket.send(JSON.stringify({ kind: 'join', room: 'room', name: 'x', key: 'k' }));
  await welcome;
  return socket;
}

for (const levels of [20, 30_000]) {
  test(`a description with ${levels} levels ends the session of its sender alone`, async () => {
    const { url, rooms } = await serve();
    const a = new Member(url, 'room', 'a');
    const socket = await rawMember(url);
    const closed = new Promise<number>((resolve) => socket.on('close', resolve));
    // JSON.parse takes any number of levels; JSON.stringify throws RangeError for some thousands.
    const nested = '['.repeat(levels) + ']'.repeat(levels);
    socket.send(`{"kind":"offer","to":"a","id":"1","description":{"sdp":${nested}}}`);
    assert.is(await closed, 1008);
    assert.is(rooms.counters.ended, 1);
    assert.equal([a.refused, a.offers], [undefined, []]);
  });
}

test('a reason that is no text ends nothing', async () => {
  const { url, rooms } = await serve();
  const a = new Member(url, 'room', 'a');
  const socket = await rawMember(url);
  const nested = '['.repeat(30_000) + ']'.repeat(30_000);
  for (const reason of ['{"toString":1,"valueOf":1}', nested, '7']) {
    socket.send(`{"kind":"refusal","to":"a","id":"1","reason":${reason}}`);
  }
  await eventually(() => rooms.counters.passed === 3);
  assert.equal([rooms.sessions, rooms.counters.ended, a.refused], [2, 0, undefined]);
});

test('a WebSocket that joins no room, or reads nothing, is ended', async () => {
  const { url, server, rooms } = await serve({ aliveMillis: 400 });
  const { port } = server.address() as AddressInfo;
  const raw = connectTcp(port, '127.0.0.1');
  const key = Buffer.alloc(16, 1).toString('base64');
  raw.write(
    `GET /rooms HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
      `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`,
  );
  raw.on('error', () => undefined);
  await eventually(() => rooms.sessions === 1);
  // It answers no ping.
  await eventually(() => rooms.sessions === 0);
  raw.destroy();
  assert.ok(url);
});

test('one process has 1,000 sessions in 250 rooms', async () => {
  const { url, rooms } = await serve({ sessionsPerSource: 1000 });
  const members: Member[] = [];
  for (let index = 0; index < 1000; index++) {
    members.push(new Member(url, `room ${index >> 2}`, `member ${index}`));
    if (index % 100 === 99) await eventually(() => rooms.counters.joined === index + 1, 20_000);
  }
  await eventually(() => members.every(({ ways }) => ways.size === 3), 20_000);
  assert.equal([rooms.sessions, rooms.rooms], [1000, 250]);
  const answers = await Promise.all(
    members.map((member) => member.offer([...member.ways.keys()][0]!, 'x')),
  );
  assert.ok(answers.every((answer) => / answers x$/.test(answer)));
  const beyond = new Member(url, 'room', 'beyond');
  await settle(200);
  assert.is(beyond.ways.size, 0);
  assert.is(rooms.sessions, 1000);
});

test('WebSockets that join a room and end leave no more members than their source may have', async () => {
  const limits = { sessionsPerSource: 2, membersPerRoom: 3, returnMillis: 60_000 };
  const { url, rooms } = await serve(limits);
  for (let index = 0; index < 6; index++) {
    const socket = new WebSocket(url);
    await new Promise((resolve) => socket.on('open', resolve));
    const name = `ghost ${index}`;
    const welcome = new Promise((resolve) => socket.on('message', resolve));
    socket.send(JSON.stringify({ kind: 'join', room: `room ${index}`, name, key: 'k' }));
    await welcome;
    socket.terminate();
    await eventually(() => rooms.sessions === 0);
  }
  assert.is(rooms.rooms, 2);
});

/** A bus of this process that loses each message when it is published for the first time. */
function lossyBus(): SignallingBus & { readonly lost: string[] } {
  const listeners = new Set<readonly [string, (message: string) => void]>();
  const lost: string[] = [];
  return {
    lost,
    publish(channel, message) {
      if (!lost.includes(message)) return void lost.push(message);
      for (const [name, listener] of listeners) if (name === channel) listener(message);
    },
    subscribe(channel, listener) {
      const entry = [channel, listener] as const;
      listeners.add(entry);
      return Promise.resolve(() => void listeners.delete(entry));
    },
    close: () => Promise.resolve(),
  };
}

/** Members of one room, each at a server of its own. */
async function membersOfTwo(bus: SignallingBus): Promise<readonly [Member, Member]> {
  const one = await serve({ bus, aliveMillis: 400 });
  const two = await serve({ bus, aliveMillis: 400 });
  const members = [new Member(one.url, 'room', 'a'), new Member(two.url, 'room', 'b')] as const;
  await eventually(() => members.every(({ ways }) => ways.size === 1));
  return members;
}

test('a bus that loses messages loses no offer, and none arrives twice', async () => {
  const bus = lossyBus();
  const [a, b] = await membersOfTwo(bus);
  const answers = await Promise.all([a.offer('b', 'x'), a.offer('b', 'y'), b.offer('a', 'z')]);
  assert.equal(answers, ['b answers x', 'b answers y', 'a answers z']);
  assert.ok(bus.lost.some((text) => text.includes('"relay"')));
  assert.equal([a.offers, b.offers], [['z'], ['x', 'y']]);
  b.leave();
  await eventually(() => a.left.includes('b'));
});

test('an offer to a member of another process that leaves is refused', async () => {
  const bus = lossyBus();
  const publish = bus.publish.bind(bus);
  const [a, b] = await membersOfTwo(bus);
  bus.publish = (channel, message) =>
    message.includes('"relay"') ? undefined : publish(channel, message);
  const failed = failure(a.offer('b', 'x'));
  b.leave();
  const { code, message } = await failed;
  assert.is(code, 'ECONNREFUSED');
  assert.match(message, /b is not in the room/);
});

test('an offer to a member whose WebSocket is lost arrives when it is back', async () => {
  const { server, url, rooms } = await serve();
  const far = await passOn((server.address() as AddressInfo).port);
  const a = new Member(url, 'room', 'a');
  const b = new Member(far.url, 'room', 'b');
  await eventually(() => a.ways.has('b') && b.ways.has('a'));
  far.cut();
  await eventually(() => rooms.sessions === 1);
  assert.is(await a.offer('b', 'x'), 'b answers x');
  assert.equal(a.left, []);
});

test('an answer to a member that has left ends no exchange of its sender', async () => {
  const { url, rooms } = await serve();
  const sockets: WebSocket[] = [];
  const answers: string[] = [];
  for (const name of ['a', 'b']) {
    const socket = new WebSocket(url);
    await new Promise((resolve) => socket.on('open', resolve));
    socket.on('message', (data: Buffer) => answers.push(`${name} ${data.toString()}`));
    socket.send(JSON.stringify({ kind: 'join', room: 'room', name, key: 'k' }));
    sockets.push(socket);
  }
  await eventually(() => rooms.counters.joined === 2);
  sockets[1]!.send('{"kind":"leave"}');
  await eventually(() => answers.some((text) => /^a .*"left"/.test(text)));
  sockets[0]!.send(JSON.stringify({ kind: 'answer', to: 'b', id: '1', description: {} }));
  sockets[0]!.send(JSON.stringify({ kind: 'offer', to: 'b', id: '2', description: {} }));
  await eventually(() => answers.some((text) => text.includes('"absent"')));
  const absent = answers.filter((text) => text.includes('"absent"'));
  assert.equal(absent, ['a {"kind":"absent","to":"b","id":"2"}']);
  for (const socket of sockets) socket.terminate();
});

/** A redis-server of its own. */
async function withRedis(work: (port: number, restart: () => Promise<void>) => Promise<void>) {
  await Workspace.use(async (space) => {
    const port = await freePort('127.0.0.1');
    const words = [
      '--port',
      `${port}`,
      '--bind',
      '127.0.0.1',
      '--save',
      '',
      '--dir',
      space.directory,
    ];
    let redis = space.startProcess('redis-server', words);
    await redis.printed('stdout', /Ready to accept connections/);
    await work(port, async () => {
      redis.kill();
      await redis.ended;
      redis = space.startProcess('redis-server', words);
      await redis.printed('stdout', /Ready to accept connections/);
    });
  });
}

test('several processes share their rooms by Redis, also after Redis has restarted', () =>
  withRedis(async (port, restart) => {
    const buses: SignallingBus[] = [];
    const site = async (): Promise<Site> => {
      const bus = redisBus(`redis://127.0.0.1:${port}`);
      buses.push(bus);
      return serve({ bus, aliveMillis: 800 });
    };
    try {
      const [one, two] = [await site(), await site()];
      const a = new Member(one.url, 'room', 'a');
      await eventually(() => one.rooms.counters.joined === 1);
      const b = new Member(two.url, 'room', 'b');
      await eventually(() => a.newcomers.length === 1 && b.present.length === 1);
      assert.is(await a.offer('b', 'x'), 'b answers x');
      assert.is(await b.offer('a', 'y'), 'a answers y');
      await restart();
      await eventually(() => b.left.length === 0);
      const c = new Member(two.url, 'room', 'c');
      await eventually(() => a.ways.has('c') && c.ways.has('a'));
      assert.is(await a.offer('c', 'z'), 'c answers z');
      // The same name at another process is refused.
      const thief = new Member(one.url, 'room', 'c');
      await eventually(() => thief.refused !== undefined);
      b.leave();
      await eventually(() => a.left.includes('b'));
      // A process that is gone takes its members along.
      await two.rooms.close();
      await buses[1]!.close();
      await eventually(() => a.left.includes('c'));
    } finally {
      for (const bus of buses) await bus.close();
    }
  }));

test('options are checked', async () => {
  for (const options of [{ sessionsMax: 0 }, { aliveMillis: -1 }, { nope: 1 }]) {
    const error = await failure(createSignallingServer(createServer(), options as never));
    assert.instance(error, MisuseError);
  }
  assert.throws(() => redisBus('http://127.0.0.1'), /redis:\/\//);
  assert.throws(() => new RoomSignalling('ws://127.0.0.1', ''), /1 to 128 characters/);
});

test.run();
