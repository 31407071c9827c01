/**
 * The arena: what all contexts of a device share. Its tables are made once, by code, at
 * `arenaInit`; every context holds its address.
 * ```
 *  | Arena | context slots | PDs | attachments | opcode table | ICRC tables | keys | key notes |
 *  | null pages |
 * ```
 *
 * Reclamation. Each context publishes an epoch around every engine call (`enter`, `leave`). Who
 * kills a key first takes it from the table, then moves the arena's epoch on; what the key stood
 * for may be used again when no context that could have looked it up is still in a call that
 * began before (`quiesced`). All of it is sequentially consistent: a context either sees the key
 * dead, or is seen in its call.
 */
import { powerOfTwo, roundUp } from './bytes';

export const ARENA_MAGIC: u32 = 0x56425241;

/** What the host decides at open. */
@unmanaged
export class ArenaConfig {
  /** Memory keys alive at once, 1 .. 2^22. */
  regionsMax: u32;
  protectionDomainsMax: u32;
  /** Contexts attached at once, 1 .. 256. */
  contextsMax: u32;
  /** Bytes of the opcode table and of the ICRC tables: `engine.ts` knows, this folder does not. */
  opcodeTableSize: u32;
  icrcTablesSize: u32;
  reserved: u32;
}

/** 96 bytes. */
@unmanaged
export class Arena {
  magic: u32;
  size: u32;
  /** Moves on with every killed key. */
  epoch: u32;
  /** Taken for changes of protection domains; 0 is free. */
  lock: u32;
  contextSlots: usize;
  contextsMax: u32;
  protectionDomains: usize;
  protectionDomainsMax: u32;
  attachments: usize;
  attachmentsMax: u32;
  /** First free attachment, 0 when none is. */
  attachmentFree: usize;
  opcodeTable: usize;
  icrcTables: usize;
  keys: usize;
  keyNotes: usize;
  /** Number of key slots - 1; the number is a power of two. */
  keyMask: u32;
  regionsMax: u32;
  /** Keys alive. */
  regionCount: u32;
  /** Counts lives of queue pairs (nextBinding). */
  bindings: u32;
  /** What null regions stand for: a page that is read and one that is written. */
  nullPages: usize;
  reserved2: u32;
  reserved3: u32;
  reserved4: u32;
  reserved5: u32;
}
export const ARENA_SIZE: u32 = 96;
/** As much as is copied at once: the largest path MTU. */
export const NULL_PAGE_SIZE: u32 = 4096;

/** One cache line per context, so that publishing an epoch disturbs nobody. */
@unmanaged
export class ContextSlot {
  /** Twice the epoch seen at the last `enter`, plus 1 while the call lasts. */
  activity: u32;
  /** 0 when the slot is free. */
  context: usize;
}
export const CONTEXT_SLOT_SIZE: u32 = 64;

/** A context that takes part in a protection domain: a node of that domain's list. */
@unmanaged
export class Attachment {
  next: usize;
  slot: u32;
  /** Regions, windows and queue pairs that this context made in the domain. */
  useCount: u32;
  reserved: u32;
}
export const ATTACHMENT_SIZE: u32 = 16;

/** 16 bytes. `id` is what regions and queue pairs carry: index and a generation, never 0. */
@unmanaged
export class ProtectionDomain {
  id: u32;
  reserved: u32;
  /** First attachment. */
  attached: usize;
  /** Number of attachments; 0 means free. */
  attachedCount: u32;
}
export const PROTECTION_DOMAIN_SIZE: u32 = 16;

/** Key entries: see region/key-table.ts. Hot half and notes lie apart. */
export const KEY_ENTRY_SIZE: u32 = 32;
export const KEY_NOTE_SIZE: u32 = 64;

/**
 * Twice as many slots as keys: a fresh key is drawn until its own slot is free, so a lookup looks
 * at one slot, and two draws are enough on average when the table is full.
 */
function keySlots(config: ArenaConfig): u32 {
  return powerOfTwo(config.regionsMax * 2);
}

