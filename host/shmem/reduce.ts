/** Reductions, element by element; of integers they wrap as the width of the array says. */
import { MisuseError } from '../errors/errors.js';
import type { SymmetricArray } from './symmetric.js';

/** Combines `part` into `sum`. */
export type Reducer<Value> = (sum: ArrayLike<Value>, part: ArrayLike<Value>) => void;

type Combine = (left: never, right: never) => number | bigint;

/** Throws MisuseError for elements that the reduction does not take. */
export function checkReduction(name: keyof typeof reducers, source: SymmetricArray): void {
  const isBitwise = name === 'and' || name === 'or' || name === 'xor';
  if (!isBitwise || !(source instanceof Float64Array || source instanceof Float32Array)) return;
  const found = source.constructor.name;
  throw new MisuseError('source', `must have whole numbers for ${name}Reduce, got ${found}`);
}

function reducer(combine: Combine): Reducer<number | bigint> {
  return (sum, part) => {
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
  and: reducer((left: number, right: number) => left & right),
  or: reducer((left: number, right: number) => left | right),
  xor: reducer((left: number, right: number) => left ^ right),
  max: reducer((left: number, right: number) => (left > right ? left : right)),
  min: reducer((left: number, right: number) => (left < right ? left : right)),
  sum: reducer((left: number, right: number) => left + right),
  prod: product,
} as const;
