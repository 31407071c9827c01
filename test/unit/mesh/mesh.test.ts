/** A mesh of several members in one process: memory, events, barrier and all-reduce. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  BroadcastSignalling,
  DataChannelLink,
  MisuseError,
  RemoteError,
  connect,
  openDevice,
  type Signalling,
} from '../../../host/index.js';
import { LOSS, NO_DATA, buildControl, groupOf } from '../../../host/mesh/control.js';
import {
  MeshError,
  RoomSignalling,
  connectFrames,
  joinMesh,
  listenFrames,
  type FrameChannel,
  type Mesh,
  type MeshOptions,
} from '../../../host/mesh/index.js';
import type { Regions } from '../../../host/index.js';
import { splitmix32 } from '../../../host/base/splitmix32.js';
import { releaseDataChannels } from '../../support/channel-mesh.js';
import { MeshServer } from '../../support/mesh-process.js';
import { freePort, noise } from '../../support/processes.js';
import { eventually, settle } from '../../support/receiver.js';

const test = suite('unit/mesh/mesh');
const WAIT = { timeout: 20_000 };
let meshes: Mesh<never>[] = [];
let rooms = 0;

test.after.each(async () => {
  await Promise.all(meshes.map((mesh) => mesh.close()));
  meshes = [];
});
test.after(releaseDataChannels);

/** Members that are all connected with each other. */
async function members<const Named extends Regions>(
  count: number,
  memory: Named,
  options: Partial<MeshOptions<Named>> = {},
): Promise<Mesh<Named>[]> {
  const room = `mesh ${process.pid} ${++rooms}`;
  const made = await Promise.all(
    Array.from({ length: count }, () =>
      joinMesh({ signalling: new BroadcastSignalling(room), memory, ...options }),
    ),
  );
  meshes.push(...(made as unknown as Mesh<never>[]));
  await Promise.all(made.map((mesh) => mesh.waitForPeers(count - 1, WAIT)));
  return made;
}

async function failure<Kind>(promise: Promise<unknown>): Promise<Kind> {
  return promise.then(
    () => assert.unreachable('it should have failed') as never,
    (error: Kind) => error,
  );
}

test('each member reads and writes the memory of each other one', async () => {
  const all = await members(3, { table: 4096, scores: new Float64Array(4) });
  for (const mesh of all) {
    for (const peer of mesh.peers.values()) {
      const at = 8 * all.findIndex(({ self }) => self.id === mesh.self.id);
      await peer.memory.scores.write(at, new Uint8Array(Float64Array.of(at + 1).buffer));
      await peer.memory.table.fetchAdd(0, 1n);
      await peer.memory.table.flush(0, 8);
      assert.equal(Object.keys(peer.memory).sort(), ['scores', 'table']);
    }
  }
  for (const [index, mesh] of all.entries()) {
    const wanted = [1, 9, 17, 0];
    wanted[index] = 0;
    assert.equal([...mesh.self.memory.scores], wanted);
    assert.is(mesh.self.memory.table[0], 2);
  }
});

test('a barrier ends when the last member has come, and writes before it are visible', async () => {
  const all = await members(3, { table: 64 });
  const [late, ...early] = all;
  let arrived = 0;
  const waiting = early.map((mesh) => mesh.barrier(WAIT).then(() => arrived++));
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.is(arrived, 0);
  for (const peer of late!.peers.values()) await peer.memory.table.write(0, Uint8Array.of(7));
  await late!.barrier(WAIT);
  await Promise.all(waiting);
  for (const mesh of early) assert.is(mesh.self.memory.table[0], 7);
  for (let round = 0; round < 20; round++) await Promise.all(all.map((mesh) => mesh.barrier(WAIT)));
});

test('all-reduce has the same result at all members, for each type and operation', async () => {
  // Several segments, and a last one that is not full.
  const all = await members(3, { table: 64 }, { collectiveBytes: 4096 });
  const run = async <Kind extends Float32Array | Float64Array | Int32Array | BigInt64Array>(
    arrays: readonly Kind[],
    op: 'sum' | 'min' | 'max',
  ): Promise<Kind> => {
    const before = arrays.map((array) => array.slice());
    const results = await Promise.all(all.map((mesh, i) => mesh.allReduce(arrays[i]!, op, WAIT)));
    assert.equal(arrays, before);
    for (const result of results) assert.equal(result, results[0]);
    return results[0]!;
  };
  const floats = all.map((_, i) => Float32Array.from({ length: 5003 }, (__, at) => at / 7 + i / 3));
  const sum = await run(floats, 'sum');
  const ids = all.map(({ self }, i) => [self.id, i] as const).sort();
  const order = ids.map(([, i]) => floats[i]!);
  const wanted = Float32Array.from(order[0]!, (value, at) =>
    Math.fround(Math.fround(value + order[1]![at]!) + order[2]![at]!),
  );
  assert.equal(sum, wanted);
  const doubles = all.map((_, i) => Float64Array.of(i, -i, 0.5));
  assert.equal([...(await run(doubles, 'min'))], [0, -2, 0.5]);
  const words = all.map((_, i) => Int32Array.of(2 ** 31 - 1, i));
  assert.equal([...(await run(words, 'sum'))], [(3 * (2 ** 31 - 1)) | 0, 3]);
  const bigs = all.map((_, i) => BigInt64Array.of(BigInt(i) << 60n, -1n));
  assert.equal([...(await run(bigs, 'max'))], [2n << 60n, -1n]);
  assert.equal(
    [
      ...(await run(
        all.map(() => new Float64Array(0)),
        'sum',
      )),
    ],
    [],
  );
});

