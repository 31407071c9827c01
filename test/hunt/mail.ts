/**
 * A block of device memory through which the processes, or threads, of a hunt exchange keys and
 * queue pair numbers: pairs of 64 bytes, one for each owner. Every word has one writer.
 * ```
 *  0     4     8        16       20       24        28      32     36     40
 *  | key | turn | address | length | ownerQp | joined | sender | port | life | asked | sent |
 * ```
 */
export const PAIR_BYTES = 64;

const KEY = 0;
const TURN = 1;
const ADDRESS = 2;
const LENGTH = 4;
const OWNER_QPN = 5;
const JOINED = 6;
const SENDER_QPN = 7;
const SENDER_PORT = 8;
const LIFE = 9;
const ASKED_KEY = 10;

/** A key that is valid for WRITEs. */
export interface OpenKey {
  readonly key: number;
  /** Incremented with every new key. */
  readonly turn: number;
  readonly address: bigint;
  readonly length: number;
}

export class Pair {
  readonly #words: Uint32Array;
  readonly #signed: Int32Array;
  readonly #wide: BigUint64Array;

  /** `bytes`: the block of all pairs. */
  constructor(bytes: Uint8Array, index: number) {
    const at = bytes.byteOffset + index * PAIR_BYTES;
    this.#words = new Uint32Array(bytes.buffer, at, PAIR_BYTES / 4);
    this.#signed = new Int32Array(bytes.buffer, at, PAIR_BYTES / 4);
    this.#wide = new BigUint64Array(bytes.buffer, at, PAIR_BYTES / 8);
  }

  /** The owner publishes a key: the target writes by it until a WRITE is refused. */
  open(key: number, address: bigint, length: number): void {
    this.#wide[ADDRESS / 2] = address;
    this.#words[LENGTH] = length;
    Atomics.store(this.#signed, KEY, key | 0);
    Atomics.add(this.#signed, TURN, 1);
  }

  get opened(): OpenKey {
    const turn = Atomics.load(this.#signed, TURN) >>> 0;
    const key = Atomics.load(this.#signed, KEY) >>> 0;
    return { key, turn, address: this.#wide[ADDRESS / 2]!, length: this.#words[LENGTH]! };
  }

  /** The target's sender of SEND_WITH_INV, and the incarnation of the target. */
  offer(qpn: number, port: number, life: number): void {
    this.#words[SENDER_QPN] = qpn;
    this.#words[SENDER_PORT] = port;
    Atomics.store(this.#signed, LIFE, life);
  }

  get sender(): { readonly qpn: number; readonly port: number; readonly life: number } {
    const life = Atomics.load(this.#signed, LIFE);
    return { qpn: this.#words[SENDER_QPN]!, port: this.#words[SENDER_PORT]!, life };
  }

  /** The owner has connected its queue pair to the sender of that incarnation. */
  join(qpn: number, life: number): void {
    this.#words[OWNER_QPN] = qpn;
    Atomics.store(this.#signed, JOINED, life);
  }

  get joined(): { readonly qpn: number; readonly life: number } {
    const life = Atomics.load(this.#signed, JOINED);
    return { qpn: this.#words[OWNER_QPN]!, life };
  }

  /** The owner requests a SEND_WITH_INV of this key; 0: no request. */
  set asked(key: number) {
    Atomics.store(this.#signed, ASKED_KEY, key | 0);
  }

  get asked(): number {
    return Atomics.load(this.#signed, ASKED_KEY) >>> 0;
  }
}
