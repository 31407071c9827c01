/**
 * Pools of memory regions (seed 002) that all threads and processes of the arena share.
 *
 * One word of its node names the holder of a region; each change of the holder is one
 * compare-and-swap of that word, from free to a holder or back. A free region is invalidated: its
 * key opens nothing. The lists (the pool, and its buckets) only say where such regions are found at
 * once; they are stacks whose head carries a count of its changes, so that a head which has come
 * back differs from one that never left.
 *
 * Taking and giving are wait-free. Each marks itself active beforehand (`pooling` of its context's
 * slot). A region that is in no list because a process died is found by rebuilding all lists from
 * the nodes: the pools are closed, active calls finish, and calls that start meanwhile fail for
 * now. Control verbs run under the arena's lock.
 *
 * Another process may have written anything: indices are checked at use, attempts are bounded, and
 * a region that is found in a list is taken only if its own node agrees.
 */
import {
  Arena,
  ContextSlot,
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  POOL_USER_SIZE,
  contextSlot,
} from '../memory/arena';
import { Errno } from '../memory/errno';
import { KeyState, noteAt, slotIndex } from './key-table';

/** A pool: 128 bytes, then the heads of its lists, each with a cache line for itself. */
@unmanaged
export class Pool {
  /** The ULP's name, UTF-8. */
  ulp0: u64;
  ulp1: u64;
  ulp2: u64;
  ulp3: u64;
  /** 1: there is a pool. */
  state: u32;
  /** 1 while its lists are made anew. */
  closed: u32;
  /** All its regions; those owned by users; sum of the users' weights; number of users. */
  total: u32;
  own: u32;
  weights: u32;
  users: u32;
  /** As PoolParameters say. */
  maxLength: u32;
  mrsMax: u32;
  mrsMin: u32;
  lowWater: u32;
  buckets: u32;
  bucketMrs: u32;
  /** One bit for each slot that takes part. */
  members0: u64;
  members1: u64;
  members2: u64;
  members3: u64;
  /** The domain of its regions; 0: of none. */
  pd: u32;
  /** The fewest regions in the global list since the monitor's last look: unused ones. */
  least: u32;
  /** Counted by the hosts. */
  created: u32;
  freed: u32;
}
const MEMBERS: usize = 80;
const LIST_SIZE: usize = 64;
/** In a bucket, behind its head: as `least` of the pool. */
const LEAST: usize = 8;

/** A connection that takes from a pool: 96 bytes. Its process writes the counters, for others. */
@unmanaged
export class PoolUser {
  /** Slot + 1 of its context; 0: free. Written last, cleared first. */
  slot: u32;
  /** Index + 1 of its pool. */
  pool: u32;
  bucket: u32;
  /** Thousandths. */
  weight: u32;
  numMr: u32;
  /** Own regions that others hold. */
  lent: u32;
  inUse: u32;
  peak: u32;
  hitsL1: u64;
  hitsL2: u64;
  hitsGlobal: u64;
  misses: u64;
  name0: u64;
  name1: u64;
  name2: u64;
  reclaimed: u64;
}

/** Of each key slot: 16 bytes. */
@unmanaged
export class PoolNode {
  /** Index + 1 of the one below in its list; how many there are from this one down. */
  next: u32;
  depth: u32;
  /** 0: free. Upper half: slot + 1; lower half: index + 1 of the user, 0: the pool itself. */
  holder: u32;
  /** Index + 1 of its pool, and PoolMark.ADDED. */
  pool: u32;
}
const HOLDER: usize = 8;

export enum PoolMark {
  /** A member added the region, and wants it back. */
  ADDED = 0x10000,
}

/** Of `takeNode`. */
export enum PoolTake {
  /** Index + 1 of the region's key slot; 0: no region. */
  INDEX = 0xffffff,
  /** Came from a bucket, from the pool. */
  BUCKET = 0x1000000,
  GLOBAL = 0x2000000,
  /** Fewer are left than the low-water mark, or the pool's lists are being made anew. */
  SCARCE = 0x40000000,
}

