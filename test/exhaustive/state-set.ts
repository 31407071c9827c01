/** States that were seen, by a 64-bit fingerprint of all their words. */

/** Fingerprint of the last call to `hash`. */
let low = 0;
let high = 0;

function hash(words: Int32Array, places: Int32Array, extra: number): void {
  let a = 0x9e3779b9 ^ extra;
  let b = 0x85ebca6b;
  for (let at = 0; at < places.length; at++) {
    const word = words[places[at]!]!;
    a = Math.imul(a ^ word, 0x01000193 + 0x9e370000);
    a ^= a >>> 15;
    b = Math.imul(b + word, 0xc2b2ae35) ^ (b >>> 13);
  }
  a = Math.imul(a ^ (b >>> 16), 0x7feb352d);
  low = a ^ (a >>> 15);
  b = Math.imul(b ^ (a >>> 11), 0x846ca68b);
  high = b ^ (b >>> 16);
}

export class StateSet {
  size = 0;
  /** Of the last `add`: the state had not been there. */
  isNew = false;
  #table = new Int32Array(1 << 16);
  #lows = new Int32Array(1 << 15);
  #highs = new Int32Array(1 << 15);

  /** The number of the state that `words` have at `places`: 0 for the first, then 1, … */
  add(words: Int32Array, places: Int32Array, extra: number): number {
    hash(words, places, extra);
    const mask = this.#table.length - 1;
    let at = (low ^ Math.imul(high, 0x9e3779b1)) & mask;
    for (let found = this.#table[at]!; found !== 0; found = this.#table[at]!) {
      if (this.#lows[found - 1] === low && this.#highs[found - 1] === high) {
        this.isNew = false;
        return found - 1;
      }
      at = (at + 1) & mask;
    }
    if (this.size === this.#lows.length) this.#grow();
    this.#lows[this.size] = low;
    this.#highs[this.size] = high;
    this.isNew = true;
    this.size++;
    if (this.size * 2 > this.#table.length) this.#rehash();
    else this.#table[at] = this.size;
    return this.size - 1;
  }

  #grow(): void {
    this.#lows = enlarge(this.#lows);
    this.#highs = enlarge(this.#highs);
  }

  #rehash(): void {
    this.#table = new Int32Array(this.#table.length * 2);
    const mask = this.#table.length - 1;
    for (let id = 0; id < this.size; id++) {
      let at = (this.#lows[id]! ^ Math.imul(this.#highs[id]!, 0x9e3779b1)) & mask;
      while (this.#table[at] !== 0) at = (at + 1) & mask;
      this.#table[at] = id + 1;
    }
  }
}

function enlarge(words: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(words.length * 2);
  larger.set(words);
  return larger;
}

/** A list of numbers that grows. */
export class Numbers {
  length = 0;
  #words = new Int32Array(1024);

  push(value: number): void {
    if (this.length === this.#words.length) this.#words = enlarge(this.#words);
    this.#words[this.length++] = value;
  }

  get(index: number): number {
    return this.#words[index]!;
  }

  set(index: number, value: number): void {
    this.#words[index] = value;
  }
}
