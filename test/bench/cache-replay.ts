/**
 * Replays what an engine's cache model has written down (host/engine/cache-model.ts) with other
 * numbers of entries and ways: one run of the protocol, any number of adapters.
 */
import type { CacheModelOptions } from '../../host/index.js';

export type Adapter = Required<Omit<CacheModelOptions, 'traceMax'>>;

export interface Counts {
  mptHits: number;
  mptMisses: number;
  mttHits: number;
  mttMisses: number;
}

const GOLDEN_HIGH = 0x9e3779b9;
const GOLDEN_LOW = 0x7f4a7c15;

class Cache {
  readonly #keys: Uint32Array;
  readonly #pages: Uint32Array;
  readonly #ways: number;
  readonly #sets: number;

  constructor(entries: number, ways: number) {
    this.#keys = new Uint32Array(entries);
    this.#pages = new Uint32Array(entries);
    this.#ways = ways;
    this.#sets = entries / ways;
  }

  /** Was it there? Afterwards it is in front, and what was used longest ago may be gone. */
  touch(key: number, page: number): boolean {
    // The upper half of tag times golden ratio, 64 bits wide; pages have 21 bits at most.
    const carried = Math.floor((page * GOLDEN_LOW) / 2 ** 32);
    const hash = (Math.imul(key, GOLDEN_LOW) + Math.imul(page, GOLDEN_HIGH) + carried) >>> 0;
    const first = (hash % this.#sets) * this.#ways;
    let movedKey = key;
    let movedPage = page;
    for (let at = first; at < first + this.#ways; at++) {
      const thereKey = this.#keys[at]!;
      const therePage = this.#pages[at]!;
      this.#keys[at] = movedKey;
      this.#pages[at] = movedPage;
      if (thereKey === key && therePage === page) return true;
      movedKey = thereKey;
      movedPage = therePage;
    }
    return false;
  }
}

/** Counts of the caches from access number `from` on; earlier accesses warm them up. */
export function replay(trace: Uint32Array, adapter: Adapter, from = 0): Counts {
  const mpt = new Cache(adapter.mptEntries, adapter.mptWays);
  const mtt = new Cache(adapter.mttEntries, adapter.mttWays);
  const shift = Math.log2(adapter.pageBytes);
  const counts = { mptHits: 0, mptMisses: 0, mttHits: 0, mttMisses: 0 };
  for (let at = 0; at < trace.length; at += 4) {
    const counted = at >= from * 4 ? 1 : 0;
    const key = trace[at]!;
    const address = trace[at + 1]!;
    const length = trace[at + 2]!;
    const pages = trace[at + 3]!;
    if (key !== 0) {
      if (mpt.touch(key, 0)) counts.mptHits += counted;
      else counts.mptMisses += counted;
    }
    if (length === 0) continue;
    const last = (address + length - 1) >>> shift;
    for (let page = address >>> shift; page <= last; page++) {
      if (mtt.touch(pages, page + 1)) counts.mttHits += counted;
      else counts.mttMisses += counted;
    }
  }
  return counts;
}