/** In the owner of a key: the pool that the region is in. No slot has this number. */
export const POOL_HOLDER: u32 = 0xffff;
const NO_FAIRNESS: u32 = 0xffffffff;
const WEIGHT_ONE: u64 = 1000;
/** A single user gets eight ninths. */
const GREED: u64 = 8;
const ATTEMPTS: u32 = 1 << 16;

export function poolAt(arena: Arena, index: u32): Pool {
  return changetype<Pool>(arena.pools + <usize>(index * (POOL_SIZE + POOL_LISTS_SIZE)));
}

export function userAt(arena: Arena, index: u32): PoolUser {
  return changetype<PoolUser>(arena.poolUsers + <usize>(index * POOL_USER_SIZE));
}

export function nodeAt(arena: Arena, index: u32): PoolNode {
  return changetype<PoolNode>(arena.poolNodes + <usize>(index * POOL_NODE_SIZE));
}

export function listOf(pool: Pool, list: u32): usize {
  return changetype<usize>(pool) + <usize>POOL_SIZE + <usize>list * LIST_SIZE;
}

/** Index + 1 that another process may have written; 0: invalid. */
function checked(arena: Arena, index: u32): u32 {
  return index <= arena.keyMask + 1 ? index : 0;
}

/** The pool that a node names, or null. */
export function poolOf(arena: Arena, node: PoolNode): Pool | null {
  const index = (node.pool & 0xffff) - 1;
  if (index >= arena.poolsMax) return null;
  const pool = poolAt(arena, index);
  return pool.state == 1 ? pool : null;
}

function hand(slot: u32, user: u32): u32 {
  return ((slot + 1) << 16) | user;
}

export function membersOf(pool: Pool, slot: u32): usize {
  return changetype<usize>(pool) + MEMBERS + <usize>((slot >>> 5) << 2);
}

export function hasMembers(pool: Pool): bool {
  return (pool.members0 | pool.members1 | pool.members2 | pool.members3) != 0;
}

/** From here to `end` the lists stay what they are. False: they are being made anew. */
function begin(place: ContextSlot, pool: Pool): bool {
  atomic.store<u32>(changetype<usize>(place) + offsetof<ContextSlot>('pooling'), 1);
  if (atomic.load<u32>(changetype<usize>(pool) + offsetof<Pool>('closed')) == 0) return true;
  end(place);
  return false;
}

function end(place: ContextSlot): void {
  atomic.store<u32>(changetype<usize>(place) + offsetof<ContextSlot>('pooling'), 0);
}

function depthOf(arena: Arena, pool: Pool, list: u32): u32 {
  const top = checked(arena, <u32>atomic.load<u64>(listOf(pool, list)));
  return top == 0 ? 0 : nodeAt(arena, top - 1).depth;
}

/** Free regions: in the pool and in its buckets. */
export function poolFree(arena: Arena, pool: Pool): u32 {
  let free: u32 = 0;
  const lists = min<u32>(pool.buckets, 8);
  for (let list: u32 = 0; list <= lists; list++) free += depthOf(arena, pool, list);
  return free;
}

export function push(arena: Arena, list: usize, index: u32): void {
  const node = nodeAt(arena, index);
  for (let attempt: u32 = 0; attempt < ATTEMPTS; attempt++) {
    const head = atomic.load<u64>(list);
    const below = checked(arena, <u32>head);
    node.next = below;
    node.depth = below == 0 ? 1 : nodeAt(arena, below - 1).depth + 1;
    const next = (((head >> 32) + 1) << 32) | (index + 1);
    if (atomic.cmpxchg<u64>(list, head, next) == head) return;
  }
}

/** Index + 1 of the last one that was pushed, or 0. */
function pop(arena: Arena, list: usize): u32 {
  for (let attempt: u32 = 0; attempt < ATTEMPTS; attempt++) {
    const head = atomic.load<u64>(list);
    const top = checked(arena, <u32>head);
    if (top == 0) return 0;
    const next = (((head >> 32) + 1) << 32) | checked(arena, nodeAt(arena, top - 1).next);
    if (atomic.cmpxchg<u64>(list, head, next) == head) return top;
  }
  return 0;
}

