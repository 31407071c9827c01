/** Instantiates a module whose exports take and return strings and typed arrays, by as-bind. */
import {
  converters,
  instantiateSync,
  type Bound,
  type Converter,
  type Raw,
} from '#build/as-bind.js';

/** Runtime ids of classes that every AssemblyScript 0.28 module has. */
const ARRAY_BUFFER_ID = 1;
const STRING_ID = 2;
/** A typed array: buffer, first byte, bytes; 32 bits each. */
const VIEW_SIZE = 12;

/** By their names in AssemblyScript. */
const TYPED_ARRAYS = {
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Int64Array: BigInt64Array,
  Uint64Array: BigUint64Array,
  Float32Array,
  Float64Array,
} as const;
type TypedArrayClass = (typeof TYPED_ARRAYS)[keyof typeof TYPED_ARRAYS];

/** as-bind 0.8.2 reads the object headers of AssemblyScript 0.19; these read those of 0.28. */
const stringConverter: Converter = {
  jsToAsc(bound: Bound<unknown>, value: unknown): Raw {
    const text = String(value);
    const runtime = bound.loadedModule.exports;
    const address = runtime.__new(text.length * 2, STRING_ID);
    // The view comes second: __new may grow the memory, which detaches older views.
    const codes = new Uint16Array(runtime.memory.buffer, address, text.length);
    for (let i = 0; i < text.length; i++) codes[i] = text.charCodeAt(i);
    return address;
  },
  ascToJs(bound: Bound<unknown>, value: Raw): string {
    const { buffer } = bound.loadedModule.exports.memory;
    const address = Number(value);
    const [byteLength = 0] = new Uint32Array(buffer, address - 4, 1);
    // Without ignoreBOM a first U+FEFF would vanish.
    return new TextDecoder('utf-16le', { ignoreBOM: true }).decode(
      new Uint8Array(buffer, address, byteLength),
    );
  },
};

function typedArrayConverter(TypedArray: TypedArrayClass): Converter {
  return {
    jsToAsc(bound: Bound<unknown>, value: unknown, typeName: string): Raw {
      if (!(value instanceof TypedArray)) throw new TypeError(`expected ${TypedArray.name}`);
      const runtime = bound.loadedModule.exports;
      // Pinned, or the second allocation may collect the first.
      const data = runtime.__pin(runtime.__new(value.byteLength, ARRAY_BUFFER_ID));
      const view = runtime.__new(VIEW_SIZE, bound.getTypeId(typeName));
      const { buffer } = runtime.memory;
      new Uint32Array(buffer, view, 3).set([data, data, value.byteLength]);
      new Uint8Array(buffer, data, value.byteLength).set(
        new Uint8Array(value.buffer, value.byteOffset, value.byteLength),
      );
      runtime.__unpin(data);
      return view;
    },
    ascToJs(bound: Bound<unknown>, value: Raw): unknown {
      const { buffer } = bound.loadedModule.exports.memory;
      const [, start = 0, byteLength = 0] = new Uint32Array(buffer, Number(value), 3);
      return new TypedArray(buffer.slice(start, start + byteLength));
    },
  };
}

/** The exports of a module that was built with the transform of as-bind. */
export function textModule<Exports>(bytes: Uint8Array): Exports {
  converters.set('~lib/string/String', stringConverter);
  for (const [name, TypedArray] of Object.entries(TYPED_ARRAYS)) {
    converters.set(`~lib/typedarray/${name}`, typedArrayConverter(TypedArray));
  }
  return instantiateSync<Exports>(bytes, {}).exports;
}
