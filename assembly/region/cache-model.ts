/**
 * A model of what an adapter keeps of its tables on its own chip: of the table of keys (MPT) and of
 * the tables of pages (MTT). Both are set-associative and forget what was used longest ago. It
 * counts hits and misses and changes nothing that the engine does.
 *
 * It is compiled into `engine.modelled.wasm` alone, where CACHE_MODEL is true
 * (toolchain/cache-model-transform.mjs): the shipped engines do not contain it.
 * ```
 *  | CacheModel | MPT tags, 8 bytes an entry, set by set | MTT tags | trace |
 * ```
 */
import { Arena } from '../memory/arena';

/** Known to the compiler: what depends on it is there or not. */
export const CACHE_MODEL: bool = false;

/** Sizes of the adapter's cache. */
@unmanaged
export class CacheModelConfig {
  /** Entries in all; a multiple of the ways. */
  mptEntries: u32;
  mptWays: u32;
  mttEntries: u32;
  mttWays: u32;
  /** A page has 1 << pageShift bytes. */
  pageShift: u32;
  /** Accesses that are written down, the first ones. */
  traceMax: u32;
}

/** 80 bytes. A tag is a key in its upper half and 1 + a page's number in its lower one; 0: none. */
@unmanaged
export class CacheModel {
  mptHits: u64;
  mptMisses: u64;
  mttHits: u64;
  mttMisses: u64;
  mptSets: u32;
  mptWays: u32;
  mttSets: u32;
  mttWays: u32;
  mpt: usize;
  mtt: usize;
  pageShift: u32;
  traceMax: u32;
  trace: usize;
  /** Accesses so far: from `traceMax` on they are not written down. */
  accesses: u32;
  reserved0: u32;
  reserved1: u32;
}
const CACHE_MODEL_SIZE: u32 = 80;

/** An access. `address` is linear; `length` 0: the key was looked at and no page. */
@unmanaged
export class CacheAccess {
  key: u32;
  address: u32;
  length: u32;
  /** The key whose pages were walked: a window's are its region's. */
  pages: u32;
}
export const CACHE_ACCESS_SIZE: u32 = 16;

/** Moved at once: a first look-up checks the whole message, its pages come packet by packet. */
const PACKET_BYTES: u32 = 4096;

export function cacheModelBytes(config: CacheModelConfig): u32 {
  const tags = (config.mptEntries + config.mttEntries) << 3;
  return CACHE_MODEL_SIZE + tags + config.traceMax * CACHE_ACCESS_SIZE;
}

/** `model`: cacheModelBytes(config) zero bytes at a multiple of 8. Accesses count from now on. */
export function initCacheModel(arena: Arena, model: CacheModel, config: CacheModelConfig): void {
  model.mptSets = config.mptEntries / config.mptWays;
  model.mptWays = config.mptWays;
  model.mttSets = config.mttEntries / config.mttWays;
  model.mttWays = config.mttWays;
  model.pageShift = config.pageShift;
  model.traceMax = config.traceMax;
  model.mpt = changetype<usize>(model) + <usize>CACHE_MODEL_SIZE;
  model.mtt = model.mpt + <usize>(config.mptEntries << 3);
  model.trace = model.mtt + <usize>(config.mttEntries << 3);
  arena.cacheModel = changetype<usize>(model);
}

/**
 * A key was looked up: refused (`address` 0), or for `length` bytes from a linear address on.
 * `pages`: the key that the pages belong to.
 */
export function countAccess(arena: Arena, key: u32, pages: u32, address: usize, length: u32): void {
  if (arena.cacheModel == 0) return;
  const model = changetype<CacheModel>(arena.cacheModel);
  const bytes = address == 0 ? 0 : min<u32>(length, PACKET_BYTES);
  if (model.accesses < model.traceMax) {
    const at = model.trace + <usize>(model.accesses * CACHE_ACCESS_SIZE);
    const access = changetype<CacheAccess>(at);
    access.key = key;
    access.address = <u32>address;
    access.length = bytes;
    access.pages = pages;
  }
  model.accesses++;
  if (key != 0) {
    if (touch(model.mpt, model.mptSets, model.mptWays, tagOf(key, 0))) model.mptHits++;
    else model.mptMisses++;
  }
  if (bytes == 0) return;
  const last = (<u32>address + bytes - 1) >>> model.pageShift;
  for (let page = (<u32>address) >>> model.pageShift; page <= last; page++) {
    if (touch(model.mtt, model.mttSets, model.mttWays, tagOf(pages, page + 1))) model.mttHits++;
    else model.mttMisses++;
  }
}

function tagOf(key: u32, page: u32): u64 {
  const upper: u64 = key;
  return (upper << 32) | page;
}

/** Is it there? Afterwards it is, in front: what was used longest ago has made room. */
function touch(tags: usize, sets: u32, ways: u32, tag: u64): bool {
  // Fibonacci hashing: neighbouring pages and the random bits of keys alike fill all sets.
  const hash = <u32>((tag * 0x9e3779b97f4a7c15) >> 32);
  const set = tags + <usize>(((hash % sets) * ways) << 3);
  let moved = tag;
  for (let way: u32 = 0; way < ways; way++) {
    const at = set + <usize>(way << 3);
    const there = load<u64>(at);
    store<u64>(at, moved);
    if (there == tag) return true;
    moved = there;
  }
  return false;
}
