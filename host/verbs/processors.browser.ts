/** Stands in for processors.ts in a browser. */
export function availableParallelism(): number {
  return (
    (globalThis as { navigator?: { hardwareConcurrency?: number } }).navigator
      ?.hardwareConcurrency ?? 1
  );
}
