/**
 * Seed 002's comparison: how many volumes 2,048 memory regions serve, and how well, under a
 * workload that changes: regions that each connection has for itself (static), regions that are
 * made when they are missing (growth), and a pool (pooled).
 */
import {
  RefusalError,
  createFmrPool,
  incRkey,
  type FastMemoryRegion,
  type FmrPool,
  type FmrPoolUser,
  type NvmeMedium,
} from '../../host/index.js';
import { Random } from '../simulation/random.js';
import { BlockWorld, STORES, type Source, type Volume } from './block-volumes.js';
import {
  atLeast,
  atMost,
  progress,
  type Bar,
  type Bench,
  type BenchResult,
  type Curve,
  type Figures,
  type Pace,
} from './harness.js';
import { runNvme, runScarce } from './nvme-load.js';
import { HABITS, joinAll, live } from './volume-load.js';

const REGIONS = 2048;
const ISER_MRS = 113;
/** Regions per connection by ULP, as the seed has them. */
const ULPS = { srp: 128, iser: 113, nfs: 2178 } as const;
const L1_MRS = 32;
const POOL_MRS = 256;
/** Volumes that are there from the beginning; the others join under load. */
const FIRST_VOLUMES = 40;
const SECONDS = 4;
const SEED = 2;
/** Slow growth: the regions of a new connection; each further one takes a blocking command. */
const GROWTH_MRS = 16;
const MAKE_MICROS = 100;
const SAMPLE_MICROS = 10_000;
const NVME_SECONDS = 1;

type Policy = 'static' | 'growth' | 'pooled';

/** Gives sources to connections; undefined: the connection fails. */
interface Supply {
  open(): Source | undefined;
  /** Regions in use, or kept by their users. */
  made(): number;
  readonly pool?: FmrPool;
}

function ofPool(user: FmrPoolUser): Source {
  return {
    take: () => {
      const desc = user.getMr();
      return (
        desc && {
          regMr: (buffer, access) => desc.regMr(buffer, access),
          put: () => user.putMr(desc),
        }
      );
    },
  };
}

function poolSupply(world: BlockWorld, numMr: number, mrsMin: number): Supply {
  const pool = createFmrPool(world.initiator.context, undefined, {
    maxLength: 65536,
    mrsMax: REGIONS,
    mrsMin,
    lowWater: Math.min(mrsMin, 32),
    idleMicros: 20_000,
  });
  return {
    pool,
    made: () => pool.stats.total,
    open: () => {
      try {
        const user: FmrPoolUser = pool.createUser(numMr, {
          reclaim: (wanted) => Math.min(wanted, Math.max(0, (numMr - user.stats.inUse) >> 2)),
        });
        return ofPool(user);
      } catch (error) {
        if (error instanceof RefusalError && error.code === 'ENOMEM') return undefined;
        throw error;
      }
    },
  };
}

/** A connection begins with few regions, creates more while it waits, and releases none. */
function growthSupply(world: BlockWorld): Supply {
  const { context } = world.initiator;
  let made = 0;
  const make = (free: FastMemoryRegion[]): void => {
    free.push(context.allocMr(65536));
    made++;
  };
  return {
    made: () => made,
    open: () => {
      if (made + GROWTH_MRS > REGIONS) return undefined;
      const free: FastMemoryRegion[] = [];
      while (free.length < GROWTH_MRS) make(free);
      return {
        take: () => {
          const mr = free.pop();
          return (
            mr && {
              regMr: (buffer, access) => ({ mr, key: incRkey(mr.rkey), buffer, access }),
              put: () => void free.push(mr),
            }
          );
        },
        makeMicros: () => {
          if (made >= REGIONS) return undefined;
          make(free);
          return MAKE_MICROS;
        },
      };
    },
  };
}

function supplyOf(policy: Policy, world: BlockWorld): Supply {
  if (policy === 'growth') return growthSupply(world);
  return policy === 'static' ? poolSupply(world, ISER_MRS, 0) : poolSupply(world, L1_MRS, POOL_MRS);
}

