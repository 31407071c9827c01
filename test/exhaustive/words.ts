/** The arguments of `npm run exhaustive`. */
import { script, whole } from '../support/script.js';

export interface ExhaustiveOptions {
  readonly preemptions?: number;
  readonly kills: number;
  readonly states: number;
  readonly only: string;
  readonly strict: boolean;
  readonly mutants: boolean;
  readonly table: boolean;
}

export const words = script(
  'exhaustive',
  'every schedule of threads on one key table, and a death at every step: minutes, gigabytes',
  '--preemptions 3',
  '--mutants',
)
  .argument('[name]', 'part of a name: those scenarios, or mutants (as --only)')
  .option('--preemptions <number>', 'at most (default: any number)', whole(0, 1000))
  .option('--kills <number>', 'threads that die', whole(0, 8), 1)
  .option('--states <number>', 'more are an error', whole(1, 1e9), 100_000_000)
  .option('--only <name>', 'part of a name: those scenarios, or mutants', '')
  .option('--strict', 'a kill that is turned away is an error', false)
  .option('--mutants', 'instead: broken protocols, each of which must be noticed', false)
  .option('--table', 'instead: what threads that die leave behind', false);
