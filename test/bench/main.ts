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
 * The exit code is 0 when everything was measured, whatever the bars say: whoever wants to act on
 * a bar reads the JSON. It is 1 when a name is unknown or a bench failed.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { FULL, progress, QUICK, round } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace } from './harness.js';
import { machine } from './machine.js';
import { makePage, readUplot, type PageBench } from './page.js';

const SUFFIX = '.bench.js';
const ALL = 'all';
const ALONE = '--alone';

function names(): string[] {
  return readdirSync(new URL('.', import.meta.url))
    .filter((file) => file.endsWith(SUFFIX))
    .map((file) => file.slice(0, -SUFFIX.length))
    .sort();
}

async function find(name: string): Promise<Bench> {
  const module = (await import(`./${name}${SUFFIX}`)) as { bench: Bench };
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

/** In the bench's own process: how busy the machine was is said, too: who spins wants free cores. */
async function measure(name: string, pace: Pace): Promise<PageBench> {
  const bench = await find(name);
  const load = loadavg();
  const result = await bench.run(pace);
  const figures: Figures = {};
  // Nobody needs the digits that change from run to run.
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

const USAGE =
  'usage: npm run -s bench -- NAME... | all  [--json] [--html FILE] [--rounds N] [--quick]';

function parse(args: readonly string[]) {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      json: { type: 'boolean', default: false },
      html: { type: 'string' },
      rounds: { type: 'string' },
      quick: { type: 'boolean', default: false },
    },
  });
  const pace = { ...(values.quick ? QUICK : FULL) };
  if (values.rounds !== undefined) {
    pace.rounds = Number(values.rounds);
    if (!Number.isInteger(pace.rounds) || pace.rounds < 1) {
      throw new Error(`--rounds must be a whole number from 1 on, got ${values.rounds}`);
    }
  }
  const known = names();
  const unknown = positionals.filter((name) => name !== ALL && !known.includes(name));
  if (unknown.length > 0) throw new Error(`there is no bench called ${unknown.join(', ')}`);
  if (positionals.length === 0) throw new Error('which one?');
  const wanted = positionals.flatMap((name) => (name === ALL ? known : [name]));
  return { json: values.json, html: values.html, pace, wanted: [...new Set(wanted)] };
}

function tellMissing(results: readonly BenchResult[]): void {
  const packages = new Set(results.flatMap(({ bars }) => bars.flatMap((bar) => bar.missing ?? [])));
  if (packages.size === 0) return;
  progress(`some yardsticks are not installed: apt-get install ${[...packages].join(' ')}`);
}

async function main(args: readonly string[]): Promise<number> {
  let options;
  try {
    options = parse(args);
  } catch (error) {
    progress(`${(error as Error).message}\n${USAGE}\nnames: ${names().join(' ')}`);
    return 1;
  }
  const { json, html, pace, wanted } = options;
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
  // Curves are more than a pipe holds: they are gone with who leaves before they are read.
  await new Promise((sent) => process.send!(measured, sent));
  // Whatever a bench left open ends here.
  process.disconnect();
  process.exit(0);
}
process.exitCode = await main(args);
