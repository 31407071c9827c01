/** Members of a mesh of which two lose each other, while a third one keeps both. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { BroadcastSignalling } from '../../../host/index.js';
import { MeshError, joinMesh, type Mesh } from '../../../host/mesh/index.js';
import type { SignallingRoom } from '../../../host/link/signalling/signalling.js';
import { releaseDataChannels } from '../../support/channel-mesh.js';
import { NetworkPath } from '../../support/network-path.js';
import { eventually } from '../../support/receiver.js';

const test = suite('unit/mesh/partition');
test.after(releaseDataChannels);

const KEEP_ALIVE_MILLIS = 500;
const WAIT = { timeout: 20_000 };

/** A room whose members with these names reach each other through `path`. */
function roomWith(name: string, path: NetworkPath, apart: Set<string>): SignallingRoom {
  const inner = new BroadcastSignalling(name);
  return {
    listen: (answer) => inner.listen(answer),
    join: (self, answer, newcomer) => {
      apart.add(self);
      return inner.join(self, answer, (way, other) =>
        newcomer(apart.has(other!) ? path.signalling(way) : way, other),
      );
    },
  };
}

interface World {
  readonly path: NetworkPath;
  /** The first and the last have `path` between them. */
  readonly meshes: readonly [Mesh, Mesh, Mesh];
}

async function withThree(work: (world: World) => Promise<void>): Promise<void> {
  const name = `partition ${process.pid}`;
  const path = new NetworkPath();
  const apart = new Set<string>();
  const open = (signalling: SignallingRoom): Promise<Mesh> =>
    joinMesh({ signalling, keepAliveMillis: KEEP_ALIVE_MILLIS }) as Promise<Mesh>;
  const meshes = [
    await open(roomWith(name, path, apart)),
    await open(new BroadcastSignalling(name)),
    await open(roomWith(name, path, apart)),
  ] as const;
  try {
    await Promise.all(meshes.map((mesh) => mesh.waitForPeers(2, WAIT)));
    await work({ path, meshes });
  } finally {
    await Promise.all(meshes.map((mesh) => mesh.close()));
    path.close();
  }
}

async function failure(promise: Promise<unknown>): Promise<MeshError> {
  return promise.then(
    () => assert.unreachable('it should have failed') as never,
    (error: MeshError) => error,
  );
}

test('two of three members that lost each other are in step with the third afterwards', () =>
  withThree(async ({ path, meshes }) => {
    const [a, b, c] = meshes;
    const members = meshes.map(({ self }) => self.id);
    const limits = { ...WAIT, members };
    const sums = (value: number) =>
      Promise.all(meshes.map((mesh) => mesh.allReduce(Int32Array.of(value), 'sum', limits)));
    for (let round = 1; round < 4; round++) await sums(round);
    const waiting = failure(b.barrier(limits));
    path.change({ loss: 1 });
    // The member that keeps both learns that they lost each other, long before its timeout.
    const { code, members: named, message } = await waiting;
    assert.is(code, 'ECONNRESET');
    assert.ok(named[0] === a.self.id || named[0] === c.self.id, message);
    assert.match(message, /barrier: .* has lost .*; call again/);
    await eventually(() => a.peers.size === 1 && c.peers.size === 1, 5000);
    assert.is(b.peers.size, 2);
    assert.is((await failure(a.barrier(limits))).code, 'ECONNRESET');
    // Calls of the third member alone count for the two as well.
    for (let round = 0; round < 3; round++) {
      assert.is((await failure(b.barrier({ ...limits, timeout: 100 }))).code, 'ETIMEDOUT');
    }
    path.change({ loss: 0 });
    await eventually(() => meshes.every(({ peers }) => peers.size === 2), 20_000);
    for (let round = 4; round < 8; round++) {
      for (const sum of await sums(round)) assert.equal(sum, Int32Array.of(3 * round));
    }
  }));

test.run();