test('calls that differ, and members that do not call, end with an error that names them', async () => {
  const [a, b] = await members(2, { table: 64 });
  const [one, other] = await Promise.all([
    failure<MeshError>(a!.allReduce(new Float32Array(8), 'sum', WAIT)),
    failure<MeshError>(b!.allReduce(new Float64Array(8), 'sum', WAIT)),
  ]);
  assert.equal([one.code, one.members], ['EPROTO', [b!.self.id]]);
  assert.match(other.message, /Float32Array.*Float64Array/);
  const late = await failure<MeshError>(a!.barrier({ timeout: 100 }));
  assert.equal([late.code, late.members], ['ETIMEDOUT', [b!.self.id]]);
  const stop = AbortSignal.abort(new Error('enough'));
  assert.is((await failure<Error>(a!.barrier({ signal: stop }))).message, 'enough');
  assert.is(
    (await failure<MeshError>(a!.barrier({ members: [a!.self.id, 'x'] }))).code,
    'ECONNRESET',
  );
  // A barrier of one member.
  await a!.barrier({ members: [a!.self.id] });
});

test('a member that closes its mesh leaves, and calls that wait for it end with its name', async () => {
  const all = await members(3, { table: 64 });
  const [a, b, c] = all as unknown as [Mesh, Mesh, Mesh];
  const events: string[] = [];
  void (async () => {
    for await (const { kind, peer, reason } of a.events()) {
      events.push(`${kind} ${peer.id} ${String(reason)}`);
    }
  })();
  const peer = a.peers.get(c.self.id)!;
  const waiting = failure<MeshError>(a.barrier(WAIT));
  const others = failure<MeshError>(b.allReduce(Int32Array.of(1), 'sum', WAIT));
  await c.close();
  for (const error of [await waiting, await others]) {
    assert.instance(error, MeshError);
    assert.equal([error.code, error.members], ['ECONNRESET', [c.self.id]]);
  }
  await eventually(() => events.length === 1);
  assert.equal(events, [`leave ${c.self.id} undefined`]);
  assert.is(await peer.closed, undefined);
  const gone = await failure(peer.memory['table']!.read(0, 8));
  assert.instance(gone, RemoteError);
  assert.match((gone as Error).message, /closed; a member that comes back is another peer/);
  assert.equal(
    [...(await Promise.all([a, b].map((m) => m.allReduce(Int32Array.of(2), 'sum'))))],
    [Int32Array.of(4), Int32Array.of(4)],
  );
});

test('loops over events of a mesh and of its link have all of them, also if they begin late', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  const a = await joinMesh({ signalling: new BroadcastSignalling(room) });
  meshes.push(a as unknown as Mesh<never>);
  const events = a.events();
  const seen: string[] = [];
  void (async () => {
    for await (const { kind } of a.link.peerEvents()) seen.push(kind);
  })();
  const b = await joinMesh({ signalling: new BroadcastSignalling(room) });
  meshes.push(b as unknown as Mesh<never>);
  await Promise.all([a.waitForPeers(1, WAIT), b.waitForPeers(1, WAIT)]);
  assert.equal(seen, ['connected']);
  // The join was before the loop.
  const { value } = await events.next();
  assert.is(value!.kind, 'join');
  await events.return();
});

test('a closed mesh rejects calls, and its pending calls name the close', async () => {
  const [a, b] = (await members(2, { table: 64 })) as unknown as [Mesh, Mesh];
  const pending = [
    failure<MeshError>(a.barrier(WAIT)),
    failure<MeshError>(a.allReduce(Int32Array.of(1), 'sum', WAIT)),
    failure<MeshError>(a.waitForPeers(5)),
  ];
  await settle(50);
  const closing = a.close();
  const during = [failure<MeshError>(a.barrier()), failure<MeshError>(a.waitForPeers(0))];
  await closing;
  const after = [
    failure<MeshError>(a.barrier()),
    failure<MeshError>(a.allReduce(Int32Array.of(1), 'sum')),
    failure<MeshError>(a.waitForPeers(0)),
    failure<MeshError>(a.waitForPeers(1)),
  ];
  for (const { code, message, members: named } of await Promise.all([
    ...pending,
    ...during,
    ...after,
  ])) {
    assert.equal([code, named], ['ECONNRESET', [a.self.id]]);
    assert.match(message, /the mesh was closed/);
  }
  await eventually(() => b.peers.size === 0);
});

