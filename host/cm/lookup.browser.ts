/** Stands in for lookup.ts in a browser, which resolves no names. */
export function lookup(host: string): Promise<{ address: string }> {
  return Promise.reject(new Error(`a browser cannot resolve ${host}: peers have addresses`));
}
