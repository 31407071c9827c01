/**
 * Memory keys. A key is 24 random bits, unique among live keys, and a low byte that fast
 * registration and windows may change. A key lives in the slot that its upper 24 bits name;
 * registration draws until the slot of the drawn key is free. So a lookup reads one entry of half a
 * cache line, and there are no chains, no tombstones and nothing to move.
 *
 * Entries are seqlocked: the sequence is odd while an engine changes the entry, and a reader that
 * saw it change starts over, a bounded number of times. Taking a slot is one compare-and-swap on
 * the sequence, so registering needs no lock.
 *
 * States of a slot: FREE -> LIVE -> (INVALID) -> DYING -> FREE; lookups find a key in LIVE only.
 * An invalidated key is dead, but its region still belongs to its owner. A dying slot names
 * an epoch (arena.ts) and is not used again before that epoch has passed. Windows and regions for
 * REG_MR begin in INVALID, and go to and fro between that and LIVE (memory-window.ts,
 * fast-region.ts).
 *
 * The lookup here is that of regions with memory of their own. Every other kind stands in the table
 * with domain 0, which no queue pair has: a lookup of a region does not match it.
 */
import { Arena, KEY_ENTRY_SIZE, KEY_NOTE_SIZE, nextEpoch } from '../memory/arena';
import { Errno } from '../memory/errno';
import { AccessFlag, INVALIDATABLE, KeyKind, LOCAL_USE } from './access-flag';
import { CACHE_MODEL, countAccess } from './cache-model';
import { domainQuiesced, releaseProtectionDomain, useProtectionDomain } from './protection-domain';

/** In the owner of a key: its domain. No slot has this number, nor has a pool. */
export const DOMAIN_HOLDER: u32 = 0xfffe;

/** Part of a slot that lookups read: 32 bytes, half a cache line. */
@unmanaged
export class KeyEntry {
  /** Even: stable. Odd: an engine is changing the entry. */
  sequence: u32;
  /** 0 when no key lives here. */
  key: u32;
  /** Id of the protection domain; 0: see the note. */
  pd: u32;
  /** Bits of AccessFlag, and what access-flag.ts sets beside them. */
  access: u32;
  /** The address that peers and work requests use for the first byte. */
  iova: u64;
  /** Bytes. */
  length: u32;
  /** Where the first byte lies in linear memory. */
  address: u32;
}

/** Part of a slot for control verbs, and counters per message: 64 bytes. */
@unmanaged
export class KeyNote {
  readBytes: u64;
  writeBytes: u64;
  /** A KeyState. */
  state: u32;
  /** Context slot of its owner. */
  owner: u32;
  /** When INVALID or DYING: the epoch that has to pass. */
  killedAt: u32;
  /** The protection domain whose contexts may hold it. */
  pd: u32;
  /** The key that the slot was registered with, whatever the entry says now. */
  key: u32;
  /** Remote operations on this region, one per message. */
  reads: u32;
  writes: u32;
  atomics: u32;
  /** Bound: the key of the region whose memory it grants, or of the area; 0: not bound. */
  base: u32;
  /** Windows: the sequence of that region's entry; when it has moved on, the window is dead. */
  baseSequence: u32;
  /** How many windows, or regions of an area, are bound to it. */
  bound: u32;
  /**
   * Windows of type 2: the queue pair's binding (arena.ts `nextBinding`). Layouts: address of the
   * Layout that BIND_MR will bind; 0: none is recorded.
   */
  binding: u32;
}

export enum KeyState {
  FREE = 0,
  LIVE = 1,
  DYING = 2,
  /** Killed by an invalidation, or not bound yet; deregistration is still to come. */
  INVALID = 3,
}

/** How many drawn keys a registration brings along. */
export const RANDOM_KEYS: u32 = 16;

/** Arguments of a registration, written by the host; candidates for the key follow. */
@unmanaged
export class RegionParameters {
  iova: u64;
  address: u32;
  length: u32;
  pd: u32;
  access: u32;
  /** Out: the key, local and remote. */
  key: u32;
  /** 1: the key may be invalidated by work requests. */
  invalidatable: u32;
  /** A KeyKind. */
  kind: u32;
  // RANDOM_KEYS words from a cryptographic generator follow: candidates for the key.
  random: u32;
}

