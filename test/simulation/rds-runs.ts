/** Many seeds of reliable datagrams, one after the other: `npm run sim -- --rds`. */
import { simulateRds } from './rds.js';

const PROGRESS_MILLIS = 10_000;

/** Returns how many failed. Prints its progress on standard error: many seeds take long. */
export function runRds(first: number, count: number): number {
  const started = performance.now();
  const totals = new Map<string, number>();
  let failed = 0;
  let told = started;
  for (let seed = first; seed < first + count; seed++) {
    try {
      for (const [name, value] of Object.entries(simulateRds(seed))) {
        if (name !== 'hash') totals.set(name, (totals.get(name) ?? 0) + (value as number));
      }
    } catch (error) {
      failed++;
      console.log(`seed ${seed}: ${(error as Error).message}`);
      console.log(`  replay: npm run -s sim -- --rds --replay ${seed}`);
    }
    if (performance.now() - told < PROGRESS_MILLIS) continue;
    told = performance.now();
    console.error(`${seed + 1 - first} of ${count} seeds, ${failed} failed`);
  }
  const said = [...totals].map(([name, value]) => `${value} ${name}`).join(', ');
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`${said} in ${seconds} s`);
  console.log(`${count - failed} passed, ${failed} failed`);
  return failed;
}