interface Outcome {
  readonly volumes: number;
  readonly failed: number;
  readonly asked: number;
  readonly done: number;
  readonly stalls: number;
  readonly stallMicros: number;
  readonly p50Micros: number;
  readonly p99Micros: number;
  readonly maxMicros: number;
  /** Of the volume that fared worst: requests completed in time, of those issued. */
  readonly worstShare: number;
  readonly mostInUse: number;
  readonly inUse: readonly (readonly [number, number])[];
  readonly made: readonly (readonly [number, number])[];
  readonly iops: readonly (readonly [number, number])[];
}

async function simulate(policy: Policy, store: string, share: number): Promise<Outcome> {
  const random = new Random(SEED);
  const world = await BlockWorld.open(new Random(SEED + 1), STORES[store]!);
  const supply = supplyOf(policy, world);
  const seconds = SECONDS * share;
  const endMicros = world.clock.now() + seconds * 1e6;
  const startMicros = world.clock.now();
  const wanted = Math.floor((REGIONS - POOL_MRS) / L1_MRS);
  let failed = 0;
  const load = { clock: world.clock, random, endMicros };
  const join = (index: number): void => {
    const habit = HABITS[index % HABITS.length]!;
    const source = supply.open();
    if (!source) failed++;
    else {
      const volume = world.addVolume(`${habit.name} ${index}`, source);
      live(load, habit, () => world.ask(volume, random.below(3) === 0));
    }
  };
  joinAll(load, FIRST_VOLUMES, wanted, join);
  const inUse: [number, number][] = [];
  const made: [number, number][] = [];
  const iops: [number, number][] = [];
  let before = 0;
  for (let at = startMicros + SAMPLE_MICROS; at <= endMicros; at += SAMPLE_MICROS) {
    world.runUntil(at);
    const done = world.volumes.reduce((sum, volume) => sum + volume.done, 0);
    const second = (at - startMicros) / 1e6;
    inUse.push([second, Math.max(1, world.underWay)]);
    made.push([second, supply.made()]);
    iops.push([second, Math.max(1, ((done - before) * 1e6) / SAMPLE_MICROS)]);
    before = done;
  }
  // Requests in flight complete: as long as the slowest store takes.
  world.runUntil(endMicros + 13_000);
  const { volumes } = world;
  const sum = (pick: (volume: Volume) => number): number =>
    volumes.reduce((total, volume) => total + pick(volume), 0);
  const latencies = Float64Array.from(volumes.flatMap((volume) => volume.latencies)).sort();
  const at = (part: number): number =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))]!;
  const outcome = {
    volumes: volumes.length,
    failed,
    asked: sum((volume) => volume.asked),
    done: sum((volume) => volume.done),
    stalls: sum((volume) => volume.stalls),
    stallMicros: sum((volume) => volume.stallMicros),
    p50Micros: at(0.5),
    p99Micros: at(0.99),
    maxMicros: latencies[latencies.length - 1]!,
    worstShare: Math.min(...volumes.map(({ done, asked }) => (asked > 0 ? done / asked : 1))),
    mostInUse: world.mostUnderWay,
    inUse,
    made,
    iops,
  };
  await world.close();
  return outcome;
}

/** Creates volumes of `numMr` regions each until the device is full; returns their number. */
async function countVolumes(numMr: number, mrsMin: number): Promise<number> {
  const world = await BlockWorld.open(new Random(1), STORES['ram']!);
  const supply = poolSupply(world, numMr, mrsMin);
  let volumes = 0;
  while (numMr <= REGIONS && supply.open()) volumes++;
  await world.close();
  return volumes;
}

