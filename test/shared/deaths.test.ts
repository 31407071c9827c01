/** `kill -9` under load, a few times (deaths.ts has more): the tables hold, the others go on. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { runDeaths } from './deaths.js';

const ROUNDS = sample(2, 8);

test('processes are killed in the middle of whatever they do to the tables', async () => {
  const report = await runDeaths({ rounds: ROUNDS, members: 3, seed: 4, address: '127.1.4.2' });
  assert.equal(report.wrong, []);
  assert.is(report.rounds, ROUNDS);
  assert.ok(report.writes > 0);
  assert.ok(report.changes > 0);
});

test.run();
