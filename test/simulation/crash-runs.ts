/** Many power cuts: one long run cut at every step, random ones, the fault that must be found. */
import { killServers } from '../support/killed-server.js';
import { crashOptionsOf, simulateCrash, type CrashOptions } from './crash.js';

/** Of the long run; its log is cut more than 2,000 times. */
const LONG_RECORDS = 500;
const LONG_LOG_SEED = 1;

/** Returns how many failed. Ends with `N passed, N failed`. */
export async function runCrashes(first: number, count: number): Promise<number> {
  const started = performance.now();
  let [passed, failed, steps, cuts, appended] = [0, 0, 0, 0, 0];
  const run = async (options: CrashOptions, isFaulty = false): Promise<void> => {
    const result = await simulateCrash(options);
    if (!isFaulty) {
      steps += result.steps;
      cuts += result.cuts;
      appended += result.appended;
    }
    const isFine = isFaulty ? result.violations.length > 0 : result.violations.length === 0;
    if (isFine) passed++;
    else {
      failed++;
      console.log(`${JSON.stringify(options)}: ${result.violations.join('; ') || 'not found out'}`);
      if (!isFaulty) console.log(`  replay: npm run -s sim -- --crash --replay ${options.seed}`);
    }
  };
  if (count > 1) {
    const long = { seed: LONG_LOG_SEED, records: LONG_RECORDS, logBytes: 64 * 1024, cuts: 4 };
    for (const granularity of [8, 64] as const) await run({ ...long, granularity });
    console.log(`every step: ${steps} steps, ${cuts} cuts`);
    const early = { records: 20, acknowledgesEarly: true };
    for (let seed = 1; seed <= 20; seed++) await run({ ...early, seed }, true);
  }
  for (let seed = first; seed < first + count; seed++) await run(crashOptionsOf(seed));
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`${appended} records, ${steps} steps, ${cuts} cuts in ${seconds} s`);
  console.log(`${passed} passed, ${failed} failed`);
  return failed;
}

/** Kills a real server `count` times under load. */
export async function runServerKills(count: number): Promise<number> {
  try {
    const records = await killServers(count);
    console.log(`killed ${count} times: ${records} records, none of the acknowledged ones lost`);
    console.log(`${count} passed, 0 failed`);
    return 0;
  } catch (error) {
    console.log((error as Error).stack);
    console.log('0 passed, 1 failed');
    return 1;
  }
}
