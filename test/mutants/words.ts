/** The command line of `npm run mutants`. */
import { SEED_MAX, script, whole } from '../support/script.js';

export interface Options {
  readonly seed: number;
  readonly sample: number;
  readonly file?: string;
  readonly mutant?: number;
  readonly defences: boolean;
}

export const words = script(
  'mutants',
  'mutate the engine by operators: a test must notice each mutant',
  '',
  '--sample 200 --seed 7',
  '--file transport/requester --sample 100000',
  "--defences 'amplification'",
)
  .option('--seed <number>', 'seed of the sample', whole(0, SEED_MAX), 1)
  .option('--sample <count>', 'mutants at most', whole(1, 1_000_000), 1500)
  .option('--file <part>', 'only of source files with this in their path')
  .option(
    '--mutant <number>',
    'only this one, by the number that a run prints',
    whole(1, 1_000_000),
  )
  .option('--defences', 'in place of operators: the named defences of host/guide/ATTACKS.md', false)
  .argument('[names...]', 'with --defences: parts of their names');
