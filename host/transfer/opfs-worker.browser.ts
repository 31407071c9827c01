/** Starts the Worker of a store in the origin private file system. */
import { RefusalError } from '../errors/errors.js';
import type { OpfsWorker } from './opfs-worker.js';

interface WorkerClass {
  new (url: URL, options: { readonly type: 'module' }): OpfsWorker;
}

export function startOpfsWorker(): OpfsWorker {
  const { Worker } = globalThis as unknown as { Worker: WorkerClass };
  try {
    return new Worker(new URL('./transfer-thread.js', import.meta.url), { type: 'module' });
  } catch (cause) {
    const sentence = `opfsStore: no Worker starts here: ${(cause as Error).message}`;
    const remedy = 'open the device in a page without sandbox';
    throw new RefusalError('EOPNOTSUPP', `${sentence}; ${remedy}`, { cause });
  }
}
