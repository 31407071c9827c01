/** The memory of a PE, as another one reaches it: by loads and stores, or RDMA (remote-peer.ts). */
import type { RefusalError } from '../errors/errors.js';
import { copyBytes } from '../link/copy-bytes.js';
import type { AtomicArray } from './symmetric.js';

/** An atomic operation on a word; the result is the value before it. */
export enum Atomic {
  FETCH = 0,
  SET = 1,
  ADD = 2,
  AND = 3,
  OR = 4,
  XOR = 5,
}

export type Word = number | bigint;

export interface Peer {
  /** The memory itself; undefined: it is on another machine. */
  readonly base: number | undefined;
  /** Writes bytes. The source may change as soon as this returns. */
  put(offset: number, source: Uint8Array): void;
  /** Reads bytes; returns when they are there. */
  get(offset: number, target: Uint8Array): void;
  /** `like` says the width and the sign of the word. */
  atomic(like: AtomicArray, offset: number, operation: Atomic, value: Word): Word;
  compareSwap(like: AtomicArray, offset: number, condition: Word, value: Word): Word;
  /** Returns when all that was written is there. Throws once for what a failed PE did not get. */
  quiet(): void;
  /** Finds out whether the PE still answers. */
  look(): void;
  /** Writes 1 into a byte, without an error if the PE has failed. */
  mark(offset: number): void;
  /**
   * The PE has failed, as another one has found: requests throw from now on. `own`: it is this PE
   * that has failed for the others; requests throw that error.
   */
  lose(own?: RefusalError): void;
}

type Words = Readonly<Record<string, AtomicArray>>;

/** A PE of this machine. */
export class LocalPeer implements Peer {
  readonly base: number;
  readonly #bytes: Uint8Array;
  readonly #words: Words;

  /** `words`: views of the whole memory, by the name of their type. */
  constructor(bytes: Uint8Array, words: Words) {
    this.base = bytes.byteOffset;
    this.#bytes = bytes;
    this.#words = words;
  }

  put(offset: number, source: Uint8Array): void {
    copyBytes(this.#bytes, source, offset);
  }

  get(offset: number, target: Uint8Array): void {
    copyBytes(target, this.#bytes.subarray(offset, offset + target.length), 0);
  }

  atomic(like: AtomicArray, offset: number, operation: Atomic, value: Word): Word {
    const words = this.#words[like.constructor.name] as Int32Array;
    const index = (this.base + offset) / like.BYTES_PER_ELEMENT;
    return apply(words, index, operation, value as number);
  }

  compareSwap(like: AtomicArray, offset: number, condition: Word, value: Word): Word {
    const words = this.#words[like.constructor.name] as Int32Array;
    const index = (this.base + offset) / like.BYTES_PER_ELEMENT;
    return Atomics.compareExchange(words, index, condition as number, value as number);
  }

  quiet(): void {}

  look(): void {}

  mark(offset: number): void {
    Atomics.store(this.#bytes, offset, 1);
  }

  lose(): void {}
}

/** Views of all memory of a device. */
export function wordsOf(buffer: ArrayBufferLike): Words {
  const views = [
    new Int32Array(buffer),
    new Uint32Array(buffer),
    new BigInt64Array(buffer),
    new BigUint64Array(buffer),
  ];
  return Object.fromEntries(views.map((view) => [view.constructor.name, view]));
}

function apply(words: Int32Array, index: number, operation: Atomic, value: number): Word {
  switch (operation) {
    case Atomic.FETCH:
      return Atomics.load(words, index);
    case Atomic.SET:
      return Atomics.exchange(words, index, value);
    case Atomic.ADD:
      return Atomics.add(words, index, value);
    case Atomic.AND:
      return Atomics.and(words, index, value);
    case Atomic.OR:
      return Atomics.or(words, index, value);
    case Atomic.XOR:
      return Atomics.xor(words, index, value);
  }
}
