/** Connections of a dead process, and the survivor that sends its DREQs. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { ConnectionRecord } from '../../../host/device/sharing/connection-table.js';
import { adopt } from '../../../host/cm/adoption.js';
import { CmCore } from '../../../host/cm/core.js';
import { PathMtus } from '../../../host/cm/path-mtus.js';
import { Endpoint } from '../../../host/link/endpoint.js';
import { CmWorld, type End } from '../../support/cm-world.js';

/** The contents of a device's table, and a core that writes to it. */
class Table {
  readonly kept = new Map<number, ConnectionRecord>();
  #places = 0;

  keep({ localId, remoteId, remoteQpn, transactionId, peer }: ConnectionRecord): number {
    this.kept.set(this.#places, { localId, remoteId, remoteQpn, transactionId, peer });
    return this.#places++;
  }

  forget(place: number): void {
    assert.ok(this.kept.delete(place), 'forgotten once');
  }
}

function coreAt(world: CmWorld, table: Table, slot: number): CmCore {
  let draws = 0;
  return new CmCore({
    slot,
    caGuid: 0x0200_0000_0000_0000n,
    gid: world.a.endpoint.gid,
    pathMtus: new PathMtus(),
    random: () => 0x1000 + ++draws,
    send: (mad, to) => world.carry(mad, world.a.endpoint, to),
    table,
  });
}

/** `world.a` keeps its connections in a table; its peer has accepted one. */
function connected(fate: CmWorld['fate'] = () => 'pass'): {
  readonly world: CmWorld;
  readonly table: Table;
  readonly end: End | undefined;
} {
  const world = new CmWorld(2);
  const table = new Table();
  Object.assign(world.a, { core: coreAt(world, table, 0) });
  world.fate = fate;
  world.b.listen();
  world.a.connect(world.b);
  world.settle();
  return { world, table, end: world.b.requests[0]?.end };
}

test('the peer of a dead process receives a DREQ, which is repeated until it answers', () => {
  const { world, table, end } = connected();
  const successor = coreAt(world, table, 1);
  let dropped = 0;
  world.fate = (_, name) => (name === 'DREQ' && dropped++ < 3 ? 'drop' : 'pass');
  Object.assign(world.a, { core: successor });
  for (const [place, record] of table.kept) assert.ok(adopt(successor, world.now, place, record));
  world.run();
  assert.is(end!.story, 'ready disconnected');
  assert.is(dropped, 4);
  assert.is(table.kept.size, 0);
  assert.equal(world.leaks(), []);
});

test('if the peer is dead as well, nothing remains after 2 s', () => {
  const { world, table } = connected();
  const successor = coreAt(world, table, 1);
  world.fate = () => 'drop';
  Object.assign(world.a, { core: successor });
  for (const [place, record] of table.kept) adopt(successor, world.now, place, record);
  const began = world.now;
  world.run(() => table.kept.size === 0, 3);
  assert.ok(world.now - began <= 2.1e6, `${world.now - began} us`);
  world.run();
  assert.equal(Object.values(successor.books).filter(Number), []);
});

test('a process that dies between REP and RTU leaves its peer no half-open connection', () => {
  const { world, table, end } = connected((_, name) => (name === 'RTU' ? 'drop' : 'pass'));
  assert.is(end!.connection!.state, 'REP_SENT');
  const successor = coreAt(world, table, 1);
  Object.assign(world.a, { core: successor });
  for (const [place, record] of table.kept) adopt(successor, world.now, place, record);
  world.settle();
  assert.is(end!.story, 'disconnected');
});

test('a connection of a process that died before it received the RTU is adopted as well', () => {
  const world = new CmWorld(2);
  const table = new Table();
  Object.assign(world.a, { core: coreAt(world, table, 0) });
  world.fate = (_, name) => (name === 'RTU' ? 'drop' : 'pass');
  world.a.listen();
  const end = world.b.connect(world.a);
  world.settle();
  assert.is(world.a.requests[0]!.end.connection!.state, 'REP_SENT');
  assert.is(end.connection!.state, 'ESTABLISHED');
  const successor = coreAt(world, table, 1);
  Object.assign(world.a, { core: successor });
  for (const [place, record] of table.kept) adopt(successor, world.now, place, record);
  world.settle();
  assert.is(end.story, 'reply disconnected');
});

test('a record that cannot belong to a dead process is not adopted', () => {
  const { world, table } = connected();
  const { core } = world.a;
  const [place, record] = [...table.kept][0]!;
  assert.not(adopt(core, world.now, place, record), 'it belongs to this process');
  const peer = new Endpoint(record.peer.gid, 0);
  assert.not(adopt(core, world.now, place, { ...record, localId: 1, peer }), 'no port');
  assert.is(core.books['connections'], 1);
});

test('each connection is in the table while the peer may be connected, and is removed once', () => {
  for (const lost of ['', 'REQ', 'REP', 'RTU', 'DREQ', 'DREP'] as const) {
    let isFirst = true;
    const { world, table } = connected((_, name) => {
      if (name !== lost || !isFirst) return 'pass';
      isFirst = false;
      return 'drop';
    });
    world.run(() => world.a.core.connections.size === 1 && table.kept.size === 1);
    const [connection] = [...world.a.core.connections.values()];
    world.run(() => connection!.state === 'ESTABLISHED');
    world.a.core.disconnect(world.now, connection!);
    world.run();
    assert.is(table.kept.size, 0, `without the first ${lost}`);
  }
});

test.run();
