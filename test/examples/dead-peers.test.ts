/** Examples with a killed peer: a sample of `npm run examples -- --peers`. */
import { suite } from 'uvu';
import { sample } from '../support/sample.js';
import { KILLED, testPeers } from './peers.js';

const test = suite('examples/dead-peers');

const NAMES = ['08-datagrams', '12-pool', '01-connect', '15-reliable-datagrams'];

testPeers(test, KILLED, NAMES.slice(0, sample(2, 4)));

test.run();
