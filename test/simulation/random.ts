/**
 * Seeded chance that can be split: every purpose draws from a stream of its own, so that switching
 * one fault off leaves what the others do as it was. That is what makes a failing run shrink.
 */

/** Mixes a number thoroughly (the finalizer of murmur3). */
function mix(value: number): number {
  let z = value | 0;
  z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
  z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
  return z ^ (z >>> 16);
}

function hashOf(text: string): number {
  let hash = 0x811c9dc5 | 0;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return hash;
}

/** A generator of the sfc32 family. Not for secrets. */
export class Random {
  readonly #seed: number;
  #a: number;
  #b: number;
  #c: number;
  #count = 1;

  constructor(seed: number) {
    this.#seed = seed | 0;
    this.#a = mix(seed ^ 0x243f6a88);
    this.#b = mix(seed ^ 0x85a308d3);
    this.#c = mix(seed + 0x13198a2e);
    for (let round = 0; round < 8; round++) this.u32();
  }

  /** A stream of its own. The same labels give the same stream, whatever was drawn before. */
  split(label: string, index = 0): Random {
    return new Random(mix(this.#seed ^ hashOf(label)) + mix(index + 0x9e3779b9));
  }

  /** 0 to 2^32 - 1. */
  u32(): number {
    const sum = (this.#a + this.#b + this.#count) | 0;
    this.#count = (this.#count + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum;
    this.#c |= 0;
    return sum >>> 0;
  }

  /** A whole number, 0 to `count` - 1. */
  below(count: number): number {
    return Math.floor((this.u32() / 2 ** 32) * count);
  }

  /** A whole number, both ends included. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  /** True with this probability. */
  chance(probability: number): boolean {
    return this.u32() < probability * 2 ** 32;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }

  /** Exponentially distributed, cut at eight times its mean. */
  exponential(mean: number): number {
    return Math.min(-Math.log(1 - this.u32() / 2 ** 32), 8) * mean;
  }

  /** Random content; for more than a few bytes a piece of the pool, from anywhere in it. */
  fill(bytes: Uint8Array): void {
    if (bytes.length <= SMALL) {
      for (let index = 0; index < bytes.length; index++) bytes[index] = this.u32();
      return;
    }
    pool ??= makePool();
    for (let at = 0; at < bytes.length; at += PIECE) {
      const size = Math.min(PIECE, bytes.length - at);
      const from = this.below(POOL_BYTES - size);
      bytes.set(pool.subarray(from, from + size), at);
    }
  }
}

/** Drawing every byte of every memory anew would take longer than the packets do. */
const POOL_BYTES = 2 ** 20;
const PIECE = 2 ** 16;
const SMALL = 256;
let pool: Uint8Array | undefined;

function makePool(): Uint8Array {
  const random = new Random(1).split('pool');
  const words = new Uint32Array(POOL_BYTES / 4);
  for (let index = 0; index < words.length; index++) words[index] = random.u32();
  return new Uint8Array(words.buffer);
}

/**
 * Runs `body` while the process's cryptographic generator answers from `random`: keys and queue
 * pair numbers are then the same whenever a seed is replayed. Their values decide what collides.
 */
export async function withRandomKeys<T>(random: Random, body: () => Promise<T>): Promise<T> {
  const own = Object.getOwnPropertyDescriptor(globalThis.crypto, 'getRandomValues');
  Object.defineProperty(globalThis.crypto, 'getRandomValues', {
    configurable: true,
    value: <Array extends ArrayBufferView>(array: Array): Array => {
      random.fill(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
      return array;
    },
  });
  try {
    return await body();
  } finally {
    if (own) Object.defineProperty(globalThis.crypto, 'getRandomValues', own);
    else Reflect.deleteProperty(globalThis.crypto, 'getRandomValues');
  }
}