export function slotIndex(arena: Arena, key: u32): u32 {
  // The upper 24 bits are uniformly random already: they are their own hash.
  return (key >>> 8) & arena.keyMask;
}

export function entryAt(arena: Arena, index: u32): KeyEntry {
  return changetype<KeyEntry>(arena.keys + <usize>(index * KEY_ENTRY_SIZE));
}

export function noteAt(arena: Arena, index: u32): KeyNote {
  return changetype<KeyNote>(arena.keyNotes + <usize>(index * KEY_NOTE_SIZE));
}

export function sequenceOf(entry: KeyEntry): usize {
  return changetype<usize>(entry);
}

/** Makes the sequence odd. False: another engine was faster. */
function beginChange(entry: KeyEntry, even: u32): bool {
  return atomic.cmpxchg<u32>(sequenceOf(entry), even, even + 1) == even;
}

/** Locks the entry and returns its even sequence; 1: its current owner does not release it. */
export function takeEntry(entry: KeyEntry): u32 {
  for (let attempt: u32 = 0; attempt < READ_ATTEMPTS; attempt++) {
    const sequence = atomic.load<u32>(sequenceOf(entry));
    if (!(sequence & 1) && beginChange(entry, sequence)) return sequence;
  }
  return 1;
}

export function endChange(entry: KeyEntry, even: u32): void {
  atomic.store<u32>(sequenceOf(entry), even + 2);
}

/** Nothing was changed: recorded sequences of the entry stay valid. */
export function abandonChange(entry: KeyEntry, even: u32): void {
  atomic.store<u32>(sequenceOf(entry), even);
}

function boundOf(note: KeyNote): usize {
  return changetype<usize>(note) + offsetof<KeyNote>('bound');
}

/** One more is bound to a key; it must not die from here on. */
export function countBound(note: KeyNote): void {
  atomic.add<u32>(boundOf(note), 1);
}

/** One less is. */
export function discountBound(note: KeyNote): void {
  atomic.sub<u32>(boundOf(note), 1);
}

/**
 * Unbinds a window or layout from its base, which may then be deregistered. The caller holds the
 * entry.
 */
export function unbind(arena: Arena, note: KeyNote): void {
  const base = note.base;
  if (base == 0) return;
  note.base = 0;
  discountBound(noteAt(arena, slotIndex(arena, base)));
}

/**
 * How often a reader starts over when an entry changes under it. Only a change of that very slot
 * counts, and takes a few stores: an entry that is still odd has a stopped writer.
 */
export const READ_ATTEMPTS: u32 = 1000;

/**
 * May this key touch these bytes? The linear address of the first one, or 0.
 *
 * `pd`: of the caller; `need`: AccessFlag bits that must all be set (0 for local reads). Lengths
 * are compared so that no sum can wrap. `length` 0 is the caller's: a zero-length operation names
 * no byte and is not checked (IBA C9-88).
 */
export function translate(
  arena: Arena,
  key: u32,
  pd: u32,
  virtualAddress: u64,
  length: u32,
  need: u32,
): usize {
  if (key == 0) return 0;
  const entry = entryAt(arena, slotIndex(arena, key));
  // One look at four whole words and one branch: with a million keys the entry comes from memory,
  // and what waits for it is what keeps the processor from going on.
  const at = changetype<usize>(entry);
  const head = atomic.load<u64>(at);
  const owner = load<u64>(at, 8);
  const offset = virtualAddress - load<u64>(at, 16);
  const place = load<u64>(at, 24);
  const wanted = ((<u64>need) << 32) | pd;
  // Below 0 when the range ends behind the region; `offset` has no upper half, or is refused.
  const left = (place & 0xffffffff) - offset - length;
  // The entry may have been written by another process: no byte lies where it must not reach.
  const above = arena.limit - (place >> 32) - offset - length;
  const below = (place >> 32) - arena.floor;
  const wrong =
    ((head ^ ((<u64>key) << 32)) & 0xffffffff00000001) |
    ((owner ^ wanted) & (((<u64>need) << 32) | 0xffffffff)) |
    (offset >> 32) |
    ((left | above | below) >> 63);
  // The second look at the sequence must come after the other words were read. Its address depends
  // on them (`wrong` is 0), which orders loads on every processor and costs no fence.
  if (wrong == 0 && atomic.load<u64>(at + <usize>wrong) == head) {
    const linear = <usize>(<u32>(place >> 32) + <u32>offset);
    if (CACHE_MODEL) countAccess(arena, key, key, linear, length);
    return linear;
  }
  const linear = translateSlowly(arena, entry, key, pd, virtualAddress, length, need);
  if (CACHE_MODEL) countAccess(arena, key, key, linear, length);
  return linear;
}