async function run({ share }: Pace): Promise<BenchResult> {
  const figures: Figures = {};
  const bars: Bar[] = [];
  for (const [ulp, numMr] of Object.entries(ULPS)) {
    figures[`${ulp}_static_volumes`] = await countVolumes(numMr, 0);
  }
  figures['pooled_volumes'] = await countVolumes(L1_MRS, POOL_MRS);
  figures['seed_pooled_volumes'] = 54;
  bars.push(atLeast('volumes, pooled', figures['pooled_volumes'], 54));
  bars.push(atMost('volumes, static (iSER)', figures['iser_static_volumes']!, 18));
  const lines: Record<'inUse' | 'made' | 'iops', Curve['lines']> = {
    inUse: {},
    made: {},
    iops: {},
  };
  const runs: readonly (readonly [Policy, string])[] = [
    ['static', 'hybrid'],
    ['static', 'disk'],
    ['growth', 'hybrid'],
    ['growth', 'disk'],
    ...Object.keys(STORES).map((store) => ['pooled', store] as const),
  ];
  for (const [policy, store] of runs) {
    progress(`pool-devices: ${policy}, ${store}`);
    const outcome = await simulate(policy, store, share);
    const name = `${policy}_${store}`;
    const seconds = SECONDS * share;
    Object.assign(figures, {
      [`${name}_volumes`]: outcome.volumes,
      [`${name}_failed_connections`]: outcome.failed,
      [`${name}_iops_per_second`]: outcome.done / seconds,
      [`${name}_of_asked_percent`]: (100 * outcome.done) / outcome.asked,
      [`${name}_worst_volume_percent`]: 100 * outcome.worstShare,
      [`${name}_p50_us`]: outcome.p50Micros,
      [`${name}_p99_us`]: outcome.p99Micros,
      [`${name}_longest_ms`]: outcome.maxMicros / 1000,
      [`${name}_stalled_requests`]: outcome.stalls,
      [`${name}_stalled_ms`]: outcome.stallMicros / 1000,
      [`${name}_most_in_use`]: outcome.mostInUse,
    });
    if (store === 'hybrid') {
      for (const what of ['inUse', 'made', 'iops'] as const) {
        lines[what] = { ...lines[what], [policy]: outcome[what] };
      }
    }
    if (policy !== 'pooled') continue;
    bars.push(atMost(`${store}: connections that fail, pooled`, outcome.failed, 0));
    bars.push(atMost(`${store}: requests that wait for a region, pooled`, outcome.stalls, 0));
    const worst = 100 * outcome.worstShare;
    bars.push(atLeast(`${store}: done in time, the worst volume, percent`, worst, 100));
  }
  const curves = [
    { title: 'regions in use, over seconds (hybrid store)', lines: lines.inUse },
    { title: 'regions made, over seconds (hybrid store)', lines: lines.made },
    { title: 'requests a second, over seconds (hybrid store)', lines: lines.iops },
    ...(await runVolumes(share, figures, bars)),
    ...(await runShortage(share, figures, bars)),
  ];
  return { figures, bars, counts: 'messages', curves };
}