/** Lays the arena out; writes nothing when `arena` is 0. Returns its size in bytes. */
function layout(arena: Arena | null, base: u32, config: ArenaConfig): u32 {
  let at = base + ARENA_SIZE;
  at = roundUp(at, 64);
  const slots = at;
  at += config.contextsMax * CONTEXT_SLOT_SIZE;
  const domains = at;
  at += config.protectionDomainsMax * PROTECTION_DOMAIN_SIZE;
  const attachments = roundUp(at, 64);
  const attachmentsMax = config.protectionDomainsMax + config.contextsMax * 8;
  at = attachments + attachmentsMax * ATTACHMENT_SIZE;
  const opcodeTable = roundUp(at, 64);
  const icrcTables = roundUp(opcodeTable + config.opcodeTableSize, 64);
  const keys = roundUp(icrcTables + config.icrcTablesSize, 64);
  const notes = keys + keySlots(config) * KEY_ENTRY_SIZE;
  const nullPages = roundUp(notes + keySlots(config) * KEY_NOTE_SIZE, 64);
  const end = nullPages + 2 * NULL_PAGE_SIZE;
  if (arena != null) {
    arena.contextSlots = slots;
    arena.protectionDomains = domains;
    arena.attachments = attachments;
    arena.attachmentsMax = attachmentsMax;
    arena.opcodeTable = opcodeTable;
    arena.icrcTables = icrcTables;
    arena.keys = keys;
    arena.keyNotes = notes;
    arena.nullPages = nullPages;
    arena.size = end - base;
  }
  return end - base;
}

export function arenaSize(config: ArenaConfig): u32 {
  return layout(null, 0, config);
}

/** `arena`: arenaSize(config) bytes, 64-byte aligned, zero. Runs once per memory. */
export function initArena(arena: Arena, config: ArenaConfig): void {
  arena.contextsMax = config.contextsMax;
  arena.protectionDomainsMax = config.protectionDomainsMax;
  arena.regionsMax = config.regionsMax;
  arena.keyMask = keySlots(config) - 1;
  layout(arena, <u32>changetype<usize>(arena), config);
  // Epoch 0 would make a fresh slot look as if it had passed everything; it has, but start at 1.
  arena.epoch = 1;
  for (let index: u32 = 0; index < arena.attachmentsMax; index++) {
    const node = arena.attachments + <usize>(index * ATTACHMENT_SIZE);
    changetype<Attachment>(node).next = arena.attachmentFree;
    arena.attachmentFree = node;
  }
  arena.magic = ARENA_MAGIC;
}

export function contextSlot(arena: Arena, slot: u32): ContextSlot {
  return changetype<ContextSlot>(arena.contextSlots + <usize>(slot * CONTEXT_SLOT_SIZE));
}

/** From here to `leave` this context may hold what it looked up. */
export function enter(arena: Arena, slot: ContextSlot): void {
  const epoch = atomic.load<u32>(changetype<usize>(arena) + offsetof<Arena>('epoch'));
  atomic.store<u32>(changetype<usize>(slot), (epoch << 1) | 1);
}

export function leave(slot: ContextSlot): void {
  atomic.store<u32>(changetype<usize>(slot), load<u32>(changetype<usize>(slot)) & ~1);
}

/** Moves the epoch on; what was taken from a table before is told apart from what comes later. */
export function nextEpoch(arena: Arena): u32 {
  return atomic.add<u32>(changetype<usize>(arena) + offsetof<Arena>('epoch'), 1) + 1;
}

/**
 * A number for a queue pair's life, from creation or reset to the next one; never 0. Windows that
 * are bound to a life end with it.
 */
export function nextBinding(arena: Arena): u32 {
  const counter = changetype<usize>(arena) + offsetof<Arena>('bindings');
  const binding = atomic.add<u32>(counter, 1) + 1;
  return binding == 0 ? atomic.add<u32>(counter, 1) + 1 : binding;
}

/** Has this context left the call that it began before `epoch`, if it is in one? */
function passed(slot: ContextSlot, epoch: u32): bool {
  const activity = atomic.load<u32>(changetype<usize>(slot));
  // Half the epoch's range stands in the activity word: compare in 31 bits.
  return !(activity & 1) || <i32>((epoch << 1) - (activity & ~1)) <= 0;
}

/** The same of all contexts: for what no domain's list tells who may use it. */
export function allQuiesced(arena: Arena, epoch: u32): bool {
  for (let slot: u32 = 0; slot < arena.contextsMax; slot++) {
    if (!passed(contextSlot(arena, slot), epoch)) return false;
  }
  return true;
}

/** Has every context on this list left the calls that it began before `epoch`? */
export function quiesced(arena: Arena, attached: usize, epoch: u32): bool {
  for (let node = attached; node != 0; node = changetype<Attachment>(node).next) {
    const slot = contextSlot(arena, changetype<Attachment>(node).slot);
    if (!passed(slot, epoch)) return false;
  }
  return true;
}

/** Control verbs that change lists take the lock; it is held for a few dozen instructions. */
export function lockArena(arena: Arena): void {
  const lock = changetype<usize>(arena) + offsetof<Arena>('lock');
  while (atomic.cmpxchg<u32>(lock, 0, 1) != 0) {}
}

export function unlockArena(arena: Arena): void {
  atomic.store<u32>(changetype<usize>(arena) + offsetof<Arena>('lock'), 0);
}
