/**
 * A process that watches its descriptor 3 by ppoll(2), as a foreign event loop does: prints a line
 * `readable` or `quiet` for each change.
 */
import { writeSync } from 'node:fs';
import { loadPosix, POLLIN } from '../../host/link/posix.js';

const WATCHED = 3;
/** While it is readable ppoll returns at once: looked at again after this time. */
const PAUSE_MILLIS = 2;
const POLL_MILLIS = 50;

const { posix } = await loadPosix();
const memory = new SharedArrayBuffer(32);
const address = posix!.addressOf(memory);
const [fds, events, times] = [
  new Int32Array(memory),
  new Int16Array(memory),
  new BigInt64Array(memory),
];
fds[0] = WATCHED;
events[2] = POLLIN;
times[3] = BigInt(POLL_MILLIS) * 1_000_000n;
for (let last = ''; ;) {
  posix!.pollDescriptors(address, 1, address + 16);
  const isReadable = (events[3]! & POLLIN) !== 0;
  const now = isReadable ? 'readable' : 'quiet';
  if (now !== last) writeSync(1, `${now}\n`);
  last = now;
  if (isReadable) Atomics.wait(fds, 2, 0, PAUSE_MILLIS);
}
