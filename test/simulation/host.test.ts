/** Processes of real host code, continuation by continuation: a sample of `npm run sim -- --host`. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { simulateHost } from './host/world.js';

const SEEDS = sample(15, 40);

test(`host code: seeds 1 to ${SEEDS} end, with documented errors only`, async () => {
  let echoes = 0;
  for (let seed = 1; seed <= SEEDS; seed++) {
    try {
      echoes += (await simulateHost(seed)).echoes;
    } catch (error) {
      throw new Error(`npm run -s sim -- --host --replay ${seed}`, { cause: error });
    }
  }
  assert.ok(echoes > SEEDS, `${echoes} messages came back`);
});

test('host code: a seed repeats its run, step by step', async () => {
  for (const seed of [3, 17]) assert.equal(await simulateHost(seed), await simulateHost(seed));
});

test.run();
