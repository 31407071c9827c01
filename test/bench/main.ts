/**
 * The benches, from one command:
 * ```
 *   npm run -s bench -- NAME... [--json]
 * ```
 * Every NAME is a file `NAME.bench.ts` of this folder; README.md says what it measures. The last
 * line of standard output for each name (with --json the only one) is its result as one line of
 * JSON. The exit code is 0 when everything was measured, whatever the bars say: whoever wants to
 * act on a bar reads the JSON. It is 1 when a name is unknown or a bench failed.
 */
import { readdirSync } from 'node:fs';
import { progress, round, type Bar, type Bench, type BenchResult } from './harness.js';

const SUFFIX = '.bench.js';

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

function printTable(bench: Bench, { figures, bars }: BenchResult): void {
  console.log(`${bench.name}: ${bench.description}`);
  const width = Math.max(...Object.keys(figures).map((name) => name.length));
  for (const [name, value] of Object.entries(figures)) {
    console.log(`  ${name.padEnd(width)}  ${value}`);
  }
  for (const bar of bars) console.log(barLine(bar));
}

/** Figures as they are printed: nobody needs the digits that change from run to run. */
function rounded({ figures, bars }: BenchResult): BenchResult {
  const entries = Object.entries(figures).map(([name, value]) => [name, round(value)] as const);
  return { figures: Object.fromEntries(entries), bars };
}

async function main(args: readonly string[]): Promise<number> {
  const known = names();
  const json = args.includes('--json');
  const wanted = args.filter((argument) => argument !== '--json');
  const unknown = wanted.filter((name) => !known.includes(name));
  if (wanted.length === 0 || unknown.length > 0) {
    for (const name of unknown) progress(`there is no bench called ${name}`);
    progress(`usage: npm run -s bench -- NAME... [--json]\nnames: ${known.join(' ')}`);
    return 1;
  }
  for (const name of wanted) {
    const bench = await find(name);
    const result = rounded(await bench.run());
    if (!json) printTable(bench, result);
    console.log(JSON.stringify({ name, ...result }));
  }
  return 0;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
