/** Reliable datagrams: a sample of seeds; `npm run sim -- --rds` runs the large numbers. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { simulateRds, type RdsOutcome } from './rds.js';

const SEEDS = sample([2, 3], [1, 2, 3, 4]);

test('nothing is lost short of a failed path, nothing twice, nothing out of order', () => {
  const outcomes: RdsOutcome[] = [];
  for (const seed of SEEDS) {
    try {
      outcomes.push(simulateRds(seed));
    } catch (error) {
      const replay = `npm run -s sim -- --rds --replay ${seed}`;
      throw new Error(`${(error as Error).message}\n${replay}`, { cause: error });
    }
  }
  const sum = (name: Exclude<keyof RdsOutcome, 'hash'>): number =>
    outcomes.reduce((total, outcome) => total + outcome[name], 0);
  // The sample has everything in it that is audited.
  for (const name of ['received', 'lost', 'retransmitted', 'duplicates', 'stalls'] as const) {
    assert.ok(sum(name) > 0, name);
  }
  assert.ok(sum('deaths') > 0 && sum('cuts') > 0 && sum('deviceCuts') > 0);
});

test('a seed is a run, the same every time', () => {
  assert.equal(simulateRds(3), simulateRds(3));
});

test.run();
