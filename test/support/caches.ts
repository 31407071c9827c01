/**
 * An adapter's caches, written by hand over lists: what the engine's model must agree with, and
 * what replays one trace with the numbers of other adapters.
 */
export interface CachesOptions {
  readonly mptEntries: number;
  readonly mptWays: number;
  readonly mttEntries: number;
  readonly mttWays: number;
  readonly pageBytes: number;
}

const GOLDEN = 0x9e3779b97f4a7c15n;

/** Sets of keys, the one used last in front. */
class Cache {
  readonly #sets: string[][];
  readonly #ways: number;
  hits = 0n;
  misses = 0n;

  constructor(entries: number, ways: number) {
    this.#sets = Array.from({ length: entries / ways }, () => []);
    this.#ways = ways;
  }

  look(key: number, page: number): void {
    const tag = (BigInt(key) << 32n) | BigInt(page);
    const hash = BigInt.asUintN(64, tag * GOLDEN) >> 32n;
    const set = this.#sets[Number(hash % BigInt(this.#sets.length))]!;
    const name = `${key}:${page}`;
    const there = set.indexOf(name);
    if (there >= 0) {
      set.splice(there, 1);
      this.hits++;
    } else this.misses++;
    set.unshift(name);
    if (set.length > this.#ways) set.pop();
  }
}

export class Caches {
  readonly #mpt: Cache;
  readonly #mtt: Cache;
  readonly #pageBytes: number;

  constructor(options: CachesOptions) {
    this.#mpt = new Cache(options.mptEntries, options.mptWays);
    this.#mtt = new Cache(options.mttEntries, options.mttWays);
    this.#pageBytes = options.pageBytes;
  }

  /** A trace as `CacheModel.trace` has it. */
  run(trace: Uint32Array): Record<'mptHits' | 'mptMisses' | 'mttHits' | 'mttMisses', bigint> {
    for (let at = 0; at < trace.length; at += 4) {
      const [key, address, length, pages] = trace.subarray(at, at + 4);
      if (key! !== 0) this.#mpt.look(key!, 0);
      if (length! === 0) continue;
      const first = Math.floor(address! / this.#pageBytes);
      const last = Math.floor((address! + length! - 1) / this.#pageBytes);
      for (let page = first; page <= last; page++) this.#mtt.look(pages!, page + 1);
    }
    return {
      mptHits: this.#mpt.hits,
      mptMisses: this.#mpt.misses,
      mttHits: this.#mtt.hits,
      mttMisses: this.#mtt.misses,
    };
  }
}
