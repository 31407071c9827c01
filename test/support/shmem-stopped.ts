/** A PE of a job of two machines, whose PE 2 stops itself, and is continued after the others. */
import { init } from '../../host/shmem/index.js';

const LIMITS = { timeout: 60_000 };

const shmem = await init({ size: 2 ** 18, onPeFailed: () => undefined });
const sums = await shmem.array(Int32Array, 1);
let team = shmem.world;
try {
  await shmem.barrierAll();
  // Others may still be in the barrier: what PE 2 has put for them may not have left.
  if (shmem.myPe === 2) process.kill(process.pid, 'SIGSTOP');
  for (;;) await team.sync(LIMITS);
} catch (error) {
  const { code, message } = error as Error & { readonly code?: string };
  if (code !== 'ECONNRESET') throw error;
  if (shmem.myPe === 2) console.log(message);
}
if (shmem.myPe !== 2) {
  team = await shmem.world.survivors(LIMITS);
  sums[0] = shmem.myPe;
  await team.sumReduce(sums, sums, LIMITS);
  console.log(`sum ${sums[0]} of ${team.nPes}`);
} else {
  await shmem.world.survivors(LIMITS).then(
    (got) => console.log(`a team of ${got.nPes}`),
    ({ code }: { readonly code?: string }) => console.log(`survivors ${code}`),
  );
}
await shmem.finalize(LIMITS);