/** Takes from a list into a hand; index + 1, or 0. What the node does not agree to is left. */
function takeFrom(arena: Arena, slot: u32, pool: Pool, list: u32, holder: u32): u32 {
  const place = listOf(pool, list);
  for (let attempt: u32 = 0; attempt < ATTEMPTS; attempt++) {
    const top = pop(arena, place);
    if (top == 0) return 0;
    const node = nodeAt(arena, top - 1);
    const note = noteAt(arena, top - 1);
    if (note.state != KeyState.INVALID || poolOf(arena, node) != pool) continue;
    if (atomic.cmpxchg<u32>(changetype<usize>(node) + HOLDER, 0, holder) != 0) continue;
    note.owner = slot;
    const least = list == 0 ? changetype<usize>(pool) + offsetof<Pool>('least') : place + LEAST;
    if (node.depth <= load<u32>(least)) store<u32>(least, node.depth - 1);
    return top;
  }
  return 0;
}

/**
 * Does the user hold its share while few regions are free? Above its share a user may hold GREED
 * times the free regions above the low-water mark, by its weight: the fewer are free, the less the
 * early users keep, until each has the share of its weight.
 */
function isOver(arena: Arena, pool: Pool, user: u32, borrowed: u32, free: u32): bool {
  if (user - 1 >= arena.poolUsersMax) return false;
  const shared = <u64>(pool.total - pool.own);
  const weight = <u64>userAt(arena, user - 1).weight;
  if (<u64>borrowed * pool.weights < shared * weight) return false;
  if (free <= pool.lowWater) return true;
  return <u64>borrowed * WEIGHT_ONE >= GREED * weight * <u64>(free - pool.lowWater);
}

/**
 * A region for a user (index + 1; 0: the pool's own hand), from its bucket, else the pool, else
 * other buckets: PoolTake. `borrowed`: what it has of those that are shared; 0xffffffff: it takes
 * what is its own.
 */
export function takeNode(
  arena: Arena,
  slot: u32,
  index: u32,
  user: u32,
  bucket: u32,
  borrowed: u32,
): u32 {
  const pool = poolAt(arena, index);
  const place = contextSlot(arena, slot);
  if (!begin(place, pool)) return PoolTake.SCARCE;
  let answer: u32 = 0;
  const isFair = borrowed != NO_FAIRNESS;
  const isFull = pool.total >= pool.mrsMax;
  if (<u64>depthOf(arena, pool, 0) <= <u64>pool.lowWater + (isFair && isFull ? borrowed : 0)) {
    const free = poolFree(arena, pool);
    if (free <= pool.lowWater) answer = PoolTake.SCARCE;
    // As long as more can be made the mark is passed by one, which is what makes them.
    const isGuarded = isFair && free > 0 && (isFull || free < pool.lowWater);
    if (isGuarded && isOver(arena, pool, user, borrowed, free)) {
      end(place);
      return answer;
    }
  }
  const holder = hand(slot, user);
  const lists = min<u32>(pool.buckets, 8);
  let top: u32 = 0;
  if (user != 0) {
    top = takeFrom(arena, slot, pool, bucket + 1, holder);
    if (top != 0) answer |= PoolTake.BUCKET;
  }
  if (top == 0) top = takeFrom(arena, slot, pool, 0, holder);
  for (let list: u32 = 1; top == 0 && user != 0 && list <= lists; list++) {
    top = takeFrom(arena, slot, pool, ((bucket + list) % lists) + 1, holder);
  }
  end(place);
  if (top != 0 && !(answer & PoolTake.BUCKET)) answer |= PoolTake.GLOBAL;
  return answer | top;
}

/**
 * Gives a region back, to the bucket if it has room, else to the pool. The pool's own hand may
 * exceed the room. EINVAL: it is not in this hand; EBUSY: it is registered; EAGAIN: the lists are
 * being made anew, and nothing has changed.
 */
