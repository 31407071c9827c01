/**
 * A process with a persistent region: `node pmem-writer.js PATH BYTES STORE COMMAND`.
 * `write`: counts up the word at 0 and says each value once it is durable, until it is killed.
 * `hold`: opens the region and keeps it. `open`: opens it and says what it is refused.
 */
import { openDevice } from '../../host/index.js';
import { createLoopbackPair } from '../../host/link/loopback.js';

const [path = '', bytes = '0', store = 'mapped', command = 'open'] = process.argv.slice(2);
const link = createLoopbackPair().a;
const context = await openDevice({ link, sharedArrayBuffer: store !== 'unshared' });
try {
  const pmem = await context.openPmem(path, {
    ...(bytes === '0' ? {} : { bytes: Number(bytes) }),
    store: store === 'mapped' ? 'mapped' : 'file',
  });
  console.log(`open ${pmem.length} ${pmem.kind} ${pmem.durability}`);
  if (command === 'hold') setInterval(() => {}, 1000);
  else if (command === 'write') {
    const words = new BigUint64Array(pmem.buffer.buffer, pmem.buffer.byteOffset, 16);
    for (let count = words[0]! + 1n; ; count++) {
      // The last word first: a reader that finds the first one has the last one as well.
      words[15] = count;
      await pmem.flush(120, 8);
      words[0] = count;
      await pmem.flush(0, 8);
      process.stdout.write(`${count}\n`);
    }
  } else if (command === 'limited') {
    // Allowed at open, and not any more: the disk is full in between.
    pmem.buffer.fill(1);
    const ends: string[] = [];
    for (let flush = 0; flush < 2; flush++) {
      await pmem.flush().then(
        () => ends.push('durable'),
        (error: { code: string }) => ends.push(error.code),
      );
    }
    console.log(ends.join(' '));
    await pmem.close().catch(() => {});
  } else await pmem.close();
} catch (error) {
  const { code, message } = error as { code?: string; message: string };
  console.log(`refused ${code} ${message}`);
}
if (command !== 'hold') await context.close().catch(() => {});
