/**
 * Fast registration: a region with a key but without memory gets its memory by a work request
 * (REG_MR), and loses it by another (LOCAL_INV, a SEND_WITH_INV of the peer) or by a control verb
 * (`revokeFast`). While registered, lookups treat it like any region.
 *
 * A ring entry may name any address, so the memory must lie in an area: an allocation of the
 * application with a key of its own that grants no access. The area exists as long as a region is
 * registered on it.
 */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { AccessFlag, INVALIDATABLE, KIND_BITS, KeyKind, LOCAL_USE } from './access-flag';
import {
  KeyEntry,
  KeyNote,
  KeyState,
  READ_ATTEMPTS,
  abandonChange,
  checkAccess,
  countBound,
  discountBound,
  endChange,
  entryAt,
  markKilled,
  noteAt,
  sequenceOf,
  slotIndex,
  takeEntry,
  unbind,
} from './key-table';
import { domainQuiesced } from './protection-domain';

/**
 * Executes REG_MR. `region`: its key, of which the low byte does not count; `key`: the one it gets;
 * `area`: the key of the area that `address` lies in; `slot`: the context whose work it is. One
 * without a domain joins that of the queue pair. False: not allowed, and nothing has changed.
 */
export function registerFast(
  arena: Arena,
  slot: u32,
  region: u32,
  key: u32,
  area: u32,
  pd: u32,
  iova: u64,
  address: u64,
  length: u64,
  access: u32,
): bool {
  const index = slotIndex(arena, region);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if ((region ^ key) >>> 8 != 0 || slotIndex(arena, area) == index) return false;
  if (address >> 32 != 0 || length >> 32 != 0) return false;
  const first = access & AccessFlag.ZERO_BASED ? 0 : iova;
  if (checkAccess(access, first, <u32>address, <u32>length) != Errno.OK) return false;
  const sequence = takeEntry(entry);
  if (sequence & 1) return false;
  const allowed = mayRegister(entry, note, slot, region, pd);
  if (!allowed || !bindArea(arena, slot, area, <u32>address, <u32>length)) {
    abandonChange(entry, sequence);
    return false;
  }
  entry.key = key;
  entry.pd = pd;
  entry.access = (entry.access & KIND_BITS) | INVALIDATABLE | LOCAL_USE | access;
  entry.iova = first;
  entry.length = <u32>length;
  entry.address = <u32>address;
  note.key = key;
  note.pd = pd;
  note.base = area;
  note.state = KeyState.LIVE;
  endChange(entry, sequence);
  return true;
}

/** Is it an unregistered region of this context, in that domain or in none? */
function mayRegister(entry: KeyEntry, note: KeyNote, slot: u32, region: u32, pd: u32): bool {
  if (note.state != KeyState.INVALID || (note.key ^ region) >>> 8 != 0) return false;
  if (note.owner != slot) return false;
  if (entry.access & KeyKind.MOBILE_REGION) return true;
  return (entry.access & KeyKind.FAST_REGION) != 0 && note.pd == pd;
}

/** Counts one more region on the area, if it is one of this context and has these bytes. */
function bindArea(arena: Arena, slot: u32, area: u32, address: u32, length: u32): bool {
  const index = slotIndex(arena, area);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  // Counted first, then checked: an engine that kills the area meanwhile sees the count.
  countBound(note);
  for (let attempt: u32 = 0; attempt < READ_ATTEMPTS; attempt++) {
    const before = atomic.load<u32>(sequenceOf(entry));
    if (before & 1) continue;
    const offset = address - entry.address;
    const allowed =
      area != 0 &&
      entry.key == area &&
      (entry.access & KeyKind.AREA) != 0 &&
      note.owner == slot &&
      offset <= entry.length &&
      length <= entry.length - offset;
    if (atomic.load<u32>(sequenceOf(entry)) != before) continue;
    if (allowed) return true;
    break;
  }
  discountBound(note);
  return false;
}

/**
 * Invalidates a region without a queue pair: for a dead connection, which will execute no work
 * request any more. EINVAL: not a region for REG_MR of this context; EAGAIN: another engine is
 * changing the entry. No effect on a region that is not registered.
 */
export function revokeFast(arena: Arena, slot: u32, key: u32): u32 {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if (key == 0) return Errno.EINVAL;
  const sequence = takeEntry(entry);
  if (sequence & 1) return Errno.EAGAIN;
  const known = (note.key ^ key) >>> 8 == 0 && note.owner == slot;
  const fast = (entry.access & (KeyKind.FAST_REGION | KeyKind.MOBILE_REGION)) != 0;
  const live = note.state == <u32>KeyState.LIVE;
  if (!known || !fast || !live) {
    const idle = known && fast && note.state == <u32>KeyState.INVALID;
    abandonChange(entry, sequence);
    return idle ? Errno.OK : Errno.EINVAL;
  }
  entry.key = 0;
  markKilled(arena, note);
  note.state = KeyState.INVALID;
  unbind(arena, note);
  if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;
  endChange(entry, sequence);
  return Errno.OK;
}

/** True: no engine can still access the memory of an invalidated region. */
export function fastRevoked(arena: Arena, key: u32): bool {
  const note = noteAt(arena, slotIndex(arena, key));
  return note.state == <u32>KeyState.INVALID && domainQuiesced(arena, note.pd, note.killedAt);
}
