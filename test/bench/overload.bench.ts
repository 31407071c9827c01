/**
 * A target under more load than it can serve, and under junk. One process is the target, one offers
 * WRITEs of 4 KiB from one, two or ten devices with 64 queue pairs each, one sends junk from other
 * addresses. Meanwhile the target makes regions and queue pairs, and connects come in.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, openDevice, type Context } from '../../host/index.js';
import { atLeast, atMost, interleave, medianOf, medians, round, Stopwatch } from './harness.js';
import type { Bench, BenchResult, Figures, Pace, Variant } from './harness.js';
import { Junk, type JunkOrder } from './junk.js';
import { MESSAGE_BYTES, QUEUE_PAIRS, Source, type Load, type Offered } from './overload-source.js';
import { CAP, PORT, TARGET, Target } from './overload-target.js';

const SECONDS = 1.5;
const SOURCES = 10;
/** Messages under way of a queue pair at the peak: the better one counts. */
const UNDER_WAY = [4, 16] as const;
const JUNK_PER_SECOND = 150_000;
const CONNECT_MILLIS = 50;
const CALLER = '127.1.61.9';
const ALL = Array.from({ length: SOURCES }, (_, index) => index);

interface World {
  readonly target: Target;
  readonly sources: readonly Source[];
  readonly junk: Junk;
  /** A device that connects to the target and does nothing else. */
  readonly caller: Context;
  /** Messages a second at the peak of this round. */
  peak: number;
}

function p99(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.99))] ?? NaN;
}

/** Jain's index of fairness: 1 where all have the same, 1/n where one has all. */
export function jain(values: readonly number[]): number {
  const sum = values.reduce((total, value) => total + value, 0);
  const squares = values.reduce((total, value) => total + value * value, 0);
  return squares === 0 ? 0 : (sum * sum) / (values.length * squares);
}

/** Connects and disconnects until it is over: milliseconds of each, from when it was due. */
async function connects(context: Context, over: AbortSignal): Promise<number[]> {
  const millis: number[] = [];
  for (let due = performance.now(); !over.aborted;) {
    const connection = await connect(`${TARGET}:${PORT}`, { context, qp: { cap: CAP } });
    millis.push(performance.now() - due);
    await connection.close();
    due = Math.max(performance.now(), due + CONNECT_MILLIS);
    await sleep(due - performance.now());
  }
  return millis;
}

interface Phase {
  readonly sources: readonly number[];
  /** Of each source. */
  readonly load: Load;
  readonly junk?: JunkOrder['to'];
}

async function measure(
  name: string,
  world: World,
  phase: Phase,
  seconds: number,
): Promise<Figures> {
  const { target, sources, junk, caller } = world;
  await target.report();
  const over = new AbortController();
  const connecting = connects(caller, over.signal);
  const again = (): number => sources.reduce((sum, each) => sum + each.packetsSentAgain, 0);
  const before = again();
  const watch = new Stopwatch();
  const targetBefore = target.cpuSeconds();
  const order = phase.junk && { to: phase.junk, perSecond: JUNK_PER_SECOND, seconds };
  const sent = order && junk.send(order);
  const results: Offered[] = await Promise.all(
    phase.sources.map((index) => sources[index]!.run(phase.load, seconds)),
  );
  const processors = {
    [`${name}_source_processors`]: watch.cpuSeconds() / watch.seconds(),
    [`${name}_target_processors`]: (target.cpuSeconds() - targetBefore) / watch.seconds(),
  };
  over.abort();
  const connectMillis = await connecting;
  const { regMrMillis, createQpMillis, rssBytes } = await target.report();
  const done = results.flatMap((each) => each.done);
  const perSecond = done.reduce((sum, count) => sum + count, 0) / seconds;
  const figures: Figures = {
    [`${name}_gbps`]: (perSecond * MESSAGE_BYTES) / 1e9,
    [`${name}_mps`]: perSecond / 1e6,
    [`${name}_offered_mps`]: results.reduce((sum, { offered }) => sum + offered, 0) / seconds / 1e6,
    [`${name}_jain`]: jain(done),
    [`${name}_packets_sent_again`]: again() - before,
    ...processors,
    [`${name}_reg_mr_p99_ms`]: p99(regMrMillis),
    [`${name}_create_qp_p99_ms`]: p99(createQpMillis),
    [`${name}_connect_p99_ms`]: p99(connectMillis),
    [`${name}_connects`]: connectMillis.length,
    [`${name}_target_rss_mib`]: rssBytes / 2 ** 20,
    [`${name}_source_rss_mib`]: process.memoryUsage().rss / 2 ** 20,
  };
  if (sent) {
    const { packets, seconds: taken, cpuSeconds } = await sent;
    figures[`${name}_junk_per_second`] = packets / taken;
    figures[`${name}_junk_sender_processors`] = cpuSeconds / taken;
  }
  return figures;
}

