/** Examples with a peer that disconnects at once: a sample of `npm run examples -- --peers`. */
import { suite } from 'uvu';
import { LEFT, testPeers } from './peers.js';

const test = suite('examples/left-peers');

testPeers(test, LEFT, ['02-send', '07-srq', '12-pool', '16-nvme']);

test.run();
