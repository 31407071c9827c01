/**
 * Stands in for module-bytes.ts in a browser: the modules lie beside the bundle. One engine serves
 * both kinds of memory: the same code runs on either, and a bit of its import says which it takes.
 */
import { MisuseError, RefusalError, type ErrnoName } from '../errors/errors.js';
import type { ModuleName } from './module-bytes.js';

type Bytes = Uint8Array<ArrayBuffer>;

const fetched = new Map<string, Promise<void>>();
const bytesOf = new Map<string, Bytes>();

/** Addresses as bundlers understand them. */
function addressOf(name: ModuleName): URL {
  switch (name) {
    case 'engine':
    case 'engine.shared':
      return new URL('./engine.wasm', import.meta.url);
    case 'engine.modelled':
      throw new RefusalError(
        'EOPNOTSUPP',
        'openDevice: cacheModel is not in verbena/browser; use Node',
      );
    case 'explain':
      return new URL('./explain.wasm', import.meta.url);
  }
}

/** Before `moduleBytes`; once is enough. Rejects with RefusalError ENOENT, EOPNOTSUPP. */
export async function fetchModule(name: ModuleName): Promise<void> {
  const address = addressOf(name);
  const { href } = address;
  let fetching = fetched.get(href);
  if (!fetching) {
    fetching = load(address).catch((error: unknown) => {
      fetched.delete(href);
      throw error;
    });
    fetched.set(href, fetching);
  }
  await fetching;
}

async function load({ href }: URL): Promise<void> {
  let code: ErrnoName = 'ENOENT';
  try {
    const response = await fetch(href);
    if (!response.ok) throw new Error(`HTTP status ${response.status}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    code = 'EOPNOTSUPP';
    // The head alone is an empty module. There may be no WebAssembly, or a policy against it.
    new WebAssembly.Module(bytes.slice(0, 8));
    bytesOf.set(href, bytes);
  } catch (cause) {
    const sentence = `openDevice: ${href} does not load: ${(cause as Error).message}`;
    const remedy = "serve it beside the bundle, with 'wasm-unsafe-eval' in the CSP";
    throw new RefusalError(code, `${sentence}; ${remedy}`, { cause });
  }
}

export function moduleBytes(name: ModuleName): Bytes {
  const bytes = bytesOf.get(addressOf(name).href);
  if (!bytes) throw new MisuseError(`${name}.wasm`, 'is not available: await fetchModule() first');
  return name === 'engine' ? forUnshared(bytes) : bytes;
}

/** The name of the import, and that it is a memory; its limits follow. */
const MEMORY_IMPORT = 'memory\x02';
/** WebAssembly core specification 5.3.10, threads: there is a maximum; the memory is shared. */
const MAXIMUM = 1;

/** The module for memory that is not shared. */
function forUnshared(bytes: Bytes): Bytes {
  const copy = bytes.slice();
  // A character for each byte.
  const text = new TextDecoder('latin1').decode(copy);
  copy[text.indexOf(MEMORY_IMPORT) + MEMORY_IMPORT.length] = MAXIMUM;
  return copy;
}
