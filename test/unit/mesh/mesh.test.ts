/** A mesh of several members in one process: memory, events, barrier and all-reduce. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { BroadcastSignalling, MisuseError, RemoteError } from '../../../host/index.js';
import { MeshError, joinMesh, type Mesh, type MeshOptions } from '../../../host/mesh/index.js';
import type { Regions } from '../../../host/index.js';
import { releaseDataChannels } from '../../support/channel-mesh.js';
import { eventually } from '../../support/receiver.js';

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
  assert.instance(await failure(peer.memory['table']!.read(0, 8)), RemoteError);
  assert.equal(
    [...(await Promise.all([a, b].map((m) => m.allReduce(Int32Array.of(2), 'sum'))))],
    [Int32Array.of(4), Int32Array.of(4)],
  );
});

test('options are checked', async () => {
  const signalling = new BroadcastSignalling('x');
  for (const options of [
    {},
    { url: 'ws://127.0.0.1', signalling },
    { signalling, room: 'x' },
    { signalling, collectiveBytes: 1 },
    { signalling, memory: { 'verbena.mesh': 64 } },
    { signalling, nope: 1 },
  ]) {
    assert.instance(await failure(joinMesh(options as never)), MisuseError);
  }
});

test.run();