test('members with different keepAliveMillis keep each other, with the smaller one', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  let leaves = 0;
  const join = (keepAliveMillis: number) =>
    joinMesh({
      signalling: new BroadcastSignalling(room),
      keepAliveMillis,
      onLeave: () => leaves++,
    });
  const made = await Promise.all([join(60_000), join(500)]);
  meshes.push(...(made as unknown as Mesh<never>[]));
  await Promise.all(made.map((mesh) => mesh.waitForPeers(1, WAIT)));
  await settle(2500);
  assert.is(leaves, 0);
});

test('peersMax limits incoming and outgoing connections together', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  let most = 0;
  let leaves = 0;
  const hub = await joinMesh({
    signalling: new BroadcastSignalling(room),
    peersMax: 2,
    onJoin: () => (most = Math.max(most, hub.peers.size)),
    onLeave: () => leaves++,
  });
  meshes.push(hub as unknown as Mesh<never>);
  const others = await Promise.all(
    Array.from({ length: 5 }, () =>
      joinMesh({ signalling: new BroadcastSignalling(room), onLeave: () => leaves++ }),
    ),
  );
  meshes.push(...(others as unknown as Mesh<never>[]));
  await Promise.all(others.map((mesh) => mesh.waitForPeers(4, WAIT)));
  await hub.waitForPeers(2, WAIT);
  await settle(1500);
  assert.equal([most, hub.peers.size, leaves], [2, 2, 0]);
  assert.is(others.filter(({ peers }) => peers.has(hub.self.id)).length, 2);
});

test('a member that has left the room is sought no more', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  const join = (): Promise<Mesh> =>
    joinMesh({ signalling: new BroadcastSignalling(room) }) as Promise<Mesh>;
  const [a, b] = [await join(), await join()];
  meshes.push(a as never);
  await Promise.all([a, b].map((mesh) => mesh.waitForPeers(1, WAIT)));
  await b.close();
  const listener = new BroadcastChannel(`verbena ${room}`);
  let offers = 0;
  listener.onmessage = ({ data }: { data: unknown }) => {
    if ((data as { kind: string }).kind === 'offer') offers++;
  };
  // One side offers after half a second, the other one after three.
  await settle(4000);
  listener.close();
  assert.is(offers, 0);
});

test('a function of the application that throws neither ends a peer nor keeps one away', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  const faults: Error[] = [];
  const warnings: string[] = [];
  const note = (error: Error): void => void faults.push(error);
  const hear = ({ message }: Error): void => void warnings.push(message);
  process.on('uncaughtException', note);
  process.on('warning', hear);
  const calls: string[] = [];
  const join = (): Promise<Mesh> =>
    joinMesh({
      signalling: new BroadcastSignalling(room),
      onJoin: () => {
        calls.push('join');
        throw new Error('not ready for a peer');
      },
      onLeave: () => {
        calls.push('leave');
        throw new Error('not ready for a leave');
      },
    }) as Promise<Mesh>;
  const both = await Promise.all([join(), join()]);
  meshes.push(...(both as unknown as Mesh<never>[]));
  await Promise.all(both.map((mesh) => mesh.waitForPeers(1, WAIT)));
  await settle(500);
  assert.equal(calls, ['join', 'join']);
  // A lost peer joins again.
  const [peer] = both[0]!.peers.values();
  await peer!.remote.fail(new RemoteError('peer', { code: 'ETIMEDOUT', rule: 'lost', remedy: '' }));
  await eventually(() => calls.length === 6, 20_000);
  assert.equal([...calls].sort(), ['join', 'join', 'join', 'join', 'leave', 'leave']);
  await settle(300);
  assert.equal(faults, []);
  assert.match(warnings.join(), /joinMesh: onJoin threw Error: not ready for a peer/);
  assert.match(warnings.join(), /joinMesh: onLeave threw Error: not ready for a leave/);
  process.off('uncaughtException', note);
  process.off('warning', hear);
});

