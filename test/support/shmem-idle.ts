/**
 * A PE of a job of two: PE 1 kills itself, and PE 0 goes on. By the first argument, it meanwhile
 * calls nothing of the library (`idle`), asks for `failedPes` (`ask`), or writes to PE 1 (`put`).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { init } from '../../host/shmem/index.js';

const LIMIT_MILLIS = 60_000;
const ONE = Int32Array.of(1);

function codeOf(operation: () => void): string {
  try {
    operation();
    return 'done';
  } catch (error) {
    return (error as { code?: string }).code ?? String(error);
  }
}

let failed = -1;
const shmem = await init({ size: 2 ** 18, onPeFailed: (pe) => (failed = pe) });
const lock = await shmem.array(BigInt64Array, 1);
const words = await shmem.array(Int32Array, 1);
if (shmem.myPe === 0) await shmem.setLock(lock);
await shmem.barrierAll();
if (shmem.myPe === 1) {
  // PE 0 returns from the barrier first.
  setTimeout(() => process.kill(process.pid, 'SIGKILL'), 500);
  await sleep(LIMIT_MILLIS);
}
const [, , kind] = process.argv;
if (kind === 'put') {
  await sleep(1000);
  shmem.put(words, ONE, 1);
}
for (const start = Date.now(); failed < 0 && Date.now() - start < LIMIT_MILLIS;) {
  if (kind === 'ask') while (shmem.failedPes.length === 0);
  await sleep(10);
}
console.log(`failed ${failed}: ${shmem.failedPes.join()}`);
if (kind === 'put') console.log(`quiet ${codeOf(() => shmem.quiet())}`);
console.log(`put ${codeOf(() => shmem.put(words, ONE, 1))}`);
console.log(`own put ${codeOf(() => shmem.put(words, ONE, 0))}`);
console.log(`quiet ${codeOf(() => shmem.quiet())}`);
console.log(`clearLock ${codeOf(() => shmem.clearLock(lock))}`);
await shmem.barrierAll().catch(({ code }: { code: string }) => console.log(`barrier ${code}`));
await shmem.finalize();
