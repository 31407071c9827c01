/**
 * A thread that takes regions from a pool which others have, too, and gives them back: as told, and
 * with a look at whether another thread has them meanwhile, or as fast as it can.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { createFmrPool, openDevice, type DeviceShare, type FmrDesc } from '../../host/index.js';
import type { FmrPoolParams } from '../../host/index.js';
import { Random } from '../simulation/random.js';

export interface PoolThreadData {
  readonly share: DeviceShare;
  readonly params: FmrPoolParams;
  readonly numMr: number;
  /** The holder of each key slot, seed + 1. Absent: holders are not checked. */
  readonly claims?: SharedArrayBuffer;
  /** Word 0 becomes 1 when all begin; word 1 counts threads that are ready, word 2 all turns. */
  readonly gate: SharedArrayBuffer;
  readonly turns: number;
  readonly seed: number;
}

const { share, params, numMr, claims, gate, turns, seed } = workerData as PoolThreadData;
const words = new Int32Array(gate);
const owners = claims && new Int32Array(claims);
const context = await openDevice({ threadShare: share, progress: 'inline', queuePairsMax: 16 });
const pool = createFmrPool(context, undefined, params);
const user = pool.createUser(numMr);
let wrong = 0;

function claim(desc: FmrDesc): void {
  if (Atomics.compareExchange(owners!, (desc.rkey >>> 8) % owners!.length, 0, seed + 1) !== 0) {
    wrong++;
  }
}

function release(desc: FmrDesc): void {
  Atomics.store(owners!, (desc.rkey >>> 8) % owners!.length, 0);
  user.putMr(desc);
}

function race(): void {
  const random = new Random(seed);
  const held: FmrDesc[] = [];
  for (let turn = 0; turn < turns; turn++) {
    const desc = random.below(2) === 0 ? user.getMr() : undefined;
    if (desc) {
      claim(desc);
      held.push(desc);
    } else if (held.length > 0) release(held.splice(random.below(held.length), 1)[0]!);
    if ((turn & 1023) === 0) Atomics.add(words, 2, 1024);
  }
  for (const desc of held) release(desc);
}

function hurry(): number {
  for (let turn = 0; turn < 20_000; turn++) user.putMr(user.getMr()!);
  Atomics.add(words, 1, 1);
  Atomics.wait(words, 0, 0);
  const start = performance.now();
  for (let turn = 0; turn < turns; turn++) user.putMr(user.getMr()!);
  return performance.now() - start;
}

if (owners) {
  Atomics.add(words, 1, 1);
  Atomics.wait(words, 0, 0);
  race();
  parentPort!.postMessage({ wrong, stats: user.stats });
} else parentPort!.postMessage({ millis: hurry(), stats: user.stats });
user.destroy();
pool.destroy();
await context.close();
