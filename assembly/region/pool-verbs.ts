/**
 * Members and users of a pool of regions. All functions run under the arena's lock;
 * each change is one store, after which what the pool counts follows, and is counted anew after a
 * death (pool-repair.ts).
 */
import { Arena, POOL_SIZE, POOL_USER_SIZE, lockArena, unlockArena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { Pool, emptyLists, hasMembers, membersOf, poolAt, userAt } from './pool';

/** Of `openPool`; what the pool has already comes back. */
@unmanaged
export class PoolParameters {
  ulp0: u64;
  ulp1: u64;
  ulp2: u64;
  ulp3: u64;
  maxLength: u32;
  mrsMax: u32;
  mrsMin: u32;
  lowWater: u32;
  buckets: u32;
  bucketMrs: u32;
  pd: u32;
  /** Out: index of the pool, and whether it was made now. */
  pool: u32;
  isNew: u32;
  reserved: u32;
}

/** Of `addUser`. */
@unmanaged
export class PoolUserParameters {
  pool: u32;
  numMr: u32;
  weight: u32;
  /** Out. */
  user: u32;
  bucket: u32;
  reserved: u32;
  name0: u64;
  name1: u64;
  name2: u64;
}

function isNamed(pool: Pool, p: PoolParameters): bool {
  const differ =
    (pool.ulp0 ^ p.ulp0) | (pool.ulp1 ^ p.ulp1) | (pool.ulp2 ^ p.ulp2) | (pool.ulp3 ^ p.ulp3);
  return pool.state == 1 && differ == 0;
}

/**
 * Takes part in the ULP's pool, or makes it. EBUSY: this context's slot takes part already, or
 * regions of a domain are other slots'; ENOMEM: there are as many pools as can be.
 */
export function openPool(arena: Arena, slot: u32, parameters: PoolParameters): u32 {
  const taken = lockArena(arena);
  let at: u32 = arena.poolsMax;
  let errno: u32 = Errno.ENOMEM;
  for (let index: u32 = 0; index < arena.poolsMax; index++) {
    const pool = poolAt(arena, index);
    if (isNamed(pool, parameters)) {
      errno = join(pool, slot, index, parameters);
      at = arena.poolsMax;
      break;
    }
    if (pool.state == 0 && at == arena.poolsMax) at = index;
  }
  if (at < arena.poolsMax) {
    make(arena, slot, at, parameters);
    errno = Errno.OK;
  }
  unlockArena(arena, taken);
  return errno;
}

function join(pool: Pool, slot: u32, index: u32, p: PoolParameters): u32 {
  const word = membersOf(pool, slot);
  const bit: u32 = 1 << (slot & 31);
  if (load<u32>(word) & bit || (pool.pd | p.pd) != 0) return Errno.EBUSY;
  p.maxLength = pool.maxLength;
  p.mrsMax = pool.mrsMax;
  p.mrsMin = pool.mrsMin;
  p.lowWater = pool.lowWater;
  p.buckets = pool.buckets;
  p.bucketMrs = pool.bucketMrs;
  p.pool = index;
  p.isNew = 0;
  atomic.store<u32>(word, load<u32>(word) | bit);
  return Errno.OK;
}

function make(arena: Arena, slot: u32, index: u32, p: PoolParameters): void {
  const pool = poolAt(arena, index);
  memory.fill(changetype<usize>(pool), 0, POOL_SIZE);
  emptyLists(pool);
  pool.ulp0 = p.ulp0;
  pool.ulp1 = p.ulp1;
  pool.ulp2 = p.ulp2;
  pool.ulp3 = p.ulp3;
  pool.maxLength = p.maxLength;
  pool.mrsMax = p.mrsMax;
  pool.mrsMin = p.mrsMin;
  pool.lowWater = p.lowWater;
  pool.buckets = p.buckets;
  pool.bucketMrs = p.bucketMrs;
  pool.pd = p.pd;
  p.pool = index;
  p.isNew = 1;
  // The member first: a pool without members is free.
  store<u32>(membersOf(pool, slot), 1 << (slot & 31));
  pool.state = 1;
}

/**
 * Leaves the pool. EBUSY: it has users; EAGAIN: it is the last member, and there are
 * regions still: to be freed first.
 */
export function closePool(arena: Arena, slot: u32, index: u32): u32 {
  const taken = lockArena(arena);
  const pool = poolAt(arena, index);
  let errno: u32 = Errno.OK;
  for (let at: u32 = 0; at < arena.poolUsersMax; at++) {
    const user = userAt(arena, at);
    if (user.slot == slot + 1 && user.pool == index + 1) errno = Errno.EBUSY;
  }
  if (errno == Errno.OK) {
    const word = membersOf(pool, slot);
    const before = load<u32>(word);
    atomic.store<u32>(word, before & ~(1 << (slot & 31)));
    if (!hasMembers(pool)) {
      if (pool.total != 0) {
        atomic.store<u32>(word, before);
        errno = Errno.EAGAIN;
      } else pool.state = 0;
    }
  }
  unlockArena(arena, taken);
  return errno;
}

/**
 * A user, in the bucket that has the fewest. EINVAL: no such pool; ENOSPC: with its own regions
 * fewer would be left than the pool's minimum; ENOMEM: there are as many users as can be.
 */
export function addUser(arena: Arena, slot: u32, p: PoolUserParameters): u32 {
  const taken = lockArena(arena);
  const errno = placeUser(arena, slot, p);
  unlockArena(arena, taken);
  return errno;
}

function freeUser(arena: Arena): u32 {
  let index: u32 = 0;
  while (index < arena.poolUsersMax && userAt(arena, index).slot != 0) index++;
  return index;
}

/** How many users a bucket has. */
function usersOf(arena: Arena, index: u32, bucket: u32): u32 {
  let count: u32 = 0;
  for (let at: u32 = 0; at < arena.poolUsersMax; at++) {
    const user = userAt(arena, at);
    if (user.slot != 0 && user.pool == index + 1 && user.bucket == bucket) count++;
  }
  return count;
}

function placeUser(arena: Arena, slot: u32, p: PoolUserParameters): u32 {
  if (p.pool >= arena.poolsMax) return Errno.EINVAL;
  const pool = poolAt(arena, p.pool);
  if (<u64>pool.own + p.numMr + pool.mrsMin > pool.mrsMax) return Errno.ENOSPC;
  const free = freeUser(arena);
  if (free == arena.poolUsersMax) return Errno.ENOMEM;
  let best: u32 = 0;
  let fewest: u32 = u32.MAX_VALUE;
  for (let bucket: u32 = 0; bucket < min<u32>(pool.buckets, 8); bucket++) {
    const count = usersOf(arena, p.pool, bucket);
    if (count >= fewest) continue;
    fewest = count;
    best = bucket;
  }
  const user = userAt(arena, free);
  memory.fill(changetype<usize>(user), 0, POOL_USER_SIZE);
  user.pool = p.pool + 1;
  user.bucket = best;
  user.weight = p.weight;
  user.numMr = p.numMr;
  user.name0 = p.name0;
  user.name1 = p.name1;
  user.name2 = p.name2;
  p.user = free;
  p.bucket = best;
  // A user counts from here on; what the pool counts follows, and is counted anew after a death.
  atomic.store<u32>(changetype<usize>(user), slot + 1);
  pool.users++;
  pool.weights += p.weight;
  atomic.add<u32>(changetype<usize>(pool) + offsetof<Pool>('own'), p.numMr);
  return Errno.OK;
}

/** Removes a user of this slot; its regions were returned. EINVAL. */
export function removeUser(arena: Arena, slot: u32, index: u32): u32 {
  const taken = lockArena(arena);
  let errno: u32 = Errno.EINVAL;
  if (index < arena.poolUsersMax) {
    const user = userAt(arena, index);
    const at = user.pool - 1;
    if (user.slot == slot + 1 && at < arena.poolsMax) {
      const pool = poolAt(arena, at);
      atomic.store<u32>(changetype<usize>(user), 0);
      pool.users--;
      pool.weights -= user.weight;
      atomic.sub<u32>(changetype<usize>(pool) + offsetof<Pool>('own'), user.numMr - user.lent);
      errno = Errno.OK;
    }
  }
  unlockArena(arena, taken);
  return errno;
}

/** A user lends `count` of its own regions; a negative count takes them back. */
export function lendOwn(arena: Arena, index: u32, count: i32): void {
  if (index >= arena.poolUsersMax) return;
  const user = userAt(arena, index);
  const at = user.pool - 1;
  if (at >= arena.poolsMax) return;
  user.lent += <u32>count;
  atomic.sub<u32>(changetype<usize>(poolAt(arena, at)) + offsetof<Pool>('own'), <u32>count);
}
