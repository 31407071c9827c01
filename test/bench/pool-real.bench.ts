/**
 * Seed 002's comparison on the wall clock: volumes of our NVMe initiator in this process, our
 * target in another one, over UDP and on one device. Regions of each connection's own against a
 * pool with as many. The load is that of `pool-devices` at a part of its rates, with bursts of all
 * volumes at the same time.
 */
import {
  NvmeRamStore,
  NvmeTarget,
  RefusalError,
  connectNvme,
  createFmrPool,
  nvmeResponseTimes,
  openDevice,
  type Context,
  type FmrPool,
  type NvmeVolume,
  type OpenOptions,
} from '../../host/index.js';
import { Random } from '../simulation/random.js';
import { freshName } from '../support/member.js';
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
import { Partner, partnerTask, tell } from './partner.js';
import { HABITS, joinAll, live } from './volume-load.js';

const NQN = 'nqn.2026-01.dev.verbena:bench';
const IO_BYTES = 8192;
const BLOCK_BYTES = 512;
const PART_BYTES = 64 * IO_BYTES;
const DEPTH = 127;
const MEMORY_BYTES = 512 * 2 ** 20;
const MEDIUM = 'ssd';
const SEED = 3;
const SECONDS = 6;
/** Requests in flight may end. */
const REST_MILLIS = 500;
const SAMPLE_MILLIS = 50;
/** A part of the seed's rates: two processors have to serve both processes. */
const RATE = 0.1;
/** At the same time on all volumes that have bursts. */
const BURSTS_PER_SECOND = 2;
const REGIONS = 2048;
const VOLUMES = 56;
const FIRST_VOLUMES = 12;
const POLICIES = {
  static: { numMr: 113, mrsMin: 0 },
  pooled: { numMr: 32, mrsMin: 256 },
} as const;

type Policy = keyof typeof POLICIES;
type Way = 'udp' | 'local';

/** Where the target has its device. */
interface Task {
  readonly address: string;
  readonly name?: string;
}

function optionsOf({ address, name }: Task): OpenOptions {
  const memoryBytes = name === undefined ? MEMORY_BYTES : 2 * MEMORY_BYTES;
  const sizes = { memoryBytes, regionsMax: 8192 };
  return name === undefined ? { address, ...sizes } : { address, name, ...sizes };
}

class RealClock {
  now(): number {
    return performance.now() * 1000;
  }

  at(micros: number, fire: () => void): () => void {
    const timer = setTimeout(fire, Math.max(0, (micros - this.now()) / 1000));
    return () => clearTimeout(timer);
  }
}

/** The volumes of one run, and what their requests took. */
class Volumes {
  readonly latencies: number[] = [];
  readonly volumes: NvmeVolume[] = [];
  readonly pool: FmrPool;
  asked = 0;
  failed = 0;
  failure: Error | undefined;
  readonly #context: Context;
  readonly #memory: Uint8Array;
  readonly #free: number[];
  #joined: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(context: Context, mrsMin: number) {
    this.#context = context;
    this.#memory = context.alloc(REGIONS * 2 * IO_BYTES);
    this.#free = Array.from({ length: REGIONS * 2 }, (_, index) => index);
    const lowWater = Math.min(mrsMin, 32);
    const limits = { maxLength: 65536, mrsMax: REGIONS, mrsMin, lowWater, idleMicros: 20_000 };
    this.pool = createFmrPool(context, undefined, limits);
  }

  get done(): number {
    return this.latencies.length;
  }

  get regionWaits(): number {
    return this.volumes.reduce((sum, { stats }) => sum + stats.regionWaits, 0);
  }

  get inUse(): number {
    return this.volumes.reduce((sum, { stats }) => sum + stats.regions.inUse, 0);
  }

  /** Connects one more, behind those before: a target admits few silent connections at once. */
  join(address: string, numMr: number, use: (volume: NvmeVolume, index: number) => void): void {
    const fixed = { nqn: NQN, queueDepth: DEPTH, keepAliveMillis: 0 };
    const open = (): Promise<NvmeVolume> =>
      connectNvme(address, { ...fixed, context: this.#context, pool: this.pool, numMr });
    this.#joined = this.#joined.then(open).then(
      (volume) => {
        if (!this.#isClosed) use(volume, this.volumes.push(volume) - 1);
        else return volume.close();
      },
      (error: Error) => {
        this.failed++;
        const isFull = error instanceof RefusalError && error.code === 'ENOMEM';
        if (!isFull) this.failure ??= error;
      },
    );
  }

  /** A request to the volume's own part; a READ must find what was written there. */
  ask(volume: NvmeVolume, index: number, isWrite: boolean): void {
    const slot = this.#free.pop();
    if (slot === undefined) throw new Error('more requests in flight than there are buffers');
    const buffer = this.#memory.subarray(slot * IO_BYTES, (slot + 1) * IO_BYTES);
    const words = new DataView(buffer.buffer, buffer.byteOffset, IO_BYTES);
    const place = (index * PART_BYTES) / IO_BYTES + (this.asked++ % (PART_BYTES / IO_BYTES));
    words.setUint32(IO_BYTES - 8, isWrite ? place : 0xffffffff);
    const start = performance.now();
    const lba = (place * IO_BYTES) / BLOCK_BYTES;
    const moved = isWrite ? volume.write(lba, buffer) : volume.read(lba, buffer);
    moved.then(
      () => {
        const found = words.getUint32(IO_BYTES - 8);
        if (found !== place && (isWrite || found !== 0)) {
          this.failure ??= new Error(`volume ${index}: other bytes than its own`);
        }
        this.#free.push(slot);
        this.latencies.push((performance.now() - start) * 1000);
      },
      (error: Error) => (this.failure ??= error),
    );
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#joined;
    await Promise.all(this.volumes.map((volume) => volume.close()));
    this.pool.destroy();
    this.#context.free(this.#memory);
  }
}

const sleep = (millis: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, millis));

