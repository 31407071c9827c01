/** Rooms of several processes: a bus of the test shares them. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { WebSocket } from 'ws';
import { redirectWarnings } from '../../../../host/base/warning.js';
import type { LinkError } from '../../../../host/index.js';
import { RoomSignalling } from '../../../../host/link/signalling/room.js';
import {
  createSignallingServer,
  type SignallingServer,
  type SignallingServerOptions,
} from '../../../../host/link/signalling/room-server.js';
import type { SignallingBus } from '../../../../host/link/signalling/signalling-bus.js';
import { eventually, settle } from '../../../support/receiver.js';

type Message = Readonly<Record<string, unknown>>;

let ends: (() => void | Promise<void>)[] = [];
let warnings: string[] = [];

test.before.each(() => {
  warnings = [];
  redirectWarnings((sentence) => warnings.push(sentence));
});

test.after.each(async () => {
  for (const end of ends) await end();
  ends = [];
  redirectWarnings((sentence) => process.emitWarning(sentence));
});

/** A bus of this process; `isDown` loses all messages. */
class Bus implements SignallingBus {
  readonly #listeners = new Set<readonly [string, (message: string) => void]>();
  isDown = false;

  publish(channel: string, message: string): void {
    if (this.isDown) return;
    for (const [name, listener] of this.#listeners) {
      if (name === channel) setImmediate(listener, message);
    }
  }

