/** The thread of one region's SyncStore in Node. */
import { Worker } from 'node:worker_threads';
import type { StartSyncWorker, SyncAnswer } from './sync-store.js';
import type { SyncTask } from './sync.js';

export function syncWorkerFor(workerData: SyncTask): StartSyncWorker {
  return (answered, failed) => {
    const worker = new Worker(new URL('./sync-thread.js', import.meta.url), { workerData });
    worker.on('message', (answer: SyncAnswer) => answered(answer));
    worker.on('error', (error) => failed(error as Error));
    return {
      post: (request) => worker.postMessage(request),
      keep: (isBusy) => (isBusy ? worker.ref() : worker.unref()),
      end: () => worker.terminate(),
    };
  };
}
