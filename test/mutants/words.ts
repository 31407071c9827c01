/** What `npm run mutants` may be told. */
import { script } from '../support/script.js';

export const words = script(
  'mutants',
  'take checks out of the sources, one at a time: a test must notice',
  'psn',
).argument('[name...]', 'parts of names: those only');
