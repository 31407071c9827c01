/** A PE of the conformance cases: prints a line of JSON for each case, then ends. */
import { init } from '../../host/shmem/index.js';
import { SHMEM_CASES } from './shmem-cases.js';

const shmem = await init({ size: 2 ** 20 });
const print = (name: string, error?: string): void =>
  console.log(JSON.stringify({ pe: shmem.myPe, name, error }));
for (const [name, work] of Object.entries(SHMEM_CASES)) {
  try {
    await work(shmem);
    print(name);
  } catch (error) {
    print(name, (error as Error).stack);
    // The others are somewhere else now.
    process.exit(1);
  }
}
await shmem.finalize();
print('finalize');