/** Can any key grant access to these bytes? Another process may have written the entry. */
export function isUserMemory(arena: Arena, address: u64, length: u32): bool {
  return address >= arena.floor && address + length <= arena.limit;
}

/** The same after a refusal or a change: starts over until the entry is stable. */
function translateSlowly(
  arena: Arena,
  entry: KeyEntry,
  key: u32,
  pd: u32,
  virtualAddress: u64,
  length: u32,
  need: u32,
): usize {
  for (let attempt: u32 = 0; attempt < READ_ATTEMPTS; attempt++) {
    const before = atomic.load<u32>(sequenceOf(entry));
    if (before & 1) continue;
    const offset = virtualAddress - entry.iova;
    const size = entry.length;
    const granted =
      entry.key == key &&
      entry.pd == pd &&
      (entry.access & need) == need &&
      offset <= <u64>size &&
      length <= size - <u32>offset &&
      isUserMemory(arena, <u64>entry.address + offset, length);
    const address = <usize>(entry.address + <u32>offset);
    if (atomic.load<u32>(sequenceOf(entry)) == before) return granted ? address : 0;
  }
  return 0;
}

/**
 * Is the registration one that may be granted at all? EINVAL, EOPNOTSUPP. ZERO_BASED: `iova` is 0.
 */
export function checkAccess(access: u32, iova: u64, address: u32, length: u32): u32 {
  const known: u32 =
    AccessFlag.LOCAL_WRITE |
    AccessFlag.REMOTE_WRITE |
    AccessFlag.REMOTE_READ |
    AccessFlag.REMOTE_ATOMIC |
    AccessFlag.MW_BIND |
    AccessFlag.ZERO_BASED |
    AccessFlag.ON_DEMAND |
    AccessFlag.FLUSH_GLOBAL |
    AccessFlag.FLUSH_PERSISTENT |
    AccessFlag.RELAXED_ORDERING;
  if (access & ~known) return Errno.EOPNOTSUPP;
  const writes: u32 = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC;
  if (access & writes && !(access & AccessFlag.LOCAL_WRITE)) return Errno.EINVAL;
  // A remote atomic is checked for alignment by its remote address and executed at the linear
  // one: both must agree modulo 8, or a Wasm atomic would trap.
  if (access & AccessFlag.REMOTE_ATOMIC) {
    if (((<u32>iova) ^ address) & 7) return Errno.EINVAL;
  }
  if (length == 0) return Errno.EINVAL;
  if (iova + length < iova) return Errno.EINVAL;
  return Errno.OK;
}

/** Sets what follows from the kind. An Errno. */
function checkParameters(parameters: RegionParameters): u32 {
  const kind = parameters.kind;
  if (kind == KeyKind.REGION) {
    const access = parameters.access;
    if (access & AccessFlag.ZERO_BASED) parameters.iova = 0;
    return checkAccess(access, parameters.iova, parameters.address, parameters.length);
  }
  if (kind == KeyKind.LAYOUT) {
    // Windows cannot be bound to it, and its bytes have no address that could disagree.
    if (parameters.access & AccessFlag.MW_BIND) return Errno.EOPNOTSUPP;
    return checkAccess(parameters.access, 0, 0, 1);
  }
  parameters.access = kind == KeyKind.NULL_REGION ? AccessFlag.LOCAL_WRITE : 0;
  parameters.invalidatable = kind & (KeyKind.FAST_REGION | KeyKind.MOBILE_REGION) ? 1 : 0;
  if (hasNoDomain(kind)) parameters.pd = 0;
  return Errno.OK;
}

