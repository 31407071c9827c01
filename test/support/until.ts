/** Waits in real time for what other processes and threads do. */
import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves when `isSo`. Rejects after `millis`; `what`: for the message. */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  millis = 10_000,
  what = String(isSo),
): Promise<void> {
  const end = performance.now() + millis;
  while (!(await isSo())) {
    if (performance.now() > end) throw new Error(`not within ${millis} ms: ${what}`);
    await sleep(10);
  }
}
