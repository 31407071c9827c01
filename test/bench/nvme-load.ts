/**
 * Seed 002's workload on volumes of our NVMe initiator; and one that asks for more regions than
 * there are, where a few volumes would take all of them.
 */
import type { NvmeMedium } from '../../host/index.js';
import { Random } from '../simulation/random.js';
import { NvmeVolumes, type LoadedVolume } from './nvme-volumes.js';
import { HABITS, joinAll, live, type Load } from './volume-load.js';

const SEED = 3;
const SAMPLE_MICROS = 10_000;
const FINE_MICROS = 1000;
/** Time for requests in flight to complete: a disk is rarely slower. */
const REST_MICROS = 200_000;
const MAX_LENGTH = 65536;

export type Line = readonly (readonly [second: number, value: number])[];

export interface NvmeOutcome {
  readonly volumes: number;
  readonly failed: number;
  readonly asked: number;
  readonly done: number;
  /** Times that a command found no region. */
  readonly regionWaits: number;
  readonly p99Micros: number;
  /** Of the volume that fared worst: completed requests, of those issued. */
  readonly worstShare: number;
  readonly mostInUse: number;
  readonly inUse: Line;
  readonly made: Line;
  readonly iops: Line;
}

export interface NvmePlan {
  readonly medium: NvmeMedium;
  readonly seconds: number;
  readonly regions: number;
  /** Of each volume's own, and shared at first. */
  readonly numMr: number;
  readonly mrsMin: number;
  readonly volumes: number;
  readonly firstVolumes: number;
}

export async function runNvme(plan: NvmePlan): Promise<NvmeOutcome> {
  const { medium, regions, numMr, mrsMin } = plan;
  const world = await NvmeVolumes.open(medium, plan.volumes, {
    maxLength: MAX_LENGTH,
    mrsMax: regions,
    mrsMin,
    lowWater: Math.min(mrsMin, 32),
    idleMicros: 20_000,
  });
  const random = new Random(SEED);
  const load = { clock: world.clock, random, endMicros: world.clock.now() + plan.seconds * 1e6 };
  joinAll(load, plan.firstVolumes, plan.volumes, (index) => {
    const habit = HABITS[index % HABITS.length]!;
    world.join(`${habit.name} ${index}`, { numMr }, (volume) => {
      live(load, habit, () => world.ask(volume, random.below(3) === 0));
    });
  });
  const lines = await watch(world, load);
  await world.runUntil(load.endMicros + REST_MICROS);
  const { volumes, failed } = world;
  const outcome = { volumes: volumes.length, failed, ...totals(volumes), ...lines };
  await world.close();
  return outcome;
}

/** Samples until the load's end. */
async function watch(
  world: NvmeVolumes,
  { clock, endMicros }: Load,
): Promise<Pick<NvmeOutcome, 'inUse' | 'made' | 'iops' | 'mostInUse'>> {
  const inUse: [number, number][] = [];
  const made: [number, number][] = [];
  const iops: [number, number][] = [];
  const startMicros = clock.now();
  let before = 0;
  for (let at = startMicros + SAMPLE_MICROS; at <= endMicros; at += SAMPLE_MICROS) {
    await world.runUntil(at);
    const second = (at - startMicros) / 1e6;
    const done = sum(world.volumes, (volume) => volume.done);
    inUse.push([
      second,
      Math.max(
        1,
        sum(world.volumes, (volume) => volume.inUse),
      ),
    ]);
    made.push([second, world.pool.stats.total]);
    iops.push([second, Math.max(1, ((done - before) * 1e6) / SAMPLE_MICROS)]);
    before = done;
  }
  return { inUse, made, iops, mostInUse: Math.max(...inUse.map(([, value]) => value)) };
}

function sum(volumes: readonly LoadedVolume[], pick: (volume: LoadedVolume) => number): number {
  return volumes.reduce((total, volume) => total + pick(volume), 0);
}

function totals(
  volumes: readonly LoadedVolume[],
): Pick<NvmeOutcome, 'asked' | 'done' | 'regionWaits' | 'p99Micros' | 'worstShare'> {
  const latencies = Float64Array.from(volumes.flatMap((volume) => volume.latencies)).sort();
  return {
    asked: sum(volumes, (volume) => volume.asked),
    done: sum(volumes, (volume) => volume.done),
    regionWaits: sum(volumes, (volume) => volume.regionWaits),
    p99Micros: latencies[Math.floor(latencies.length * 0.99)] ?? 0,
    worstShare: Math.min(...volumes.map(({ done, asked }) => (asked > 0 ? done / asked : 1))),
  };
}

/** Regions for the workload below: too few for a greedy volume. */
const SCARCE_MRS = 256;
const MARK = 32;
/** Volumes that ask for little, but all at once now and then; such as ask for next to nothing. */
const MODEST = { count: 12, numMr: 4, burst: 8, stormsPerSecond: 4 };
const IDLE = { count: 8, numMr: 8, lendMrs: 6 };
const GREEDY = { weights: [1, 1, 3, 3], numMr: 4, underWay: 96 };

