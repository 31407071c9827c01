/** Checks of region/cache-model.ts: its sets fill, and its trace ends where it should. */
import {
  CACHE_ACCESS_SIZE,
  CacheAccess,
  CacheModel,
  CacheModelConfig,
  cacheModelBytes,
  countAccess,
  initCacheModel,
} from '../region/cache-model';
import { freshArena } from './arena';
import { BUFFER, OTHER } from './memory';
import { begin, end, same } from './tap';

const ENTRIES: u32 = 64;
const TRACED: u32 = 3;
const MARK: u64 = 0x5a5a5a5a5a5a5a5a;

function keyOf(index: u32): u32 {
  return index * 0x10305;
}

export function checkCache(): void {
  const arena = freshArena(16);
  const config = changetype<CacheModelConfig>(BUFFER);
  config.mptEntries = ENTRIES;
  config.mptWays = 1;
  config.mttEntries = ENTRIES;
  config.mttWays = 1;
  config.pageShift = 12;
  config.traceMax = TRACED;
  const model = changetype<CacheModel>(OTHER);
  const size = <usize>cacheModelBytes(config);
  memory.fill(OTHER, 0, size);
  for (let at: usize = 0; at < 64; at += 8) store<u64>(OTHER + size + at, MARK);
  initCacheModel(arena, model, config);
  begin('a model of an adapter’s cache finds keys and pages again that lie in different sets');
  for (let round: u32 = 0; round < 2; round++) {
    for (let index: u32 = 1; index <= 8; index++) {
      countAccess(arena, keyOf(index), keyOf(index), index << 12, 64);
    }
  }
  same(model.mptHits + model.mptMisses, 16, 'keys');
  same(model.mttHits + model.mttMisses, 16, 'pages');
  same(u64(model.mptHits >= 4), 1, 'keys that were there', model.mptHits);
  same(u64(model.mttHits >= 4), 1, 'pages that were there', model.mttHits);
  end();
  begin('the trace of accesses has as many as it was made for, the first ones');
  for (let index: u32 = 0; index < TRACED; index++) {
    const access = changetype<CacheAccess>(model.trace + <usize>(index * CACHE_ACCESS_SIZE));
    same(access.key, keyOf(index + 1), 'key', index);
    same(access.address, (index + 1) << 12, 'address', index);
    same(access.length, 64, 'length', index);
  }
  for (let at: usize = 0; at < 64; at += 8) same(load<u64>(OTHER + size + at), MARK, 'beyond', at);
  end();
}
