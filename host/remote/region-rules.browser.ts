/** Stands in for region-rules.ts in a page, which is compiled against the types. */
export function checkRegionTypes(): void {
  // Nothing: saves bytes.
}

export function checkLayoutList(): void {
  // Nothing: saves bytes.
}
