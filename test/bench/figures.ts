/**
 * The table of figures in the root README, from results of the benches:
 * ```
 *   npm run -s bench -- write-bw send-lat --json > results.json
 *   npm run figures -- results.json …
 * ```
 * Figures are kept in host/guide/figures.json, with machine, date and load; figures of benches that
 * are not among the results stay as they were, with their date. The machine is the one that this
 * runs on: measure and render on the same.
 */
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { format } from 'prettier';
import { root } from '../support/paths.js';
import type { BenchResult } from './harness.js';
import { machine } from './machine.js';

const path = (name: string): string => fileURLToPath(new URL(name, root));
const RECORD = path('host/guide/figures.json');
const README = path('README.md');
const BEGIN = '<!-- figures: npm run figures -->';
const END = '<!-- end of figures -->';

type Values = Readonly<Record<string, number>>;

/** Of one bench: what was measured, when and where. */
interface Measured {
  readonly date: string;
  readonly machine: string;
  /** Load averages of one minute, before and after: polling threads need free cores. */
  readonly load: readonly [number, number];
  readonly figures: Values;
}
type FigureRecord = Readonly<Record<string, Measured>>;

interface Row {
  readonly bench: string;
  readonly what: string;
  /** Figures that it is made of, in this order. */
  readonly of: readonly string[];
  say(...values: number[]): readonly [figure: string, beside: string];
}

const times = (value: number): string => `${value < 10 ? value.toFixed(1) : value.toFixed(0)}x`;
const near = (value: number): string => (value < 10 ? value.toFixed(1) : value.toFixed(0));
const two = (value: number): string => value.toFixed(2);

const ROWS: readonly Row[] = [
  {
    bench: 'icrc',
    what: 'ICRC of a 4160-byte packet, of a 1088-byte packet',
    of: ['engine_4160_gbps', 'zlib_4160_gbps', 'engine_1088_gbps', 'zlib_1088_gbps'],
    say: (a, b, c, d) => [`${times(a! / b!)}, ${times(c! / d!)}`, 'native `zlib.crc32`'],
  },
  {
    bench: 'engine',
    what: 'engine, both sides in one thread: 64 KiB WRITEs, 64-byte WRITEs',
    of: ['write_65536_hot_gbps', 'write_64_mps'],
    say: (gbps, mps) => [`${near(gbps!)} GB/s, ${near(mps!)} million/s`, 'ICRC on'],
  },
  {
    bench: 'write-bw',
    what: 'WRITEs of 1 MiB between two processes',
    of: ['write_1048576_4mib_gbps', 'bare_pump_4mib_gbps'],
    say: (ours, pump) => [`${near(ours!)} GB/s`, `a bare UDP pump beside it: ${near(pump!)} GB/s`],
  },
  {
    bench: 'write-rate',
    what: 'WRITEs of 64 bytes, each with another key',
    of: ['write_64_random_keys_212992_mps', 'ucx_put_bw_64_mps'],
    say: (ours, ucx) => [`${near(ours!)} million/s`, `UCX’s tcp \`put_bw\`: ${two(ucx!)}`],
  },
  {
    bench: 'send-lat',
    what: '64-byte SEND and answer: polling, thread, waiting',
    of: ['poll_p50_us', 'thread_polled_p50_us', 'thread_waits_p50_us', 'bare_spin_p50_us'],
    say: (poll, thread, waits, spin) => [
      `${near(poll!)}, ${near(thread!)}, ${near(waits!)} us`,
      `bare sockets that spin: ${near(spin!)} us`,
    ],
  },
  {
    bench: 'busy-target',
    what: 'a READ while the target’s main thread is blocked: p50, p99',
    of: ['blocked_read_p50_us', 'blocked_read_p99_us', 'idle_read_p50_us'],
    say: (p50, p99, idle) => [`${near(p50!)}, ${near(p99!)} us`, `idle: ${near(idle!)} us`],
  },
  {
    bench: 'layout',
    what: 'a column of a matrix of doubles by one request',
    of: ['column_layout_us', 'column_lists_us', 'column_packed_us'],
    say: (ours, lists, packed) => [
      `${near(ours!)} us`,
      `lists of 32 entries: ${near(lists!)} us; packed by loops: ${near(packed!)} us`,
    ],
  },
  {
    bench: 'stencil',
    what: 'a stencil of 10, of 65,536 entries bound to another base pointer',
    of: ['rebind_10_us', 'rebind_65536_us'],
    say: (few, many) => [`${near(few!)}, ${near(many!)} us`, ''],
  },
  {
    bench: 'pool',
    what: 'getMr and putMr of a pool: own, bucket, 4 threads',
    of: ['get_put_l1_ns', 'get_put_l2_ns', 'get_put_4_threads_pool_ns', 'reg_mr_dereg_mr_us'],
    say: (own, bucket, threads, verbs) => [
      `${near(own!)}, ${near(bucket!)}, ${near(threads!)} ns`,
      `regMr and deregMr: ${near(verbs! * 1000)} ns`,
    ],
  },
  {
    bench: 'flush',
    what: 'WRITE and FLUSH of 1 KiB into a file of the peer, 32 pending; one',
    of: ['remote_32_kps', 'remote_1_kps', 'local_32_kps', 'local_1_kps'],
    say: (many, one, local, single) => [
      `${near(many!)}, ${near(one!)} thousand/s`,
      `write and fdatasync here: ${near(local!)}, ${near(single!)}`,
    ],
  },
  {
    bench: 'dgram',
    what: 'without koffi: 64 KiB WRITEs over `node:dgram`',
    of: ['stack_write_65536_4mib_gbps', 'dgram_pump_4mib_gbps'],
    say: (ours, pump) => [`${two(ours!)} GB/s`, `\`node:dgram\` by itself: ${two(pump!)}`],
  },
  {
    bench: 'idle',
    what: 'a connected process while nothing happens',
    of: ['idle_initiator_cpu_percent'],
    say: (percent) => [`${two(percent!)} % of a core`, ''],
  },
  {
    bench: 'open',
    what: 'opening a device; the first one of a process',
    of: ['open_ms', 'open_cold_ms'],
    say: (warm, cold) => [`${near(warm!)}, ${near(cold!)} ms`, ''],
  },
];

