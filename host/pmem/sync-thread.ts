/** The Worker of one region: blocks in fdatasync and msync, in place of other threads. */
import { parentPort, workerData } from 'node:worker_threads';
import { loadPosix } from '../link/posix.js';
import type { SyncError } from './sync-error.js';
import type { SyncAnswer, SyncRequest } from './sync-store.js';
import { sync, type SyncTask } from './sync.js';

const task = workerData as SyncTask;
const { posix } = await loadPosix();

parentPort!.on('message', ({ id, ranges }: SyncRequest) => {
  let answer: SyncAnswer = { id };
  try {
    sync(task, ranges, posix);
  } catch (error) {
    const { code, message } = error as SyncError;
    answer = { id, failure: { code, message } };
  }
  parentPort!.postMessage(answer);
});
