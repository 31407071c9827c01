/**
 * The simulation from the command line.
 * ```
 *   npm run -s sim -- --seeds 5000 [--first 1]      runs seeds
 *   npm run -s sim -- --replay 123                  one seed, twice, and what it did
 *   npm run -s sim -- --replay '{"seed":123,"loss":0}'
 *   npm run -s sim -- --layouts                   100,000 random memory layouts (--seeds, --replay)
 *   npm run -s sim -- --net [--seeds 2000]          streams through networks (--replay SEED)
 *   npm run -s sim -- --rds [--seeds 1000]          reliable datagrams (--replay SEED)
 *   npm run -s sim -- --periods                     a link loses every n-th packet, n from 2 to 200
 *   npm run -s sim -- --table                       writes both *.snapshot.txt
 *   npm run -s sim -- --kill                        processes that die at every step
 *   npm run -s sim -- --crash [--seeds 10000]       power cuts at every step (--replay SEED)
 *   npm run -s sim -- --crash --kill                a real server, killed 200 times (--seeds N)
 * ```
 * A seed that fails is shrunk, and printed with the line that replays it. Ends with
 * `N passed, N failed`.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { runKills } from '../exhaustive/deaths.js';
import { read } from '../support/script.js';
import { runCrashes, runServerKills } from './crash-runs.js';
import { flowOptionsOf, simulateFlows } from './flow-seeds.js';
import { LAYOUTS_A_SEED, simulateLayouts } from './layouts.js';
import { runHost } from './host/world.js';
import { formatOptions, optionsOf, type SimulationOptions } from './options.js';
import { runLosses } from './periodic-loss.js';
import { runRds } from './rds-runs.js';
import { shrink } from './shrink.js';
import { writeRuns } from './recorded-runs.js';
import { writeSnapshot } from './throughput.js';
import { words, type SimulationWords } from './words.js';
import type { SeedKind, SeedResult, SeedTask } from './worker.js';
import { simulate } from './world.js';

const PROGRESS_MILLIS = 2000;
/** Shrinking takes a while: of a run with many failures, the first ones. */
const SHRINKS_MAX = 3;
/** Memory layouts, unless `--seeds` says how many seeds. */
const LAYOUTS = 100_000;
/** Seeds of power cuts. */
const CRASHES = 10_000;
/** Times that a real server is killed. */
const SERVER_KILLS = 200;

interface Run {
  readonly first: number;
  readonly count: number;
  readonly threads: number;
  readonly shrinks: boolean;
  /** Ends with the first failure. */
  readonly bail: boolean;
  readonly kind: SeedKind;
}

interface Totals {
  passed: number;
  failed: number;
  excused: number;
  packets: number;
  completions: number;
}

async function runSeeds(run: Run): Promise<number> {
  const { first, count } = run;
  const started = performance.now();
  const startedCpu = process.cpuUsage();
  const totals: Totals = { passed: 0, failed: 0, excused: 0, packets: 0, completions: 0 };
  const perSecond = (packets: number): number =>
    Math.round((packets / (performance.now() - started)) * 1000);
  const progress = setInterval(() => {
    const { passed, failed, packets } = totals;
    const done = passed + failed;
    const speed = run.kind === 'layouts' ? '' : `, ${perSecond(packets)} packets/s`;
    console.error(`${done} of ${count} seeds, ${failed} failed${speed}`);
  }, PROGRESS_MILLIS);
  const next = new Int32Array(new SharedArrayBuffer(4)).fill(first);
  const task: SeedTask = { next, end: first + count, kind: run.kind };
  const stop = (): void => void Atomics.store(next, 0, task.end);
  await Promise.all(
    Array.from({ length: Math.min(run.threads, count) }, () => runThread(task, run, totals, stop)),
  );
  clearInterval(progress);
  const { passed, failed, excused, packets, completions } = totals;
  const seconds = (performance.now() - started) / 1000;
  // Of all threads and the garbage collectors: what a busy machine does not change.
  const { user, system } = process.cpuUsage(startedCpu);
  if (run.kind === 'layouts')
    console.log(`${count * LAYOUTS_A_SEED} layouts in ${seconds.toFixed(1)} s`);
  else
    console.log(
      `${packets} packets and ${completions} completions in ${seconds.toFixed(1)} s: ` +
        `${perSecond(packets)} packets/s in ${run.threads} threads, ` +
        `${Math.round((packets * 1e6) / (user + system))} per second of CPU time`,
    );
  if (excused > 0)
    console.log(`${excused} ended when a corrupted packet passed the ICRC over IPv4`);
  console.log(`${passed} passed, ${failed} failed`);
  return failed;
}

