/**
 * A pool whose size follows recent demand against pools of fixed sizes, and users that lend the
 * regions of their own that recent demand does not need against users that keep them, under three
 * recorded loads (steady, diurnal, bursts), in virtual time: latency of requests, and regions that
 * the pool has.
 */
import { VirtualClock, createFmrPool, createLoopbackPair, openDevice } from '../../host/index.js';
import { Random } from '../simulation/random.js';
import {
  atMost,
  type Bar,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
} from './harness.js';

const SECONDS = 8;
const SERVICE_MICROS = 1000;
/** A request that found no region tries again with each region that is put, and so often. */
const RETRY_MICROS = 250;
const MRS_MAX = 2048;
/** Fixed sizes: for the mean of the loads, and for the largest burst. */
const MEAN_MRS = 128;
const BURST = 512;
const USERS = 8;
/** Regions of each user's own, where a burst is of one user. */
const OWN_MRS = 56;

type Load = 'steady' | 'diurnal' | 'bursts';
type Size = 'fixed_128' | 'fixed_512' | 'follows' | 'follows_long' | 'own_kept' | 'own_lent';

const WITH_OWN = { mrsMin: BURST - USERS * OWN_MRS, mrsMax: BURST };
const SIZES: Readonly<Record<Size, object>> = {
  fixed_128: { mrsMin: MEAN_MRS, mrsMax: MEAN_MRS, lowWater: 0 },
  fixed_512: { mrsMin: BURST, mrsMax: BURST, lowWater: 0 },
  follows: { mrsMin: 16, mrsMax: MRS_MAX },
  follows_long: { mrsMin: 16, mrsMax: MRS_MAX, demandMicros: 10e6 },
  own_kept: WITH_OWN,
  own_lent: WITH_OWN,
};

/** A request. */
interface Recorded {
  /** Microseconds. */
  readonly at: number;
  /** Number of its burst; undefined: of none. */
  readonly burst?: number;
}

function record(load: Load, seconds: number): Recorded[] {
  const random = new Random(3);
  const times: Recorded[] = [];
  const exponential = (perSecond: number): number =>
    (-Math.log(1 - random.below(1e6) / 1e6) * 1e6) / perSecond;
  const rate = (at: number): number => {
    if (load === 'steady') return 60_000;
    // A day is four seconds.
    if (load === 'diurnal') return 40_000 * (1 + 0.9 * Math.sin((at / 4e6) * 2 * Math.PI));
    return 5_000;
  };
  for (let at = 0; at < seconds * 1e6; at += exponential(rate(at))) times.push({ at });
  if (load !== 'bursts') return times;
  let burst = 0;
  for (let at = exponential(4); at < seconds * 1e6; at += exponential(4)) {
    for (let count = 0; count < BURST; count++) times.push({ at, burst });
    burst++;
  }
  return times.sort((one, other) => one.at - other.at);
}

interface Outcome {
  readonly p50Micros: number;
  readonly p99Micros: number;
  readonly p999Micros: number;
  readonly waits: number;
  readonly meanRegions: number;
}

async function replay(requests: readonly Recorded[], size: Size): Promise<Outcome> {
  const clock = new VirtualClock();
  const device = { link: createLoopbackPair().a, clock, regionsMax: 2 * MRS_MAX };
  await using context = await openDevice(device);
  const pool = createFmrPool(context, undefined, { maxLength: 4096, ...SIZES[size] });
  const owns = size === 'own_kept' || size === 'own_lent';
  const settings = size === 'own_lent' ? ({ reclaim: 'idle' } as const) : {};
  const users = Array.from({ length: USERS }, () => pool.createUser(owns ? OWN_MRS : 0, settings));
  const waiting: (() => boolean)[] = [];
  const latencies: number[] = [];
  let waits = 0;
  let regions = 0;
  const retry = (): void => {
    while (waiting.length > 0 && waiting[0]!()) waiting.shift();
  };
  const issue = (index: number): void => {
    const { burst = index } = owns ? requests[index]! : {};
    const user = users[burst % USERS]!;
    const start = clock.now();
    const begin = (): boolean => {
      const desc = user.getMr();
      if (!desc) return false;
      clock.at(clock.now() + SERVICE_MICROS, () => {
        user.putMr(desc);
        latencies.push(clock.now() - start);
        retry();
      });
      return true;
    };
    if (waiting.length === 0 && begin()) return;
    waits++;
    waiting.push(begin);
  };
  const start = clock.now();
  let next = 0;
  for (let ticks = 0; latencies.length < requests.length; ticks++) {
    clock.advance(RETRY_MICROS / 5);
    for (; next < requests.length && start + requests[next]!.at <= clock.now(); next++) issue(next);
    if (ticks % 5 === 0) retry();
    regions += pool.stats.total;
    if (next === requests.length && waiting.length === 0) clock.advance(SERVICE_MICROS);
  }
  const meanRegions = (regions * RETRY_MICROS) / 5 / (clock.now() - start);
  const sorted = Float64Array.from(latencies).sort();
  const at = (part: number): number => sorted[Math.floor((sorted.length - 1) * part)]!;
  const percentiles = { p50Micros: at(0.5), p99Micros: at(0.99), p999Micros: at(0.999) };
  return { ...percentiles, waits, meanRegions };
}

async function run({ share }: Pace): Promise<BenchResult> {
  const figures: Figures = {};
  const bars: Bar[] = [];
  for (const load of ['steady', 'diurnal', 'bursts'] as const) {
    const requests = record(load, SECONDS * share);
    for (const size of Object.keys(SIZES) as Size[]) {
      const outcome = await replay(requests, size);
      Object.assign(figures, {
        [`${load}_${size}_p50_us`]: outcome.p50Micros,
        [`${load}_${size}_p99_us`]: outcome.p99Micros,
        [`${load}_${size}_p999_us`]: outcome.p999Micros,
        [`${load}_${size}_waits`]: outcome.waits,
        [`${load}_${size}_mean_regions`]: outcome.meanRegions,
      });
    }
    const p99 = (size: Size): number => figures[`${load}_${size}_p99_us`]!;
    const most = load === 'bursts' ? 0.5 : 1.05;
    bars.push(atMost(`${load}: p99, follows against 128`, p99('follows') / p99('fixed_128'), most));
    const ratio = p99('follows_long') / p99('fixed_128');
    bars.push(atMost(`${load}: p99, follows for 10 s against 128`, ratio, most));
    const lent = p99('own_lent') / p99('own_kept');
    bars.push(atMost(`${load}: p99, idle regions of users lent against kept`, lent, most));
  }
  return { figures, bars };
}

export const bench: Bench = {
  name: 'pool-demand',
  description: 'pools that follow demand against fixed sizes: steady, diurnal and bursts of load',
  run,
};
