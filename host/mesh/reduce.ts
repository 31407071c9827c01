/** Element-wise reduction of typed arrays. */
import { tagOf } from '../errors/type-tag.js';
import { MisuseError } from '../errors/errors.js';

/** Arrays that `allReduce` takes. */
export type ReducibleArray = Float32Array | Float64Array | Int32Array | BigInt64Array;
/** Sums of integers wrap; the minimum and maximum of a NaN are NaN. */
export type ReduceOperation = 'sum' | 'min' | 'max';

export const OPERATIONS: readonly ReduceOperation[] = ['sum', 'min', 'max'];
const TYPES = [Float32Array, Float64Array, Int32Array, BigInt64Array] as const;

/** Throws MisuseError. */
export function typeIndexOf(array: ReducibleArray): number {
  const index = TYPES.findIndex(({ name }) => tagOf(array) === name);
  if (index >= 0) return index;
  const rule = 'allReduce: must be a Float32Array, Float64Array, Int32Array or BigInt64Array';
  throw new MisuseError('array', rule);
}

export function typeName(index: number): string {
  return TYPES[index]?.name ?? `type ${index}`;
}

/** A view of elements of the same type in `bytes`. */
export function elementsIn(
  array: ReducibleArray,
  bytes: Uint8Array,
  offset: number,
  count: number,
): ReducibleArray {
  const Type = array.constructor as new (
    buffer: ArrayBufferLike,
    byteOffset: number,
    length: number,
  ) => ReducibleArray;
  return new Type(bytes.buffer, bytes.byteOffset + offset, count);
}

export function copyOf<Array extends ReducibleArray>(array: Array): Array {
  // A slice of shared memory is an array of its own memory.
  return array.slice() as Array;
}

type Combine<Value> = (one: Value, other: Value) => Value;

const NUMBERS: Readonly<Record<ReduceOperation, Combine<number>>> = {
  sum: (one, other) => one + other,
  min: Math.min,
  max: Math.max,
};
/** The array itself wraps at 64 bits. */
const BIGINTS: Readonly<Record<ReduceOperation, Combine<bigint>>> = {
  sum: (one, other) => one + other,
  min: (one, other) => (other < one ? other : one),
  max: (one, other) => (other > one ? other : one),
};

function isBigInts(array: ReducibleArray): array is BigInt64Array {
  return tagOf(array) === 'BigInt64Array';
}

/** `into[i] = op(into[i], from[i])`. */
export function reduceInto(op: ReduceOperation, into: ReducibleArray, from: ReducibleArray): void {
  if (isBigInts(into)) {
    const combine = BIGINTS[op];
    const other = from as BigInt64Array;
    for (let i = 0; i < into.length; i++) into[i] = combine(into[i]!, other[i]!);
    return;
  }
  const other = from as Float64Array;
  if (op === 'sum') {
    for (let i = 0; i < into.length; i++) into[i]! += other[i]!;
    return;
  }
  const combine = NUMBERS[op];
  for (let i = 0; i < into.length; i++) into[i] = combine(into[i]!, other[i]!);
}
