/** The larger programs: each run as its reader would, and what it says. */
import { suite } from 'uvu';
import { testAll } from './play.js';
import { PROGRAMS } from './table.js';

const test = suite('examples/programs');

testAll(test, PROGRAMS);

test.run();
