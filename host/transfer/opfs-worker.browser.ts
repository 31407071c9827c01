/** Starts the Worker of a store in the origin private file system. */
import { RefusalError } from '../errors/errors.js';
import type { OpfsWorker } from './opfs-worker.js';

interface WorkerClass {
  new (url: URL, options: { readonly type: 'module' }): OpfsWorker;
}

export function startOpfsWorker(): OpfsWorker {
  const { Worker } = globalThis as unknown as { Worker?: WorkerClass };
  if (!Worker) {
    const rule = 'this browser lets a Worker have no Worker of its own';
    throw new RefusalError('EOPNOTSUPP', `opfsStore: ${rule}; open the device in the page`);
  }
  return new Worker(new URL('./transfer-thread.js', import.meta.url), { type: 'module' });
}
