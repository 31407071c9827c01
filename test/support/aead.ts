/** The AEAD of an engine for tests: bytes in, bytes out. */
import type { ArenaMemory } from '../../host/engine/arena.js';
import { smallContext } from './codec.js';

const KEY_BYTES = 32;
const TAG_BYTES = 16;

export class Aead {
  readonly #arena: ArenaMemory;
  readonly #context: number;
  readonly #key: number;
  readonly #tag: number;

  constructor(shared: boolean) {
    [this.#arena, this.#context] = smallContext(shared);
    this.#key = this.#arena.heap.alloc(KEY_BYTES + TAG_BYTES);
    this.#tag = this.#key + KEY_BYTES;
  }

  /** Data that ends with the memory: an engine that reads beyond it traps. */
  #put(key: Uint8Array, data: Uint8Array): number {
    const { bytes } = this.#arena.memory;
    const at = bytes.length - data.length;
    bytes.set(key, this.#key);
    bytes.set(data, at);
    return at;
  }

  /** Encrypts what lies behind the first `plain` bytes, in a copy; the tag covers all. */
  seal(
    key: Uint8Array,
    nonce: bigint,
    data: Uint8Array,
    plain: number,
  ): { readonly bytes: Uint8Array; readonly tag: Uint8Array } {
    const { exports, memory } = this.#arena;
    const at = this.#put(key, data);
    const [low, high] = halves(nonce);
    exports.aeadSeal(this.#context, this.#key, low, high, at, data.length, plain, this.#tag);
    const tag = memory.bytes.slice(this.#tag, this.#tag + TAG_BYTES);
    return { bytes: memory.bytes.slice(at), tag };
  }

  /** The reverse; undefined: the tag does not fit. Throws if the bytes changed all the same. */
  open(
    key: Uint8Array,
    nonce: bigint,
    data: Uint8Array,
    plain: number,
    tag: Uint8Array,
  ): Uint8Array | undefined {
    const { exports, memory } = this.#arena;
    const at = this.#put(key, data);
    memory.bytes.set(tag, this.#tag);
    const [low, high] = halves(nonce);
    const { length } = data;
    const fits = exports.aeadOpen(
      this.#context,
      this.#key,
      low,
      high,
      at,
      length,
      plain,
      this.#tag,
    );
    const bytes = memory.bytes.slice(at);
    if (fits) return bytes;
    if (Buffer.compare(bytes, data) !== 0) throw new Error('refused, and changed');
    return undefined;
  }
}

function halves(nonce: bigint): [low: number, high: number] {
  return [Number(nonce & 0xffffffffn), Number(nonce >> 32n)];
}
