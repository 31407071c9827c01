/**
 * A process that locks a file: `node lock-holder.js PATH koffi|directory [race MILLIS]`. Prints
 * `locked` and holds the lock until it is killed, or prints `refused CODE`. `race`: begins at that
 * time (Date.now()).
 */
import { openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { RefusalError } from '../../host/errors/errors.js';
import { loadPosix } from '../../host/link/posix.js';
import { FileLock } from '../../host/pmem/file-lock.js';

const SPIN_MILLIS = 20;

const [path = '', kind = '', , millis = '0'] = process.argv.slice(2);
const { posix } = await loadPosix();
const fd = openSync(path, 'r+');
// All begin in the same millisecond: a timer alone is late by more.
await sleep(Math.max(0, Number(millis) - Date.now() - SPIN_MILLIS));
while (Date.now() < Number(millis));
try {
  await FileLock.take(fd, path, kind === 'koffi' ? posix : undefined);
  console.log('locked');
  setInterval(() => undefined, 1000);
} catch (error) {
  console.log(`refused ${(error as RefusalError).code}`);
}