/** Figures of one line of a result file that the table uses. */
function measuredBy(line: string, date: string, on: string): readonly [string, Measured][] {
  const { name, figures } = JSON.parse(line) as { name: string } & BenchResult;
  const wanted = new Set(ROWS.filter(({ bench }) => bench === name).flatMap((row) => row.of));
  if (wanted.size === 0) return [];
  const kept = Object.entries(figures).filter(([figure]) => wanted.has(figure));
  const of = (end: string): number => figures[`load_average_${end}`] ?? Number.NaN;
  const measured = { date, machine: on, load: [of('before'), of('after')] as const };
  return [[name, { ...measured, figures: Object.fromEntries(kept) }]];
}

function tell(): string {
  const { processor, cores, system, memoryGib, node } = machine();
  const [kernel] = /^\S+ [\d.]+/.exec(system) ?? [system];
  return `${processor}, ${cores} cores, ${memoryGib} GiB, ${kernel}, Node ${node}`;
}

/** As Markdown. Rows whose bench has no result yet are not there. */
export function figuresTable(record: FigureRecord): string {
  const lines = ['| | | | measured, load |', '|---|---|---|---|'];
  for (const { bench, what, of, say } of ROWS) {
    const measured = record[bench];
    if (!measured) continue;
    const values = of.map((figure) => measured.figures[figure]);
    if (values.some((value) => value === undefined)) continue;
    const [figure, beside] = say(...(values as number[]));
    const load = Math.max(...measured.load).toFixed(1);
    lines.push(`| ${what} | ${figure} | ${beside} | ${measured.date}, ${load} |`);
  }
  const machines = new Set(Object.values(record).map((measured) => measured.machine));
  return `${[...machines].join('; ')}.\n\n${lines.join('\n')}`;
}

/** Between the marks of a text. Throws when they are not there. */
function replaceFigures(text: string, table: string): string {
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error('the README has no place for figures');
  return `${text.slice(0, begin + BEGIN.length)}\n\n${table}\n\n${text.slice(end)}`;
}

export function readRecord(): FigureRecord {
  return JSON.parse(readFileSync(RECORD, 'utf8')) as FigureRecord;
}

async function main(files: readonly string[]): Promise<void> {
  const on = tell();
  const found = files.flatMap((file) => {
    const date = statSync(file).mtime.toISOString().slice(0, 10);
    const lines = readFileSync(file, 'utf8').split('\n');
    const results = lines.filter((line) => line.startsWith('{'));
    return results.flatMap((line) => measuredBy(line, date, on));
  });
  const record = { ...readRecord(), ...Object.fromEntries(found) };
  const prettier = { printWidth: 100, singleQuote: true };
  const json = JSON.stringify(record, null, 2);
  writeFileSync(RECORD, await format(json, { ...prettier, parser: 'json' }));
  const readme = replaceFigures(readFileSync(README, 'utf8'), figuresTable(record));
  writeFileSync(README, await format(readme, { ...prettier, parser: 'markdown' }));
  console.log(`${found.length} benches taken in; README.md has them`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv.slice(2));
