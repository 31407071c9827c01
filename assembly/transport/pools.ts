/** Pools of regions as the ABI has them: whose context it is tells the slot. */
import { fastRevoked, revokeFast } from '../region/fast-revoke';
import {
  addNode,
  drainBucket,
  giveNode,
  poolAt,
  poolFree as countFree,
  removeNode,
  takeNode,
} from '../region/pool';
import {
  PoolParameters,
  PoolUserParameters,
  addUser,
  closePool,
  lendOwn,
  openPool,
  removeUser,
} from '../region/pool-verbs';
import { Context } from './context';

/** Takes part in a pool of regions as PoolParameters say, or makes it. An Errno. */
export function poolOpen(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return openPool(c.arena, c.slotIndex, changetype<PoolParameters>(parameters));
}

/** Takes part in it no more. An Errno; EAGAIN: who is last frees its regions first. */
export function poolClose(context: usize, pool: u32): u32 {
  const c = changetype<Context>(context);
  return closePool(c.arena, c.slotIndex, pool);
}

/** Makes a user of a pool as PoolUserParameters say. An Errno. */
export function poolAddUser(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return addUser(c.arena, c.slotIndex, changetype<PoolUserParameters>(parameters));
}

export function poolRemoveUser(context: usize, user: u32): u32 {
  const c = changetype<Context>(context);
  return removeUser(c.arena, c.slotIndex, user);
}

/** The user lends so many of its own regions; fewer than none: it has them back. */
export function poolLend(context: usize, user: u32, count: i32): void {
  lendOwn(changetype<Context>(context).arena, user, count);
}

/** A region of this context joins a pool, in the pool's own hand. An Errno. */
export function poolAdd(context: usize, pool: u32, key: u32, mark: u32): u32 {
  const c = changetype<Context>(context);
  return addNode(c.arena, c.slotIndex, pool, key, mark);
}

/** A region in the pool's own hand is the context's again. An Errno. */
export function poolRemove(context: usize, pool: u32, index: u32): u32 {
  const c = changetype<Context>(context);
  return removeNode(c.arena, c.slotIndex, pool, index);
}

/** A region for a user (index + 1): PoolTake. Waits for nobody. */
export function poolTake(context: usize, pool: u32, user: u32, bucket: u32, borrowed: u32): u32 {
  const c = changetype<Context>(context);
  return takeNode(c.arena, c.slotIndex, pool, user, bucket, borrowed);
}

/** Gives one back. An Errno. Waits for nobody. */
export function poolGive(context: usize, pool: u32, user: u32, bucket: u32, index: u32): u32 {
  const c = changetype<Context>(context);
  return giveNode(c.arena, c.slotIndex, pool, user, bucket, index);
}

/** What a bucket has goes to the pool. */
export function poolDrain(context: usize, pool: u32, bucket: u32): void {
  const c = changetype<Context>(context);
  drainBucket(c.arena, c.slotIndex, pool, bucket);
}

/** Regions that nobody has. */
export function poolFree(context: usize, pool: u32): u32 {
  const arena = changetype<Context>(context).arena;
  return countFree(arena, poolAt(arena, pool));
}

/** Invalidates a region for REG_MR without a queue pair. Returns an Errno. */
export function killFastMr(context: usize, key: u32): u32 {
  const c = changetype<Context>(context);
  return revokeFast(c.arena, c.slotIndex, key);
}

/** 1: no engine can still access the memory of the invalidated region. */
export function mrRevoked(context: usize, key: u32): u32 {
  return fastRevoked(changetype<Context>(context).arena, key) ? 1 : 0;
}
