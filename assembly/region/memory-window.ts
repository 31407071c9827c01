/**
 * Memory windows (IBA 10.6.7): keys for a part of a region, with their own rights. A window is an
 * entry of the key table with domain 0: a lookup of a region does not match it and costs nothing
 * more. `translateRemote` looks for windows after regions.
 *
 * A bound window records the linear address of its first byte and the sequence of the region's
 * entry. Any change of the region (invalidation, new registration) changes the sequence, and the
 * window grants nothing from then on. A region with a bound window cannot be deregistered.
 */
import { Arena } from '../memory/arena';
import { AccessFlag, INVALIDATABLE, KIND_BITS, KeyKind, LOCAL_USE } from './access-flag';
import { CACHE_MODEL, countAccess } from './cache-model';
import {
  KeyEntry,
  KeyNote,
  KeyState,
  READ_ATTEMPTS,
  abandonChange,
  countBound,
  discountBound,
  endChange,
  entryAt,
  invalidateKey,
  isUserMemory,
  markKilled,
  noteAt,
  sequenceOf,
  slotIndex,
  takeEntry,
  unbind,
} from './key-table';
import { invalidateLayout } from './layout';

const ANY_WINDOW: u32 = KeyKind.WINDOW_TYPE_1 | KeyKind.WINDOW_TYPE_2;
/** Bits that `mw_access_flags` may have. */
const WINDOW_ACCESS: u32 =
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC |
  AccessFlag.ZERO_BASED;

export function translateWindow(
  arena: Arena,
  key: u32,
  pd: u32,
  binding: u32,
  virtualAddress: u64,
  length: u32,
  need: u32,
): usize {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  for (let attempt: u32 = 0; attempt < READ_ATTEMPTS; attempt++) {
    const before = atomic.load<u32>(sequenceOf(entry));
    if (before & 1) continue;
    const access = entry.access;
    const offset = virtualAddress - entry.iova;
    const size = entry.length;
    const granted =
      key != 0 &&
      entry.key == key &&
      (access & ANY_WINDOW) != 0 &&
      note.pd == pd &&
      (note.binding == 0 || note.binding == binding) &&
      (access & need) == need &&
      offset <= <u64>size &&
      length <= size - <u32>offset &&
      isUserMemory(arena, <u64>entry.address + offset, length);
    const address = <usize>(entry.address + <u32>offset);
    const base = entryAt(arena, slotIndex(arena, note.base));
    const alive = atomic.load<u32>(sequenceOf(base)) == note.baseSequence;
    if (atomic.load<u32>(sequenceOf(entry)) != before) continue;
    if (!granted || !alive) return 0;
    // `translate` has counted the look at the window's own entry.
    if (CACHE_MODEL) countAccess(arena, 0, note.base, address, length);
    return address;
  }
  return 0;
}

/**
 * Binds a window, or binds one of type 1 anew; a length of 0 unbinds it. `window`: its key, whose
 * low byte does not count; `key`: the one it gets; `base`: the region's; `binding`: that of the
 * queue pair whose work it is. False: not allowed, and nothing has changed.
 */
export function bindWindow(
  arena: Arena,
  window: u32,
  key: u32,
  base: u32,
  pd: u32,
  binding: u32,
  address: u64,
  length: u64,
  access: u32,
): bool {
  const index = slotIndex(arena, window);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if ((window ^ key) >>> 8 != 0 || access & ~WINDOW_ACCESS) return false;
  // A region in the same slot would be the window itself.
  if (length != 0 && slotIndex(arena, base) == index) return false;
  const sequence = takeEntry(entry);
  if (sequence & 1) return false;
  const allowed = mayBind(entry, note, window, pd, length, access);
  if (!allowed || (length != 0 && !open(arena, entry, note, base, pd, address, length, access))) {
    abandonChange(entry, sequence);
    return false;
  }
  if (length == 0) close(arena, entry, note);
  else {
    entry.key = key;
    note.state = KeyState.LIVE;
    note.binding = entry.access & KeyKind.WINDOW_TYPE_2 ? binding : 0;
  }
  note.key = key;
  endChange(entry, sequence);
  return true;
}

