/** The table of the connections of a device's processes. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  ConnectionTable,
  type ConnectionRecord,
} from '../../../../host/device/sharing/connection-table.js';
import { ArenaMemory } from '../../../../host/engine/arena.js';
import { EngineMemory } from '../../../../host/engine/memory.js';
import { Endpoint } from '../../../../host/link/endpoint.js';
import {
  ArenaLayout,
  CONNECTIONS_PER_CONTEXT_COUNT,
  ConnectionPlace,
  SHARED_CONNECTION_SIZE,
} from '#build/abi.js';
import { structAt } from '../../../../host/engine/struct.js';
import { Random } from '../../../simulation/random.js';

const PROCESSES = 3;
const PLACES = PROCESSES * CONNECTIONS_PER_CONTEXT_COUNT;
const LIMITS = {
  regionsMax: 8,
  protectionDomainsMax: 8,
  contextsMax: PROCESSES,
  blocksMax: 8,
  servicesMax: 8,
  inboxEntries: 1,
  poolUsersMax: 1,
};

/** The table as three processes see it; here they share one memory. */
function world(): { tables: ConnectionTable[]; arena: ArenaMemory } {
  const memory = EngineMemory.create(4 * 2 ** 20, true);
  const arena = ArenaMemory.attach(memory, 2 ** 20, LIMITS, 0, () => undefined);
  return { tables: [0, 1, 2].map((slot) => new ConnectionTable(arena, slot)), arena };
}

const record = (localId: number): ConnectionRecord => ({
  localId,
  remoteId: localId + 1,
  remoteQpn: 0xabcdef,
  transactionId: 0x0102030405060708n,
  peer: Endpoint.parse('2001:db8::7', 4791),
});

const idsOf = (table: ConnectionTable): number[] =>
  [...table.adopt()].map(([, { localId }]) => localId);

test('one live process adopts the connections of a dead process unchanged', () => {
  const { tables } = world();
  const [dead, first, second] = tables as [ConnectionTable, ConnectionTable, ConnectionTable];
  dead.keep(record(5));
  dead.forget(dead.keep(record(6)));
  second.keep(record(7));
  assert.equal(idsOf(first), [], 'it lives');
  second.orphan(0);
  const [[place, found] = [], ...others] = [...first.adopt()];
  assert.equal(others, []);
  assert.equal(found, record(5));
  assert.equal(idsOf(second), [], 'the first process adopted it');
  first.forget(place!);
  second.orphan(1);
  assert.equal(idsOf(second), []);
});

test('the unfinished connections of a dead adopter are adopted again', () => {
  const { tables } = world();
  const [dead, adopter, last] = tables as [ConnectionTable, ConnectionTable, ConnectionTable];
  const adoption = ((): Generator => {
    for (const id of [1, 2, 3]) dead.keep(record(id));
    last.orphan(0);
    return adopter.adopt();
  })();
  adoption.next();
  // The adopter dies with one adopted connection, and two not adopted yet.
  last.orphan(1);
  assert.equal(idsOf(last), [1, 2, 3]);
});

test('a full table keeps its entries, and has room again after a connection ends', () => {
  const { tables } = world();
  const [first, second] = tables as [ConnectionTable, ConnectionTable];
  const places = new Set<number>();
  for (let id = 0; id < PLACES; id++) places.add((id % 2 ? first : second).keep(record(id)));
  assert.is(places.size, PLACES);
  assert.is(first.keep(record(999)), -1);
  second.forget(second.keep(record(999)));
  first.forget(0);
  assert.is(first.keep(record(999)), -1, 'an entry of another process is not freed');
  second.forget(0);
  assert.is(first.keep(record(999)), 0);
});

test('an entry that a dead process was writing is freed, and not adopted', () => {
  const { tables, arena } = world();
  const [, finder] = tables as [ConnectionTable, ConnectionTable];
  const { connections } = structAt(arena.memory, ArenaLayout, arena.address);
  const ofSlot0 = 1 << 2;
  for (let place = 0; place < PLACES; place++) {
    const at = (connections + place * SHARED_CONNECTION_SIZE) >> 2;
    arena.memory.words[at] = ConnectionPlace.WRITING | ofSlot0;
  }
  assert.is(finder.keep(record(1)), -1);
  finder.orphan(0);
  assert.equal(idsOf(finder), []);
  assert.is(finder.keep(record(1)), 0);
});

test('entries of random bytes are read without harm, each at most once', () => {
  const { tables, arena } = world();
  const { connections } = structAt(arena.memory, ArenaLayout, arena.address);
  const random = new Random(22);
  for (let round = 0; round < 50; round++) {
    for (let word = 0; word < (PLACES * SHARED_CONNECTION_SIZE) >> 2; word++) {
      arena.memory.words[(connections >> 2) + word] = random.below(2 ** 32);
    }
    tables[1]!.orphan(0);
    for (const [place, { remoteQpn, peer }] of tables[2]!.adopt()) {
      assert.ok(place < PLACES && remoteQpn < 2 ** 24 && peer.port < 2 ** 16);
    }
    assert.equal(idsOf(tables[2]!), []);
  }
});

test.run();
