/** A link loses every n-th packet: a sample of `npm run sim -- --periods`, which tests each n. */
import { test } from 'uvu';
import { sample } from '../support/sample.js';
import { KINDS, PERIOD_MAX, simulateLoss } from './periodic-loss.js';

/** Small periods; then primes, divisors of a window and their neighbours. */
const PERIODS = [
  ...sample(
    [2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64, 67, 127, 129],
    [2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 31, 32, 33, 43, 64, 65, 67, 97, 101, 127, 128, 129],
  ),
  PERIOD_MAX,
];

for (const what of KINDS.keys()) {
  test(`no connection ends on a link that loses every n-th packet: ${what}`, async () => {
    for (const period of PERIODS) await simulateLoss(period, what);
  });
}

test.run();
