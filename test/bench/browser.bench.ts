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

/** What browser-run.ts prints. */
interface Run {
  readonly rounds: Figures[];
  readonly numbers: { readonly count: number; readonly wrong: number; readonly seconds: number };
  readonly errors: readonly string[];
}

/** In a network namespace of its own where packets are to be lost. */
async function measure(lossPerMille: number, { rounds, share }: Pace): Promise<Run> {
  const program = fileURLToPath(new URL('./browser-run.js', import.meta.url));
  const node = [
    process.execPath,
    program,
    `${rounds}`,
    `${lossPerMille}`,
    `${Math.ceil(MESSAGES * share)}`,
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

function cleanBars({ rounds }: Run): Bar[] {
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (f) => f[one]! / f[other]!);
  return [
    atLeast(
      '1 KiB WRITEs tab to Node against the bare channel',
      ratio('write_tab_to_node_mbs', 'bare_tab_to_node_mbs'),
      0.8,
    ),
    atLeast(
      '1 KiB WRITEs Node to tab against the bare channel',
      ratio('write_node_to_tab_mbs', 'bare_node_to_tab_mbs'),
      0.8,
    ),
    atMost(
      'a READ of 64 bytes in bare round trips',
      ratio('read_64_p50_ms', 'bare_rtt_64_p50_ms'),
      2,
    ),
  ];
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

function lossyBars({ rounds, numbers }: Run): Bar[] {
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (f) => f[one]! / f[other]!);
  const percent = LOSS_PER_MILLE / 10;
  return [
    atLeast(
      `1 KiB WRITEs tab to Node against the reliable channel at ${percent} % loss`,
      ratio('write_tab_to_node_mbs', 'reliable_tab_to_node_mbs'),
      1.2,
    ),
    atLeast(
      `1 KiB WRITEs Node to tab against the reliable channel at ${percent} % loss`,
      ratio('write_node_to_tab_mbs', 'reliable_node_to_tab_mbs'),
      1.2,
    ),
    atMost(
      `p99 of a READ of 64 bytes against the reliable channel's p99 at ${percent} % loss`,
      ratio('read_64_p99_ms', 'reliable_rtt_64_p99_ms'),
      0.5,
    ),
    atMost(`of ${numbers.count} messages lost or doubled at ${percent} % loss`, numbers.wrong, 0),
  ];
}

async function run(pace: Pace = FULL): Promise<BenchResult> {
  if (missingBrowser() !== undefined) {
    return { figures: {}, bars: [missing('verbs in a browser', 'chromium')] };
  }
  progress('browser: without loss');
  const clean = await measure(0, pace);
  const lacking = missingLoss();
  const lossy = lacking === undefined ? await measure(LOSS_PER_MILLE, pace) : undefined;
  const page = await measurePage(pace);
  const speed = ({ numbers }: Run): number => numbers.count / numbers.seconds;
  return {
    figures: {
      ...medians(page.rounds),
      ...medians(clean.rounds),
      send_64_per_second: speed(clean),
      ...(lossy ? prefixed('lossy_', medians(lossy.rounds)) : {}),
      ...(lossy ? { lossy_send_64_per_second: speed(lossy) } : {}),
    },
    bars: [
      ...pageBars(page),
      ...cleanBars(clean),
      atMost(`of ${clean.numbers.count} messages lost or doubled`, clean.numbers.wrong, 0),
      atMost('errors on the console', clean.errors.length, 0),
      ...(lossy ? lossyBars(lossy) : [missing('verbs in a browser at 1 % loss', lacking!)]),
    ],
  };
}

export const bench: Bench = {
  name: 'browser',
  description: 'RC between a tab and Node over data channels, path MTU 1024, 64 KiB under way',
  run,
};
