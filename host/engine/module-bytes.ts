/** The bytes of the WebAssembly modules that lie in build/. */
import { readFileSync } from 'node:fs';

export type ModuleName = 'engine' | 'engine.shared' | 'engine.modelled' | 'explain';

/** Nothing is to be done: files are read when they are asked for. */
export function fetchModule(_name: ModuleName): Promise<void> {
  return Promise.resolve();
}

export function moduleBytes(name: ModuleName): Uint8Array<ArrayBuffer> {
  return readFileSync(new URL(`../../${name}.wasm`, import.meta.url));
}
