/** Time of day for captures, in microseconds since 1970. */
export function systemMicros(): number {
  return (performance.timeOrigin + performance.now()) * 1000;
}
