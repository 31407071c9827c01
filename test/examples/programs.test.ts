/** The larger programs: each run as its reader would, and what it says. */
import { suite } from 'uvu';
import { sample } from '../support/sample.js';
import { testAll } from './play.js';
import { PROGRAMS } from './table.js';

const test = suite('examples/programs');

/** The others: `npm run test:long`. The library that they use has tests of its own. */
testAll(test, PROGRAMS.slice(0, sample(3, PROGRAMS.length)));

test.run();
