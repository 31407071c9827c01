/**
 * Results as one self-contained page: figures against yardsticks, promises and their results. Plots
 * are drawn by uPlot, which is put in whole, and by page-plots.mjs.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { root } from '../support/paths.js';
import { round, type Bar, type BenchResult, type Figures, type Pace } from './harness.js';
import type { Machine } from './machine.js';

export interface PageBench {
  readonly name: string;
  readonly description: string;
  readonly result: BenchResult;
}

export interface Uplot {
  readonly script: string;
  readonly style: string;
  readonly license: string;
}

/** Rows of one plot. */
interface Plot {
  readonly unit: string;
  readonly rows: readonly {
    readonly name: string;
    readonly isYardstick: boolean;
    readonly median: number;
    readonly rounds: readonly number[];
  }[];
}

/** Ends of figures' names that are plotted, and what they are called. */
const UNITS: readonly (readonly [suffix: string, unit: string])[] = [
  ['_gbps', 'GB/s'],
  ['_mps', 'millions a second'],
  ['_per_second', 'a second'],
  ['_p99_us', 'microseconds, p99'],
  ['_us', 'microseconds'],
  ['_ns_per_packet', 'ns a packet'],
  ['_ns', 'nanoseconds'],
  ['_ms', 'milliseconds'],
  ['_percent', 'percent'],
  ['_rss_mib', 'MiB'],
  ['_cpu_s_per_gb', 'processor seconds a GB'],
  ['_cpu_s_per_million', 'processor seconds a million'],
];
const BY_BYTE = ['_gbps', '_cpu_s_per_gb'];
const BY_MESSAGE = ['_mps', '_cpu_s_per_million'];
/** How the names of figures begin that are not ours. */
const YARDSTICKS =
  /^(bare|dgram|net|fi_pingpong|ucx|iperf3|zlib|copy|idle_(read|write|atomic)|seed)_/;

/** Throws when the package is not installed. */
export function readUplot(): Uplot {
  let folder;
  try {
    folder = dirname(createRequire(import.meta.url).resolve('uplot/package.json'));
  } catch {
    throw new Error('plots need the package uplot: npm install');
  }
  const read = (name: string): string => readFileSync(join(folder, name), 'utf8');
  return {
    script: read('dist/uPlot.iife.min.js'),
    style: read('dist/uPlot.min.css'),
    license: read('LICENSE'),
  };
}

