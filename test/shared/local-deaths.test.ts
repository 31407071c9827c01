/** `kill -9` of processes that write by the local path, a few times (local-deaths.ts has more). */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { runLocalDeaths } from './local-deaths.js';

test('processes are killed while they copy and publish: no endpoint of theirs stays', async () => {
  const report = await runLocalDeaths({ rounds: 5, members: 3, seed: 6, address: '127.1.78.2' });
  assert.equal(report.wrong, []);
  assert.is(report.rounds, 5);
  assert.ok(report.changes > 100);
  assert.ok(report.writes > 0);
});

test.run();
