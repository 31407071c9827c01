/**
 * Reclaims the resources of a dead process: its keys, its attachments to protection domains, its
 * memory in the shared heap; and completes the changes that it was making when it died. The caller
 * holds the arena's lock and knows that the process is dead. A reap may be repeated after any step,
 * since the process that reaps may die as well.
 *
 * Changes of tables are of two kinds. Control verbs change under the lock, which is ours now. The
 * data path changes entries of the key table (invalidation, BIND_MW, REG_MR) within calls that an
 * epoch shows: an entry that stays open while every living context leaves its call has no owner.
 */
import { Arena, allQuiesced, contextSlot, nextEpoch } from '../memory/arena';
import { Errno } from '../memory/errno';
import { letGoOfAll, rebuildHeap } from '../memory/heap';
import { closeChannels } from '../memory/local-channel';
import { withdrawAllOf } from '../memory/local-endpoint';
import { KeyKind } from './access-flag';
import {
  KeyEntry,
  KeyNote,
  KeyState,
  abandonChange,
  endChange,
  entryAt,
  noteAt,
  sequenceOf,
  slotIndex,
  takeEntry,
  unbind,
} from './key-table';
import { isForsaken } from './domain-region';
import { isOrphan, isPooled, leavePools, repairPools } from './pool-repair';
import { detachDead } from './protection-domain';

/** Checks of the other engines before this gives up for now: they are busy, or stopped. */
const SPINS_MAX: u32 = 10000;

/** No slot has this number. */
const NO_SLOT: u32 = 0xffffffff;

/** How an entry was come by. */
enum Taken {
  NO = 0,
  /** No engine was changing it. */
  WHOLE = 1,
  /** A dead engine was changing it. */
  HALF = 2,
}

/** Has every living context left the call that it is in now? */
function settled(arena: Arena): bool {
  const epoch = nextEpoch(arena);
  for (let turn: u32 = 0; turn < SPINS_MAX; turn++) if (allQuiesced(arena, epoch)) return true;
  return false;
}

/** The entry's sequence is odd afterwards, and ours. */
function seize(arena: Arena, entry: KeyEntry): u32 {
  if (!(takeEntry(entry) & 1)) return Taken.WHOLE;
  const found = atomic.load<u32>(sequenceOf(entry));
  if (!(found & 1) || !settled(arena)) return Taken.NO;
  return atomic.load<u32>(sequenceOf(entry)) == found ? Taken.HALF : Taken.NO;
}

function even(entry: KeyEntry): u32 {
  return load<u32>(sequenceOf(entry)) & ~1;
}

function isHeld(note: KeyNote): bool {
  return note.state == KeyState.LIVE || note.state == KeyState.INVALID;
}

/** Does the key there end with the slot? */
function endsWith(arena: Arena, slot: u32, index: u32): bool {
  const note = noteAt(arena, index);
  if (!isHeld(note)) return false;
  return note.owner == slot || isOrphan(arena, index) || isForsaken(arena, index, slot);
}

/**
 * Reclaims all resources of slot `slot`. EAGAIN: a living engine may still use a part of them,
 * come again.
 */
export function reapSlot(arena: Arena, slot: u32): u32 {
  contextSlot(arena, slot).activity = 0;
  withdrawAllOf(arena, slot);
  closeChannels(arena, slot);
  leavePools(arena, slot);
  for (let index: u32 = 0; index <= arena.keyMask; index++) {
    if (!killOf(arena, slot, index)) return Errno.EAGAIN;
  }
  for (let index: u32 = 0; index <= arena.keyMask; index++) {
    if (!loosen(arena, index)) return Errno.EAGAIN;
  }
  // Resources of the dead are free when all engines have left their current calls.
  if (!settled(arena)) return Errno.EAGAIN;
  let count: u32 = 0;
  for (let index: u32 = 0; index <= arena.keyMask; index++) {
    const note = noteAt(arena, index);
    if (note.state == KeyState.DYING && note.owner == slot) note.state = KeyState.FREE;
    if (note.state != KeyState.FREE) count++;
  }
  arena.state.regionCount = count;
  if (!recount(arena) || !repairPools(arena, slot)) return Errno.EAGAIN;
  detachDead(arena, slot);
  letGoOfAll(arena, slot);
  rebuildHeap(arena);
  contextSlot(arena, slot).context = 0;
  contextSlot(arena, slot).incarnation++;
  return Errno.OK;
}