type Lines = readonly (readonly [number, number])[];

interface Outcome {
  readonly figures: Figures;
  readonly waits: Lines;
  readonly inUse: Lines;
  readonly volumes: number;
  readonly failed: number;
  readonly left: number;
}

/** Runs the load on volumes of the target at `address`. */
async function runLoad(context: Context, address: string, policy: Policy, seconds: number) {
  const { numMr, mrsMin } = POLICIES[policy];
  const all = new Volumes(context, mrsMin);
  const clock = new RealClock();
  const random = new Random(SEED);
  const startMicros = clock.now();
  const load = { clock, random, endMicros: startMicros + seconds * 1e6 };
  const bursting: (() => void)[] = [];
  joinAll(load, FIRST_VOLUMES, VOLUMES, (index) => {
    const { burst, ...habit } = HABITS[index % HABITS.length]!;
    all.join(address, numMr, (volume, place) => {
      const ask = (): void => all.ask(volume, place, random.below(3) === 0);
      const perSecond = habit.perSecond * RATE;
      live(load, { ...habit, perSecond, burst: 0, burstsPerSecond: 0 }, ask);
      for (let count = 0; count < burst; count++) bursting.push(ask);
    });
  });
  const bursts = setInterval(() => {
    if (clock.now() < load.endMicros) for (const ask of bursting) ask();
  }, 1000 / BURSTS_PER_SECOND);
  const [waits, inUse]: [[number, number][], [number, number][]] = [[], []];
  while (clock.now() < load.endMicros && all.failure === undefined) {
    await sleep(SAMPLE_MILLIS);
    const second = (clock.now() - startMicros) / 1e6;
    waits.push([second, Math.max(1, all.regionWaits)]);
    inUse.push([second, Math.max(1, all.inUse)]);
  }
  clearInterval(bursts);
  await sleep(REST_MILLIS);
  if (all.failure) throw all.failure;
  const sorted = Float64Array.from(all.latencies).sort();
  const part = (share: number): number => sorted[Math.floor(sorted.length * share)] ?? NaN;
  const outcome: Outcome = {
    figures: {
      volumes: all.volumes.length,
      failed_connections: all.failed,
      per_second: all.done / seconds,
      p50_us: part(0.5),
      p99_us: part(0.99),
      p999_us: part(0.999),
      region_waits: all.regionWaits,
    },
    waits,
    inUse,
    volumes: all.volumes.length,
    failed: all.failed,
    left: all.asked - all.done,
  };
  await all.close();
  return outcome;
}

async function runWay(way: Way, policy: Policy, seconds: number): Promise<Outcome> {
  const task: Task =
    way === 'udp' ? { address: '127.0.62.1' } : { address: '127.0.62.3', name: freshName() };
  const partner = await Partner.start<{ ready: boolean }>(import.meta.url, task);
  const own = way === 'udp' ? { address: '127.0.62.2' } : task;
  const context = await openDevice(optionsOf(own));
  try {
    return await runLoad(context, task.address, policy, seconds);
  } finally {
    await context.close();
    partner.tell('end');
    await partner.ended();
  }
}

async function run({ share }: Pace): Promise<BenchResult> {
  const seconds = Math.max(1, SECONDS * share);
  const figures: Figures = {};
  const bars: Bar[] = [];
  const lines: Record<Way, Record<'waits' | 'inUse', Record<string, Lines>>> = {
    udp: { waits: {}, inUse: {} },
    local: { waits: {}, inUse: {} },
  };
  for (const way of ['udp', 'local'] as const) {
    const volumes: Partial<Record<Policy, number>> = {};
    for (const policy of ['static', 'pooled'] as const) {
      progress(`pool-real: ${policy}, ${way}`);
      const outcome = await runWay(way, policy, seconds);
      for (const [name, value] of Object.entries(outcome.figures)) {
        figures[`${way}_${policy}_${name}`] = value;
      }
      lines[way].waits[policy] = outcome.waits;
      lines[way].inUse[policy] = outcome.inUse;
      volumes[policy] = outcome.volumes;
      if (policy === 'static') continue;
      bars.push(atMost(`${way}: connections that fail, pooled`, outcome.failed, 0));
      bars.push(atMost(`${way}: requests without an end, pooled`, outcome.left, 0));
    }
    const ratio = volumes.pooled! / volumes.static!;
    bars.push(atLeast(`${way}: volumes of a pool, of static ones`, ratio, 3));
  }
  const curves: Curve[] = (['udp', 'local'] as const).flatMap((way) => [
    { title: `${way}: regions in use, over seconds`, lines: lines[way].inUse },
    { title: `${way}: requests that waited for a region, over seconds`, lines: lines[way].waits },
  ]);
  return { figures, bars, counts: 'messages', curves };
}

const task = partnerTask<Task>(import.meta.url);
if (task !== undefined) {
  const device = await openDevice(optionsOf(task));
  const target = await NvmeTarget.open(device, {
    store: new NvmeRamStore(device, VOLUMES * PART_BYTES),
    nqn: NQN,
    delayMicros: nvmeResponseTimes(MEDIUM, 7),
    queuesPerSource: 256,
  });
  process.once('message', async () => {
    await target.close();
    await device.close();
    process.disconnect();
  });
  tell({ ready: true });
}

export const bench: Bench = {
  name: 'pool-real',
  description: 'volumes of seed 002 on the wall clock: a pool against static regions',
  run,
};
