/**
 * Pools of regions after a death: what the dead had is the pools' again, and all lists and counts
 * are made anew from what nodes and users say.
 */
import { Arena, ContextSlot, contextSlot } from '../memory/arena';
import { KeyState, noteAt } from './key-table';
import {
  POOL_HOLDER,
  Pool,
  emptyLists,
  hasMembers,
  listOf,
  membersOf,
  nodeAt,
  poolAt,
  poolOf,
  push,
  userAt,
} from './pool';

/** Checks of active members before the repair gives up for now. */
const SPINS_MAX: u32 = 10000;

/** Removes a dead slot from all pools. The caller holds the lock. */
export function leavePools(arena: Arena, slot: u32): void {
  atomic.store<u32>(
    changetype<usize>(contextSlot(arena, slot)) + offsetof<ContextSlot>('pooling'),
    0,
  );
  for (let index: u32 = 0; index < arena.poolsMax; index++) {
    const word = membersOf(poolAt(arena, index), slot);
    atomic.store<u32>(word, load<u32>(word) & ~(1 << (slot & 31)));
  }
}

/** Is the region in a pool with members? */
export function isPooled(arena: Arena, index: u32): bool {
  if (arena.poolsMax == 0) return false;
  const pool = poolOf(arena, nodeAt(arena, index));
  return pool != null && hasMembers(pool);
}

/** Does the region belong to a pool without members? */
export function isOrphan(arena: Arena, index: u32): bool {
  if (arena.poolsMax == 0 || noteAt(arena, index).owner != POOL_HOLDER) return false;
  return !isPooled(arena, index);
}

/** Have all members finished taking and giving? */
function allOut(arena: Arena): bool {
  for (let slot: u32 = 0; slot < arena.contextsMax; slot++) {
    const place = changetype<usize>(contextSlot(arena, slot)) + offsetof<ContextSlot>('pooling');
    let turn: u32 = 0;
    while (atomic.load<u32>(place) != 0) if (++turn > SPINS_MAX) return false;
  }
  return true;
}

function setClosed(arena: Arena, closed: u32): void {
  for (let index: u32 = 0; index < arena.poolsMax; index++) {
    const pool = poolAt(arena, index);
    atomic.store<u32>(changetype<usize>(pool) + offsetof<Pool>('closed'), closed);
  }
}

/**
 * Makes lists and counts anew from what nodes and users say; what slot `dead` had is the pool's.
 * The caller holds the lock, and has killed the keys of the dead. False: a member does not finish.
 */
export function repairPools(arena: Arena, dead: u32): bool {
  if (arena.poolsMax == 0) return true;
  // A process died in here: the lists may be incomplete, and stay closed until they are rebuilt.
  const half = poolAt(arena, arena.poolsMax - 1).closed != 0 || poolAt(arena, 0).closed != 0;
  setClosed(arena, 1);
  if (!allOut(arena)) {
    if (!half) setClosed(arena, 0);
    return false;
  }
  for (let index: u32 = 0; index < arena.poolsMax; index++) clearPool(poolAt(arena, index));
  for (let index: u32 = 0; index <= arena.keyMask; index++) relist(arena, dead, index);
  for (let index: u32 = 0; index < arena.poolUsersMax; index++) recount(arena, dead, index);
  setClosed(arena, 0);
  return true;
}

function clearPool(pool: Pool): void {
  emptyLists(pool);
  if (!hasMembers(pool)) pool.state = 0;
  pool.total = 0;
  pool.own = 0;
  pool.weights = 0;
  pool.users = 0;
}

function relist(arena: Arena, dead: u32, index: u32): void {
  const node = nodeAt(arena, index);
  const note = noteAt(arena, index);
  const pool = poolOf(arena, node);
  if (node.holder >>> 16 == dead + 1) node.holder = 0;
  if (pool == null) {
    node.pool = 0;
    return;
  }
  const held = node.holder != 0;
  // A registered region without a holder, or no region: not one of a pool.
  const fits = note.state == KeyState.INVALID || (held && note.state == KeyState.LIVE);
  if (!fits) {
    node.pool = 0;
    node.holder = 0;
    return;
  }
  pool.total++;
  if (held) return;
  note.owner = POOL_HOLDER;
  push(arena, listOf(pool, 0), index);
}

function recount(arena: Arena, dead: u32, index: u32): void {
  const user = userAt(arena, index);
  if (user.slot == 0) return;
  const at = user.pool - 1;
  const lives = user.slot != dead + 1 && at < arena.poolsMax;
  if (!lives) {
    atomic.store<u32>(changetype<usize>(user), 0);
    return;
  }
  const pool = poolAt(arena, at);
  pool.users++;
  pool.weights += user.weight;
  pool.own += user.numMr - user.lent;
}
