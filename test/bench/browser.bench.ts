/** Verbs between a tab of a real browser and Node, against bare data channels in the same run. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { missingBrowser } from '../support/browser.js';
import { measurePage, type PageRun } from './browser-page.js';
import { FULL, atLeast, atMost, medianOf, medians, missing, progress } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace } from './harness.js';

const LOSS_PER_MILLE = 10;
const MESSAGES = 1_000_000;
/** A path that limits before the processors do, and messages that it takes in some seconds. */
const SHAPED_MBIT = 20;
const SHAPED_MESSAGES = 50_000;
/** The link that carries more where packets get lost, in names of browser-run.ts. */
const SEVERAL = 'write_by_4';
/** In names of figures, and of bars. */
const WAYS = [
  ['tab_to_node', 'tab to Node'],
  ['node_to_tab', 'Node to tab'],
] as const;

/** Numbered messages over one of the links. */
interface Numbers {
  readonly link: string;
  readonly count: number;
  /** Came twice, or not at all. */
  readonly wrong: number;
  readonly seconds: number;
}

/** Output of browser-run.ts. */
interface Run {
  readonly rounds: Figures[];
  readonly numbers: readonly Numbers[];
  readonly errors: readonly string[];
}

/** In a network namespace of its own where packets are to be lost. */
async function measure(
  lossPerMille: number,
  { rounds, share }: Pace,
  mbitPerSecond?: number,
): Promise<Run> {
  const program = fileURLToPath(new URL('./browser-run.js', import.meta.url));
  const node = [
    process.execPath,
    program,
    `${rounds}`,
    `${lossPerMille}`,
    `${Math.ceil((mbitPerSecond ? SHAPED_MESSAGES : MESSAGES) * share)}`,
    ...(mbitPerSecond ? [`${mbitPerSecond}`] : []),
  ];
  const [command, ...args] = lossPerMille > 0 ? ['unshare', '-n', ...node] : node;
  const child = spawn(command!, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  if (code !== 0) throw new Error(`browser-run ended with ${code}`);
  return JSON.parse(output) as Run;
}

function prefixed(prefix: string, figures: Figures): Figures {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [prefix + name, value]));
}

/** Why there are no lossy runs: they take a namespace, a filter, and root for both. */
function missingLoss(): string | undefined {
  if (process.getuid?.() !== 0) return 'nftables, and root';
  return existsSync('/usr/sbin/nft') ? undefined : 'nftables';
}

/** Nothing of what was sent is missing, or there twice. */
function numberBars({ numbers }: Run, loss = ''): Bar[] {
  const [most] = numbers;
  const wrong = Math.max(...numbers.map((link) => link.wrong));
  return [atMost(`of ${most!.count} messages lost or doubled${loss}`, wrong, 0)];
}

function cleanBars(run: Run): Bar[] {
  const ratio = (one: string, other: string): number =>
    medianOf(run.rounds, (f) => f[one]! / f[other]!);
  const bars: Bar[] = [];
  for (const [link, how] of [
    ['write', ''],
    [SEVERAL, ' by four connections'],
  ] as const) {
    for (const [way, words] of WAYS) {
      bars.push(
        atLeast(
          `1 KiB WRITEs ${words}${how} against the bare channel`,
          ratio(`${link}_${way}_mbs`, `bare_${way}_mbs`),
          0.8,
        ),
      );
    }
    const read = link.replace('write', 'read_64');
    const trip = ratio(`${read}_p50_ms`, 'bare_rtt_64_p50_ms');
    bars.push(atMost(`a READ of 64 bytes${how} in bare round trips`, trip, 2));
  }
  return [...bars, ...numberBars(run)];
}

