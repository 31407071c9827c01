/** A PE of a job whose PE 1 kills itself: the others continue with a team without it. */
import { init } from '../../host/shmem/index.js';

const shmem = await init({
  size: 2 ** 18,
  onPeFailed: (pe) => console.log(`failed ${pe}`),
});
const sums = await shmem.array(Int32Array, 1);
try {
  await shmem.barrierAll();
  // Others may still be in the barrier: what PE 1 has put for them may not have left.
  if (shmem.myPe === 1) process.kill(process.pid, 'SIGKILL');
  for (;;) await shmem.barrierAll({ timeout: 60_000 });
} catch (error) {
  if ((error as { code?: string }).code !== 'ECONNRESET') throw error;
}
const team = await shmem.world.survivors();
sums[0] = shmem.myPe;
await team.sumReduce(sums, sums);
console.log(`sum ${sums[0]} of ${team.nPes}`);
await shmem.finalize();
