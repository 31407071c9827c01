/** The arguments of `npm run fuzz`. */
import { availableParallelism } from 'node:os';
import { Option } from 'commander';
import { SEED_MAX, positive, script, whole } from '../support/script.js';

export interface FuzzOptions {
  readonly packets: number;
  readonly seconds: number;
  readonly seed: number;
  readonly threads: number;
  readonly updateCorpus: boolean;
  readonly authentication: Authentication;
}

export const AUTHENTICATION = ['on', 'off', 'both'] as const;
export type Authentication = (typeof AUTHENTICATION)[number];

export const words = script(
  'fuzz',
  'hostile packets and hostile posted work against the engine, with its branches counted',
  '--packets 2000000 --seed 7',
)
  .option('--packets <number>', 'in all', whole(1, Number.MAX_SAFE_INTEGER), 2_000_000)
  .option('--seconds <seconds>', 'at most', positive(1e6), 3600)
  .option('--seed <number>', 'the same packets again', whole(0, SEED_MAX), 1)
  .option('--threads <number>', 'at a time', whole(1, 256), Math.min(2, availableParallelism()))
  .option('--update-corpus', 'keep the smallest inputs that reached new branches', false)
  .addOption(
    new Option('--authentication <state>', 'connections with keys, without keys, or both')
      .choices(AUTHENTICATION)
      .default('both'),
  );
