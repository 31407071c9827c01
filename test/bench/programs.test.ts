/** Yardsticks are read right, and never quietly absent. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { measured, missing } from './harness.js';
import {
  parseIperf,
  parsePerftest,
  parsePingPong,
  YARDSTICKS,
  Yardsticks,
  isInstalled,
} from './programs.js';
import { Window } from './window.js';

test('fi_pingpong, libfabric 1.17', () => {
  const text = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64k     500     =500     62m        13.53s      4.84   13529.78       0.00
`;
  assert.is(parsePingPong(text), 13529.78);
  assert.throws(() => parsePingPong('fi_getinfo: -61 (No data available)\n'), /fi_getinfo/);
  assert.throws(() => parsePingPong(text.split('\n')[0]!), /printed/);
});

test('ucx_perftest, UCX 1.13', () => {
  const text = `+-----+
| API:          protocol layer |
+-----+
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
5000,11.240,375.868,760.729,0.16,0.08,2661,1315
`;
  const { overall_bw, overall_mr, '50.0_percentile_lat': latency } = parsePerftest(text);
  assert.equal([overall_bw, overall_mr, latency], [0.08, 1315, 11.24]);
  assert.throws(() => parsePerftest('[host:1] UCX ERROR no such device\n'), /UCX ERROR/);
  assert.throws(() => parsePerftest(text.replace('5000,', '')), /printed/);
});

test('iperf3 3.12', () => {
  const end = { sum_received: { seconds: 2, bytes: 100, lost_packets: 3 } };
  const { seconds, bytes } = parseIperf(JSON.stringify({ start: {}, end }));
  assert.equal([seconds, bytes], [2, 100]);
  assert.throws(() => parseIperf('{"error":"unable to connect"}'), /unable to connect/);
});

test('a program that is not installed is a bar that fails and names its package', () => {
  assert.not(isInstalled({ command: 'no-such-yardstick' }));
  assert.ok(isInstalled({ command: 'sh' }));
  const bar = missing('fi_pingpong', 'libfabric-bin');
  assert.equal([bar.ok, bar.missing, bar.value], [false, 'libfabric-bin', null]);
  assert.ok(YARDSTICKS.every(({ aptPackage, command }) => aptPackage && command));
  const names = YARDSTICKS.map(({ name }) => name);
  assert.is(new Set(names).size, names.length);
  const path = process.env['PATH'];
  try {
    process.env['PATH'] = '';
    const yardsticks = new Yardsticks([names[0]!]);
    assert.is(yardsticks.variants.length, 0);
    const absent = yardsticks.bar('x', names[0]!, () => measured('x', 1));
    assert.equal([absent.ok, absent.missing], [false, 'libfabric-bin']);
    assert.ok(yardsticks.bar('x', 'one of ours', () => measured('x', 1)).ok);
  } finally {
    process.env['PATH'] = path;
  }
});

test('a figure that is no number was not measured', () => {
  assert.ok(measured('x', 0.1).ok);
  for (const value of [undefined, NaN, 0, -1]) assert.not(measured('x', value).ok, `${value}`);
});

test('a window counts what is answered, late and lost', () => {
  const window = new Window(300);
  for (; window.hasRoomFor(100); window.add(100));
  assert.not(window.hasRoomFor(1));
  window.acknowledge(100, performance.now());
  assert.ok(window.hasRoomFor(100));
  assert.not(window.hasRoomFor(101));
  // An answer that was overtaken takes nothing back.
  window.acknowledge(50, performance.now());
  assert.is(window.acknowledged, 100);
  window.check(performance.now());
  assert.is(window.lost, 0);
  window.check(performance.now() + 1000);
  assert.is(window.lost, 200);
  assert.ok(window.hasRoomFor(300));
  // It was only late.
  window.acknowledge(300, performance.now());
  assert.is(window.lost, 0);
  assert.ok(window.hasRoomFor(300));
  assert.not(window.hasRoomFor(301));
});

test.run();