/** Is it a window of that domain, in a state to be bound like this? */
function mayBind(
  entry: KeyEntry,
  note: KeyNote,
  window: u32,
  pd: u32,
  length: u64,
  access: u32,
): bool {
  const held = note.state == KeyState.LIVE || note.state == KeyState.INVALID;
  if (!held || (note.key ^ window) >>> 8 != 0 || note.pd != pd) return false;
  if (entry.access & KeyKind.WINDOW_TYPE_1) return !(access & AccessFlag.ZERO_BASED);
  if (!(entry.access & KeyKind.WINDOW_TYPE_2)) return false;
  return note.state == KeyState.INVALID && length != 0;
}

/**
 * Lets the window's entry, which is the caller's, name the range of the region, if that allows it.
 * False: nothing has changed.
 */
function open(
  arena: Arena,
  entry: KeyEntry,
  note: KeyNote,
  base: u32,
  pd: u32,
  address: u64,
  length: u64,
  access: u32,
): bool {
  const index = slotIndex(arena, base);
  const region = entryAt(arena, index);
  const baseNote = noteAt(arena, index);
  // Counted first, then checked: an engine that kills the region meanwhile sees the count.
  countBound(baseNote);
  for (let attempt: u32 = 0; attempt < READ_ATTEMPTS; attempt++) {
    const before = atomic.load<u32>(sequenceOf(region));
    if (before & 1) continue;
    const iova = region.iova;
    const offset = address - iova;
    const linear = region.address + <u32>offset;
    const allowed =
      base != 0 &&
      region.key == base &&
      region.pd == pd &&
      mayCarry(region.access, access) &&
      offset <= <u64>region.length &&
      length <= <u64>region.length - offset;
    if (atomic.load<u32>(sequenceOf(region)) != before) continue;
    const first = access & AccessFlag.ZERO_BASED ? 0 : address;
    const misaligned = (((<u32>first) ^ linear) & 7) != 0;
    if (!allowed || (access & AccessFlag.REMOTE_ATOMIC && misaligned)) break;
    unbind(arena, note);
    entry.iova = first;
    entry.length = <u32>length;
    entry.address = linear;
    entry.access = (entry.access & (KIND_BITS | INVALIDATABLE)) | access;
    note.base = base;
    note.baseSequence = before;
    return true;
  }
  discountBound(baseNote);
  return false;
}

/** Does a region with these rights carry a window with those? */
function mayCarry(region: u32, window: u32): bool {
  if (!(region & AccessFlag.MW_BIND) || !(region & LOCAL_USE)) return false;
  if (region & AccessFlag.ZERO_BASED) return false;
  const writes: u32 = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC;
  return !(window & writes) || (region & AccessFlag.LOCAL_WRITE) != 0;
}

/** The window opens nothing any more, and its region knows it. The entry is the caller's. */
function close(arena: Arena, entry: KeyEntry, note: KeyNote): void {
  entry.key = 0;
  note.state = KeyState.INVALID;
  note.binding = 0;
  unbind(arena, note);
}

/**
 * LOCAL_INV: kills the key of a region, of a layout, or of a window of type 2, whichever queue pair
 * bound it.
 */
export function invalidateLocal(arena: Arena, key: u32, pd: u32): bool {
  return (
    invalidateKey(arena, key, pd) ||
    invalidateWindow(arena, key, pd, 0) ||
    invalidateLayout(arena, key, pd)
  );
}

/** SEND_WITH_INV: a window of type 2 is the business of the queue pair that it is bound to. */
export function invalidateRemote(arena: Arena, key: u32, pd: u32, binding: u32): bool {
  return (
    invalidateKey(arena, key, pd) ||
    invalidateWindow(arena, key, pd, binding) ||
    invalidateLayout(arena, key, pd)
  );
}

function invalidateWindow(arena: Arena, key: u32, pd: u32, binding: u32): bool {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if (key == 0) return false;
  const sequence = takeEntry(entry);
  if (sequence & 1) return false;
  const allowed =
    entry.key == key &&
    (entry.access & KeyKind.WINDOW_TYPE_2) != 0 &&
    note.pd == pd &&
    (binding == 0 || note.binding == binding);
  if (!allowed) {
    abandonChange(entry, sequence);
    return false;
  }
  close(arena, entry, note);
  markKilled(arena, note);
  endChange(entry, sequence);
  return true;
}
