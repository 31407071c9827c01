/**
 * A model of the caches in which an adapter keeps parts of its table of keys (MPT) and of its
 * tables of pages (MTT): how often would it have had what a look-up asks for? It counts every
 * access of the engine and changes nothing (assembly/region/cache-model.ts).
 */
import { mustBe } from '../errors/check-whole.js';
import { CACHE_ACCESS_SIZE, CacheModelConfigLayout, CacheModelLayout } from '#build/abi.js';
import { checkKeys } from '../base/options.js';
import { MisuseError } from '../errors/errors.js';
import type { Heap } from './heap.js';
import type { EngineExports } from './load.js';
import type { EngineMemory } from './memory.js';
import { structAt } from './struct.js';

/** Sizes of the adapter's caches. Entries are a multiple of the ways. */
export interface CacheModelOptions {
  /** Memory keys that fit in. */
  readonly mptEntries: number;
  /** Of a set, which forgets what was used longest ago. Default 4. */
  readonly mptWays?: number;
  /** Pages that fit in. */
  readonly mttEntries: number;
  /** Default 4. */
  readonly mttWays?: number;
  /** A power of two from 4096 on. Default 4096. */
  readonly pageBytes?: number;
  /** How many accesses are written down, from the first one on. Default 0. */
  readonly traceMax?: number;
}

/** Look-ups so far that would have found their entry on the chip, and that would not. */
export interface CacheCounters {
  readonly mptHits: bigint;
  readonly mptMisses: bigint;
  readonly mttHits: bigint;
  readonly mttMisses: bigint;
}

const ENTRIES_MAX = 2 ** 22;
const TRACE_MAX = 2 ** 26;

export class CacheModel {
  readonly #memory: EngineMemory;
  readonly #address: number;

  /** Throws MisuseError for what no adapter is like, RefusalError ENOMEM. */
  constructor(
    memory: EngineMemory,
    heap: Heap,
    exports: EngineExports,
    arena: number,
    options: CacheModelOptions,
  ) {
    const known = 'mptEntries mptWays mttEntries mttWays pageBytes traceMax';
    checkKeys('openDevice (cacheModel)', options, known);
    const { mptWays = 4, mttWays = 4, pageBytes = 4096, traceMax = 0 } = options;
    const { mptEntries, mttEntries } = options;
    checkEntries('mptEntries', mptEntries, mptWays);
    checkEntries('mttEntries', mttEntries, mttWays);
    const pageShift = Math.log2(pageBytes);
    if (!Number.isInteger(pageShift) || pageShift < 12 || pageShift > 30) {
      throw mustBe('pageBytes', 'a power of two from 4096 on', pageBytes);
    }
    if (!Number.isInteger(traceMax) || traceMax < 0 || traceMax > TRACE_MAX) {
      throw new MisuseError('traceMax', `must be a whole number up to ${TRACE_MAX}`);
    }
    this.#memory = memory;
    const at = heap.alloc(CacheModelConfigLayout.size);
    try {
      const values = { mptEntries, mptWays, mttEntries, mttWays, pageShift, traceMax };
      Object.assign(structAt(memory, CacheModelConfigLayout, at), values);
      this.#address = heap.alloc(exports.arenaModelBytes(at));
      exports.arenaModelInit(arena, this.#address, at);
    } finally {
      heap.free(at);
    }
  }

  counters(): CacheCounters {
    const { mptHits, mptMisses, mttHits, mttMisses } = this.#struct();
    return { mptHits, mptMisses, mttHits, mttMisses };
  }

  /** Every access so far, also those that were not written down. */
  get accesses(): number {
    return this.#struct().accesses;
  }

  /**
   * Recorded accesses, four words each, in the format of CacheAccess: the key (0: the pages of a
   * window's region), linear address (0: refused), bytes, and the key whose pages these are.
   */
  trace(): Uint32Array {
    const { trace, traceMax, accesses } = this.#struct();
    const words = CACHE_ACCESS_SIZE / 4;
    const first = trace / 4;
    return this.#memory.words.slice(first, first + Math.min(accesses, traceMax) * words);
  }

  #struct() {
    return structAt(this.#memory, CacheModelLayout, this.#address);
  }
}

function checkEntries(name: string, entries: number, ways: number): void {
  const whole = Number.isInteger(entries) && entries >= 1 && entries <= ENTRIES_MAX;
  if (whole && Number.isInteger(ways) && ways >= 1 && entries % ways === 0) return;
  throw new MisuseError(name, `must be 1 to ${ENTRIES_MAX} and a multiple of its ways`);
}
