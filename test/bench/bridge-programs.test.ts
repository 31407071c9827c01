/** Tables of perftest are read right. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { parseTable } from './bridge-programs.js';

const test = suite('bench/bridge-programs');

const LATENCY = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 64      5000          42.37          7093.13      129.90   \t       237.88
---`;
const BANDWIDTH = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      2000             284.29             183.44 \t\t   0.002935
---`;

test('latency and bandwidth, perftest 4.5', () => {
  assert.is(parseTable(LATENCY, 't_typical[usec]'), 129.9);
  assert.is(parseTable(BANDWIDTH, 'BW average['), 183.44);
});

test('what is no such table is an error that has the text', () => {
  assert.throws(() => parseTable('Unable to init\n', 'BW average['), /Unable to init/);
  assert.throws(() => parseTable(BANDWIDTH, 't_typical[usec]'), /no t_typical/);
  assert.throws(() => parseTable(LATENCY.split('\n')[0]!, 't_typical[usec]'), /printed/);
});

test.run();
