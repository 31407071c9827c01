/** Figures from times and counts, and the columns that scripts read. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { planOf, termsOf, type PerfOptions } from '../../../../host/cli/perf/options.js';
import * as report from '../../../../host/cli/perf/report.js';
import { MisuseError } from '../../../../host/index.js';

const OPTIONS: PerfOptions = {
  dscp: 0,
  qp: 1,
  postList: 1,
  recvPostList: 1,
  port: 18515,
  connection: 'RC',
  atomicType: 'FETCH_AND_ADD',
  outs: 16,
  exchange: 'cm',
  peerUdpPort: 4791,
};

test('columns are perftest’s', () => {
  assert.equal(report.bandwidthHead(false).trim().split(/ {2,}/), [
    '#bytes',
    '#iterations',
    'BW peak[MiB/sec]',
    'BW average[MiB/sec]',
    'MsgRate[Mpps]',
  ]);
  assert.match(report.bandwidthHead(true), 'BW peak[Gb/sec]    BW average[Gb/sec]');
  assert.equal(report.LATENCY_HEAD.trim().split(/ {2,}/), [
    '#bytes #iterations',
    't_min[usec]',
    't_max[usec]',
    't_typical[usec]',
    't_avg[usec]',
    't_stdev[usec]',
    '99% percentile[usec]',
    '99.9% percentile[usec]',
  ]);
  const row = { bytes: 65536, iters: 5000, peak: 2000.126, average: 1987.4, messageRate: 0.0318 };
  assert.is(
    report.bandwidthLine(row, false),
    ' 65536      5000             2000.13            1987.40\t\t     0.031800',
  );
});

test('a bandwidth is messages and time; MiB are 2^20 bytes, Gb 10^9 bits', () => {
  const sample = { bytes: 2 ** 20, messages: 1000, seconds: 2, peakMicros: 1000, lost: 0 };
  const row = report.bandwidthRow(sample, false);
  assert.equal([row.average, row.peak, row.messageRate], [500, 1000, 0.0005]);
  assert.is(report.bandwidthRow(sample, true).average, (500 * 2 ** 20 * 8) / 1e9);
  const nothing = report.bandwidthRow({ ...sample, messages: 0, seconds: 0, peakMicros: 0 }, false);
  assert.equal([nothing.average, nothing.peak, nothing.messageRate], [0, 0, 0]);
  const both = report.addRows(row, row);
  assert.equal([both.average, both.peak, both.messageRate], [1000, 2000, 0.001]);
});

test('a latency is half of a round trip, but all of a READ', () => {
  const sample = { bytes: 2, messages: 2, seconds: 1, micros: Float64Array.of(10, 20), lost: 0 };
  const send = planOf('send', 'lat', OPTIONS);
  const read = planOf('read', 'lat', OPTIONS);
  assert.equal([...report.waysOf(sample, send)], [5, 10]);
  assert.equal([...report.waysOf(sample, read)], [10, 20]);
});

test('median, mean, deviation and percentiles of known times', () => {
  const times = Float64Array.from({ length: 1000 }, (_, index) => 1000 - index);
  const row = report.latencyRow(2, 1001, times);
  assert.equal([row.minMicros, row.maxMicros, row.typicalMicros], [1, 1000, 500.5]);
  assert.equal([row.averageMicros, row.p99Micros, row.p999Micros], [500.5, 991, 1000]);
  assert.ok(Math.abs(row.stdevMicros - 288.675) < 0.001);
  assert.is(row.iterations, 1001);
  const one = report.latencyRow(2, 2, Float64Array.of(7));
  assert.equal([one.minMicros, one.typicalMicros, one.p999Micros, one.stdevMicros], [7, 7, 7, 0]);
  assert.is(report.latencyRow(2, 0, new Float64Array(0)).averageMicros, 0);
});

test('CPU time is reported per gigabyte and per million messages, for both sides', () => {
  const cpu = { seconds: 3, bytes: 2e9, messages: 500_000 };
  assert.equal(report.cpuPer(cpu), { perGb: 1.5, perMillion: 6 });
  assert.equal(report.cpuPer({ seconds: 3, bytes: 0, messages: 0 }), { perGb: 0, perMillion: 0 });
  assert.equal(report.cpuLine(4000, cpu, undefined).trim().split(/\s+/), [
    '4000',
    '1.500',
    '6.000',
    '-',
    '-',
  ]);
});

test('JSON has MiB whatever is printed', () => {
  const row = { bytes: 8, iters: 1, peak: 8, average: 4, messageRate: 1 };
  const json = report.jsonRow({ bytes: 8, bandwidth: row, seconds: 1, lost: 0 }, true);
  const { averageMibPerSecond } = json as { averageMibPerSecond: number };
  assert.is(averageMibPerSecond, (4 * 125e6) / 2 ** 20);
});

test('a row from the peer is made of numbers, for any input', () => {
  for (const said of [undefined, null, 7, 'x', [], { latency: null }, { latency: 'x' }, {}]) {
    const { row, messages } = report.readRow(said, 64);
    assert.is(row.bytes, 64);
    assert.is(messages, 0);
    for (const value of Object.values(row.latency ?? row.bandwidth!)) {
      assert.ok(Number.isFinite(value));
    }
  }
  const iterations = { toString: 'x', valueOf: 1 };
  const { row } = report.readRow({ latency: { iterations, minMicros: -1, maxMicros: 5 } }, 2);
  assert.equal(
    [row.latency?.iterations, row.latency?.minMicros, row.latency?.maxMicros],
    [0, 0, 5],
  );
});

test('defaults are perftest’s', () => {
  const write = planOf('write', 'bw', OPTIONS);
  assert.equal([write.sizes, write.iters, write.txDepth], [[65536], 5000, 128]);
  const send = planOf('send', 'bw', OPTIONS);
  assert.equal([send.iters, send.rxDepth, send.inlineBytes], [1000, 512, 0]);
  const lat = planOf('send', 'lat', OPTIONS);
  assert.equal([lat.sizes, lat.txDepth, lat.inlineBytes], [[2], 1, 236]);
  assert.equal(planOf('atomic', 'bw', OPTIONS).sizes, [8]);
  const all = planOf('write', 'bw', { ...OPTIONS, all: true });
  assert.equal([all.sizes.length, all.sizes[0], all.sizes.at(-1)], [23, 2, 2 ** 23]);
  // Nothing is deeper than there are messages.
  assert.equal(planOf('send', 'bw', { ...OPTIONS, iters: 7 }).rxDepth, 7);
});

test('conflicting options are named', () => {
  const cases: [Parameters<typeof planOf>[0], 'bw' | 'lat', Partial<PerfOptions>, string][] = [
    ['atomic', 'bw', { size: 16 }, '--size'],
    ['atomic', 'lat', { all: true }, '--all'],
    ['read', 'bw', { connection: 'UC' }, '--connection'],
    ['atomic', 'bw', { connection: 'UD' }, '--connection'],
    ['write', 'bw', { connection: 'UD' }, '--connection'],
    ['write', 'bw', { recvPostList: 2 }, '--recv-post-list'],
    ['send', 'lat', { qp: 2 }, '--qp'],
    ['send', 'lat', { bidirectional: true }, '--bidirectional'],
    ['send', 'lat', { postList: 2 }, '--post-list'],
    ['send', 'lat', { reportGbits: true }, '--report-gbits'],
    ['write', 'lat', { events: true }, '--events'],
    ['send', 'bw', { histogram: true }, '--histogram'],
    ['send', 'bw', { unsorted: true }, '--unsorted'],
    ['send', 'bw', { reportBoth: true }, '--report-both'],
    ['send', 'bw', { margin: 1 }, '--margin'],
    ['send', 'bw', { duration: 4, margin: 2 }, '--margin'],
    ['send', 'bw', { duration: 4, iters: 10 }, '--iters'],
    ['send', 'bw', { duration: 4, all: true }, '--all'],
    ['send', 'bw', { postList: 200 }, '--post-list'],
    ['send', 'bw', { postList: 3 }, '--post-list'],
    ['send', 'bw', { postList: 4, cqMod: 3 }, '--cq-mod'],
    ['send', 'bw', { recvPostList: 3 }, '--recv-post-list'],
    ['write', 'bw', { qp: 16384, txDepth: 65536, iters: 65536 }, '--tx-depth'],
  ];
  for (const [verb, which, changes, argument] of cases) {
    assert.throws(
      () => planOf(verb, which, { ...OPTIONS, ...changes }),
      (error: Error) => {
        assert.ok(error instanceof MisuseError, `${verb} ${which}: ${error}`);
        assert.is(error.argument, argument);
        return true;
      },
    );
  }
});

test('both sides must agree on what changes what the other one does, and on nothing else', () => {
  const terms = (changes: Partial<PerfOptions>) =>
    termsOf(planOf('send', 'bw', { ...OPTIONS, ...changes }));
  assert.equal(terms({ txDepth: 9, rxDepth: 17, cqMod: 3, events: true, mtu: 1024 }), terms({}));
  for (const changes of [{ size: 1 }, { iters: 9 }, { qp: 2 }, { duration: 8 }, { all: true }]) {
    assert.not.equal(terms(changes), terms({}));
  }
});

test.run();
