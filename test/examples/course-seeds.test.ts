/** The course's second half, each part run as its reader would: what is built on the verbs. */
import { suite } from 'uvu';
import { testAll } from './play.js';
import { COURSE, FIRST_HALF } from './table.js';

const test = suite('examples/course-seeds');

testAll(test, COURSE.slice(FIRST_HALF));

test.run();
