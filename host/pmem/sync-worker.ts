/** The thread of one region's SyncStore in Node. */
import { Worker } from 'node:worker_threads';
import { systemRefusal } from '../errors/system-refusal.js';
import { SyncError } from './sync-error.js';
import type { StartSyncWorker, SyncAnswer } from './sync-store.js';
import { markFailed, type SyncTask } from './sync.js';

export function syncWorkerFor(workerData: SyncTask): StartSyncWorker {
  return (answered, failed) => {
    const worker = startWorker(workerData);
    const sentence = 'the thread that syncs the region has ended: open the region anew (EIO)';
    const ended = new SyncError('EIO', sentence);
    worker.on('message', (answer: SyncAnswer) => answered(answer));
    worker.on('error', (error) => failed(error as Error));
    worker.on('exit', () => {
      // The thread may have ended during a sync that another thread waits for.
      markFailed(workerData.state);
      failed(ended);
    });
    return {
      post: (request) => worker.postMessage(request),
      keep: (isBusy) => (isBusy ? worker.ref() : worker.unref()),
      end: () => worker.terminate(),
    };
  };
}

function startWorker(workerData: SyncTask): Worker {
  try {
    const file = new URL('./sync-thread.js', import.meta.url);
    return new Worker(file, { workerData, execArgv: [] });
  } catch (error) {
    throw systemRefusal('a thread that syncs the region', error);
  }
}
