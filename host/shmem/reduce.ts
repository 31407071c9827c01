/** Reductions, element by element; of integers they wrap as the width of the array says. */
import { MisuseError } from '../errors/errors.js';
import type { SymmetricArray } from './symmetric.js';

/** Combines `part` into `sum`. */
export type Reducer<Value> = (sum: ArrayLike<Value>, part: ArrayLike<Value>) => void;

type Combine = (left: never, right: never) => number | bigint;

function reducer(combine: Combine, isBitwise = false): Reducer<number | bigint> {
  return (sum, part) => {
    if (isBitwise && (sum instanceof Float64Array || sum instanceof Float32Array)) {
      throw new MisuseError(
        'source',
        `must have whole numbers for and, or and xor, got ${sum.constructor.name}`,
      );
    }
    const target = sum as SymmetricArray;
    for (let index = 0; index < sum.length; index++) {
      target[index] = combine(sum[index] as never, part[index] as never) as never;
    }
  };
}

const times = reducer((left: number, right: number) => left * right);
/** The product of two 32-bit numbers passes what a double holds exactly. */
const timesWords = reducer((left: number, right: number) => Math.imul(left, right));

const product: Reducer<number | bigint> = (sum, part) => {
  const isWord = sum instanceof Int32Array || sum instanceof Uint32Array;
  (isWord ? timesWords : times)(sum, part);
};

export const reducers = {
  and: reducer((left: number, right: number) => left & right, true),
  or: reducer((left: number, right: number) => left | right, true),
  xor: reducer((left: number, right: number) => left ^ right, true),
  max: reducer((left: number, right: number) => (left > right ? left : right)),
  min: reducer((left: number, right: number) => (left < right ? left : right)),
  sum: reducer((left: number, right: number) => left + right),
  prod: product,
} as const;
