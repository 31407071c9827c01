/**
 * Offset to add to this thread's `performance.now`, in microseconds, so that all threads and
 * processes of a machine have one clock.
 */
export function originMicros(): number {
  let origin = -Infinity;
  // An interruption between the two readings lowers the difference, so the maximum is the best.
  for (let sample = 0; sample < 16; sample++) {
    const [seconds, nanos] = process.hrtime();
    origin = Math.max(origin, seconds * 1e6 + nanos / 1e3 - performance.now() * 1000);
  }
  return Math.floor(origin);
}
