/**
 * A PE of a job of five: PE 1 kills itself, and PE 2 within the agreement on the survivors, after
 * the milliseconds of the first argument. The others print the teams that they get.
 */
import { init } from '../../host/shmem/index.js';

const DEATHS = [1, 2];

function die(): void {
  process.kill(process.pid, 'SIGKILL');
}

function checkReset(error: unknown): void {
  if ((error as { code?: string }).code !== 'ECONNRESET') throw error;
}

const shmem = await init({ size: 2 ** 18, onPeFailed: () => undefined });
const sums = await shmem.array(Int32Array, 1);
// PE 1 returns when all have called it; at that time others may still be in it.
await shmem.barrierAll().catch(checkReset);
if (shmem.myPe === 1) die();
if (shmem.myPe === 2) setTimeout(die, Number(process.argv[2]));
let team = shmem.world;
const sizes: number[] = [];
while (team.nPes > shmem.nPes - DEATHS.length) {
  try {
    for (;;) await team.sync({ timeout: 60_000 });
  } catch (error) {
    checkReset(error);
  }
  team = await team.survivors({ timeout: 60_000 });
  sizes.push(team.nPes);
}
sums[0] = shmem.myPe;
await team.sumReduce(sums, sums, { timeout: 60_000 });
console.log(`teams of ${sizes.join()}: sum ${sums[0]}`);
await shmem.finalize({ timeout: 60_000 });
