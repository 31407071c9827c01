/**
 * SHA-256 (FIPS 180-4) of bytes that come piece by piece: Web Crypto takes a whole message only,
 * and a file does not fit into memory.
 */

const BLOCK_BYTES = 64;
const LENGTH_BYTES = 8;
const ROUNDS = 64;

/** The first 32 bits of the fractional parts of the roots of the first primes. */
function fractionsOfRoots(count: number, power: number): Int32Array {
  const words = new Int32Array(count);
  let found = 0;
  for (let number = 2; found < count; number++) {
    let divisor = 2;
    while (divisor * divisor <= number && number % divisor !== 0) divisor++;
    if (divisor * divisor <= number) continue;
    words[found++] = (number ** power % 1) * 2 ** 32;
  }
  return words;
}

const K = fractionsOfRoots(ROUNDS, 1 / 3);

export class Sha256 {
  readonly #state = fractionsOfRoots(8, 1 / 2);
  readonly #words = new Int32Array(ROUNDS);
  /** The beginning of a block that is not full yet. */
  readonly #rest = new Uint8Array(BLOCK_BYTES);
  #length = 0;

  update(bytes: Uint8Array): void {
    const held = this.#length % BLOCK_BYTES;
    this.#length += bytes.length;
    let at = 0;
    if (held > 0) {
      at = Math.min(BLOCK_BYTES - held, bytes.length);
      this.#rest.set(bytes.subarray(0, at), held);
      if (held + at < BLOCK_BYTES) return;
      this.#compress(this.#rest, 0);
    }
    for (; at + BLOCK_BYTES <= bytes.length; at += BLOCK_BYTES) this.#compress(bytes, at);
    this.#rest.set(bytes.subarray(at));
  }

  /** 32 bytes. To be called once, and last. */
  digest(): Uint8Array {
    const length = this.#length;
    const zeros = (2 * BLOCK_BYTES - 1 - LENGTH_BYTES - (length % BLOCK_BYTES)) % BLOCK_BYTES;
    const end = new Uint8Array(1 + zeros + LENGTH_BYTES);
    end[0] = 0x80;
    new DataView(end.buffer).setBigUint64(1 + zeros, BigInt(length) * 8n);
    this.update(end);
    const digest = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, index) => digest.setInt32(4 * index, word));
    return new Uint8Array(digest.buffer);
  }

  #compress(bytes: Uint8Array, start: number): void {
    const w = this.#words;
    for (let index = 0, at = start; index < 16; index++, at += 4) {
      w[index] =
        (bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!;
    }
    for (let index = 16; index < ROUNDS; index++) {
      const x = w[index - 15]!;
      const y = w[index - 2]!;
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[index] = (w[index - 16]! + s0 + w[index - 7]! + s1) | 0;
    }
    const state = this.#state;
    // A destructured typed array takes ten times as long as the rounds.
    let a = state[0]!;
    let b = state[1]!;
    let c = state[2]!;
    let d = state[3]!;
    let e = state[4]!;
    let f = state[5]!;
    let g = state[6]!;
    let h = state[7]!;
    for (let index = 0; index < ROUNDS; index++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + (g ^ (e & (f ^ g))) + K[index]! + w[index]!) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) | (c & (a | b)))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    state[0]! += a;
    state[1]! += b;
    state[2]! += c;
    state[3]! += d;
    state[4]! += e;
    state[5]! += f;
    state[6]! += g;
    state[7]! += h;
  }
}
