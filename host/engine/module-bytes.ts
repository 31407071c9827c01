/** The bytes of the WebAssembly modules that lie in build/. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { RefusalError } from '../errors/errors.js';

export type ModuleName = 'engine' | 'engine.shared' | 'engine.modelled' | 'explain';

/** No-op in Node: files are read on first use. */
export function fetchModule(_name: ModuleName): Promise<void> {
  return Promise.resolve();
}

/** Throws RefusalError ENOENT: the program was bundled without the files of the package. */
export function moduleBytes(name: ModuleName): Uint8Array<ArrayBuffer> {
  const url = new URL(`../../${name}.wasm`, import.meta.url);
  try {
    return readFileSync(url);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    const remedy =
      'a bundle for Node keeps the package verbena outside (esbuild: --external:verbena)';
    const sentence = `${fileURLToPath(url)} is not there; ${remedy}`;
    throw new RefusalError('ENOENT', sentence, { cause: error });
  }
}
