/** The bench of shared domains: runs are alike, entries do not grow, a replay is true. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Caches } from '../support/caches.js';
import { fit, tablesOf, type Runs } from './adapter-fit.js';
import { runBlockService } from './block-service.js';
import { replay } from './cache-replay.js';
import { SEED } from './seed-tables.js';

const ADAPTER = { mptEntries: 16, mptWays: 4, mttEntries: 64, mttWays: 8, pageBytes: 4096 };
const LOAD = { fetches: 200, underWay: 4 };

const service = (clients: number, sharedPd: boolean) =>
  runBlockService({
    servers: 3,
    clients,
    sharedPd,
    serverBytes: 2 ** 20,
    clientBytes: 2 ** 20,
    ...LOAD,
    hotShare: 0.1,
    hotBlocks: 2,
    adapter: ADAPTER,
  });

test('memory that all have is one entry with a shared domain, and one for each without', async () => {
  for (const clients of [5, 20]) {
    const own = await service(clients, false);
    const shared = await service(clients, true);
    // Two rings for each context besides.
    assert.equal([own.client.keys, shared.client.keys], [3 * clients, 2 * clients + 1]);
    assert.equal([own.server.keys, shared.server.keys], [9, 7]);
  }
});

test('every fetch looks up the same numbers of keys and pages, and runs are alike', async () => {
  const [one, two] = [await service(10, true), await service(10, true)];
  const shape = ({ trace }: { trace: Uint32Array }): number[] =>
    Array.from({ length: trace.length / 4 }, (_, index) => trace[index * 4 + 1]! & 4095);
  assert.equal(shape(one.client), shape(two.client));
  assert.equal(shape(one.server), shape(two.server));
  const { mptHits, mptMisses, mttHits, mttMisses } = replay(one.client.trace, ADAPTER);
  assert.is((mptHits + mptMisses) / (2 * LOAD.fetches), 5, 'three messages, two packets');
  assert.is((mttHits + mttMisses) / (2 * LOAD.fetches), 5);
});

test('a replay counts what the engine counted, and what caches written by hand count', async () => {
  const { trace, counters } = (await service(20, false)).client;
  const { mptHits, mptMisses, mttHits, mttMisses } = replay(trace, ADAPTER);
  const counts = [mptHits, mptMisses, mttHits, mttMisses].map(BigInt);
  assert.equal(counts, Object.values(counters));
  assert.equal(counts, Object.values(new Caches(ADAPTER).run(trace)));
});

test('the fit reads the rows of 100 clients only, and meets their times', async () => {
  const row = { own: await service(5, false), shared: await service(5, true) };
  const runs: Runs = { 100: row, 2000: row };
  const fitted = fit(row, LOAD);
  const { receiveMicros } = tablesOf(runs, fitted, LOAD)[100].own;
  assert.ok(Math.abs(receiveMicros - SEED[100].own.receiveMicros) < 1e-6);
  assert.equal(tablesOf(runs, fitted, LOAD)[2000], tablesOf(runs, fitted, LOAD)[100]);
});

test.run();
