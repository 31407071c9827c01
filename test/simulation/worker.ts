/** One thread of `npm run sim`: takes the next seed until all are taken. */
import { parentPort, workerData } from 'node:worker_threads';
import { simulateFlows } from './flow-seeds.js';
import { optionsOf } from './options.js';
import { simulateLayouts } from './layouts.js';
import { simulateLongPath, simulatePathMtu } from './path-mtu-seeds.js';
import { simulate } from './world.js';

/** Devices and their traffic, memory layouts, or streams through a network. */
export type SeedKind = 'devices' | 'layouts' | 'net';

export interface SeedTask {
  /** One number that all threads share: the next seed. */
  readonly next: Int32Array;
  readonly end: number;
  readonly kind: SeedKind;
}

/** Result of one seed. */
export interface SeedResult {
  readonly seed: number;
  readonly packets: number;
  readonly completions: number;
  readonly excused: boolean;
  /** The stack of what it threw; undefined: it passed. */
  readonly failure: string | undefined;
}

const { next, end, kind } = workerData as SeedTask;

async function run(seed: number): Promise<SeedResult> {
  try {
    if (kind === 'net') {
      const { packets } = await simulateFlows(seed);
      const more = (await simulatePathMtu(seed)).packets;
      const long = (await simulateLongPath(seed)).packets;
      return {
        seed,
        packets: packets + more + long,
        completions: 0,
        excused: false,
        failure: undefined,
      };
    }
    if (kind === 'layouts') {
      await simulateLayouts(seed);
      return { seed, packets: 0, completions: 0, excused: false, failure: undefined };
    }
    const { network, completions, excused } = await simulate(optionsOf(seed));
    return { seed, packets: network.sent, completions, excused, failure: undefined };
  } catch (error) {
    const failure = (error as Error).stack ?? String(error);
    return { seed, packets: 0, completions: 0, excused: false, failure };
  }
}

for (;;) {
  const seed = Atomics.add(next, 0, 1);
  if (seed >= end) break;
  parentPort!.postMessage(await run(seed));
}
