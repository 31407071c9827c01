/**
 * Patience with other processes, in seconds of this one: whoever was stopped for a while, and all
 * that it started with it (a laptop that sleeps), has not seen anybody hang.
 */
const TICK_MILLIS = 1000;

/** Calls `action` once, after so many seconds; returns what calls that off. */
export function afterOwnSeconds(seconds: number, action: () => void): () => void {
  let left = seconds;
  const timer = setInterval(() => {
    if (--left > 0) return;
    clearInterval(timer);
    action();
  }, TICK_MILLIS);
  return () => clearInterval(timer);
}
