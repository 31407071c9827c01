/** Starts a worker thread and watches it: a scenario that never ends is a finding, too. */
import { Worker } from 'node:worker_threads';
import { Slot } from './slot.js';
import type { Outcome, Task } from './worker.js';

/** Result of a worker, or the reason for its absence. */
export async function runWorker(
  task: Omit<Task, 'slot'>,
  slot: Slot,
  hangSeconds: number,
): Promise<Outcome | string> {
  const workerData: Task = { ...task, slot: slot.shared };
  const worker = new Worker(new URL('./worker.js', import.meta.url), { workerData });
  let watch: NodeJS.Timeout | undefined;
  const hung = new Promise<string>((resolve) => {
    let last = slot.executions;
    let since = performance.now();
    watch = setInterval(() => {
      if (slot.executions !== last || slot.executions === 0) {
        last = slot.executions;
        since = performance.now();
      } else if (performance.now() - since > hangSeconds * 1000) {
        const { family, scenario } = slot.shown();
        resolve(`does not end: family ${family}, scenario ${JSON.stringify(scenario)}`);
      }
    }, 500);
  });
  const ended = new Promise<Outcome | string>((resolve) => {
    worker.once('message', resolve);
    worker.once('error', (error) => resolve(String(error.stack)));
  });
  try {
    return await Promise.race([hung, ended]);
  } finally {
    clearInterval(watch);
    await worker.terminate();
  }
}