/** Does a key of this kind stand outside of protection domains, for a time or for good? */
function hasNoDomain(kind: u32): bool {
  return (kind & (KeyKind.AREA | KeyKind.MOBILE_REGION)) != 0;
}

/** Does a key of this kind live from the beginning? */
function bornLive(kind: u32): bool {
  return kind == <u32>KeyKind.REGION || (kind & (KeyKind.AREA | KeyKind.NULL_REGION)) != 0;
}

/**
 * Registers memory, or takes a key for what is bound later. EINVAL: a rule of `ibv_reg_mr` is
 * broken; EOPNOTSUPP: unknown access flags; ENOMEM: all keys are taken; EAGAIN: every drawn key met
 * a taken slot, come with fresh ones.
 */
export function registerRegion(arena: Arena, slot: u32, parameters: RegionParameters): u32 {
  const errno = checkParameters(parameters);
  if (errno != Errno.OK) return errno;
  const counter = changetype<usize>(arena.state) + offsetof<Arena>('regionCount');
  if (atomic.add<u32>(counter, 1) >= arena.regionsMax) {
    atomic.sub<u32>(counter, 1);
    return Errno.ENOMEM;
  }
  if (!hasNoDomain(parameters.kind) && !useProtectionDomain(arena, parameters.pd, slot)) {
    atomic.sub<u32>(counter, 1);
    return Errno.EINVAL;
  }
  const random = changetype<usize>(parameters) + offsetof<RegionParameters>('random');
  for (let draw: u32 = 0; draw < RANDOM_KEYS; draw++) {
    if (tryKey(arena, slot, parameters, load<u32>(random + <usize>(draw << 2)))) return Errno.OK;
  }
  releaseProtectionDomain(arena, parameters.pd, slot);
  atomic.sub<u32>(counter, 1);
  return Errno.EAGAIN;
}

function tryKey(arena: Arena, slot: u32, parameters: RegionParameters, key: u32): bool {
  // Keys with upper bits 0 are left out: key 0 must mean "none" whatever its low byte becomes.
  if (key >>> 8 == 0) return false;
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  // A look first: locking a live entry would make lookups and invalidations fail.
  // The sequence before the state: when the swap succeeds, what was seen in between still holds.
  const sequence = atomic.load<u32>(sequenceOf(entry));
  if (sequence & 1 || note.state != KeyState.FREE) return false;
  if (!beginChange(entry, sequence)) return false;
  memory.fill(changetype<usize>(note), 0, KEY_NOTE_SIZE);
  const kind = parameters.kind;
  const live = bornLive(kind);
  // The owner first: the reap of a dead process needs it to find an incomplete registration.
  note.owner = slot;
  note.state = live ? KeyState.LIVE : KeyState.INVALID;
  note.key = key;
  note.pd = parameters.pd;
  entry.key = live ? key : 0;
  entry.pd = kind == <u32>KeyKind.REGION ? parameters.pd : 0;
  let access = parameters.access | kind;
  const local: u32 = KeyKind.NULL_REGION | KeyKind.LAYOUT;
  if (kind == <u32>KeyKind.REGION || kind & local) access |= LOCAL_USE;
  if (parameters.invalidatable) access |= INVALIDATABLE;
  entry.access = access;
  entry.iova = parameters.iova;
  entry.length = parameters.length;
  entry.address = parameters.address;
  endChange(entry, sequence);
  parameters.key = key;
  return true;
}

/**
 * Kills a key: from now on no lookup finds it. Its memory and its slot stay untouchable until
 * `regionReleased` says so. `slot`: of the context that kills it. EINVAL: no such key; EBUSY:
 * something is bound to it, nothing has changed; EAGAIN: another engine is changing the entry and
 * does not finish.
 */
