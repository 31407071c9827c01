/** The bytes of the WebAssembly modules that lie in build/. */
import { readFileSync } from 'node:fs';

export type ModuleName = 'engine' | 'engine.shared' | 'engine.modelled' | 'explain';

/** No-op in Node: files are read on first use. */
export function fetchModule(_name: ModuleName): Promise<void> {
  return Promise.resolve();
}

export function moduleBytes(name: ModuleName): Uint8Array<ArrayBuffer> {
  return readFileSync(new URL(`../../${name}.wasm`, import.meta.url));
}
