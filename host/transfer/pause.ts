/** Timers that no process waits for. */
import { timerMillis } from '../base/timer.js';

/** Of Node: it may end before the timer. A page's timer is a number. */
export function unref(timer: ReturnType<typeof setTimeout>): void {
  (timer as { unref?: () => void } | number as { unref?: () => void }).unref?.();
}

/** Rejects with the reason of `signal`. */
export function pause(millis: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal!.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, timerMillis(millis));
    signal?.addEventListener('abort', abort);
  });
}
