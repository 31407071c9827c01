/** A thread that makes ranges of a region durable, and reports the error code, or `none`. */
import { parentPort, workerData } from 'node:worker_threads';
import type { SyncRange } from '../../host/pmem/sync-store.js';
import { sync, type SyncTask } from '../../host/pmem/sync.js';

const { task, ranges } = workerData as { readonly task: SyncTask; readonly ranges: SyncRange[] };
try {
  sync(task, ranges);
  parentPort!.postMessage('none');
} catch (error) {
  parentPort!.postMessage((error as NodeJS.ErrnoException).code);
}