export interface ScarceOutcome {
  /** Of those that ask for little. */
  readonly modest: Pick<NvmeOutcome, 'asked' | 'done' | 'regionWaits' | 'p99Micros' | 'worstShare'>;
  /** Regions in hand, on average, of each that is greedy. */
  readonly greedyInUse: readonly number[];
  readonly greedyWaits: number;
  /** Regions that users lent, and that were not back at the end. */
  readonly reclaimed: number;
  readonly lentAtEnd: number;
  /** How often the pool said that it was exhausted. */
  readonly exhausted: number;
  readonly lines: Readonly<Record<string, Line>>;
}

/**
 * Volumes on a disk that storm now and then, all at once; beside them, if `isGreedy`, four that
 * keep so much under way that three of them would use all regions. `lends`: idle volumes lend.
 */
export async function runScarce(
  seconds: number,
  isGreedy: boolean,
  lends: boolean,
): Promise<ScarceOutcome> {
  let exhausted = 0;
  const world = await NvmeVolumes.open('disk', MODEST.count + IDLE.count + GREEDY.weights.length, {
    maxLength: MAX_LENGTH,
    mrsMax: SCARCE_MRS,
    mrsMin: 2 * MARK,
    lowWater: MARK,
    onEvent: ({ kind }) => void (exhausted += kind === 'exhausted' ? 1 : 0),
  });
  const random = new Random(SEED);
  const load = { clock: world.clock, random, endMicros: world.clock.now() + seconds * 1e6 };
  const isOver = (): boolean => world.clock.now() >= load.endMicros;
  const modest: LoadedVolume[] = [];
  const greedy: LoadedVolume[] = [];
  const ask = (volume: LoadedVolume, then?: () => void): void =>
    world.ask(volume, random.below(3) === 0, then);
  for (let index = 0; index < MODEST.count; index++) {
    const habit = { name: 'modest', perSecond: 20, burst: 0, burstsPerSecond: 0 };
    world.join(`modest ${index}`, { numMr: MODEST.numMr }, (volume) => {
      modest.push(volume);
      live(load, habit, () => ask(volume));
    });
  }
  for (let index = 0; index < IDLE.count; index++) {
    const habit = { name: 'idle', perSecond: 2, burst: 0, burstsPerSecond: 0 };
    const options = { numMr: IDLE.numMr, lendMrs: lends ? IDLE.lendMrs : 0 };
    world.join(`idle ${index}`, options, (volume) => live(load, habit, () => ask(volume)));
  }
  const again = (volume: LoadedVolume): void => {
    if (!isOver()) ask(volume, () => again(volume));
  };
  for (const weight of isGreedy ? GREEDY.weights : []) {
    world.join(`weight ${weight}`, { numMr: GREEDY.numMr, weight }, (volume) => {
      greedy.push(volume);
      for (let count = 0; count < GREEDY.underWay; count++) again(volume);
    });
  }
  const storm = (): void => {
    if (isOver()) return;
    for (const volume of modest) for (let one = 0; one < MODEST.burst; one++) ask(volume);
    world.clock.at(world.clock.now() + 1e6 / MODEST.stormsPerSecond, storm);
  };
  world.clock.at(world.clock.now() + 0.5e6 / MODEST.stormsPerSecond, storm);
  const { lines, inUse } = await sampleScarce(world, modest, greedy, load.endMicros);
  await world.runUntil(load.endMicros + REST_MICROS);
  const outcome = {
    modest: totals(modest),
    greedyInUse: inUse,
    greedyWaits: sum(greedy, (volume) => volume.regionWaits),
    reclaimed: world.pool.stats.reclaimed,
    lentAtEnd: sum(world.volumes, (volume) => volume.nvme.stats.regions.lent),
    exhausted,
    lines,
  };
  await world.close();
  return outcome;
}

/** Runs until `endMicros`; the regions in use over time, and how many each greedy volume had. */
async function sampleScarce(
  world: NvmeVolumes,
  modest: readonly LoadedVolume[],
  greedy: readonly LoadedVolume[],
  endMicros: number,
): Promise<{ lines: Record<string, [number, number][]>; inUse: number[] }> {
  const lines: Record<string, [number, number][]> = { modest: [], free: [] };
  const inUse = GREEDY.weights.map(() => 0);
  const startMicros = world.clock.now();
  let samples = 0;
  for (let at = startMicros + FINE_MICROS; at <= endMicros; at += FINE_MICROS) {
    await world.runUntil(at);
    const second = (at - startMicros) / 1e6;
    const { free, inBuckets } = world.pool.stats;
    const inModest = sum(modest, (volume) => volume.inUse);
    lines['modest']!.push([second, Math.max(1, inModest)]);
    lines['free']!.push([second, Math.max(1, free + inBuckets)]);
    for (const [index, volume] of greedy.entries()) {
      const name = `${volume.name}, the ${index % 2 === 0 ? 'first' : 'second'}`;
      (lines[name] ??= []).push([second, Math.max(1, volume.inUse)]);
      inUse[index]! += volume.inUse;
    }
    samples++;
  }
  return { lines, inUse: inUse.map((value) => value / samples) };
}
