/** The arguments of `npm run interop`. */
import { nameOf, script } from '../support/script.js';

/** `groups`: the names that there are. */
export const wordsFor = (groups: readonly string[]) =>
  script(
    'interop',
    'Verbena against programs of others; test/interop/README.md',
    'rxe cm',
  ).argument('[group...]', 'those only', nameOf('group', groups));
