/** Symmetric objects: typed arrays in the memory that each PE has at the same offset. */
import { mustBe, shown } from '../errors/check-whole.js';
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

/** The name of a value's type, that of typed arrays included: a Buffer is a Uint8Array. */
export function typeOf(value: unknown): string {
  return ArrayBuffer.isView(value)
    ? ((value as Uint8Array)[Symbol.toStringTag] ?? 'DataView')
    : typeof value;
}

/**
 * Checks that `found` has the element type of `like`, which is the argument `other`. Throws
 * MisuseError.
 */
export function checkType(name: string, found: unknown, other: string, like: unknown): void {
  if (!isElements(like)) throw mustBe(other, 'a typed array', like);
  if (typeOf(found) === typeOf(like)) return;
  const article = typeOf(like).startsWith('I') ? 'an' : 'a';
  throw new MisuseError(name, `must be ${article} ${typeOf(like)}, got ${typeOf(found)}`);
}

function isElements(value: unknown): value is SymmetricArray {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}

type Word = number | bigint;

/** Least and most of the elements that are whole numbers, by their type. */
const RANGES: ReadonlyMap<unknown, readonly [Word, Word]> = new Map<unknown, readonly [Word, Word]>(
  [
    [Int8Array, [-128, 127]],
    [Uint8Array, [0, 255]],
    [Int16Array, [-(2 ** 15), 2 ** 15 - 1]],
    [Uint16Array, [0, 2 ** 16 - 1]],
    [Int32Array, [-(2 ** 31), 2 ** 31 - 1]],
    [Uint32Array, [0, 2 ** 32 - 1]],
    [BigInt64Array, [-(2n ** 63n), 2n ** 63n - 1n]],
    [BigUint64Array, [0n, 2n ** 64n - 1n]],
  ],
);

/** An element of that array: a bigint where its elements have 64 bits and no fraction. */
export function checkElement(name: string, array: SymmetricArray, value: unknown): void {
  // The most usual one needs no table.
  if (array instanceof Int32Array && typeof value === 'number' && (value | 0) === value) return;
  const isBig = array instanceof BigInt64Array || array instanceof BigUint64Array;
  const type = isBig ? 'bigint' : 'number';
  if (typeof value !== type) {
    throw new MisuseError(name, `must be a ${type}, got ${typeof value} ${String(value)}`);
  }
  if (array instanceof Float64Array || array instanceof Float32Array) return;
  const range = RANGES.get(array.constructor);
  if (!range) return;
  const isIn = (value as Word) >= range[0] && (value as Word) <= range[1];
  if (isIn && (isBig || Number.isInteger(value))) return;
  const kind = `a whole number from ${range[0]} to ${range[1]} (${typeOf(array)})`;
  throw mustBe(name, kind, value);
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
      throw new MisuseError('cmp', `must be a ShmemCmp, got ${shown(cmp)}`);
  }
}

/** Operation of `putSignal` on the signal (`SHMEM_SIGNAL_SET`…). */
export enum ShmemSignal {
  SET = 0,
  ADD = 1,
}
