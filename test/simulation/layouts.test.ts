/** A sample of random memory layouts: `npm run sim -- --layouts` runs the large numbers. */
import { test } from 'uvu';
import { sample } from '../support/sample.js';
import { LAYOUTS_A_SEED, simulateLayouts } from './layouts.js';

const LAYOUTS = sample(600, 2000);

test(`${LAYOUTS} random layouts do what the oracle says, whatever is lost`, async () => {
  for (let seed = 1; seed <= LAYOUTS / LAYOUTS_A_SEED; seed++) {
    try {
      await simulateLayouts(seed);
    } catch (error) {
      const replay = `npm run -s sim -- --layouts --replay ${seed}`;
      throw new Error(`${(error as Error).message}\n${replay}`, { cause: error });
    }
  }
});

test.run();
