/** Frames from a tab to Node over a path that delays and loses: ours, and bare channels. */
import { setTimeout as pause } from 'node:timers/promises';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';
import type * as Library from '../../host/browser/mesh.js';
import type { Description } from '../../host/link/rtc/connection.js';
import { FrameNode } from './frame-node.js';
import type { FrameTab, Way } from './frame-tab.js';
import {
  FULL,
  atMost,
  medianOf,
  medians,
  missing,
  progress,
  type Bar,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
} from './harness.js';

const PAGE = '/test/browser/pages/tab.html?mesh';
const WAYS: readonly Way[] = [
  { name: 'frames', kind: 'frames', channels: 8 },
  { name: 'reliable', kind: 'reliable', channels: 1 },
  { name: 'reliable_by_4', kind: 'reliable', channels: 4 },
  { name: 'bare', kind: 'bare', channels: 1 },
];
const RTTS = [50, 100];
const LOSSES = [0, 0.005, 0.01];
const IDLE_BYTES = 65_536;
/** Of the row at SMALL_RTT and SMALL_LOSS. SCTP begins with about 12 KB. */
const SMALL_BYTES = 10_240;
const SMALL_RTT = 50;
const SMALL_LOSS = 0.01;
const IDLE_MILLIS = 300;
const IDLE_FRAMES = 12;
const STEADY_BYTES = 32_768;
const STEADY_PER_SECOND = 30;
const STEADY_FRAMES = 240;
const STEADY_RTT = 50;
const STEADY_LOSS = 0.01;
const LATE_RTTS = 3;
const SETTLE_MILLIS = 1000;

interface TabState {
  readonly ends: Record<string, FrameTab>;
}

interface World {
  readonly tab: Tab;
  readonly nodes: readonly FrameNode[];
}

/** All latencies of a condition, over the rounds, by the way's name. */
type Samples = Map<string, number[]>;

function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!;
}

async function openEnd(tab: Tab, way: Way): Promise<void> {
  await tab.run(async (verbena, state: { ends?: Record<string, FrameTab> }, wanted: Way) => {
    const at = '/build/test/bench/frame-tab.js';
    const { FrameTab } = (await import(at)) as typeof import('./frame-tab.js');
    const library = verbena as unknown as typeof Library;
    (state.ends ??= {})[wanted.name] = await FrameTab.open(library, wanted);
  }, way);
}

/** With a tab and the ends of all ways. */
async function withWorld(work: (world: World) => Promise<void>): Promise<void> {
  const nodes = await Promise.all(WAYS.map((way) => FrameNode.open(way)));
  const site = await Site.open({
    post: async (request, response) => {
      let body = '';
      for await (const chunk of request.setEncoding('utf8')) body += chunk as string;
      const node = nodes.find(({ way }) => request.url === `/${way.name}`)!;
      const by = { name: 'the tab', exchange: (offer: Description) => node.answer(offer) };
      const offer = JSON.parse(body) as Description;
      const answer = await node.path.signalling(by).exchange(offer, AbortSignal.timeout(10_000));
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(answer));
    },
  });
  const browser = await Browser.launch();
  try {
    const tab = await browser.open(site.url(PAGE));
    for (const way of WAYS) await openEnd(tab, way);
    await work({ tab, nodes });
  } finally {
    await browser.close();
    for (const node of nodes) await node.close();
    await site.close();
  }
}

/** All ways side by side: each waits most of the time. */
async function fromIdle(
  { tab, nodes }: World,
  rtt: number,
  loss: number,
  count: number,
  frameBytes = IDLE_BYTES,
): Promise<number[][]> {
  for (const node of nodes) {
    node.path.change({ oneWayMillis: rtt / 2, loss });
    node.begin(frameBytes);
  }
  await Promise.all(
    WAYS.map(({ name }) =>
      tab.run(
        (_verbena, { ends }: TabState, [which, frames, bytes, millis]) =>
          ends[which]!.idle(frames, bytes, millis),
        [name, count, frameBytes, IDLE_MILLIS] as const,
      ),
    ),
  );
  return nodes.map((node) => node.end(count));
}

