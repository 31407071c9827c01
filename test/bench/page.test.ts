/** The page of all results: whole by itself, and true to what was measured. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { atLeast, atMost, FULL, missing, QUICK, type BenchResult } from './harness.js';
import type { Machine } from './machine.js';
import { makePage, plotsOf, type PageBench } from './page.js';

const MACHINE: Machine = {
  processor: 'A <fast> one',
  cores: 2,
  system: 'Linux 6',
  memoryGib: 8,
  node: 'v20.0.0',
  date: new Date(0),
};
const UPLOT = { script: 'const uPlot = 0;', style: '.u-plot {}', license: 'MIT & more' };
const RESULT: BenchResult = {
  figures: {
    write_gbps: 2,
    write_mps: 0.5,
    ucx_gbps: 1,
    write_p99_us: 9,
    count: 7,
    none_gbps: NaN,
  },
  rounds: [
    { write_gbps: 1.9, ucx_gbps: 1 },
    { write_gbps: 2.1, ucx_gbps: 1.2 },
  ],
  bars: [
    atLeast('write against ucx', 2, 1.5),
    atMost('wait </td>', 9, 5),
    missing('fi_pingpong', 'libfabric-bin'),
  ],
  distributions: { write_us: [[0.5, 1]] },
};
const BENCH: PageBench = { name: 'write', description: 'it <writes>', result: RESULT };

test('says on what, when and how long it was measured', () => {
  const page = makePage([BENCH], MACHINE, FULL, [], UPLOT);
  for (const text of ['A &lt;fast&gt; one', '2 cores', 'v20.0.0', '1970-01-01', '5 rounds']) {
    assert.match(page, text);
  }
  assert.not.match(page, 'A quick look');
  assert.match(makePage([], MACHINE, QUICK, ['keys'], UPLOT), /A quick look[\s\S]*keys/);
});

test('needs nothing from elsewhere, and what it holds cannot break out', () => {
  const page = makePage([BENCH], MACHINE, FULL, [], UPLOT);
  assert.not.match(page, /(src|href)="(?!#)/);
  assert.not.match(page, /@import|url\(/);
  assert.match(page, UPLOT.script);
  assert.match(page, 'MIT &amp; more');
  assert.match(page, 'it &lt;writes&gt;');
  assert.match(page, 'wait &lt;/td&gt;');
  const distributions = { '</script>_us': [[0, 1]] as const };
  const nasty = { ...BENCH, result: { ...RESULT, distributions } };
  const [, script] = makePage([nasty], MACHINE, FULL, [], UPLOT).split('const DATA');
  assert.not.match(script!.slice(0, script!.indexOf(';\n')), '</script>_us');
});

test('bars are green or red, and say what is missing', () => {
  const page = makePage([BENCH], MACHINE, FULL, [], UPLOT);
  const rows = [...page.matchAll(/<tr class="(pass|fail)">[\s\S]*?<\/tr>/g)];
  assert.equal(
    rows.map(([, kind]) => kind),
    ['pass', 'fail', 'fail'],
  );
  const widths = rows.map(([row]) => /width:([\d.]+)%/.exec(row)![1]);
  // 50 is what was promised.
  assert.equal(widths, ['66.7', '27.8', '0.0']);
  assert.match(rows[2]![0], 'apt-get install libfabric-bin');
  assert.match(page, '<b>1 of 3</b>');
});

test('figures are plotted by unit, beside the rounds that they are medians of', () => {
  const plots = plotsOf(RESULT);
  assert.equal(
    plots.map(({ unit }) => unit),
    ['GB/s', 'microseconds, p99'],
  );
  assert.equal(plots[0]!.rows, [
    { name: 'write', isYardstick: false, median: 2, rounds: [1.9, 2.1] },
    { name: 'ucx', isYardstick: true, median: 1, rounds: [1, 1.2] },
  ]);
  const byMessage = plotsOf({ ...RESULT, counts: 'messages' });
  assert.equal(
    byMessage.map(({ unit }) => unit),
    ['millions a second', 'microseconds, p99'],
  );
});

test.run();
