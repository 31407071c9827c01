/** Symmetric objects: typed arrays in the memory that each PE has at the same offset. */
import { MisuseError } from '../errors/errors.js';

/** Elements of any width. */
export type SymmetricArray =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

/** Elements of 32 or 64 bits that atomics and waits take. */
export type AtomicArray = Int32Array | Uint32Array | BigInt64Array | BigUint64Array;

/** An element of a typed array: a number or a bigint. */
export type Element<Elements extends SymmetricArray> = Elements[number];

export type ArrayConstructor = new (
  buffer: ArrayBufferLike,
  byteOffset: number,
  length: number,
) => SymmetricArray;

/** The symmetric memory of this PE: `size` bytes from `base` on. */
export interface SymmetricRange {
  readonly buffer: ArrayBufferLike;
  readonly base: number;
  readonly size: number;
}

/** Offset of a symmetric object. Throws MisuseError. */
export function offsetOf(range: SymmetricRange, array: SymmetricArray, name: string): number {
  // NaN of what is no array: it is not inside.
  const offset = array?.byteOffset - range.base;
  const isInside = offset >= 0 && offset + array.byteLength <= range.size;
  if (isInside && array.buffer === range.buffer) return offset;
  throw new MisuseError(name, 'must be symmetric: memory of shmem.malloc of this PE, or a part');
}

/** The bytes of any typed array. */
export function bytesOf(array: SymmetricArray): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/** Elements of the type of `like`. */
export function arrayLike<Elements extends SymmetricArray>(
  like: Elements,
  buffer: ArrayBufferLike,
  byteOffset: number,
  length: number,
): Elements {
  return new (like.constructor as ArrayConstructor)(buffer, byteOffset, length) as Elements;
}

/** The same in new memory. */
export function copyOf<Elements extends SymmetricArray>(like: Elements, length: number): Elements {
  return arrayLike(like, new ArrayBuffer(length * like.BYTES_PER_ELEMENT), 0, length);
}

/** Comparisons of waits (`SHMEM_CMP_EQ`…). */
export enum ShmemCmp {
  EQ = 0,
  NE = 1,
  GT = 2,
  GE = 3,
  LT = 4,
  LE = 5,
}

export function compare<Value extends number | bigint>(
  left: Value,
  cmp: ShmemCmp,
  right: Value,
): boolean {
  switch (cmp) {
    case ShmemCmp.EQ:
      return left === right;
    case ShmemCmp.NE:
      return left !== right;
    case ShmemCmp.GT:
      return left > right;
    case ShmemCmp.GE:
      return left >= right;
    case ShmemCmp.LT:
      return left < right;
    case ShmemCmp.LE:
      return left <= right;
    default:
      throw new MisuseError('cmp', `must be a ShmemCmp, got ${String(cmp)}`);
  }
}

/** Operation of `putSignal` on the signal (`SHMEM_SIGNAL_SET`…). */
export enum ShmemSignal {
  SET = 0,
  ADD = 1,
}
