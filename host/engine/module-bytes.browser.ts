/** Stands in for module-bytes.ts in a browser: the modules lie beside the bundle. */
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { ModuleName } from './module-bytes.js';

const fetched = new Map<ModuleName, Promise<void>>();
const bytesOf = new Map<ModuleName, Uint8Array<ArrayBuffer>>();

/** Addresses as bundlers understand them. */
const addressOf = (name: ModuleName): URL => {
  switch (name) {
    case 'engine':
      return new URL('./engine.wasm', import.meta.url);
    case 'engine.shared':
      return new URL('./engine.shared.wasm', import.meta.url);
    case 'engine.modelled':
      throw new RefusalError('EOPNOTSUPP', 'cacheModel: the engine with a model is for Node');
    case 'explain':
      return new URL('./explain.wasm', import.meta.url);
  }
};

/** Before `moduleBytes`; once is enough. Rejects with RefusalError ENOENT. */
export function fetchModule(name: ModuleName): Promise<void> {
  let fetching = fetched.get(name);
  if (!fetching) {
    fetching = load(name).catch((error: unknown) => {
      fetched.delete(name);
      throw error;
    });
    fetched.set(name, fetching);
  }
  return fetching;
}

async function load(name: ModuleName): Promise<void> {
  const address = addressOf(name);
  let reason: string;
  try {
    const response = await fetch(address);
    if (response.ok) {
      bytesOf.set(name, new Uint8Array(await response.arrayBuffer()));
      return;
    }
    reason = `HTTP status ${response.status}`;
  } catch (error) {
    reason = (error as Error).message;
  }
  throw new RefusalError('ENOENT', `${address.href} does not load: ${reason}`);
}

export function moduleBytes(name: ModuleName): Uint8Array<ArrayBuffer> {
  const bytes = bytesOf.get(name);
  if (!bytes) throw new MisuseError(`${name}.wasm`, 'is to be fetched first: await fetchModule()');
  return bytes;
}
