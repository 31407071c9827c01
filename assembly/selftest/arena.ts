/** Arenas for the checks of keys and protection domains: made afresh, always at the same place. */
import {
  Arena,
  ArenaConfig,
  ContextSlot,
  arenaSize,
  contextSlot,
  initArena,
} from '../memory/arena';
import { RANDOM_KEYS, RegionParameters, registerRegion } from '../region/key-table';
import { FREE, LOW_END } from './memory';
import { same } from './tap';

const CONFIG: usize = FREE;
const PARAMETERS: usize = FREE + 1024;
const ARENA: usize = FREE + 4096;

export const CONTEXTS: u32 = 4;
export const DOMAINS: u32 = 64;

export function parameters(): RegionParameters {
  return changetype<RegionParameters>(PARAMETERS);
}

/** An arena at `at`, which is zeroed; the running check fails when it would end above `limit`. */
export function makeArena(at: usize, limit: usize, regionsMax: u32): Arena {
  const config = changetype<ArenaConfig>(CONFIG);
  memory.fill(CONFIG, 0, offsetof<ArenaConfig>());
  config.regionsMax = regionsMax;
  config.protectionDomainsMax = DOMAINS;
  config.contextsMax = CONTEXTS;
  const size = <usize>arenaSize(config);
  same(u64(at + size <= limit), 1, 'arena size', size);
  memory.fill(at, 0, size);
  const arena = changetype<Arena>(at);
  initArena(arena, config);
  // The checks use arbitrary addresses: no data are copied there.
  arena.floor = 0;
  return arena;
}

/** A small arena in the memory of the checks. */
export function freshArena(regionsMax: u32): Arena {
  return makeArena(ARENA, LOW_END, regionsMax);
}

/** Sets all candidates for the next key to `key`. */
export function setCandidates(key: u32): void {
  const random = PARAMETERS + offsetof<RegionParameters>('random');
  for (let draw: u32 = 0; draw < RANDOM_KEYS; draw++) store<u32>(random + (draw << 2), key);
}

/** Registers `length` bytes at `address` under exactly this key, by the first context. An Errno. */
export function register(
  arena: Arena,
  key: u32,
  pd: u32,
  access: u32,
  iova: u64,
  address: u32,
  length: u32,
): u32 {
  const wanted = parameters();
  wanted.iova = iova;
  wanted.address = address;
  wanted.length = length;
  wanted.pd = pd;
  wanted.access = access;
  wanted.key = 0;
  setCandidates(key);
  return registerRegion(arena, 0, wanted);
}

export function slotOf(arena: Arena, index: u32): ContextSlot {
  return contextSlot(arena, index);
}

/** A pseudo-random sequence (xorshift): the same on every machine. */
export class Random {
  private state: u64;

  constructor(seed: u64) {
    this.state = seed | 1;
  }

  next(): u64 {
    let x = this.state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    this.state = x;
    return x;
  }

  /** 0 .. limit - 1. */
  below(limit: u32): u32 {
    return <u32>((this.next() >> 11) % limit);
  }
}
