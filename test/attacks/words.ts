/** Command line of `npm run attacks`. */
import { script } from '../support/script.js';

export const words = script(
  'attacks',
  'attacks against real processes; a run passes if every attack fails',
  '',
  'REQ',
)
  .option('--record', 'write the costs of this run into the table of host/guide/ATTACKS.md')
  .argument('[part of a name...]', 'only those; default: all');