function escape(text: string): string {
  const entities: Record<string, string> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
  };
  return text.replace(/[&<>"]/g, (character) => entities[character]!);
}

/** To stand in a script element. */
function embed(value: unknown): string {
  return JSON.stringify(value).replaceAll('<', '\\u003c');
}

/** The figures of a bench, by unit: rates by the byte, or by the message, but not both. */
export function plotsOf({ figures, rounds = [], counts }: BenchResult): Plot[] {
  const left = new Set(Object.keys(figures).filter((name) => Number.isFinite(figures[name])));
  const byMessage = counts === 'messages' || ![...left].some((name) => name.endsWith('_gbps'));
  const unwanted = byMessage ? BY_BYTE : BY_MESSAGE;
  const plots: Plot[] = [];
  for (const [suffix, unit] of UNITS) {
    const names = [...left].filter((name) => name.endsWith(suffix));
    for (const name of names) left.delete(name);
    if (names.length === 0 || unwanted.includes(suffix)) continue;
    plots.push({
      unit,
      rows: names.map((name) => ({
        name: name.slice(0, -suffix.length),
        isYardstick: YARDSTICKS.test(name),
        median: figures[name]!,
        rounds: rounds.map((each) => round(each[name] ?? NaN)).filter(Number.isFinite),
      })),
    });
  }
  return plots;
}

/** How often what was promised is kept: from 1 on it is. */
function kept({ value, atLeast, atMost }: Bar): number {
  if (value === null) return 0;
  if (atLeast !== undefined) return atLeast === 0 ? Number(value > 0) : value / atLeast;
  if (value <= 0) return Infinity;
  return atMost! / value;
}

function barRow(bar: Bar): string {
  const { what, value, atLeast, atMost, ok, missing } = bar;
  const wanted = atLeast === undefined ? `at most ${atMost}` : `at least ${atLeast}`;
  const got = missing === undefined ? String(value) : `not measured: apt-get install ${missing}`;
  const width = Math.min(kept(bar), 2) * 50;
  return `<tr class="${ok ? 'pass' : 'fail'}"><td>${ok ? 'pass' : 'FAIL'}</td><td>${escape(what)}</td>
<td class="number">${escape(got)}</td><td>${escape(wanted)}</td>
<td><div class="gauge"><i style="width:${width.toFixed(1)}%"></i></div></td></tr>`;
}

function figureRows(figures: Figures): string {
  return Object.entries(figures)
    .map(([name, value]) => `<tr><td>${escape(name)}</td><td class="number">${value}</td></tr>`)
    .join('\n');
}

function section({ name, description, result }: PageBench): string {
  const { figures, bars } = result;
  const kept = bars.filter(({ ok }) => ok).length;
  return `<section id="${escape(name)}">
<h2>${escape(name)} <small>${kept} of ${bars.length}</small></h2>
<p>${escape(description)}</p>
<table class="bars">${bars.map(barRow).join('\n')}</table>
<div class="plots" data-bench="${escape(name)}"></div>
<details><summary>all figures</summary><table>${figureRows(figures)}</table></details>
</section>`;
}

const STYLE = `
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1e21; --faint: #8a8f98; --line: #e3e5e8;
  --ours: #2563c9; --yardstick: #a9b1bd; --pass: #15803d; --fail: #c02626; }
@media (prefers-color-scheme: dark) { :root { --paper: #14161a; --ink: #e4e6ea; --faint: #868c96;
  --line: #2c3037; --ours: #6ea2f5; --yardstick: #5c6470; --pass: #4ec77c; --fail: #f4726b; } }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
small, .note { color: var(--faint); font-weight: normal; }
table { border-collapse: collapse; } td { padding: .15rem .8rem .15rem 0; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.pass td:first-child, .pass td.number { color: var(--pass); }
.fail td:first-child, .fail td.number { color: var(--fail); font-weight: 600; }
.gauge { position: relative; width: 8rem; height: .7rem; margin-top: .4rem; background: var(--line); }
.gauge i { display: block; height: 100%; background: var(--pass); }
.fail .gauge i { background: var(--fail); }
.gauge::after { content: ''; position: absolute; left: 50%; top: -.15rem; bottom: -.15rem;
  border-left: 2px solid var(--ink); }
.plots { margin: 1rem 0; overflow-x: auto; } .u-legend { font-size: 13px; }
nav a { margin-right: 1rem; } a { color: var(--ours); } p.fail { color: var(--fail); }
`;

/** `failed`: names of benches that did not end well. */
export function makePage(
  benches: readonly PageBench[],
  machine: Machine,
  { rounds, share }: Pace,
  failed: readonly string[],
  uplot: Uplot,
): string {
  const { processor, cores, memoryGib, system, node, date } = machine;
  const data = benches.map(({ name, result }) => ({
    name,
    plots: plotsOf(result),
    distributions: result.distributions ?? {},
    curves: result.curves ?? [],
  }));
  const all = benches.flatMap(({ result }) => result.bars);
  const passed = all.filter(({ ok }) => ok).length;
  const plots = readFileSync(new URL('test/bench/page-plots.mjs', root), 'utf8');
  const quick =
    share < 1 ? '<p class="fail"><b>A quick look:</b> too short for figures to be quoted.</p>' : '';
  const broken =
    failed.length > 0
      ? `<p class="fail">Did not run to the end: ${escape(failed.join(', '))}</p>`
      : '';
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Verbena: benches of ${date.toISOString().slice(0, 10)}</title>
<!-- Plots are drawn by uPlot.
${escape(uplot.license)}
-->
<style>${uplot.style}${STYLE}</style></head><body>
<h1>Verbena: benches</h1>
<p>${escape(processor)}, ${cores} cores, ${memoryGib} GiB; ${escape(system)}; Node ${escape(node)};
${date.toISOString()}. Medians of ${rounds} rounds in which what is compared takes turns; dots are
single rounds. <b>${passed} of ${all.length}</b> bars hold.</p>
${quick}${broken}
<p class="note">In a gauge the mark is what was promised, the right end twice as good.</p>
<nav>${benches.map(({ name }) => `<a href="#${escape(name)}">${escape(name)}</a>`).join(' ')}</nav>
${benches.map(section).join('\n')}
<script>${uplot.script}</script>
<script>const DATA = ${embed(data)};</script>
<script type="module">${plots}</script>
</body></html>
`;
}