function pageBars({ rounds, errors }: PageRun): Bar[] {
  const figure = (name: string): number => medianOf(rounds, (f) => f[name]!);
  return [
    atMost('KiB of the demo’s page, gzip, in all', figure('page_gzip_kib'), 150),
    atMost('ms from the load to the first WRITE', figure('page_first_write_ms'), 1500),
    atMost(
      'a column of 512 rows by one READ, in bare round trips',
      figure('page_column_bare_trips'),
      3,
    ),
    atLeast('frames a second while painting', figure('page_frames_per_second'), 60),
    atMost('errors on the demo’s console', errors.length, 0),
  ];
}

function lossyBars(run: Run, where = ''): Bar[] {
  const ratio = (one: string, other: string): number =>
    medianOf(run.rounds, (f) => f[one]! / f[other]!);
  const loss = ` at ${LOSS_PER_MILLE / 10} % loss${where}`;
  return [
    ...WAYS.map(([way, words]) =>
      atLeast(
        `1 KiB WRITEs ${words} by four connections against a reliable channel${loss}`,
        ratio(`${SEVERAL}_${way}_mbs`, `reliable_${way}_mbs`),
        1.2,
      ),
    ),
    ...[
      ['read_64', ''],
      ['read_64_by_4', ' by four connections'],
    ].map(([read, how]) =>
      atMost(
        `p99 of a READ of 64 bytes${how} against the reliable channel's p99${loss}`,
        ratio(`${read}_p99_ms`, 'reliable_rtt_64_p99_ms'),
        0.5,
      ),
    ),
    ...numberBars(run, loss),
  ];
}

/** Comparisons without a bar: one connection, and as many reliable ones beside each other. */
function comparisons({ rounds }: Run): Figures {
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (f) => f[one]! / f[other]!);
  return Object.fromEntries(
    WAYS.flatMap(([way]) => [
      [`write_${way}_of_reliable`, ratio(`write_${way}_mbs`, `reliable_${way}_mbs`)],
      [`${SEVERAL}_${way}_of_reliable`, ratio(`${SEVERAL}_${way}_mbs`, `reliable_${way}_mbs`)],
      [
        `${SEVERAL}_${way}_of_reliable_by_4`,
        ratio(`${SEVERAL}_${way}_mbs`, `reliable_by_4_${way}_mbs`),
      ],
    ]),
  );
}

async function run(pace: Pace = FULL): Promise<BenchResult> {
  if (missingBrowser() !== undefined) {
    return { figures: {}, bars: [missing('verbs in a browser', 'chromium')] };
  }
  progress('browser: without loss');
  const clean = await measure(0, pace);
  const lacking = missingLoss();
  const lossy = lacking === undefined ? await measure(LOSS_PER_MILLE, pace) : undefined;
  const shaped =
    lacking === undefined ? await measure(LOSS_PER_MILLE, pace, SHAPED_MBIT) : undefined;
  const page = await measurePage(pace);
  const speed = ({ numbers }: Run): number => numbers[0]!.count / numbers[0]!.seconds;
  return {
    figures: {
      ...medians(page.rounds),
      ...medians(clean.rounds),
      send_64_per_second: speed(clean),
      ...comparisons(clean),
      ...(lossy ? prefixed('lossy_', { ...medians(lossy.rounds), ...comparisons(lossy) }) : {}),
      ...(lossy ? { lossy_send_64_per_second: speed(lossy) } : {}),
      ...(shaped ? prefixed('shaped_', { ...medians(shaped.rounds), ...comparisons(shaped) }) : {}),
    },
    bars: [
      ...pageBars(page),
      ...cleanBars(clean),
      atMost('errors on the console', clean.errors.length, 0),
      ...(lossy ? lossyBars(lossy) : [missing('verbs in a browser at 1 % loss', lacking!)]),
      ...(shaped ? lossyBars(shaped, ` and ${SHAPED_MBIT} Mbit/s`) : []),
    ],
  };
}

export const bench: Bench = {
  name: 'browser',
  description: 'RC between a tab and Node over data channels, path MTU 1024, 64 KiB under way',
  run,
};
