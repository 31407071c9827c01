/** Command line of `npm run hunt`. */
import { SEED_MAX, positive, script, whole } from '../support/script.js';

export interface HuntOptions {
  readonly minutes: number;
  readonly seed: number;
  readonly rounds: number;
}

export const words = script(
  'hunt',
  'races of invalidation and reuse between processes and threads of one device, byte by byte',
  '--minutes 10',
)
  .option('--minutes <number>', 'how long', positive(1440), 1)
  .option('--rounds <number>', 'verified rounds that a passing run needs', whole(1, 2 ** 31), 1)
  .option('--seed <number>', 'seed of the kills, stops and ways', whole(0, SEED_MAX), 1);
