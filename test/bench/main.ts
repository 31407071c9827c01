/**
 * The benches, from one command:
 * ```
 *   npm run -s bench -- NAME... | all  [--json] [--html FILE] [--rounds N] [--quick]
 * ```
 * Every NAME is a file `NAME.bench.ts` of this folder; README.md says what it measures. `all` is
 * each of them in turn. The last line of standard output for each name (with --json the only one)
 * is its result as one line of JSON. `--html` writes all of them to one page as well.
 *
 * Every bench runs in a process of its own: none finds what another one left behind.
 *
 * The exit code is 0 when everything was measured, whatever the bars say: the JSON has the verdict
 * on each bar. It is 1 when a bench failed, 2 when a name is unknown.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { FULL, progress, QUICK, round } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace } from './harness.js';
import { machine } from './machine.js';
import { read } from '../support/script.js';
import { makePage, readUplot, type PageBench } from './page.js';
import { ALL, NAMES, words, type BenchOptions } from './words.js';

const ALONE = '--alone';

async function find(name: string): Promise<Bench> {
  const module = (await import(`./${name}.bench.js`)) as { bench: Bench };
  return module.bench;
}

function barLine({ what, value, atLeast, atMost, ok, missing }: Bar): string {
  const wanted = atLeast === undefined ? `at most ${atMost}` : `at least ${atLeast}`;
  const got = missing === undefined ? `${value}` : `not measured: needs ${missing}`;
  return `${ok ? 'PASS' : 'FAIL'}  ${what}: ${got} (${wanted})`;
}

function printTable({ name, description, result }: PageBench): void {
  const { figures, bars } = result;
  console.log(`${name}: ${description}`);
  const width = Math.max(...Object.keys(figures).map((name) => name.length));
  for (const [figure, value] of Object.entries(figures)) {
    console.log(`  ${figure.padEnd(width)}  ${value}`);
  }
  for (const bar of bars) console.log(barLine(bar));
}

/** In the bench's own process, with the load of the machine: polling threads need free cores. */
async function measure(name: string, pace: Pace): Promise<PageBench> {
  const bench = await find(name);
  const load = loadavg();
  const result = await bench.run(pace);
  const figures: Figures = {};
  // Digits that change from run to run are rounded away.
  for (const [figure, value] of Object.entries(result.figures)) figures[figure] = round(value);
  figures['load_average_before'] = round(load[0]!);
  figures['load_average_after'] = round(loadavg()[0]!);
  return { name, description: bench.description, result: { ...result, figures } };
}

/** Rejects when it failed; it has said why. */
async function inOwnProcess(name: string, pace: Pace): Promise<PageBench> {
  const child = fork(fileURLToPath(import.meta.url), [ALONE, name, JSON.stringify(pace)], {
    serialization: 'advanced',
    // Standard output is for results.
    stdio: ['ignore', 2, 2, 'ipc'],
  });
  let measured: PageBench | undefined;
  child.on('message', (message) => (measured = message as PageBench));
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0 || !measured) throw new Error(`${name} ended with ${code}`);
  return measured;
}

function tellMissing(results: readonly BenchResult[]): void {
  const packages = new Set(results.flatMap(({ bars }) => bars.flatMap((bar) => bar.missing ?? [])));
  if (packages.size === 0) return;
  progress(`some yardsticks are not installed: apt-get install ${[...packages].join(' ')}`);
}

async function main(): Promise<number> {
  const { options, names } = read<BenchOptions>(words);
  const { json, html, rounds, quick } = options;
  const pace = { ...(quick ? QUICK : FULL), ...(rounds === undefined ? {} : { rounds }) };
  const wanted = [...new Set(names.flatMap((name) => (name === ALL ? NAMES : [name])))];
  // Before hours are spent: is what draws the plots there?
  const uplot = html === undefined ? undefined : readUplot();
  const benches: PageBench[] = [];
  const failed: string[] = [];
  for (const [index, name] of wanted.entries()) {
    if (wanted.length > 1) progress(`[${index + 1} of ${wanted.length}] ${name}`);
    try {
      const bench = await inOwnProcess(name, pace);
      benches.push(bench);
      if (!json) printTable(bench);
      const { figures, bars } = bench.result;
      console.log(JSON.stringify({ name, rounds: pace.rounds, figures, bars }));
    } catch (error) {
      // The others still count.
      failed.push(name);
      progress((error as Error).message);
    }
  }
  if (html !== undefined && uplot) {
    writeFileSync(html, makePage(benches, machine(), pace, failed, uplot));
    progress(`wrote ${html}`);
  }
  tellMissing(benches.map(({ result }) => result));
  if (failed.length > 0) progress(`failed: ${failed.join(', ')}`);
  return failed.length > 0 ? 1 : 0;
}

const args = process.argv.slice(2);
if (args[0] === ALONE) {
  const measured = await measure(args[1]!, JSON.parse(args[2]!) as Pace);
  // Curves are more than a pipe holds: the process must not end before they are sent.
  await new Promise((sent) => process.send!(measured, sent));
  // Whatever a bench left open ends here.
  process.disconnect();
  process.exit(0);
}
process.exitCode = await main();
