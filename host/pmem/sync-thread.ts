/** The Worker of one region: blocks in fdatasync and msync, so that nobody else has to. */
import { parentPort, workerData } from 'node:worker_threads';
import { loadPosix } from '../link/posix.js';
import { sync, type SyncError, type SyncRange, type SyncTask } from './sync.js';

export interface SyncRequest {
  readonly id: number;
  readonly ranges: readonly SyncRange[];
}

export interface SyncAnswer {
  readonly id: number;
  /** Why it is not durable. */
  readonly failure?: { readonly code: string; readonly message: string };
}

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
