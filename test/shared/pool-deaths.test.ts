/** `kill -9` of processes that use one pool of regions, a few times (pool-deaths.ts has more). */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { runPoolDeaths } from './pool-deaths.js';

const ROUNDS = sample(2, 8);

test('processes are killed with regions of a pool in hand: it has them back, and none is alive', async () => {
  const report = await runPoolDeaths({
    rounds: ROUNDS,
    members: 3,
    seed: 5,
    address: '127.1.77.3',
  });
  assert.equal(report.wrong, []);
  assert.is(report.rounds, ROUNDS);
  assert.ok(report.changes > 100);
});

test.run();
