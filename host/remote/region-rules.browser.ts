/** Stands in for region-rules.ts in a page, which is compiled against the types. */
export function checkRegions(): void {
  // Nothing: saves bytes.
}

export function checkRegionSource(): void {
  // Nothing: saves bytes.
}

export function checkRegionTypes(): void {
  // Nothing: saves bytes.
}

export function checkLayoutList(): void {
  // Nothing: saves bytes.
}

export function withLayoutName(_operation: string, _argument: string, set: () => void): void {
  set();
}

export function checkRegisteredKey(): void {
  // Nothing: saves bytes.
}

export function checkNoLimits(): void {
  // Nothing: saves bytes.
}

export function checkReconnect(): void {
  // Nothing: saves bytes.
}

export function checkServerOptions(): void {
  // Nothing: saves bytes.
}
