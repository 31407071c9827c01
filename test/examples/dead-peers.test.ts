/** Examples with a killed peer: a sample of `npm run examples -- --peers`. */
import { suite } from 'uvu';
import { KILLED, testPeers } from './peers.js';

const test = suite('examples/dead-peers');

testPeers(test, KILLED, ['01-connect', '08-datagrams', '12-pool', '15-reliable-datagrams']);

test.run();