/** One way after the other: each has the processors for itself. */
async function steady({ tab, nodes }: World, count: number): Promise<number[][]> {
  const found: number[][] = [];
  for (const node of nodes) {
    node.path.change({ oneWayMillis: STEADY_RTT / 2, loss: STEADY_LOSS });
    node.begin(STEADY_BYTES);
    await tab.run(
      (_verbena, { ends }: TabState, [which, frames, bytes, perSecond]) =>
        ends[which]!.steady(frames, bytes, perSecond),
      [node.way.name, count, STEADY_BYTES, STEADY_PER_SECOND] as const,
    );
    await pause(SETTLE_MILLIS);
    found.push(node.end(count));
  }
  return found;
}

const isLate = (millis: number): boolean => millis > LATE_RTTS * STEADY_RTT;
const share = (all: readonly number[]): number => all.filter(isLate).length / all.length;

function keyOf(rtt: number, loss: number): string {
  return `${rtt}ms_${String(loss * 100).replace('.', '_')}pc`;
}

function add(samples: Samples, key: string, found: readonly number[][]): Figures {
  const figures: Figures = {};
  for (const [index, { name }] of WAYS.entries()) {
    const all = samples.get(`${key}_${name}`) ?? [];
    samples.set(`${key}_${name}`, [...all, ...found[index]!]);
    figures[`${key}_${name}_p50_ms`] = quantile(found[index]!, 0.5);
    figures[`${key}_${name}_p99_ms`] = quantile(found[index]!, 0.99);
  }
  return figures;
}

function barsOf(samples: Samples, rounds: readonly Figures[]): Bar[] {
  const ratio = (key: string, part: number): number =>
    quantile(samples.get(`${key}_frames`)!, part) / quantile(samples.get(`${key}_reliable`)!, part);
  const bars = RTTS.flatMap((rtt) =>
    [
      [0, 0.8, 0.8],
      [0.01, 0.6, 0.5],
    ].flatMap(([loss, p50, p99]) => {
      const key = keyOf(rtt, loss!);
      const where = `at ${rtt} ms and ${loss! * 100} % loss against one reliable channel`;
      return [
        atMost(`p50 of a 64 KB frame from idle ${where}`, ratio(key, 0.5), p50!),
        atMost(`p99 of a 64 KB frame from idle ${where}`, ratio(key, 0.99), p99!),
      ];
    }),
  );
  const late = medianOf(
    rounds,
    (f) => f['steady_frames_late_share']! / Math.max(f['steady_reliable_late_share']!, 1e-9),
  );
  const what =
    'late frames (> 3 round trips) of 30 a second of 32 KB at 1 %, of a reliable channel’s';
  return [...bars, atMost(what, late, 0.1)];
}

async function run({ rounds, share: part }: Pace = FULL): Promise<BenchResult> {
  if (missingBrowser() !== undefined) {
    return { figures: {}, bars: [missing('frames from a browser', 'chromium')] };
  }
  const samples: Samples = new Map();
  const results: Figures[] = [];
  await withWorld(async (world) => {
    await fromIdle(world, RTTS[0]!, 0, 2);
    for (let round = 1; round <= rounds; round++) {
      progress(`frames: round ${round} of ${rounds}`);
      const figures: Figures = {};
      const count = Math.max(3, Math.ceil(IDLE_FRAMES * part));
      for (const rtt of RTTS) {
        for (const loss of LOSSES) {
          const found = await fromIdle(world, rtt, loss, count);
          Object.assign(figures, add(samples, keyOf(rtt, loss), found));
        }
      }
      const small = await fromIdle(world, SMALL_RTT, SMALL_LOSS, count, SMALL_BYTES);
      Object.assign(figures, add(samples, `10kb_${keyOf(SMALL_RTT, SMALL_LOSS)}`, small));
      const found = await steady(world, Math.ceil(STEADY_FRAMES * part));
      Object.assign(figures, add(samples, 'steady', found));
      for (const [index, { name }] of WAYS.entries()) {
        figures[`steady_${name}_late_share`] = share(found[index]!);
      }
      results.push(figures);
    }
  });
  return { figures: medians(results), bars: barsOf(samples, results), rounds: results };
}

export const bench: Bench = {
  name: 'frames',
  description:
    'frames of 10 to 64 KB from a tab to Node over a path with delay and loss, from idle and steady',
  run,
};