export function giveNode(
  arena: Arena,
  slot: u32,
  index: u32,
  user: u32,
  bucket: u32,
  at: u32,
): u32 {
  const pool = poolAt(arena, index);
  const place = contextSlot(arena, slot);
  if (at > arena.keyMask) return Errno.EINVAL;
  const node = nodeAt(arena, at);
  const note = noteAt(arena, at);
  const holder = changetype<usize>(node) + HOLDER;
  if (atomic.load<u32>(holder) != hand(slot, user) || poolOf(arena, node) != pool) {
    return Errno.EINVAL;
  }
  if (note.state != KeyState.INVALID) return Errno.EBUSY;
  if (!begin(place, pool)) return Errno.EAGAIN;
  note.owner = POOL_HOLDER;
  // From now on the region has no holder, whether it is in a list or not.
  atomic.store<u32>(holder, 0);
  const fits =
    bucket < pool.buckets && (user == 0 || depthOf(arena, pool, bucket + 1) < pool.bucketMrs);
  push(arena, listOf(pool, fits ? bucket + 1 : 0), at);
  end(place);
  return Errno.OK;
}

/** Up to `count` regions of a bucket go to the pool, one at a time: the others stay available. */
export function drainBucket(arena: Arena, slot: u32, index: u32, bucket: u32, count: u32): void {
  const pool = poolAt(arena, index);
  const place = contextSlot(arena, slot);
  if (!begin(place, pool)) return;
  for (count = min<u32>(count, arena.keyMask + 1); count > 0; count--) {
    const top = pop(arena, listOf(pool, bucket + 1));
    if (top == 0) break;
    push(arena, listOf(pool, 0), top - 1);
  }
  end(place);
}

/**
 * A region of this context, invalidated, joins a pool, in the pool's own hand in this context.
 * EINVAL: no such region, or it is in a pool; ENOSPC: the pool has as many as it may have; EAGAIN.
 */
export function addNode(arena: Arena, slot: u32, index: u32, key: u32, mark: u32): u32 {
  const pool = poolAt(arena, index);
  const place = contextSlot(arena, slot);
  const at = slotIndex(arena, key);
  const node = nodeAt(arena, at);
  const note = noteAt(arena, at);
  if (note.key != key || note.owner != slot || note.state != KeyState.INVALID || node.pool != 0) {
    return Errno.EINVAL;
  }
  if (!begin(place, pool)) return Errno.EAGAIN;
  const total = changetype<usize>(pool) + offsetof<Pool>('total');
  let errno: u32 = Errno.ENOSPC;
  if (atomic.add<u32>(total, 1) < pool.mrsMax) {
    atomic.store<u32>(changetype<usize>(node) + HOLDER, hand(slot, 0));
    node.pool = (index + 1) | (mark & PoolMark.ADDED);
    errno = Errno.OK;
  } else atomic.sub<u32>(total, 1);
  end(place);
  return errno;
}

/** The region in the pool's own hand in this context is the context's again. EINVAL, EAGAIN. */
export function removeNode(arena: Arena, slot: u32, index: u32, at: u32): u32 {
  const pool = poolAt(arena, index);
  const place = contextSlot(arena, slot);
  if (at > arena.keyMask) return Errno.EINVAL;
  const node = nodeAt(arena, at);
  if (node.holder != hand(slot, 0) || poolOf(arena, node) != pool) return Errno.EINVAL;
  if (!begin(place, pool)) return Errno.EAGAIN;
  node.pool = 0;
  atomic.store<u32>(changetype<usize>(node) + HOLDER, 0);
  atomic.sub<u32>(changetype<usize>(pool) + offsetof<Pool>('total'), 1);
  end(place);
  return Errno.OK;
}

/** Empties the lists; their change counts move on as always. */
export function emptyLists(pool: Pool): void {
  for (let list: u32 = 0; list <= 8; list++) {
    const head = listOf(pool, list);
    atomic.store<u64>(head, ((atomic.load<u64>(head) >> 32) + 1) << 32);
  }
}
