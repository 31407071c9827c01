/** Finds, compiles and instantiates the engine. Compiled once per thread and kind of memory. */
import type { EngineExports } from '#build/abi.js';
import type { EngineMemory } from './memory.js';
import { fetchModule, moduleBytes, type ModuleName } from './module-bytes.js';

export type { EngineExports };

/**
 * Parts from which another thread runs an engine on the same memory; they can be posted to a
 * Worker.
 */
export interface EngineParts {
  readonly memory: WebAssembly.Memory;
  readonly module: WebAssembly.Module;
}

const modules = new Map<ModuleName, WebAssembly.Module>();

/** Bytes of the engine for unshared or shared memory. */
export function engineFile(shared: boolean): URL {
  return new URL(`../../engine${shared ? '.shared' : ''}.wasm`, import.meta.url);
}

/** `modelled`: the one that counts what an adapter's caches would do, for shared memory only. */
function moduleName(shared: boolean, modelled: boolean): ModuleName {
  if (modelled) return 'engine.modelled';
  return shared ? 'engine.shared' : 'engine';
}

/** To be awaited before the first use: a browser fetches the engine. Rejects as fetchModule. */
export function fetchEngine(shared: boolean, modelled = false): Promise<void> {
  return fetchModule(moduleName(shared, modelled));
}

/** The compiled engine; it can be sent to another thread. */
export function engineModule(shared: boolean, modelled = false): WebAssembly.Module {
  const name = moduleName(shared, modelled);
  let module = modules.get(name);
  if (!module) {
    module = new WebAssembly.Module(moduleBytes(name));
    modules.set(name, module);
  }
  return module;
}

/** One engine over this memory. Any number of engines may work on one memory. */
export function instantiate(memory: EngineMemory, module?: WebAssembly.Module): EngineExports {
  const instance = new WebAssembly.Instance(module ?? engineModule(memory.shared), {
    env: { memory: memory.memory },
  });
  return instance.exports as object as EngineExports;
}