/** Makes the lists of domains and of the heap anew, from what their entries say. */
export function repairTables(arena: Arena): void {
  detachDead(arena, NO_SLOT);
  rebuildHeap(arena);
  // If that fails, another process is dead, too; its own reap repairs the rest.
  repairPools(arena, NO_SLOT);
}

/** The key there is dead if it was the slot's, and the entry whole. False: not now. */
function killOf(arena: Arena, slot: u32, index: u32): bool {
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if (!endsWith(arena, slot, index) && !(atomic.load<u32>(sequenceOf(entry)) & 1)) return true;
  const taken = seize(arena, entry);
  if (taken == Taken.NO) return false;
  if (endsWith(arena, slot, index)) {
    unbind(arena, note);
    entry.key = 0;
    // A pool's region is the pool's again, and opens nothing.
    const stays = isPooled(arena, index);
    if (stays && entry.access & KeyKind.MOBILE_REGION) note.pd = 0;
    note.owner = slot;
    note.state = stays ? KeyState.INVALID : KeyState.DYING;
  } else if (taken == Taken.WHOLE) {
    abandonChange(entry, even(entry));
    return true;
  } else {
    // An incomplete invalidation, bind or registration of another key: the key is dead, and its
    // owner still has to give it back.
    entry.key = 0;
    unbind(arena, note);
    if (note.state == KeyState.LIVE) note.state = KeyState.INVALID;
  }
  endChange(entry, even(entry));
  note.killedAt = nextEpoch(arena);
  return true;
}

/** Invalidates a window or layout whose base is gone, and unbinds it. */
function loosen(arena: Arena, index: u32): bool {
  const note = noteAt(arena, index);
  const base = note.base;
  if (base == 0) return true;
  const other = noteAt(arena, slotIndex(arena, base));
  if (isHeld(other) && (other.key ^ base) >>> 8 == 0) return true;
  const entry = entryAt(arena, index);
  if (seize(arena, entry) == Taken.NO) return false;
  if (note.base == base) {
    note.base = 0;
    entry.key = 0;
    if (note.state == KeyState.LIVE) note.state = KeyState.INVALID;
  }
  endChange(entry, even(entry));
  return true;
}

/** How many keys are bound to this one. */
function boundTo(arena: Arena, key: u32): u32 {
  let count: u32 = 0;
  for (let index: u32 = 0; index <= arena.keyMask; index++) {
    const note = noteAt(arena, index);
    if (note.base != 0 && (note.base ^ key) >>> 8 == 0 && isHeld(note)) count++;
  }
  return count;
}

/**
 * A bind counts first, so a binder that died after that leaves a stale count. Two checks, with the
 * end of all calls between them, distinguish it from a bind in progress.
 */
function recount(arena: Arena): bool {
  for (let index: u32 = 0; index <= arena.keyMask; index++) {
    const note = noteAt(arena, index);
    const bound = atomic.load<u32>(changetype<usize>(note) + offsetof<KeyNote>('bound'));
    if (bound == 0 || !isHeld(note)) continue;
    const count = boundTo(arena, note.key);
    if (count == bound) continue;
    if (!settled(arena)) return false;
    const same = boundTo(arena, note.key) == count;
    const at = changetype<usize>(note) + offsetof<KeyNote>('bound');
    if (same) atomic.cmpxchg<u32>(at, bound, count);
  }
  return true;
}