export function killRegion(arena: Arena, key: u32, slot: u32): u32 {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if (key == 0) return Errno.EINVAL;
  const sequence = takeEntry(entry);
  if (sequence & 1) return Errno.EAGAIN;
  const held = note.state == KeyState.LIVE || note.state == KeyState.INVALID;
  // A bind counts first and reads the sequence then; one of the two sees the other.
  const busy = atomic.load<u32>(boundOf(note)) != 0;
  if (note.key != key || !held || busy) {
    abandonChange(entry, sequence);
    return note.key == key && held ? Errno.EBUSY : Errno.EINVAL;
  }
  unbind(arena, note);
  if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;
  if (note.owner == DOMAIN_HOLDER) {
    // Its domain may end first; and if the killer dies, its successor frees the key.
    note.owner = slot;
    note.pd = 0;
  }
  entry.key = 0;
  note.state = KeyState.DYING;
  endChange(entry, sequence);
  // Only now: a call that begins in the new epoch cannot find the key any more.
  note.killedAt = nextEpoch(arena);
  return Errno.OK;
}

/**
 * True once, when no context can be in the middle of using a killed key: its slot is free again,
 * and so is its memory. The engine that killed it calls this.
 */
export function regionReleased(arena: Arena, key: u32): bool {
  const index = slotIndex(arena, key);
  const note = noteAt(arena, index);
  if (note.state != KeyState.DYING || note.key != key) return false;
  if (!domainQuiesced(arena, note.pd, note.killedAt)) return false;
  releaseProtectionDomain(arena, note.pd, note.owner);
  atomic.sub<u32>(changetype<usize>(arena.state) + offsetof<Arena>('regionCount'), 1);
  note.state = KeyState.FREE;
  return true;
}

/**
 * LOCAL_INV and SEND_WITH_INV: kills the key; the region stays with its owner. False when
 * the key is not live, of another domain, or one that may not be invalidated.
 */
export function invalidateKey(arena: Arena, key: u32, pd: u32): bool {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if (key == 0) return false;
  const sequence = takeEntry(entry);
  if (sequence & 1) return false;
  const allowed = entry.key == key && entry.pd == pd && (entry.access & INVALIDATABLE) != 0;
  if (allowed) {
    entry.key = 0;
    markKilled(arena, note);
    note.state = KeyState.INVALID;
    unbind(arena, note);
    if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;
    endChange(entry, sequence);
  } else {
    abandonChange(entry, sequence);
  }
  return allowed;
}

/**
 * Records the epoch of an invalidation in an entry that the caller holds. It is written before the
 * state: another thread that finds the region invalidated waits for this epoch. An earlier epoch
 * never replaces a later one.
 */
export function markKilled(arena: Arena, note: KeyNote): void {
  note.killedAt = nextEpoch(arena);
}

function noteOf(arena: Arena, key: u32): KeyNote {
  return noteAt(arena, slotIndex(arena, key));
}

/**
 * Counts one remote READ of `length` bytes on the region of a live key. Plain additions: atomic
 * ones cost a tenth of a small message. Contexts that serve one region at the same moment may lose
 * a count to each other.
 */
export function countRead(arena: Arena, key: u32, bytes: u32): void {
  const note = noteOf(arena, key);
  note.reads++;
  note.readBytes += bytes;
}

/** Counts one remote WRITE. */
export function countWrite(arena: Arena, key: u32, bytes: u32): void {
  const note = noteOf(arena, key);
  note.writes++;
  note.writeBytes += bytes;
}

/** Counts one remote atomic. */
export function countAtomic(arena: Arena, key: u32): void {
  noteOf(arena, key).atomics++;
}

/** Where the notes of a key lie; 0 when the slot is not the one that was registered with it. */
export function findNote(arena: Arena, key: u32): usize {
  const note = noteAt(arena, slotIndex(arena, key));
  return note.key == key && note.state != KeyState.FREE ? changetype<usize>(note) : 0;
}
