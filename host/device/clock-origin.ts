/**
 * What is to be added to this thread's `performance.now`, in microseconds, so that all threads and
 * processes of a machine have one clock.
 */
export function originMicros(): number {
  const [seconds, nanos] = process.hrtime();
  return Math.floor(seconds * 1e6 + nanos / 1e3 - performance.now() * 1000);
}