  subscribe(channel: string, listener: (message: string) => void): Promise<() => void> {
    const entry = [channel, listener] as const;
    this.#listeners.add(entry);
    return Promise.resolve(() => void this.#listeners.delete(entry));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

interface Site {
  readonly server: Server;
  readonly rooms: SignallingServer;
  readonly url: string;
}

async function serve(options: SignallingServerOptions): Promise<Site> {
  const server = createServer();
  const rooms = await createSignallingServer(server, options);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ends.push(async () => {
    await rooms.close();
    server.closeAllConnections();
    server.close();
  });
  return { server, rooms, url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/rooms` };
}

/** A member as its messages. */
class Client {
  readonly received: Message[] = [];
  code: number | undefined;
  readonly #socket: WebSocket;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data: Buffer) => this.received.push(JSON.parse(`${data}`) as Message));
    socket.on('error', () => undefined);
    socket.on('close', (code) => (this.code = code));
    ends.push(() => socket.terminate());
  }

  /** Resolves when the join is answered. */
  static async join({ url }: Site, name: string, key = `key of ${name}`): Promise<Client> {
    const socket = new WebSocket(url);
    const client = new Client(socket);
    await new Promise((resolve) => socket.on('open', resolve));
    client.say({ kind: 'join', room: 'room', name, key });
    await eventually(() => client.received.length > 0 || client.code !== undefined);
    return client;
  }

  say(message: Message): void {
    this.#socket.send(JSON.stringify(message));
  }

  offer(to: string, id: string): void {
    this.say({ kind: 'offer', to, id, description: {} });
  }

  close(code: number): void {
    this.#socket.close(code);
  }

  terminate(): void {
    this.#socket.terminate();
  }

  of(kind: string): Message[] {
    return this.received.filter((message) => message.kind === kind);
  }

  /** Identifiers of the messages of one kind. */
  ids(kind: string): unknown[] {
    return this.of(kind).map(({ id }) => id);
  }

  knows(name: string): boolean {
    const { members = [] } = (this.of('welcome')[0] ?? {}) as { members?: string[] };
    return members.includes(name) || this.received.some((message) => message.name === name);
  }
}

async function twoSites(options: SignallingServerOptions = {}): Promise<[Site, Site, Bus]> {
  const bus = new Bus();
  return [await serve({ ...options, bus }), await serve({ ...options, bus }), bus];
}

test('offers arrive after the room was empty at the server of their sender', async () => {
  const [one, two] = await twoSites();
  const b = await Client.join(two, 'b');
  for (const id of ['1', '2', '3']) {
    const a = await Client.join(one, 'a', `key ${id}`);
    a.offer('b', id);
    await eventually(() => b.ids('offer').includes(id));
    a.say({ kind: 'leave' });
    await eventually(() => one.rooms.rooms === 0 && b.of('left').length === Number(id));
  }
  assert.equal(b.ids('offer'), ['1', '2', '3']);
});

test('a name is refused at a server that has no member of the room yet', async () => {
  const [one, two] = await twoSites();
  const a = await Client.join(one, 'a');
  const thief = await Client.join(two, 'a', 'another key');
  assert.equal(thief.received, [{ kind: 'refused', reason: 'another member has this name' }]);
  assert.is(a.code, undefined);
});

test('a room has no more members at a server that had none of them', async () => {
  const [one, two] = await twoSites({ membersPerRoom: 2 });
  await Client.join(one, 'a');
  await Client.join(one, 'b');
  const [beyond, another] = await Promise.all([Client.join(two, 'c'), Client.join(two, 'd')]);
  assert.match(beyond.of('refused')[0]!.reason as string, /the room has 2 members/);
  assert.match(another.of('refused')[0]!.reason as string, /the room has 2 members/);
});

test('of two members that took one name during an outage of the bus, the first stays', async () => {
  const [one, two, bus] = await twoSites({ aliveMillis: 400 });
  bus.isDown = true;
  const a = await Client.join(one, 'a');
  const other = await Client.join(one, 'b');
  await settle(5);
  const later = await Client.join(two, 'a', 'another key');
  const third = await Client.join(two, 'c');
  assert.is(later.of('welcome').length, 1);
  bus.isDown = false;
  await eventually(() => later.code !== undefined && other.knows('c') && third.knows('b'));
  assert.equal(later.of('refused'), [{ kind: 'refused', reason: 'another member has this name' }]);
  assert.is(a.code, undefined);
  // The third member sees the later one leave, and the first one.
  assert.equal(
    third.received.filter(({ name }) => name === 'a'),
    [
      { kind: 'left', name: 'a' },
      { kind: 'present', name: 'a' },
    ],
  );
  third.offer('a', '1');
  await eventually(() => a.ids('offer').length === 1);
  assert.is(two.rooms.counters.refused, 1);
});

test('an answer of another member of the same name is dropped', async () => {
  const [one, two, bus] = await twoSites();
  const a = await Client.join(one, 'a');
  const b = await Client.join(one, 'b');
  bus.isDown = true;
  const thief = await Client.join(two, 'a', 'another key');
  const witness = await Client.join(two, 'b', 'a third key');
  assert.is(witness.of('welcome').length, 1);
  witness.terminate();
  bus.isDown = false;
  b.offer('a', '1');
  await eventually(() => a.ids('offer').length === 1);
  thief.say({ kind: 'refusal', to: 'b', id: '1', reason: 'no' });
  thief.say({ kind: 'answer', to: 'b', id: '1', description: {} });
  await settle(300);
  assert.equal([b.ids('refusal'), b.ids('answer')], [[], []]);
  a.say({ kind: 'answer', to: 'b', id: '1', description: {} });
  await eventually(() => b.ids('answer').length === 1);
});

test('of too many members that joined during an outage of the bus, the last ones go', async () => {
  const [one, two, bus] = await twoSites({ aliveMillis: 400, membersPerRoom: 2 });
  bus.isDown = true;
  const first = await Client.join(one, 'z');
  await settle(5);
  const second = await Client.join(two, 'y');
  await settle(5);
  const third = await Client.join(one, 'x');
  bus.isDown = false;
  await eventually(() => third.code !== undefined && first.knows('y'));
  assert.match(third.of('refused')[0]!.reason as string, /the room has 2 members/);
  await settle(300);
  assert.equal([first.code, second.code], [undefined, undefined]);
});

/** Members `near` and `far` of two servers have made offers 1 and 2 to `lost`, whose WebSocket ended. */
async function offersToLost(one: Site, two: Site): Promise<[near: Client, far: Client]> {
  const near = await Client.join(one, 'near');
  const far = await Client.join(two, 'far');
  const lost = await Client.join(one, 'lost');
  await eventually(() => far.knows('lost'));
  lost.terminate();
  await eventually(() => one.rooms.sessions === 1);
  near.offer('lost', '1');
  far.offer('lost', '2');
  return [near, far];
}

test('offers that wait for a member follow it to another server', async () => {
  const [one, two] = await twoSites();
  const [near, far] = await offersToLost(one, two);
  await settle(100);
  const back = await Client.join(two, 'lost');
  await eventually(() => back.ids('offer').length === 2);
  await settle(300);
  assert.equal(back.ids('offer').sort(), ['1', '2']);
  assert.equal([near.ids('absent'), far.ids('absent')], [[], []]);
});

test('the last member of a server leaves it with the offers that wait', async () => {
  const [one, two, bus] = await twoSites();
  const far = await Client.join(two, 'far');
  const lost = await Client.join(one, 'lost');
  await eventually(() => far.knows('lost'));
  lost.terminate();
  await eventually(() => one.rooms.sessions === 0);
  far.offer('lost', '1');
  await settle(100);
  const publish = bus.publish.bind(bus);
  let losses = 0;
  bus.publish = (channel, message) => {
    if (message.includes('"relay"') && losses++ === 0) return;
    publish(channel, message);
  };
  const back = await Client.join(two, 'lost');
  await eventually(() => back.ids('offer').length === 1);
  await eventually(() => one.rooms.rooms === 0);
});

test('offers that wait for a member are refused when it does not come back', async () => {
  const [one, two] = await twoSites({ returnMillis: 300 });
  const [near, far] = await offersToLost(one, two);
  await eventually(() => near.of('absent').length === 1 && far.of('absent').length === 1);
  assert.equal(near.of('absent'), [{ kind: 'absent', to: 'lost', id: '1' }]);
  assert.equal(far.of('absent'), [{ kind: 'absent', to: 'lost', id: '2' }]);
});

for (const [title, at] of [
  ['its own server', 0],
  ['another server', 1],
] as const) {
  test(`a name whose holder lost its WebSocket is put off at ${title}, then free`, async () => {
    const sites = await twoSites({ returnMillis: 500 });
    const lost = await Client.join(sites[0], 'a');
    const witness = await Client.join(sites[1], 'b');
    lost.terminate();
    await eventually(() => sites[0].rooms.sessions === 0);
    await settle(30);
    const early = await Client.join(sites[at], 'a', 'another key');
    assert.equal([early.received, early.code], [[], 1013]);
    await eventually(() => witness.of('left').length === 1);
    const again = await Client.join(sites[at], 'a', 'another key');
    assert.is(again.of('welcome').length, 1);
  });
}

test('a heartbeat names the members whose WebSocket is lost', async () => {
  const [one, two, bus] = await twoSites({ aliveMillis: 400 });
  const lost = await Client.join(one, 'a');
  const witness = await Client.join(two, 'b');
  await eventually(() => witness.knows('a'));
  bus.isDown = true;
  lost.terminate();
  await eventually(() => one.rooms.sessions === 0);
  bus.isDown = false;
  await settle(250);
  const early = await Client.join(two, 'a', 'another key');
  assert.equal([early.received, early.code], [[], 1013]);
});

test('members of all servers learn of a page that is gone, not of a WebSocket that is lost', async () => {
  const [one, two] = await twoSites();
  const witnesses = [await Client.join(one, 'a'), await Client.join(two, 'b')];
  const lost = await Client.join(one, 'lost');
  const gone = await Client.join(one, 'gone');
  await eventually(() => witnesses.every((witness) => witness.knows('gone')));
  lost.terminate();
  await eventually(() => one.rooms.sessions === 2);
  gone.close(1001);
  await eventually(() => witnesses.every((witness) => witness.of('away').length > 0));
  for (const witness of witnesses) {
    assert.equal(witness.of('away'), [{ kind: 'away', name: 'gone' }]);
    assert.equal(witness.of('left'), [], 'it may come back');
  }
});

test('an error of authorize is no refusal: the member tries again', async () => {
  let calls = 0;
  const authorize = (): boolean => {
    if (++calls < 3) throw new Error('the database is down');
    return true;
  };
  const { url, rooms } = await serve({ authorize });
  let refused: LinkError | undefined;
  const onRefused = (error: LinkError): void => void (refused = error);
  const room = new RoomSignalling(url, 'room', { onRefused });
  ends.push(
    room.join(
      'a',
      () => Promise.reject(new Error('no offer')),
      () => undefined,
    ),
  );
  await eventually(() => rooms.counters.joined === 1);
  assert.is(refused, undefined);
  assert.is(rooms.counters.refused, 2);
  assert.is(warnings.length, 1, 'one warning a minute');
  assert.match(warnings[0]!, /authorize failed: the database is down/);
});

test('a member that was in the room enters it again after a refusal', async () => {
  let isPermitted = true;
  const site = await serve({ authorize: () => isPermitted });
  const lost: LinkError[] = [];
  let refused: LinkError | undefined;
  const room = new RoomSignalling(site.url, 'room', {
    retryMillisMax: 300,
    onLost: (error) => lost.push(error),
    onRefused: (error) => (refused = error),
  });
  ends.push(
    room.join(
      'a',
      () => Promise.reject(new Error('no offer')),
      () => undefined,
    ),
  );
  await eventually(() => site.rooms.counters.joined === 1);
  isPermitted = false;
  await site.rooms.close();
  const second = await createSignallingServer(site.server, { authorize: () => isPermitted });
  ends.push(() => second.close());
  await eventually(() => second.counters.refused > 1);
  isPermitted = true;
  await eventually(() => second.counters.joined === 1);
  assert.is(refused, undefined);
  assert.match(lost.at(-1)!.message, /refused: not authorized/);
});

test('a room name with a lone surrogate is refused', async () => {
  const { url } = await serve({});
  assert.throws(() => new RoomSignalling(url, 'room \ud800'), /1 to 128 characters/);
  const socket = new WebSocket(url);
  ends.push(() => socket.terminate());
  const closed = new Promise<number>((resolve) => socket.on('close', resolve));
  await new Promise((resolve) => socket.on('open', resolve));
  socket.send(JSON.stringify({ kind: 'join', room: 'room \ud800', name: 'a', key: 'k' }));
  assert.is(await closed, 1008);
  assert.ok(new RoomSignalling(url, 'room \u{1f33f}'));
});

/** A bus with one method that fails, and the method at which it fails. */
const broken = new Bus();
const failing: readonly [string, Partial<Record<keyof SignallingBus, unknown>>, string][] = [
  ['publish throws', { publish: () => assert.unreachable('down') }, 'publish'],
  ['publish rejects', { publish: () => Promise.reject(new Error('down')) }, 'publish'],
  [
    'unsubscribe throws',
    { subscribe: () => Promise.resolve(() => assert.unreachable('down')) },
    'unsubscribe',
  ],
  [
    'unsubscribe rejects',
    { subscribe: () => Promise.resolve(() => Promise.reject(new Error('down'))) },
    'unsubscribe',
  ],
];
for (const [title, methods, method] of failing) {
  test(`${title}: members join, and one warning names the bus`, async () => {
    const bus = {
      publish: () => undefined,
      subscribe: () => broken.subscribe('', () => undefined),
      close: () => Promise.resolve(),
      ...methods,
    } as SignallingBus;
    const { rooms, ...site } = await serve({ bus, aliveMillis: 400 });
    const a = await Client.join({ rooms, ...site }, 'a');
    assert.is(a.of('welcome').length, 1);
    await settle(250);
    a.say({ kind: 'leave' });
    await eventually(() => rooms.rooms === 0);
    await settle(10);
    assert.is(warnings.length, 1);
    assert.ok(warnings[0]!.includes(`bus.${method} failed: down`), warnings[0]);
  });
}

const refusing: readonly [string, () => unknown][] = [
  ['throws', () => assert.unreachable('down')],
  ['rejects', () => Promise.reject(new Error('down'))],
  ['resolves with no function', () => Promise.resolve()],
];
for (const [title, subscribe] of refusing) {
  test(`subscribe ${title}: a join is put off with code 1013`, async () => {
    const bus = { publish: () => undefined, subscribe, close: () => Promise.resolve() };
    const site = await serve({ bus: bus as unknown as SignallingBus });
    const a = await Client.join(site, 'a');
    assert.equal([a.received, a.code], [[], 1013]);
    assert.is(site.rooms.rooms, 0);
    assert.match(
      warnings.join(),
      /^createSignallingServer: bus\.subscribe failed: (down|.*function)/,
    );
  });
}

test.run();
