/**
 * Prints the storage of paths, and the error of a region there: `node place-reporter.js PATH…`.
 */
import { join } from 'node:path';
import { openDevice } from '../../host/index.js';
import { createLoopbackPair } from '../../host/link/loopback.js';
import { placeOfPath } from '../../host/pmem/place.js';

const context = await openDevice({ link: createLoopbackPair().a });
for (const path of process.argv.slice(2)) {
  const { durability, reason } = placeOfPath(path);
  const opened = await context.openPmem(join(path, 'region'), { bytes: 4096 }).then(
    async (pmem) => {
      await pmem.close();
      return `${pmem.kind} ${pmem.durability}`;
    },
    ({ code }: NodeJS.ErrnoException) => code,
  );
  console.log(JSON.stringify({ path, durability, reason, opened }));
}
await context.close();