/** The same workload on volumes of our NVMe initiator. */
async function runVolumes(share: number, figures: Figures, bars: Bar[]): Promise<Curve[]> {
  const seconds = NVME_SECONDS * share;
  const volumes = Math.floor((REGIONS - POOL_MRS) / L1_MRS);
  const plan = { seconds, regions: REGIONS, volumes, firstVolumes: FIRST_VOLUMES };
  const lines: Record<'inUse' | 'made' | 'iops', Curve['lines']> = {
    inUse: {},
    made: {},
    iops: {},
  };
  const pooled = { numMr: L1_MRS, mrsMin: POOL_MRS };
  const runs: readonly (readonly [Policy, NvmeMedium, typeof pooled])[] = [
    ['static', 'hybrid', { numMr: ISER_MRS, mrsMin: 0 }],
    ...(['ram', 'ssd', 'disk', 'hybrid'] as const).map(
      (medium) => ['pooled', medium, pooled] as const,
    ),
  ];
  for (const [policy, medium, regions] of runs) {
    progress(`pool-devices: NVMe volumes, ${policy}, ${medium}`);
    const outcome = await runNvme({ ...plan, ...regions, medium });
    const name = `nvme_${policy}_${medium}`;
    Object.assign(figures, {
      [`${name}_volumes`]: outcome.volumes,
      [`${name}_failed_connections`]: outcome.failed,
      [`${name}_iops_per_second`]: outcome.done / seconds,
      [`${name}_worst_volume_percent`]: 100 * outcome.worstShare,
      [`${name}_p99_us`]: outcome.p99Micros,
      [`${name}_region_waits`]: outcome.regionWaits,
      [`${name}_most_in_use`]: outcome.mostInUse,
    });
    if (medium === 'hybrid') {
      for (const what of ['inUse', 'made', 'iops'] as const) {
        lines[what] = { ...lines[what], [policy]: outcome[what] };
      }
    }
    if (policy !== 'pooled') continue;
    const what = `NVMe, ${medium}`;
    bars.push(atMost(`${what}: connections that fail, pooled`, outcome.failed, 0));
    bars.push(atMost(`${what}: commands that wait for a region, pooled`, outcome.regionWaits, 0));
    const worst = 100 * outcome.worstShare;
    bars.push(atLeast(`${what}: done, the worst volume, percent`, worst, 100));
  }
  return [
    { title: 'NVMe volumes: regions in use, over seconds (hybrid store)', lines: lines.inUse },
    { title: 'NVMe volumes: regions made, over seconds (hybrid store)', lines: lines.made },
    { title: 'NVMe volumes: requests a second, over seconds (hybrid store)', lines: lines.iops },
  ];
}

/** Volumes that ask for more regions than there are, beside volumes that ask for little. */
async function runShortage(share: number, figures: Figures, bars: Bar[]): Promise<Curve[]> {
  const seconds = NVME_SECONDS * share;
  const runs = [
    ['alone', false, false],
    ['beside_greedy', true, false],
    ['with_lending', true, true],
  ] as const;
  let curves: Curve[] = [];
  for (const [name, isGreedy, lends] of runs) {
    progress(`pool-devices: demand exceeds supply, ${name}`);
    const outcome = await runScarce(seconds, isGreedy, lends);
    Object.assign(figures, {
      [`scarce_${name}_modest_p99_us`]: outcome.modest.p99Micros,
      [`scarce_${name}_modest_waits`]: outcome.modest.regionWaits,
      [`scarce_${name}_modest_requests`]: outcome.modest.asked,
      [`scarce_${name}_greedy_waits`]: outcome.greedyWaits,
      [`scarce_${name}_reclaimed`]: outcome.reclaimed,
      [`scarce_${name}_exhausted`]: outcome.exhausted,
    });
    const done = (100 * outcome.modest.done) / outcome.modest.asked;
    bars.push(atLeast(`scarce, ${name}: what modest volumes ask for is done, percent`, done, 100));
    if (!isGreedy) continue;
    const [one = 0, two = 0, three = 0, four = 0] = outcome.greedyInUse;
    Object.assign(figures, {
      [`scarce_${name}_weight_1_in_use`]: (one + two) / 2,
      [`scarce_${name}_weight_3_in_use`]: (three + four) / 2,
      [`scarce_${name}_lent_at_end`]: outcome.lentAtEnd,
    });
    const alone = figures['scarce_alone_modest_p99_us']!;
    const slower = outcome.modest.p99Micros / alone;
    bars.push(atMost(`scarce, ${name}: p99 of modest volumes, against alone`, slower, 1.2));
    if (lends) bars.push(atLeast('scarce: regions that idle volumes lent', outcome.reclaimed, 1));
    bars.push(atMost(`scarce, ${name}: lent regions that are not back`, outcome.lentAtEnd, 0));
    curves = [
      { title: `regions in use when there are too few, over seconds`, lines: outcome.lines },
    ];
  }
  return curves;
}

export const bench: Bench = {
  name: 'pool-devices',
  description: 'seed 002: volumes that 2,048 regions serve: static, by slow growth, from a pool',
  run,
};
