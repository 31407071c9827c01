/** The arguments of `npm run soak`. */
import { SEED_MAX, positive, script, whole } from '../support/script.js';

export interface SoakOptions {
  readonly minutes: number;
  readonly seed: number;
  readonly json: boolean;
  readonly plot?: string;
}

export const words = script(
  'soak',
  'mixed load in four processes, which are killed, stopped, cut off and left without a disk',
  '--minutes 15 --plot build/soak.html',
)
  .option('--minutes <number>', 'how long', positive(1440), 1)
  .option('--seed <number>', 'which faults, and when', whole(0, SEED_MAX), 1)
  .option('--plot <file>', 'a page that shows memory over time')
  .option('--json', 'print the result as JSON', false);
