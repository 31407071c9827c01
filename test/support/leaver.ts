/**
 * Opens a device with a progress thread, lets it fall asleep, and leaves without closing it, in the
 * way that the first argument says: for test/unit/device/sharing/leaving.test.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { openDevice } from '../../host/index.js';

const ways: { readonly [way: string]: () => void } = {
  exit: () => process.exit(3),
  throw: () => {
    throw new Error('this is the end');
  },
  reject: () => {
    void Promise.reject(new Error('this is the end'));
  },
  wait: () => parentPort!.postMessage('open'),
};

async function leave(way: string): Promise<void> {
  await openDevice({ address: '127.0.0.1', port: 0, progress: 'thread' });
  await sleep(20);
  ways[way]!();
}

if (!isMainThread) await leave(workerData as string);
else if (process.argv[2] === 'terminate') {
  const worker = new Worker(new URL(import.meta.url), { workerData: 'wait' });
  await new Promise((resolve) => worker.once('message', resolve));
  await worker.terminate();
  process.exitCode = 4;
} else await leave(process.argv[2]!);
