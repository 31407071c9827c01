/** Command line of `npm run net`. */
import { nameOf, script, whole } from '../support/script.js';
import { SCENARIOS } from './scenarios.js';

export const ALL = 'all';

export interface NetOptions {
  readonly json: boolean;
  readonly html?: string;
  readonly rounds: number;
}

const NAMES = SCENARIOS.map(({ name }) => name);

export const words = script(
  'net',
  'goodput, fairness and recovery over networks with delay, loss and queues, beside TCP',
  'metro wan',
  'all --html build/net.html',
)
  .argument('<name...>', `${ALL}, or ${NAMES.join(', ')}`, nameOf('network', [ALL, ...NAMES]))
  .option('--rounds <number>', 'each with all loads of a network', whole(1, 100), 3)
  .option('--html <file>', 'write figures and lines over time to a page')
  .option('--json', 'print a line of JSON for each network', false);