test('a member without memory for a peer is no peer, until it has some', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  const events: string[] = [];
  const join = async (): Promise<Mesh> => {
    const mesh = await joinMesh({
      signalling: new BroadcastSignalling(room),
      collectiveBytes: 2 ** 23,
      memoryBytes: 2 ** 26,
      onJoin: () => events.push('join'),
      onLeave: () => events.push('leave'),
    });
    meshes.push(mesh as unknown as Mesh<never>);
    return mesh as Mesh;
  };
  // Either has the smaller identifier, which connects.
  const full = [await join(), await join()];
  await Promise.all(full.map((mesh) => mesh.waitForPeers(1, WAIT)));
  // There is room for a connection, and none for what a peer writes.
  const taken = full.map(({ context }) => {
    const parts: Uint8Array[] = [];
    while (context.device.arena.heap.bytesFree > 6 * 2 ** 20) parts.push(context.alloc(2 ** 20));
    return parts;
  });
  events.length = 0;
  const late = await join();
  await eventually(() => late.link.peers.length === 2, 20_000);
  const { message } = await failure<MeshError>(full[0]!.waitForPeers(2, { timeout: 2500 }));
  assert.match(message, /ENOMEM/);
  assert.equal(events, []);
  for (const [index, parts] of taken.entries()) {
    for (const bytes of parts) full[index]!.context.free(bytes);
  }
  await Promise.all([full[0]!.waitForPeers(2, WAIT), late.waitForPeers(2, WAIT)]);
});

