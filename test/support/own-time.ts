/**
 * Timeouts for other processes, in seconds of this one: when this process is suspended with all its
 * children (a laptop that sleeps), no timeout expires meanwhile.
 */
const TICK_MILLIS = 1000;

/** Calls `action` once, after `seconds`; returns a function that cancels it. */
export function afterOwnSeconds(seconds: number, action: () => void): () => void {
  let left = seconds;
  const timer = setInterval(() => {
    if (--left > 0) return;
    clearInterval(timer);
    action();
  }, TICK_MILLIS);
  return () => clearInterval(timer);
}
