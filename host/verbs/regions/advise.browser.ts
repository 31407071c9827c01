/** Stands in for advise.ts in a page, which has nothing to prefetch: checks are for the types. */
export function advise(): void {
  // Nothing: saves bytes.
}
