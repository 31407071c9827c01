/**
 * The simulation from the command line.
 * ```
 *   npm run -s sim -- --seeds 5000 [--first 1]      runs seeds
 *   npm run -s sim -- --replay 123                  one seed, twice, and what it did
 *   npm run -s sim -- --replay '{"seed":123,"loss":0}'
 *   npm run -s sim -- --table                       writes throughput.snapshot.txt
 * ```
 * A seed that fails is shrunk, and printed with the line that replays it. Ends with
 * `N passed, N failed`.
 */
import { parseArgs } from 'node:util';
import { formatOptions, optionsOf, parseOptions, type SimulationOptions } from './options.js';
import { shrink } from './shrink.js';
import { writeSnapshot } from './throughput.js';
import { simulate } from './world.js';

const PROGRESS_MILLIS = 2000;
/** Shrinking takes a while: of a run with many failures, the first ones. */
const SHRINKS_MAX = 3;

interface Run {
  readonly first: number;
  readonly count: number;
  readonly shrinks: boolean;
  /** Ends with the first failure. */
  readonly bail: boolean;
}

async function runSeeds({ first, count, shrinks, bail }: Run): Promise<number> {
  const started = performance.now();
  const startedCpu = process.cpuUsage();
  let passed = 0;
  let failed = 0;
  let excused = 0;
  let packets = 0;
  let completions = 0;
  let said = started;
  for (let seed = first; seed < first + count && !(bail && failed > 0); seed++) {
    try {
      const outcome = await simulate(optionsOf(seed));
      passed++;
      packets += outcome.network.sent;
      completions += outcome.completions;
      if (outcome.excused) excused++;
    } catch (error) {
      failed++;
      console.log(`seed ${seed}: ${(error as Error).stack}`);
      await tell(optionsOf(seed), shrinks && failed <= SHRINKS_MAX);
    }
    const now = performance.now();
    if (now - said < PROGRESS_MILLIS) continue;
    said = now;
    const rate = Math.round((packets / (now - started)) * 1000);
    console.error(`${seed - first + 1} of ${count} seeds, ${failed} failed, ${rate} packets/s`);
  }
  const seconds = (performance.now() - started) / 1000;
  // Of this process's main thread and the garbage collector's: what a busy machine does not change.
  const { user, system } = process.cpuUsage(startedCpu);
  const rate = Math.round((packets * 1e6) / (user + system));
  console.log(
    `${packets} packets and ${completions} completions in ${seconds.toFixed(1)} s: ` +
      `${Math.round(packets / seconds)} packets/s, ${rate} per second of CPU time`,
  );
  if (excused > 0)
    console.log(`${excused} ended when a corrupted packet passed the ICRC over IPv4`);
  console.log(`${passed} passed, ${failed} failed`);
  return failed;
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
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: '1000' },
      first: { type: 'string', default: '1' },
      replay: { type: 'string' },
      'no-shrink': { type: 'boolean', default: false },
      bail: { type: 'boolean', default: false },
      table: { type: 'boolean', default: false },
    },
  });
  if (values.table) {
    console.log(await writeSnapshot());
    return 0;
  }
  if (values.replay !== undefined) return replay(parseOptions(values.replay));
  return runSeeds({
    first: Number(values.first),
    count: Number(values.seeds),
    shrinks: !values['no-shrink'],
    bail: values.bail,
  });
}

process.exitCode = (await main()) > 0 ? 1 : 0;
