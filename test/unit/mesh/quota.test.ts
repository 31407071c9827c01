/** A server whose peers have a rate each: one that takes all it can, and one that reads a word. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { joinMesh, type Mesh } from '../../../host/mesh/index.js';
import { releaseDataChannels } from '../../support/channel-mesh.js';
import { MeshServer } from '../../support/mesh-process.js';
import type { QuotaFigures } from '../../support/quota-member.js';
import { settle } from '../../support/receiver.js';

const test = suite('unit/mesh/quota');
test.after(releaseDataChannels);

const PROGRAM = fileURLToPath(new URL('../../support/quota-member.js', import.meta.url));
const BLOCK_BYTES = 2 ** 20;
const RATE = 2_000_000;
const SECONDS = 4;
/** 64-byte READs for a median. */
const TRIPS = 400;

interface World {
  readonly honest: Mesh<{ table: number }>;
  readonly serverId: string;
  figures(child: ChildProcess): Promise<QuotaFigures>;
  readonly server: ChildProcess;
  begin(role: 'write' | 'read'): Promise<ChildProcess>;
}

async function answerOf<Value>(child: ChildProcess): Promise<Value> {
  const [value] = (await once(child, 'message')) as [Value];
  return value;
}

let rooms = 0;

async function inWorld(rate: number, work: (world: World) => Promise<void>): Promise<void> {
  const signalling = await MeshServer.open();
  const children: ChildProcess[] = [];
  const room = `quota ${++rooms}`;
  const start = async (role: string, detail: string): Promise<[ChildProcess, string]> => {
    const child = fork(PROGRAM, [signalling.url, room, role, detail, `${BLOCK_BYTES}`]);
    children.push(child);
    return [child, await answerOf<string>(child)];
  };
  const [server, serverId] = await start('server', `${rate}`);
  const honest = await joinMesh({ url: signalling.url, room, memory: { table: 64 } });
  try {
    await honest.waitForPeers(1, { timeout: 20_000 });
    await work({
      honest: honest as never,
      server,
      serverId,
      figures: (child) => {
        const answer = answerOf<QuotaFigures>(child);
        child.send('figures');
        return answer;
      },
      begin: async (role) => (await start(role, serverId))[0],
    });
  } finally {
    await honest.close();
    for (const child of children) child.kill('SIGKILL');
    await signalling.close();
  }
}

/** Milliseconds of a READ of 64 bytes: the median. */
async function tripOf({ honest, serverId }: World): Promise<number> {
  const { table } = honest.peers.get(serverId)!.memory;
  const trips: number[] = [];
  while (trips.length < TRIPS) {
    const start = performance.now();
    await table.read(BLOCK_BYTES, 64);
    trips.push(performance.now() - start);
  }
  return trips.sort((a, b) => a - b)[TRIPS / 2]!;
}

for (const role of ['write', 'read'] as const) {
  test(`a peer that ${role}s all it can has its rate, and another one its latency`, () =>
    inWorld(RATE, async (world) => {
      const alone = await tripOf(world);
      const greedy = await world.begin(role);
      // Of an idle peer a quarter of a second travels at once.
      await settle(1000);
      const before = await world.figures(greedy);
      const start = performance.now();
      const beside = await tripOf(world);
      await settle(Math.max(0, 1000 * SECONDS - (performance.now() - start)));
      const after = await world.figures(greedy);
      const seconds = (performance.now() - start) / 1000;
      const rate = (after.bytes - before.bytes) / seconds;
      const { paced, dropped, peers, isWhole } = await world.figures(world.server);
      console.log(
        `${role}: ${(rate / 1e6).toFixed(2)} MB/s of ${RATE / 1e6}; another peer's 64-byte READ ` +
          `${alone.toFixed(2)} ms alone, ${beside.toFixed(2)} ms beside it`,
      );
      // Calls of a megabyte: one more or less may have ended.
      assert.ok(rate < RATE + BLOCK_BYTES / seconds, `${rate} bytes a second`);
      assert.ok(rate > RATE / 3, `${rate} bytes a second`);
      assert.ok(beside < 3 * alone + 3, `${beside} ms, ${alone} ms alone`);
      assert.ok(paced > 1000, `${paced} messages waited`);
      assert.equal([dropped, peers], [0, 2]);
      assert.is(isWhole, role === 'write', 'each of its calls has written the same');
    }));
}

test('at the lowest rate a peer lives, and what it writes is whole', () =>
  inWorld(131_072, async (world) => {
    const { honest, serverId } = world;
    const { table } = honest.peers.get(serverId)!.memory;
    const start = performance.now();
    await table.write(0, new Uint8Array(BLOCK_BYTES / 2).fill(7));
    const millis = performance.now() - start;
    const back = await table.read(BLOCK_BYTES / 2 - 1024, 2048);
    assert.equal(
      back,
      Uint8Array.from({ length: 2048 }, (_, at) => (at < 1024 ? 7 : 0)),
    );
    // 524 KB, of which 33 travel at once.
    assert.ok(millis > 3000, `${millis} ms`);
    assert.is(honest.peers.size, 1);
  }));

/** Between two members of this process, the first one with the lowest rate. */
async function withLimit(
  keepAliveMillis: number,
  work: (near: Mesh<{ table: number }>, far: Mesh<{ table: number }>) => Promise<void>,
): Promise<void> {
  const signalling = await MeshServer.open();
  const options = {
    ...{ url: signalling.url, room: `quota ${++rooms}`, keepAliveMillis },
    memory: { table: BLOCK_BYTES / 2 },
  };
  const near = await joinMesh({ ...options, link: { peerBytesPerSecond: 131_072 } });
  const far = await joinMesh(options);
  const left: unknown[] = [];
  try {
    for (const mesh of [near, far]) await mesh.waitForPeers(1, { timeout: 20_000 });
    for (const mesh of [near, far]) {
      void [...mesh.peers.values()][0]!.closed.then((reason) => left.push(reason?.message));
    }
    await work(near as never, far as never);
    assert.equal(left, []);
  } finally {
    await far.close();
    await near.close();
    await signalling.close();
  }
}

for (const verb of ['write', 'read'] as const) {
  test(`a ${verb} of several times the keep-alive time does not end the peer`, () =>
    withLimit(600, async (near, far) => {
      const { table } = far.peers.get(near.self.id)!.memory;
      const start = performance.now();
      if (verb === 'read') {
        near.self.memory.table.fill(7);
        assert.equal(await table.read(0, BLOCK_BYTES / 2), near.self.memory.table);
      } else {
        await table.write(0, new Uint8Array(BLOCK_BYTES / 2).fill(7));
        assert.equal(await table.read(BLOCK_BYTES / 2 - 8, 8), new Uint8Array(8).fill(7));
      }
      assert.ok(performance.now() - start > 2400);
    }));
}

test('long calls of both sides at once end neither', () =>
  withLimit(600, async (near, far) => {
    const bytes = new Uint8Array(BLOCK_BYTES / 2).fill(9);
    const there = near.peers.get(far.self.id)!.memory.table;
    const here = far.peers.get(near.self.id)!.memory.table;
    await Promise.all([there.write(0, bytes), here.write(0, bytes)]);
    await Promise.all([there, here].map((table) => table.read(0, BLOCK_BYTES / 2)));
  }));

test('without a rate no message waits', () =>
  inWorld(0, async (world) => {
    const greedy = await world.begin('write');
    await settle(1000);
    assert.ok((await world.figures(greedy)).bytes > 0);
    assert.is((await world.figures(world.server)).paced, 0);
  }));

test.run();
