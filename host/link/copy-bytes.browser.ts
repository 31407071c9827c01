/** Stands in for copy-bytes.ts in a browser, which has no call for it. */
export function copyBytes(target: Uint8Array, source: Uint8Array, at: number): void {
  target.set(source, at);
}
