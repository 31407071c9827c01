/** Members of a mesh in processes: one is killed, one is stopped and comes back. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { joinMesh } from '../../../host/mesh/index.js';
import { RoomSignalling } from '../../../host/link/signalling/room.js';
import type { RoomEvents, SignallingRoom } from '../../../host/link/signalling/signalling.js';
import { releaseDataChannels } from '../../support/channel-mesh.js';
import { MemberProcess, MeshServer } from '../../support/mesh-process.js';
import { eventually, settle } from '../../support/receiver.js';

const KEEP_ALIVE_MILLIS = 2000;
/** A fifth more, and what a busy machine adds. */
const NOTICE_MILLIS = 1.2 * KEEP_ALIVE_MILLIS + 2000;

interface World {
  server: MeshServer;
  members: MemberProcess[];
}

const test = suite<World>('unit/mesh/processes');
test.before.each(async (world) => {
  world.server = await MeshServer.open({ returnMillis: 3000 });
  world.members = [];
});
test.after.each(async (world) => {
  for (const member of world.members) await member.end();
  await world.server.close();
});

let rooms = 0;

/** Members that are connected with each other. */
async function start(world: World, count: number): Promise<MemberProcess[]> {
  const room = `room ${++rooms}`;
  const make = (): MemberProcess => new MemberProcess(world.server.url, room, KEEP_ALIVE_MILLIS);
  world.members = Array.from({ length: count }, make);
  await eventually(() => world.members.every(({ id }) => id !== undefined), 20_000);
  for (const answer of await askAll(world.members, `peers ${count - 1}`)) {
    assert.is(answer.message, undefined);
  }
  return world.members;
}

function askAll(members: readonly MemberProcess[], command: string) {
  return Promise.all(members.map((member) => member.ask(command)));
}

test('four processes write to each other, and a killed one is noticed and named', async (world) => {
  const members = await start(world, 4);
  await Promise.all(members.map((member, index) => member.ask(`write ${index} ${index + 1}`)));
  assert.is(
    (await askAll(members, 'barrier')).every(({ code }) => !code),
    true,
  );
  const tables = await askAll(members, 'table 4');
  for (const [index, { value }] of tables.entries()) {
    assert.equal(
      value,
      [1, 2, 3, 4].map((one) => (one === index + 1 ? 0 : one)),
    );
  }
  for (const { value } of await Promise.all(members.map((m, i) => m.ask(`sum ${i}`)))) {
    assert.equal(value, [6]);
  }
  const [victim, ...rest] = members;
  const waiting = rest.map((member) => member.ask('barrier'));
  victim!.signal('SIGKILL');
  for (const member of rest) {
    assert.ok(await member.heard({ leave: victim!.id! }, NOTICE_MILLIS));
  }
  for (const { code, members: named } of await Promise.all(waiting)) {
    assert.equal([code, named], ['ECONNRESET', [victim!.id]]);
  }
  for (const { value } of await askAll(rest, 'sum 1')) assert.equal(value, [3]);
  // A late member finds those that are left.
  const late = new MemberProcess(world.server.url, `room ${rooms}`, KEEP_ALIVE_MILLIS);
  world.members.push(late);
  await eventually(() => late.id !== undefined, 20_000);
  assert.is((await late.ask('peers 3')).code, undefined);
  await askAll(rest, 'peers 3');
  for (const { value } of await askAll([...rest, late], 'sum 2')) assert.equal(value, [8]);
});

/** A room whose server says of a member that its page or process is gone, right or wrong. */
class DoubtingRoom extends RoomSignalling {
  doubt: NonNullable<RoomEvents['away']> = () => undefined;

  override join(...[name, answer, newcomer, events]: Parameters<SignallingRoom['join']>) {
    this.doubt = events!.away!;
    return super.join(name, answer, newcomer, events);
  }
}

test('of members that may be gone one that is killed leaves at once, and one that answers stays', async (world) => {
  const room = new DoubtingRoom(world.server.url, 'doubts');
  const keepAliveMillis = 30_000;
  const make = (): MemberProcess => new MemberProcess(world.server.url, 'doubts', keepAliveMillis);
  world.members = [make(), make()];
  const left: string[] = [];
  const onLeave = ({ id }: { readonly id: string }): void => void left.push(id);
  const mesh = await joinMesh({
    signalling: room,
    memory: { table: 4096 },
    keepAliveMillis,
    onLeave,
  });
  try {
    await mesh.waitForPeers(2, { timeout: 20_000 });
    const [victim, alive] = world.members.map(({ id }) => id!);
    const peer = mesh.peers.get(alive!);
    world.members[0]!.signal('SIGKILL');
    room.doubt(victim!);
    room.doubt(alive!);
    await eventually(() => left.length > 0, 3500);
    assert.equal(left, [victim]);
    // Longer than it has to answer.
    await settle(3000);
    assert.equal(left, [victim]);
    assert.is(mesh.peers.get(alive!), peer);
  } finally {
    await mesh.close();
    await releaseDataChannels();
  }
});

test('a process that is stopped leaves, and joins again when it goes on', async (world) => {
  const [sleeper, ...rest] = await start(world, 3);
  await rest[0]!.ask('write 0 9');
  const waiting = rest[0]!.ask('barrier');
  sleeper!.signal('SIGSTOP');
  for (const member of rest) {
    assert.ok(await member.heard({ leave: sleeper!.id!, reason: 'ETIMEDOUT' }, NOTICE_MILLIS));
  }
  assert.equal([(await waiting).code, (await waiting).members], ['ECONNRESET', [sleeper!.id]]);
  const before = rest.map(({ said }) => said.length);
  sleeper!.signal('SIGCONT');
  await Promise.all(
    rest.map((member, index) =>
      eventually(
        () => member.said.slice(before[index]).some(({ join }) => join === sleeper!.id),
        20_000,
      ),
    ),
  );
  await sleeper!.ask('peers 2');
  // Its memory is what it was.
  assert.equal((await sleeper!.ask('table 1')).value, [9]);
  for (const { value } of await askAll([sleeper!, ...rest], 'sum 5')) assert.equal(value, [15]);
});

test('a member that closes its mesh leaves at once', async (world) => {
  const [a, b] = await start(world, 2);
  await a!.ask('close');
  assert.ok(await b!.heard({ leave: a!.id!, reason: 'closed' }, 2000));
  await eventually(() => world.server.rooms.sessions === 1);
});

test.run();
