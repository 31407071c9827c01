/** `kill -9` of processes that write by the local path, a few times (local-deaths.ts has more). */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { runLocalDeaths } from './local-deaths.js';

const ROUNDS = sample(2, 5);

test('processes are killed while they copy and publish: no endpoint of theirs stays', async () => {
  const report = await runLocalDeaths({
    rounds: ROUNDS,
    members: 3,
    seed: 6,
    address: '127.1.78.2',
  });
  assert.equal(report.wrong, []);
  assert.is(report.rounds, ROUNDS);
  assert.ok(report.changes > 100);
  assert.ok(report.writes > 0);
});

test.run();
