/** One thread of `npm run sim`: takes the next seed until all are taken. */
import { parentPort, workerData } from 'node:worker_threads';
import { optionsOf } from './options.js';
import { simulateLayouts } from './layouts.js';
import { simulate } from './world.js';

export interface SeedTask {
  /** One number that all threads share: the next seed. */
  readonly next: Int32Array;
  readonly end: number;
  /** Random memory layouts in place of devices and their traffic. */
  readonly layouts: boolean;
}

/** What became of one seed. */
export interface SeedResult {
  readonly seed: number;
  readonly packets: number;
  readonly completions: number;
  readonly excused: boolean;
  /** The stack of what it threw; undefined: it passed. */
  readonly failure: string | undefined;
}

const { next, end, layouts } = workerData as SeedTask;

async function run(seed: number): Promise<SeedResult> {
  try {
    if (layouts) {
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