function variantsOf(world: World, seconds: number): Variant[] {
  const one = [0];
  const peaks = UNDER_WAY.map((underWay): Variant => async () => {
    const name = `peak_${underWay}`;
    const figures = await measure(name, world, { sources: one, load: { underWay } }, seconds);
    const perSecond = figures[`${name}_mps`]! * 1e6;
    world.peak = underWay === UNDER_WAY[0] ? perSecond : Math.max(world.peak, perSecond);
    return figures;
  });
  const offered = (name: string, times: number, sources: readonly number[]): Variant => {
    return () => {
      const load = { perSecond: (times * world.peak) / sources.length };
      return measure(name, world, { sources, load }, seconds);
    };
  };
  const load = { underWay: UNDER_WAY[0] };
  return [
    ...peaks,
    offered('load_2_one_device', 2, one),
    offered('load_2', 2, ALL.slice(0, 2)),
    offered('load_1_ten_devices', 1, ALL),
    offered('load_2_ten_devices', 2, ALL),
    offered('load_10', 10, ALL),
    () => measure('sender_beside', world, { sources: one, load, junk: 'sink' }, seconds),
    () => measure('junk', world, { sources: one, load, junk: 'target' }, seconds),
  ];
}

const OVERLOADS = ['load_2_one_device', 'load_2', 'load_10', 'junk'];

function barsOf(rounds: readonly Figures[]): BenchResult['bars'] {
  const peakOf = (f: Figures): number => Math.max(f['peak_4_gbps']!, f['peak_16_gbps']!);
  const bestOfTen = (f: Figures): number =>
    Math.max(f['load_1_ten_devices_gbps']!, f['load_2_ten_devices_gbps']!);
  const toPeak = (name: string): number => medianOf(rounds, (f) => f[`${name}_gbps`]! / peakOf(f));
  const worst = (what: string): number =>
    medianOf(rounds, (f) => Math.max(...OVERLOADS.map((name) => f[`${name}_${what}_p99_ms`]!)));
  const growth = (what: string): number => {
    const values = rounds.map((f) => Math.max(...OVERLOADS.map((name) => f[`${name}_${what}`]!)));
    return round(values.at(-1)! / values[0]!);
  };
  return [
    atLeast('goodput at 2 times the peak, from one device', toPeak('load_2_one_device'), 0.9),
    atLeast('goodput at 2 times the peak, from two devices', toPeak('load_2'), 0.9),
    // The process of the sources has one processor: ten devices cost it more than one device.
    atLeast(
      `goodput at 10 times the peak, from ${SOURCES} devices, against their best at 1 and 2 times`,
      medianOf(rounds, (f) => f['load_10_gbps']! / bestOfTen(f)),
      0.9,
    ),
    atLeast(
      'junk that is offered, packets a second',
      medianOf(rounds, (f) => f['junk_junk_per_second']!),
      JUNK_PER_SECOND * 0.95,
    ),
    atLeast(
      'goodput under junk against the same sender aimed elsewhere',
      medianOf(rounds, (f) => f['junk_gbps']! / f['sender_beside_gbps']!),
      2 / 3,
    ),
    atLeast(
      `Jain's index of ${QUEUE_PAIRS} queue pairs`,
      medianOf(rounds, (f) => f['load_2_one_device_jain']!),
      0.95,
    ),
    atMost('memory of the target, last round against first', growth('target_rss_mib'), 1.1),
    atMost('memory of the sources, last round against first', growth('source_rss_mib'), 1.1),
    atMost('regMr while it lasts: p99, ms', worst('reg_mr'), 100),
    atMost('createQp while it lasts: p99, ms', worst('create_qp'), 100),
    atMost('connect while it lasts: p99, ms', worst('connect'), 100),
  ];
}

async function run(pace: Pace): Promise<BenchResult> {
  const target = await Target.start();
  const sources: Source[] = [];
  for (const index of ALL) sources.push(await Source.open(index, target.memory));
  const caller = await openDevice({ address: CALLER });
  const junk = await Junk.start({ target: TARGET, qpns: sources[0]!.remoteQpns });
  const world: World = { target, sources, junk, caller, peak: 0 };
  const rounds = await interleave('overload', variantsOf(world, SECONDS * pace.share), pace);
  for (const source of sources) await source.close();
  await caller.close();
  await junk.close();
  await target.close();
  return { rounds, figures: medians(rounds), bars: barsOf(rounds) };
}

export const bench: Bench = {
  name: 'overload',
  description: 'goodput, fairness, memory and control verbs of a target under overload and junk',
  run,
};