/** One worker, from its first seed to its end. Failures are reported and shrunk here, in turn. */
async function runThread(task: SeedTask, run: Run, totals: Totals, stop: () => void) {
  const worker = new Worker(new URL('./worker.js', import.meta.url), { workerData: task });
  let telling = Promise.resolve();
  worker.on('message', ({ seed, packets, completions, excused, failure }: SeedResult) => {
    totals.packets += packets;
    totals.completions += completions;
    if (excused) totals.excused++;
    if (failure === undefined) totals.passed++;
    else {
      const shrinks = run.shrinks && totals.failed < SHRINKS_MAX;
      totals.failed++;
      if (run.bail) stop();
      telling = telling.then(() => {
        console.log(`seed ${seed}: ${failure}`);
        if (run.kind === 'devices') return tell(optionsOf(seed), shrinks);
        console.log(`  replay: npm run -s sim -- --${run.kind} --replay ${seed}`);
      });
    }
  });
  await once(worker, 'exit');
  await telling;
}

async function tell(options: SimulationOptions, shrinks: boolean): Promise<void> {
  console.log(`  replay: npm run -s sim -- --replay '${formatOptions(options)}'`);
  if (!shrinks) return;
  const { options: smallest, error } = await shrink(options);
  console.log(`  shrunk: ${error.message}`);
  console.log(`  replay: npm run -s sim -- --replay '${formatOptions(smallest)}'`);
}

async function replay(options: SimulationOptions): Promise<number> {
  console.log(options);
  try {
    const outcome = await simulate(options);
    const again = await simulate(options);
    console.log(outcome);
    if (outcome.hash !== again.hash) throw new Error(`not deterministic: then ${again.hash}`);
    console.log('1 passed, 0 failed');
    return 0;
  } catch (error) {
    console.log((error as Error).stack);
    await tell(options, true);
    console.log('0 passed, 1 failed');
    return 1;
  }
}

async function main(): Promise<number> {
  const values = read<SimulationWords>(words).options;
  const { first, seeds } = values;
  if (values.table) {
    await writeRuns();
    console.log(await writeSnapshot());
    return 0;
  }
  const { replay: replayed } = values;
  if (values.rds) {
    return replayed === undefined ? runRds(first, seeds ?? 1000) : runRds(replayed.seed, 1);
  }
  if (values.host) {
    return replayed === undefined ? runHost(first, seeds ?? 1000) : runHost(replayed.seed, 1);
  }
  if (values.periods) return runLosses();
  if (values.kill && !values.crash) return runKills();
  if (values.crash) {
    if (replayed !== undefined) return runCrashes(replayed.seed, 1);
    if (values.kill) return runServerKills(seeds ?? SERVER_KILLS);
    return runCrashes(first, seeds ?? CRASHES);
  }
  if (values.net && replayed !== undefined) {
    console.log(flowOptionsOf(replayed.seed));
    console.log(await simulateFlows(replayed.seed));
    console.log('1 passed, 0 failed');
    return 0;
  }
  if (values.layouts && replayed !== undefined) {
    await simulateLayouts(replayed.seed);
    console.log('1 passed, 0 failed');
    return 0;
  }
  if (replayed !== undefined) return replay(replayed);
  return runSeeds({
    first,
    count: seeds ?? (values.layouts ? LAYOUTS / LAYOUTS_A_SEED : 1000),
    threads: values.threads,
    shrinks: values.shrink,
    bail: values.bail,
    kind: values.layouts ? 'layouts' : values.net ? 'net' : 'devices',
  });
}

process.exitCode = (await main()) > 0 ? 1 : 0;
