/**
 * Caches the endpoints of senders by the words of their socket address, so that a packet from a
 * known peer allocates nothing. Bounded: four ways per hash; an unknown sender replaces the entries
 * of a set in turn.
 */
import { Endpoint, Gid } from '../endpoint.js';

const SETS = 1024;
const WAYS = 4;
/** Family and port, then the address: one word for IPv4, four for IPv6. */
const KEY_WORDS = 5;
/** sockaddr_in6 has the flow label between port and address. */
const IPV4_ADDRESS_WORD = 1;
const IPV6_ADDRESS_WORD = 2;

export class SourceCache {
  readonly #addressWord: number;
  readonly #addressWords: number;
  readonly #keys = new Uint32Array(SETS * WAYS * KEY_WORDS);
  readonly #endpoints: (Endpoint | undefined)[] = new Array<undefined>(SETS * WAYS).fill(undefined);
  readonly #oldest = new Uint8Array(SETS);
  #last = 0;

  constructor(isIpv4: boolean) {
    this.#addressWord = isIpv4 ? IPV4_ADDRESS_WORD : IPV6_ADDRESS_WORD;
    this.#addressWords = isIpv4 ? 1 : 4;
  }

  /** The endpoint of the socket address at word `at`. */
  intern(words: Uint32Array, at: number): Endpoint {
    if (this.#matches(this.#last, words, at)) return this.#endpoints[this.#last]!;
    let hash = words[at]!;
    for (let index = 0; index < this.#addressWords; index++) {
      hash = Math.imul(hash ^ words[at + this.#addressWord + index]!, 0x9e3779b1);
      // The bytes in which neighbours differ are the high ones of a word.
      hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
      hash ^= hash >>> 13;
    }
    const set = hash & (SETS - 1);
    for (let place = set * WAYS; place < (set + 1) * WAYS; place++) {
      if (this.#matches(place, words, at)) {
        this.#last = place;
        return this.#endpoints[place]!;
      }
    }
    const way = this.#oldest[set]!;
    this.#oldest[set] = (way + 1) % WAYS;
    this.#last = set * WAYS + way;
    return this.#put(this.#last, words, at);
  }

  #matches(place: number, words: Uint32Array, at: number): boolean {
    const key = place * KEY_WORDS;
    // An empty place has the family 0, which no address has.
    if (this.#keys[key] !== words[at]) return false;
    for (let index = 0; index < this.#addressWords; index++) {
      if (this.#keys[key + 1 + index] !== words[at + this.#addressWord + index]) return false;
    }
    return true;
  }

  #put(place: number, words: Uint32Array, at: number): Endpoint {
    const address = words.slice(
      at + this.#addressWord,
      at + this.#addressWord + this.#addressWords,
    );
    const gid = new Uint8Array(16);
    if (this.#addressWords === 1) gid.fill(0xff, 10, 12);
    gid.set(new Uint8Array(address.buffer), 16 - address.byteLength);
    this.#keys[place * KEY_WORDS] = words[at]!;
    this.#keys.set(address, place * KEY_WORDS + 1);
    // The port is in the network's order, after the family.
    const port = words[at]! >>> 16;
    const endpoint = new Endpoint(new Gid(gid), ((port & 255) << 8) | (port >> 8));
    this.#endpoints[place] = endpoint;
    return endpoint;
  }
}
