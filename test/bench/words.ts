/** The arguments of `npm run bench`. */
import { readdirSync } from 'node:fs';
import { nameOf, script, whole } from '../support/script.js';

const SUFFIX = '.bench.js';
export const ALL = 'all';

export interface BenchOptions {
  readonly json: boolean;
  readonly html?: string;
  readonly rounds?: number;
  readonly quick: boolean;
}

/** Every NAME is a file NAME.bench.ts of this folder. */
export const NAMES: readonly string[] = readdirSync(new URL('.', import.meta.url))
  .filter((file) => file.endsWith(SUFFIX))
  .map((file) => file.slice(0, -SUFFIX.length))
  .sort();

export const words = script(
  'bench',
  'measure, each in a process of its own; test/bench/README.md says what',
  'write-bw send-lat',
  'all --html build/bench.html',
)
  .argument('<name...>', `${ALL}, or ${NAMES.join(', ')}`, nameOf('bench', [ALL, ...NAMES]))
  .option('--rounds <number>', 'in which the variants take turns', whole(1, 10_000))
  .option('--quick', 'two short rounds, to see that everything runs', false)
  .option('--html <file>', 'write all results to one page')
  .option('--json', 'on standard output results as lines of JSON only', false);
