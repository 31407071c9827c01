/** The arguments of `npm run examples`. */
import { script } from '../support/script.js';

export interface ExamplesOptions {
  readonly peers: boolean;
  readonly failEach: boolean;
  readonly kinds: boolean;
  readonly json: boolean;
}

export const words = script(
  'examples',
  'run the examples and show what they say',
  '06-cm',
  '06-cm --fail-each',
)
  .argument('[name...]', 'parts of names: those only')
  .option('--peers', 'kill or disconnect one side of each example', false)
  .option('--fail-each', 'let each call that they make of the system fail in turn', false)
  .option('--kinds', 'with --fail-each: one call of each kind, in place of all', false)
  .option('--json', 'with --fail-each: one JSON object per failing call', false);
