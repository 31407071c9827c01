/** Examples with a peer that disconnects at once: a sample of `npm run examples -- --peers`. */
import { suite } from 'uvu';
import { sample } from '../support/sample.js';
import { LEFT, testPeers } from './peers.js';

const test = suite('examples/left-peers');

const NAMES = ['07-srq', '16-nvme', '02-send', '12-pool'];

testPeers(test, LEFT, NAMES.slice(0, sample(2, 4)));

test.run();