test('joinMesh resolves in the room, and rejects with the reason that keeps it out', async () => {
  const server = await MeshServer.open({ authorize: (_, { room }) => room !== 'private' });
  const { url } = server;
  // A member that is closed while its WebSocket is being opened is quiet.
  const faults: Error[] = [];
  const note = (error: Error): void => void faults.push(error);
  process.on('uncaughtException', note);
  new RoomSignalling(url, 'quick').listen(() => Promise.reject(new Error('no')))();
  const mesh = await joinMesh({ url });
  assert.is(server.rooms.counters.joined, 1);
  await mesh.close();
  const refused = await failure<MeshError>(joinMesh({ url, room: 'private' }));
  assert.is(refused.code, 'ECONNREFUSED');
  assert.match(refused.message, /not authorized/);
  const lost = await failure<MeshError>(joinMesh({ url: `${url}/no` }));
  assert.is(lost.code, 'ECONNREFUSED');
  assert.match(lost.message, /404/);
  const nowhere = `ws://127.0.0.1:${await freePort()}/rooms`;
  const late = await failure<MeshError>(joinMesh({ url: nowhere, timeout: 300 }));
  assert.is(late.code, 'ETIMEDOUT');
  assert.match(
    late.message,
    /after 300 ms \(join: the server at ws:.*: [^ ;].*; check that it runs.*ECONNREFUSED/,
  );
  const stop = new AbortController();
  const aborted = failure<Error>(joinMesh({ url: nowhere, signal: stop.signal }));
  setTimeout(() => stop.abort(new Error('enough')), 100);
  assert.is((await aborted).message, 'enough');
  const kept = await joinMesh({ url });
  await server.close();
  await eventually(() => server.rooms.sessions === 0);
  const waited = await failure<MeshError>(kept.waitForPeers(1, { timeout: 1000 }));
  assert.match(waited.message, /ECONNREFUSED/);
  await kept.close();
  await settle(50);
  process.off('uncaughtException', note);
  assert.equal(faults, []);
});

test('a timeout of waitForPeers names what keeps a member of the room from being a peer', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  const withKey = (fill: number): Promise<Mesh> =>
    joinMesh({
      signalling: new BroadcastSignalling(room),
      auth: { psk: new Uint8Array(32).fill(fill) },
    });
  const strangers = await Promise.all([withKey(1), withKey(2)]);
  meshes.push(...(strangers as unknown as Mesh<never>[]));
  // The one with the smaller identifier connects, and is refused.
  const [refused] = strangers.sort((left, right) => (left.self.id < right.self.id ? -1 : 1));
  const waited = refused!.waitForPeers(1, { timeout: 1500 });
  const { code, message, cause } = await failure<MeshError>(waited);
  assert.is(code, 'ETIMEDOUT');
  assert.match(message, /0 of 1 peers joined after 1500 ms \(.*auth\.psk.*EACCES/);
  assert.instance(cause, Error);
});

test('a timeout of waitForPeers names why the link has no way to a member of the room', async () => {
  const way = (): Promise<never> => Promise.reject(new Error('no way: the path is closed'));
  const mesh = await joinMesh({
    signalling: {
      listen: () => () => undefined,
      join(_name, _answer, newcomer) {
        newcomer({ name: 'nowhere', exchange: way }, 'fe80::1');
        return () => undefined;
      },
    },
  });
  meshes.push(mesh as unknown as Mesh<never>);
  const { message } = await failure<MeshError>(mesh.waitForPeers(1, { timeout: 1500 }));
  assert.match(message, /after 1500 ms \(.*the path is closed/);
});

test('members are in step again after a call that one of them gave up', async () => {
  const [a, b] = (await members(2, { table: 64 })) as unknown as [Mesh, Mesh];
  assert.is((await failure<MeshError>(a.barrier({ timeout: 100 }))).code, 'ETIMEDOUT');
  const stopped = await failure<MeshError>(b.barrier(WAIT));
  assert.equal([stopped.code, stopped.members], ['ECANCELED', [a.self.id]]);
  const stop = new AbortController();
  const aborted = failure<Error>(
    a.allReduce(Float32Array.of(1), 'sum', { ...WAIT, signal: stop.signal }),
  );
  setTimeout(() => stop.abort(new Error('enough')), 50);
  assert.is((await aborted).message, 'enough');
  assert.is(
    (await failure<MeshError>(b.allReduce(Float32Array.of(2), 'sum', WAIT))).code,
    'ECANCELED',
  );
  for (let round = 1; round < 4; round++) {
    const sums = await Promise.all(
      [a, b].map((mesh) => mesh.allReduce(Int32Array.of(round), 'sum', WAIT)),
    );
    assert.equal(sums, [Int32Array.of(2 * round), Int32Array.of(2 * round)]);
  }
});

test('limits of a call hold while it waits for the calls before it, and it keeps its number', async () => {
  const [a, b] = (await members(2, { table: 64 })) as unknown as [Mesh, Mesh];
  const first = a.barrier(WAIT);
  const stop = new AbortController();
  const begin = performance.now();
  const waiting = [
    failure<Error>(a.barrier({ timeout: 100 })),
    failure<Error>(a.barrier({ ...WAIT, signal: stop.signal })),
  ];
  setTimeout(() => stop.abort(new Error('enough')), 150);
  const [late, aborted] = await Promise.all(waiting);
  assert.ok(performance.now() - begin < 2000);
  assert.match(late!.message, /barrier: a call before it has not ended within 100 ms.*ETIMEDOUT/);
  assert.is(aborted!.message, 'enough');
  await Promise.all([first, b.barrier(WAIT)]);
  for (let call = 0; call < 2; call++) {
    assert.is((await failure<MeshError>(b.barrier(WAIT))).code, 'ECANCELED');
  }
  await Promise.all([a.barrier(WAIT), b.barrier(WAIT)]);
});

test('calls of members that are in several groups have the bytes of their own group', async () => {
  const all = await members(4, { table: 64 });
  // By their identifiers, which decide on the places of their bytes.
  all.sort((one, other) => (one.self.id < other.self.id ? -1 : 1));
  const [d, b, a, c] = all as unknown as [Mesh, Mesh, Mesh, Mesh];
  const group = (...some: Mesh[]) => ({ ...WAIT, members: some.map(({ self }) => self.id) });
  const [three, two] = [group(a, b, c), group(b, d)];
  const of = (value: number, length: number): Float32Array => new Float32Array(length).fill(value);
  for (const [first, last] of [
    [a, c],
    [c, a],
  ] as const) {
    const sums = [first, b].map((mesh) => mesh.allReduce(of(1, 3000), 'sum', three));
    await settle();
    // This member takes no part in the first call, and does not wait for it.
    const pair = [d.allReduce(of(50, 20_000), 'sum', two)];
    await settle();
    sums.push(last.allReduce(of(1, 3000), 'sum', three));
    pair.push(b.allReduce(of(7, 20_000), 'sum', two));
    const results = await Promise.all([...sums, ...pair]);
    for (const sum of results.slice(0, 3)) assert.equal(sum, of(3, 3000));
    for (const sum of results.slice(3)) assert.equal(sum, of(57, 20_000));
  }
});

test('a call that a member gave up does not change the bytes of the next one', async () => {
  const [a, b, c] = (await members(3, { table: 64 })) as unknown as [Mesh, Mesh, Mesh];
  const of = (value: number, length: number): Int32Array => new Int32Array(length).fill(value);
  for (let round = 0; round < 10; round++) {
    const stop = new AbortController();
    const given = [a, b].map((mesh) =>
      failure(mesh.allReduce(of(100, 60_000), 'sum', { ...WAIT, signal: stop.signal })),
    );
    const late = failure(c.allReduce(of(100, 60_000), 'sum', { timeout: 3 }));
    stop.abort(new Error('enough'));
    const calls = [c, b, a].map((mesh) => mesh.allReduce(of(1, 500 + round), 'max', WAIT));
    const results = await Promise.all(calls);
    await Promise.all([...given, late]);
    for (const result of results) assert.equal(result, of(1, 500 + round));
  }
});

test('calls right after one that a member gave up in the middle have the right sums', async () => {
  // Many segments: the members are at different ones when one of them gives up.
  const all = await members(3, { table: 64 }, { collectiveBytes: 4096 });
  const random = splitmix32(5);
  let sums = 0;
  for (let round = 1; round <= 60; round++) {
    const length = 1 + (random() % 20_000);
    const giver = random() % 6;
    const results = await Promise.allSettled(
      all.map((mesh, index) => {
        const stop = new AbortController();
        if (index === giver) setTimeout(() => stop.abort(), random() % 6);
        const array = new Int32Array(length).fill(100 * round + index);
        return mesh.allReduce(array, 'sum', { ...WAIT, signal: stop.signal });
      }),
    );
    for (const result of results) {
      if (result.status === 'rejected') {
        assert.ok(giver < 3, 'the call before has no effect');
        continue;
      }
      sums++;
      assert.ok(result.value.every((value) => value === 300 * round + 3));
    }
  }
  assert.ok(sums > 30, `${sums} sums`);
});

test('numbers of calls are kept for as many groups as a member uses', async () => {
  const all = await members(9, { table: 64 });
  const call = (group: readonly number[]) =>
    Promise.all(
      group.map((index) => {
        const ids = group.map((each) => all[each]!.self.id);
        return all[index]!.barrier({ timeout: 5000, members: ids });
      }),
    );
  await call([0, 1]);
  for (let bits = 1; bits <= 70; bits++) {
    await call([0, ...[2, 3, 4, 5, 6, 7, 8].filter((_, at) => (bits >> at) & 1)]);
  }
  // The second member has used one group, the first one 71.
  await call([0, 1]);
});

test('calls of a member that is alone leave its event loop to timers', async () => {
  const [mesh] = await members(1, { table: 64 });
  let isOver = false;
  setTimeout(() => (isOver = true), 20);
  let calls = 0;
  while (!isOver && calls < 1_000_000) {
    await mesh!.allReduce(Int32Array.of(1), 'sum', WAIT);
    calls++;
  }
  assert.ok(isOver);
});

/** The channels of two members with each other. */
async function channels<Named>(a: Mesh<Named>, b: Mesh<Named>): Promise<FrameChannel[]> {
  const [ofA, ofB] = [a.peers.get(b.self.id)!, b.peers.get(a.self.id)!];
  return Promise.all([ofA.frames(WAIT), ofB.frames(WAIT)]);
}

async function nextFrame(channel: FrameChannel): Promise<[Buffer, number]> {
  for await (const { bytes, immediate } of channel) return [Buffer.from(bytes), immediate];
  return assert.unreachable('the channel has ended') as never;
}

test('each member sends frames to each other one, with immediate data', async () => {
  const all = await members(3, {}, { frames: {} });
  for (const [from, to] of [
    [0, 1],
    [1, 0],
    [1, 2],
    [2, 0],
  ] as const) {
    const [near, far] = await channels(all[from]!, all[to]!);
    const bytes = noise(65_536, from * 8 + to + 1);
    const [sent, received] = await Promise.all([
      near!.send(bytes, { immediate: 2 ** 32 - 1 - from }),
      nextFrame(far!),
    ]);
    assert.is(sent, true);
    assert.equal(received, [bytes, 2 ** 32 - 1 - from]);
  }
});

test('the options of frames are those of the member that sets them', async () => {
  const room = `frames ${process.pid}`;
  const signalling = (): BroadcastSignalling => new BroadcastSignalling(room);
  const a = await joinMesh({ signalling: signalling(), frames: { bytesMax: 100, frames: 1 } });
  const b = await joinMesh({ signalling: signalling(), frames: { bytesMax: 9000 } });
  meshes.push(a as never, b as never);
  await Promise.all([a.waitForPeers(1, WAIT), b.waitForPeers(1, WAIT)]);
  const [near, far] = await channels(a, b);
  const tooLong = await failure<MisuseError>(far!.send(new Uint8Array(101)));
  assert.match(tooLong.message, /has 101 bytes, the peer accepts 100/);
  const bytes = noise(9000);
  assert.equal((await Promise.all([nextFrame(far!), near!.send(bytes)]))[0], [bytes, 0]);
});

test('a channel for frames that has ended is replaced, and its memory is free again', async () => {
  const [a, b] = await members(2, {}, { frames: {} });
  const taken = async (): Promise<number[]> => {
    await channels(a!, b!);
    return [a!, b!].map(({ context }) => {
      const { heap, memory } = context.device.arena;
      return memory.bytes.length - heap.bytesFree;
    });
  };
  const before = await taken();
  for (let round = 0; round < 4; round++) {
    const old = await channels(a!, b!);
    await old[round % 2]!.close();
    let [near, far] = old;
    // Both sides have noticed the end, and are connected anew.
    await Promise.all(old.map(({ closed }) => closed));
    while (old.includes(near!) || old.includes(far!)) [near, far] = await channels(a!, b!);
    const bytes = noise(20_000, round + 1);
    const both = await Promise.all([nextFrame(far!), near!.send(bytes, { immediate: round })]);
    assert.equal(both[0], [bytes, round]);
  }
  assert.equal(await taken(), before);
});

test('a member without frames is named at once, and one that leaves ends its channels', async () => {
  const room = `without frames ${process.pid}`;
  const join = async (frames?: object): Promise<Mesh> => {
    const mesh = await joinMesh({
      signalling: new BroadcastSignalling(room),
      ...(frames && { frames }),
    });
    meshes.push(mesh as never);
    return mesh as Mesh;
  };
  const [a, b, plain] = [await join({}), await join({}), await join()];
  await Promise.all([a, b, plain].map((mesh) => mesh.waitForPeers(2, WAIT)));
  const ofPlain = await failure<MeshError>(a.peers.get(plain.self.id)!.frames(WAIT));
  assert.equal([ofPlain.code, ofPlain.members], ['EOPNOTSUPP', [plain.self.id]]);
  const own = await failure<MeshError>(plain.peers.get(a.self.id)!.frames());
  assert.is(own.code, 'EOPNOTSUPP');
  assert.match(own.message, /this member joined without the option frames; set it/);
  const peer = a.peers.get(b.self.id)!;
  const channel = await peer.frames();
  const reading = (async () => {
    for await (const frame of channel) assert.unreachable(`${frame.number}`);
  })();
  await b.close();
  await reading;
  assert.is((await failure<MeshError>(peer.frames())).code, 'ECONNRESET');
  const wrong = await failure<MisuseError>(peer.frames({ timout: 1 } as never));
  assert.instance(wrong, MisuseError);
});

test('a member without the key opens no channel for frames, and takes no memory', async () => {
  const room = `strangers ${process.pid}`;
  const withKey = (fill: number): Promise<Mesh> =>
    joinMesh({
      signalling: new BroadcastSignalling(room),
      auth: { psk: new Uint8Array(32).fill(fill) },
      frames: {},
    }) as Promise<Mesh>;
  const both = [await withKey(1), await withKey(2)];
  meshes.push(...(both as unknown as Mesh<never>[]));
  await eventually(() => both.every(({ link }) => link.peers.length === 1), 20_000);
  // The smaller identifier connects.
  const [stranger, member] = both.sort((one, other) => (one.self.id < other.self.id ? -1 : 1));
  const { heap } = member!.context.device.arena;
  const [before, { alloc }] = [heap.bytesFree, heap];
  let most = 0;
  heap.alloc = (bytes, ...rest) => {
    most = Math.max(most, bytes);
    return alloc.call(heap, bytes, ...rest);
  };
  const opening = connectFrames(`rdma://[${member!.self.id}]:7474`, {
    context: stranger!.context,
    timeout: 5000,
  });
  assert.is((await failure<MeshError>(opening)).code, 'ECONNREFUSED');
  assert.ok(most < 2 ** 18, `${most} bytes were taken at once`);
  await eventually(() => heap.bytesFree >= before - 2 ** 18);
});

test('messages of a member are short, and are read at a limited rate', async () => {
  const [a, b] = await members(2, {}, { collectiveBytes: 4096 });
  const [peer] = a!.peers.values();
  const long = await failure<MisuseError>(peer!.remote.send(new Uint8Array(33)));
  assert.match(long.message, /the peer accepts 32/);
  const early = buildControl({ ...NO_DATA, kind: 1, sequence: 2 ** 31, group: 1n });
  const start = performance.now();
  // 400 in 50 ms.
  await Promise.all(Array.from({ length: 4000 }, () => peer!.remote.send(early)));
  const millis = performance.now() - start;
  assert.ok(millis > 430, `${millis} ms`);
  // The flood of one member is behind its own messages alone.
  await Promise.all([a!.barrier(WAIT), b!.barrier(WAIT)]);
  assert.is(a!.peers.size, 1);
});

test('connections that one peer opens and leaves half made keep no other member away', async () => {
  const room = `mesh ${process.pid} ${++rooms}`;
  const join = (): Promise<Mesh> =>
    joinMesh({ signalling: new BroadcastSignalling(room), peersMax: 3 }) as Promise<Mesh>;
  const server = await join();
  meshes.push(server as unknown as Mesh<never>);
  const link = new DataChannelLink();
  const context = await openDevice({ link });
  await link.connect({ name: 'the server', exchange: (offer) => server.link.answer(offer) });
  const privateData = new TextEncoder().encode('verbena.share/1');
  const target = { address: server.self.id, port: 7473 };
  const opened = await Promise.allSettled(
    Array.from({ length: 6 }, () => connect(target, { context, privateData, timeout: 4000 })),
  );
  const made = opened.filter(({ status }) => status === 'fulfilled');
  const other = await join();
  meshes.push(other as unknown as Mesh<never>);
  const start = performance.now();
  await other.waitForPeers(1, WAIT);
  // The server gives a handshake 5 s.
  assert.ok(performance.now() - start < 4500, `${performance.now() - start} ms`);
  assert.is(made.length, 2);
  await context.close();
});

test('no member can set the numbers of calls to their end', async () => {
  const both = await members(2, {});
  const ids = both.map(({ self }) => self.id).sort();
  const report = (sequence: number): Uint8Array =>
    buildControl({ ...NO_DATA, kind: 5, segment: LOSS, sequence, group: groupOf(ids) });
  const barriers = (): Promise<unknown> => Promise.all(both.map((mesh) => mesh.barrier(WAIT)));
  const tellAll = async (sequence: number): Promise<void> => {
    for (const mesh of both) {
      for (const { remote } of mesh.peers.values()) await remote.send(report(sequence));
    }
    await settle(100);
  };
  await barriers();
  await tellAll(2 ** 32 - 1);
  await barriers();
  // Both follow, step by step, beyond the last number.
  for (const sequence of [2 ** 30, 2 ** 31, 3 * 2 ** 30, 2 ** 32 - 3]) await tellAll(sequence);
  for (let call = 0; call < 4; call++) await barriers();
});

test('a member that made no call follows numbers beyond 2^31', async () => {
  const [a, b] = (await members(2, {})) as unknown as [Mesh, Mesh];
  const ids = [a.self.id, b.self.id].sort();
  const tell = async (from: Mesh, sequence: number): Promise<void> => {
    const loss = { ...NO_DATA, kind: 5, segment: LOSS, sequence, group: groupOf(ids) };
    const [peer] = from.peers.values();
    await peer!.remote.send(buildControl(loss));
    await settle(100);
  };
  const alone = await failure<MeshError>(a.barrier({ timeout: 100 }));
  assert.is(alone.code, 'ETIMEDOUT');
  for (const sequence of [2 ** 30, 2 ** 31]) await tell(b, sequence);
  await tell(a, 2 ** 31);
  for (let call = 0; call < 3; call++) {
    await Promise.all([a.barrier({ timeout: 5000 }), b.barrier({ timeout: 5000 })]);
  }
});

test('a member offers connections of its own certificate alone', async () => {
  const server = await MeshServer.open();
  const room = 'certificates';
  const mesh = await joinMesh({ url: server.url, room });
  meshes.push(mesh as unknown as Mesh<never>);
  const links = [new DataChannelLink(), new DataChannelLink()] as const;
  const contexts = await Promise.all(links.map((link) => openDevice({ link })));
  let leave = (): void => {};
  const way = new Promise<Signalling>((resolve) => {
    const name = `${links[0].info.local.gid}`;
    const present = (found: Signalling): void => resolve(found);
    leave = new RoomSignalling(server.url, room).join(name, links[0].answer, () => {}, { present });
  });
  const error = await failure<MeshError>(links[1].connect(await way));
  assert.match(
    error.message,
    /the peer refuses: answer: the offer of fd.* names fd.*; use its own/,
  );
  assert.is(`${await links[0].connect(await way)}`, `${mesh.link.info.local}`);
  leave();
  for (const context of contexts) await context.close();
  await mesh.close();
  await server.close();
});

test('options are checked', async () => {
  const signalling = new BroadcastSignalling('x');
  for (const [argument, options] of [
    ['url', {}],
    ['url', { url: 'ws://127.0.0.1', signalling }],
    ['url', { url: 'http://127.0.0.1/rooms' }],
    ['url', { url: 'rooms' }],
    ['url', { url: 5 }],
    ['room', { signalling, room: 'x' }],
    ['signalling', { signalling: {} }],
    ['signalling', { signalling: null }],
    ['collectiveBytes', { signalling, collectiveBytes: 1 }],
    ['keepAliveMillis', { signalling, keepAliveMillis: 0 }],
    ['keepAliveMillis', { signalling, keepAliveMillis: 99 }],
    ['link', { signalling, link: 4 }],
    ['link', { signalling, link: null }],
    ['sharedArrayBuffer', { signalling, sharedArrayBuffer: 'yes' }],
    ['frames', { signalling, frames: true }],
    ['frames', { signalling, frames: { frames: 33 } }],
    ['bytesMax', { signalling, frames: { bytesMax: 0 } }],
    ['parties', { signalling, frames: { parties: 3 } }],
    ['onJoin', { signalling, onJoin: 5 }],
    ['onLeave', { signalling, onLeave: {} }],
    ['timeout', { signalling, timeout: -1 }],
    ['signal', { signalling, signal: {} }],
    ['nope', { signalling, nope: 1 }],
  ] as const) {
    const error = await failure<MisuseError>(joinMesh(options as never));
    assert.instance(error, MisuseError);
    assert.is(error.argument, argument);
  }
  for (const open of [connectFrames, listenFrames]) {
    const error = await failure<MisuseError>(open('rdma://[fd00::1]:7475', {} as never));
    assert.instance(error, MisuseError);
    assert.is(error.argument, 'context');
  }
});

test.run();
