/**
 * Hunts for races of invalidation and reuse: processes and threads of one device grant access to a
 * peer that writes all the time, revoke it in every possible way, reuse the memory at once, and
 * compare every byte. Processes are stopped and killed in between, Workers terminated. Ends with
 * `N passed, N failed`: verified rounds, and errors.
 *
 *     npm run hunt -- [--minutes 10] [--rounds 20000] [--seed N]
 */
import { read } from '../support/script.js';
import { Coordinator, type Hunted } from './coordinator.js';
import { words, type HuntOptions } from './words.js';

const { minutes, seed, rounds } = read<HuntOptions>(words).options;

const total = ({ verified }: Hunted): number =>
  Object.values(verified).reduce((sum, count) => sum + count, 0);

function progress(hunted: Hunted): void {
  const { quiet, expired, kills, stops, restarts } = hunted;
  console.log(
    `${total(hunted)} rounds verified, ${quiet} quiet, ${expired} fences expired; ` +
      `${stops} stops, ${kills} kills, ${restarts} Workers terminated`,
  );
}

const coordinator = new Coordinator({
  millis: minutes * 60_000,
  seed,
  name: `hunt-${process.pid}`,
  address: '127.1.11.8',
  progress,
});
await coordinator.run();
const { hunted } = coordinator;
progress(hunted);
for (const [way, count] of Object.entries(hunted.verified)) console.log(`ok   ${way}: ${count}`);
const verified = total(hunted);
if (verified < rounds) hunted.wrong.push(`${verified} verified rounds, ${rounds} required`);
for (const sentence of hunted.wrong) console.log(`FAIL ${sentence}`);
console.log(`${verified} passed, ${hunted.wrong.length} failed`);
process.exitCode = hunted.wrong.length > 0 ? 1 : 0;
