/** Stands in for clock-origin.ts in a browser: Workers count from their own beginning as well. */
export function originMicros(): number {
  return Math.floor(performance.timeOrigin * 1000);
}
