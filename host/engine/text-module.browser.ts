/**
 * Stands in for text-module.ts in a page: as-bind has 4 KB, and the text module needs a tenth.
 * Parameters are numbers, strings and Uint8Arrays, results are strings.
 */

interface Runtime {
  readonly memory: WebAssembly.Memory;
  __new(byteSize: number, typeId: number): number;
  __pin(address: number): number;
  __unpin(address: number): void;
}

type Functions = Readonly<Record<string, (...args: readonly number[]) => number>>;

/** Of the section that the transform of as-bind writes. */
interface Bindings {
  readonly typeIds: Readonly<Record<string, { readonly id: number }>>;
  readonly exportedFunctions: Readonly<Record<string, object>>;
}

/** Runtime ids of classes that every AssemblyScript 0.28 module has. */
const ARRAY_BUFFER_ID = 1;
const STRING_ID = 2;
/** A typed array: buffer, first byte, bytes; 32 bits each. */
const VIEW_SIZE = 12;

/** The exports of a module that was built with the transform of as-bind. */
export function textModule<Exports>(bytes: Uint8Array<ArrayBuffer>): Exports {
  const module = new WebAssembly.Module(bytes);
  const { exports } = new WebAssembly.Instance(module);
  const { memory, __new, __pin, __unpin } = exports as unknown as Runtime;
  const [section] = WebAssembly.Module.customSections(module, 'as-bind_bindings');
  const { typeIds, exportedFunctions } = JSON.parse(new TextDecoder().decode(section)) as Bindings;
  const copied = (value: Uint8Array, typeId: number): number => {
    const address = __new(value.length, typeId);
    // The view comes second: __new may grow the memory, which detaches older views.
    new Uint8Array(memory.buffer, address).set(value);
    return address;
  };
  /** A number as it is; of others the address, pinned against the collector. */
  const lowered = (value: unknown): number => {
    if (typeof value === 'number') return value;
    if (!(value instanceof Uint8Array)) {
      const text = String(value);
      const codes = Uint16Array.from({ length: text.length }, (_, at) => text.charCodeAt(at));
      return __pin(copied(new Uint8Array(codes.buffer), STRING_ID));
    }
    const data = __pin(copied(value, ARRAY_BUFFER_ID));
    const view = __pin(__new(VIEW_SIZE, typeIds['~lib/typedarray/Uint8Array']!.id));
    new Uint32Array(memory.buffer, view).set([data, data, value.length]);
    __unpin(data);
    return view;
  };
  const raised = (address: number): string => {
    const [length] = new Uint32Array(memory.buffer, address - 4);
    // Without ignoreBOM a first U+FEFF would vanish.
    const decoder = new TextDecoder('utf-16le', { ignoreBOM: true });
    return decoder.decode(new Uint8Array(memory.buffer, address, length));
  };
  const functions = exports as unknown as Functions;
  const bound = Object.keys(exportedFunctions).map((name) => [
    name,
    (...args: readonly unknown[]) => {
      const values = args.map(lowered);
      const text = raised(functions[name]!(...values));
      for (const [at, value] of values.entries()) if (value !== args[at]) __unpin(value);
      return text;
    },
  ]);
  return Object.fromEntries(bound) as Exports;
}
