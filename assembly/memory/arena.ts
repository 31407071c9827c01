/**
 * The arena: what all contexts of a device share. Its tables are made once, by code, at
 * `arenaInit`; every context holds its address.
 * ```
 *  | Arena | context slots | PDs | attachments | opcode table | ICRC tables | keys | key notes |
 *  | null pages | blocks | services | steering | inboxes | connections | endpoints | channels |
 *  | waits for words | roots | heap of all processes |
 * ```
 * From the blocks to the connections: only of arenas that several processes share; these keep
 * opcode and ICRC tables and null pages in memory of their own, with a copy of the struct.
 *
 * Reclamation. Each context publishes an epoch around every engine call (`enter`, `leave`). An
 * engine that kills a key first takes it from the table, then moves the arena's epoch on; what the
 * key stood for may be used again when no context that could have looked it up is still in a call
 * that began before (`quiesced`). All accesses are sequentially consistent: a context either sees
 * the key dead, or is seen in its call.
 */
import { powerOfTwo, roundUp } from './bytes';
import { localChannelsBytes, localEndpointsBytes } from './local-sizes';
import {
  connectionsBytes,
  inboxBytes,
  rootsBytes,
  rootsCount,
  servicesBytes,
  steeringBytes,
  wordWaitsBytes,
} from './shared';

export const ARENA_MAGIC: u32 = 0x56425241;

/** Configuration, which the host sets at open. */
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
  /** Blocks of the shared heap (heap.ts) at once; 0: one process has the arena for itself. */
  blocksMax: u32;
  /** One past the last byte of that heap. */
  heapEnd: u32;
  /** Service ids that processes may take, and packets that may wait for each (shared.ts). */
  servicesMax: u32;
  inboxEntries: u32;
  /** Users that pools of regions may have in all (region/pool.ts); 0: no pools. */
  poolUsersMax: u32;
  /** Endpoints of the local path of each context (local-endpoint.ts), a power of two; 0: none. */
  localEndpointsMax: u32;
  /** Entries of a channel between two contexts (local-channel.ts), a power of two, or 0. */
  localMessagesMax: u32;
}

/**
 * 216 bytes. If several processes share the arena, each keeps a copy of this struct in its private
 * memory, computed from the configuration: no other process can change the addresses of tables.
 * Mutable state is in `state`, the shared arena; without other processes that is this struct.
 */
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
  /** Memory of null regions: a page that is read and one that is written. */
  nullPages: usize;
  /** Where epoch, lock, counts and heads of lists are. */
  state: Arena;
  /** Value of the lock while this process holds it around calls of the engine; 0: never. */
  holder: u32;
  /** The first byte that a key may grant access to, and one past the last. */
  floor: u64;
  limit: u64;
  /** The shared heap: its table, and the bytes that it hands out. */
  blocks: usize;
  blocksMax: u32;
  heapStart: u32;
  heapEnd: u32;
  /** First block by address, and first free entry of the table: index + 1. */
  blockFirst: u32;
  blockFree: u32;
  /** From here on no byte of the heap was ever handed out. */
  heapFresh: u32;
  /** Tables of the hosts: shared.ts. */
  services: usize;
  servicesMax: u32;
  steering: usize;
  inboxes: usize;
  inboxEntries: u32;
  /**
   * Of the engine that counts what an adapter's caches would do (region/cache-model.ts); 0: none.
   */
  cacheModel: usize;
  /** Pools of regions, their users, and a node for each key slot (region/pool.ts). */
  pools: usize;
  poolsMax: u32;
  poolUsers: usize;
  poolUsersMax: u32;
  poolNodes: usize;
  /** Where walks copy programs of other processes (region/layout-find.ts); 0: one process. */
  layoutPlaces: usize;
  /** Connections of all processes (shared.ts); number of connections orphaned so far. */
  connections: usize;
  connectionsOrphaned: u32;
  /** Endpoints of the local path (local-endpoint.ts), and how many each context has. */
  localEndpoints: usize;
  localEndpointsMax: u32;
  /** Channels between contexts (local-channel.ts), and entries of each. */
  localChannels: usize;
  localMessagesMax: u32;
  /** Waits of contexts for words, and named roots (shared.ts). */
  wordWaits: usize;
  roots: usize;
  rootsMax: u32;
}
export const ARENA_SIZE: u32 = 216;
/** As much as is copied at once: the largest path MTU. */
export const NULL_PAGE_SIZE: u32 = 4096;

/** State of a slot. Only the arena's lock holder changes it, but for its own process. */
export enum SlotState {
  FREE = 0,
  /** Its process lives, as far as anybody has noticed. */
  LIVE = 1,
  /** Its process is gone; what it had is being taken back. */
  DEAD = 2,
}

/** One cache line per context: publishing an epoch disturbs no other context. */
@unmanaged
export class ContextSlot {
  /** Twice the epoch seen at the last `enter`, plus 1 while the call lasts. */
  activity: u32;
  /** 0 when the slot is free. */
  context: usize;
  /** A SlotState: of arenas that several processes share. */
  state: u32;
  pid: u32;
  /** Where on the loopback interface its thread is woken. */
  wakePort: u32;
  /** 1 while its thread sleeps. */
  sleeping: u32;
  /** Packets put into its inbox, and packets that found no room there. */
  mail: u32;
  mailDropped: u32;
  /** When it attached, seconds since 1970. */
  since: u32;
  /** 1 while it takes from a pool of regions, or gives back (region/pool.ts). */
  pooling: u32;
  /** UDP port of its device's packets. */
  port: u32;
  /**
   * 1: its engine may execute requests on memory of any protection domain (the local path), so
   * fences and reclamation wait for its calls as if it took part in each domain.
   */
  reaches: u32;
  /** Requests that its engine has executed on the local path, for reports. */
  localRequests: u64;
  /** Counts messages and answers in channels to it (local-channel.ts). */
  announced: u32;
  /** Counts the contexts that ended in this slot: tells a process from the next one there. */
  incarnation: u32;
}
export const CONTEXT_SLOT_SIZE: u32 = 64;

/** A context that takes part in a protection domain: a node of that domain's list. */
@unmanaged
export class Attachment {
  next: usize;
  slot: u32;
  /** Regions, windows and queue pairs that this context made in the domain. */
  useCount: u32;
  /** The domain's id; 0: the node is free. The lists can be made anew from this and `slot`. */
  pd: u32;
}
export const ATTACHMENT_SIZE: u32 = 16;

/** 32 bytes. `id` is what regions and queue pairs carry: index and a generation, never 0. */
@unmanaged
export class ProtectionDomain {
  id: u32;
  /** Can others share it: has it a handle? */
  shared: u32;
  /** First attachment. */
  attached: usize;
  /** Number of attachments; 0 means free. */
  attachedCount: u32;
  /** Inputs of its shared handle: the key that was chosen, and a random number. */
  shareKey: u64;
  nonce: u64;
}
export const PROTECTION_DOMAIN_SIZE: u32 = 32;

/** Key entries: see region/key-table.ts. Hot half and notes lie apart. */
export const KEY_ENTRY_SIZE: u32 = 32;
export const KEY_NOTE_SIZE: u32 = 64;

/** Of region/pool.ts: pools that a device has at most, one for each ULP; bytes of its tables. */
export const POOLS_MAX: u32 = 8;
export const POOL_SIZE: u32 = 128;
/** Behind each pool: heads of nine lists, each with a cache line for itself. */
export const POOL_LISTS_SIZE: u32 = 576;
export const POOL_USER_SIZE: u32 = 96;
export const POOL_NODE_SIZE: u32 = 16;

/** How many domains of others a context can take part in on average. */
const SHARES: u32 = 8;

/** Of the table in heap.ts. */
export const BLOCK_SIZE: u32 = 64;
export const BLOCK_NEXT: usize = 8;

/** In the lock: a process holds it, of the slot whose number + 1 is in the other bits. */
export const LOCK_HOLDER: u32 = 0x10000;

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
  const attachmentsMax = config.protectionDomainsMax + config.contextsMax * SHARES;
  at = attachments + attachmentsMax * ATTACHMENT_SIZE;
  const opcodeTable = roundUp(at, 64);
  const icrcTables = roundUp(opcodeTable + config.opcodeTableSize, 64);
  const keys = roundUp(icrcTables + config.icrcTablesSize, 64);
  const notes = keys + keySlots(config) * KEY_ENTRY_SIZE;
  const pools = roundUp(notes + keySlots(config) * KEY_NOTE_SIZE, 64);
  const hasPools = config.poolUsersMax > 0;
  const users = pools + (hasPools ? POOLS_MAX * (POOL_SIZE + POOL_LISTS_SIZE) : 0);
  const nodes = users + config.poolUsersMax * POOL_USER_SIZE;
  const nodesEnd = nodes + (hasPools ? keySlots(config) * POOL_NODE_SIZE : 0);
  const nullPages = roundUp(nodesEnd, 64);
  const isShared = config.blocksMax > 0;
  const blocks = nullPages + (isShared ? 0 : 2 * NULL_PAGE_SIZE);
  const services = blocks + config.blocksMax * BLOCK_SIZE;
  const steering = roundUp(services + servicesBytes(config.servicesMax), 64);
  const slotsSteered = isShared ? steeringBytes(config.contextsMax) : 0;
  const inboxes = roundUp(steering + slotsSteered, 64);
  const connections = inboxes + config.contextsMax * inboxBytes(config.inboxEntries);
  const endpoints = connections + (isShared ? connectionsBytes(config.contextsMax) : 0);
  const endpointsEnd =
    endpoints + localEndpointsBytes(config.contextsMax, config.localEndpointsMax);
  const channels = roundUp(endpointsEnd, 64);
  const waits = channels + localChannelsBytes(config.contextsMax, config.localMessagesMax);
  const roots = roundUp(waits + wordWaitsBytes(config.contextsMax), 64);
  const end = roots + rootsBytes(config.contextsMax);
  if (arena != null) {
    arena.blocks = blocks;
    arena.services = services;
    arena.steering = steering;
    arena.inboxes = inboxes;
    arena.connections = connections;
    arena.localEndpoints = endpoints;
    arena.localChannels = channels;
    arena.wordWaits = waits;
    arena.roots = roots;
    arena.contextSlots = slots;
    arena.protectionDomains = domains;
    arena.attachments = attachments;
    arena.attachmentsMax = attachmentsMax;
    arena.opcodeTable = opcodeTable;
    arena.icrcTables = icrcTables;
    arena.keys = keys;
    arena.keyNotes = notes;
    arena.pools = pools;
    arena.poolUsers = users;
    arena.poolNodes = nodes;
    arena.nullPages = nullPages;
    arena.size = end - base;
  }
  return end - base;
}

export function arenaSize(config: ArenaConfig): u32 {
  return layout(null, 0, config);
}

/** Everything that follows from the configuration: the same for every process. */
function configure(arena: Arena, base: u32, config: ArenaConfig): void {
  arena.contextsMax = config.contextsMax;
  arena.protectionDomainsMax = config.protectionDomainsMax;
  arena.regionsMax = config.regionsMax;
  arena.keyMask = keySlots(config) - 1;
  arena.blocksMax = config.blocksMax;
  arena.servicesMax = config.servicesMax;
  arena.inboxEntries = config.inboxEntries;
  arena.localEndpointsMax = config.localEndpointsMax;
  arena.localMessagesMax = config.localMessagesMax;
  arena.poolUsersMax = config.poolUsersMax;
  arena.poolsMax = config.poolUsersMax > 0 ? POOLS_MAX : 0;
  arena.rootsMax = rootsCount(config.contextsMax);
  const size = layout(arena, base, config);
  arena.heapStart = base + size;
  arena.heapEnd = config.heapEnd;
  // Below are tables and, if processes share the arena, the private memory of each process.
  arena.floor = arena.heapStart;
  arena.limit = 1 << 32;
}

/** `arena`: arenaSize(config) bytes, 64-byte aligned, zero. Runs once per memory. */
export function initArena(arena: Arena, config: ArenaConfig): void {
  configure(arena, <u32>changetype<usize>(arena), config);
  arena.state = arena;
  // Epoch 0 would make a fresh slot look as if it had passed everything; it has, but start at 1.
  arena.epoch = 1;
  for (let index: u32 = 0; index < arena.attachmentsMax; index++) {
    const node = arena.attachments + <usize>(index * ATTACHMENT_SIZE);
    changetype<Attachment>(node).next = arena.attachmentFree;
    arena.attachmentFree = node;
  }
  arena.heapFresh = arena.heapStart;
  for (let index = arena.blocksMax; index > 0; index--) {
    const at = arena.blocks + <usize>((index - 1) * BLOCK_SIZE);
    store<u32>(at + BLOCK_NEXT, arena.blockFree);
    arena.blockFree = index;
  }
  arena.magic = ARENA_MAGIC;
}

/**
 * A process's own copy of an arena that it shares: `local` is ARENA_SIZE bytes of its memory,
 * `pages` two null pages there; nothing but the configuration is believed. `slot`: its own.
 */
export function attachArena(
  local: Arena,
  arena: usize,
  config: ArenaConfig,
  slot: u32,
  pages: usize,
): void {
  configure(local, <u32>arena, config);
  local.size = 0;
  local.state = changetype<Arena>(arena);
  local.holder = LOCK_HOLDER | (slot + 1);
  local.limit = config.heapEnd;
  local.nullPages = pages;
  local.magic = ARENA_MAGIC;
}

export function contextSlot(arena: Arena, slot: u32): ContextSlot {
  return changetype<ContextSlot>(arena.contextSlots + <usize>(slot * CONTEXT_SLOT_SIZE));
}

/** From here to `leave` this context may hold what it looked up. */
export function enter(arena: Arena, slot: ContextSlot): void {
  const epoch = atomic.load<u32>(changetype<usize>(arena.state) + offsetof<Arena>('epoch'));
  atomic.store<u32>(changetype<usize>(slot), (epoch << 1) | 1);
}

export function leave(slot: ContextSlot): void {
  atomic.store<u32>(changetype<usize>(slot), load<u32>(changetype<usize>(slot)) & ~1);
}

/** Advances the epoch, which separates earlier from later uses of a table. */
export function nextEpoch(arena: Arena): u32 {
  return atomic.add<u32>(changetype<usize>(arena.state) + offsetof<Arena>('epoch'), 1) + 1;
}

/**
 * A number for a queue pair's life, from creation or reset to the next one; never 0. Windows that
 * are bound to a life end with it.
 */
export function nextBinding(arena: Arena): u32 {
  const counter = changetype<usize>(arena.state) + offsetof<Arena>('bindings');
  const binding = atomic.add<u32>(counter, 1) + 1;
  return binding == 0 ? atomic.add<u32>(counter, 1) + 1 : binding;
}

/** Has this context left the call that it began before `epoch`, if it is in one? */
export function passed(slot: ContextSlot, epoch: u32): bool {
  const activity = atomic.load<u32>(changetype<usize>(slot));
  // Half the epoch's range stands in the activity word: compare in 31 bits.
  return !(activity & 1) || <i32>((epoch << 1) - (activity & ~1)) <= 0;
}

/** The same for all contexts: for resources that belong to no domain. */
export function allQuiesced(arena: Arena, epoch: u32): bool {
  for (let slot: u32 = 0; slot < arena.contextsMax; slot++) {
    if (!passed(contextSlot(arena, slot), epoch)) return false;
  }
  return true;
}

/** Has every context that executes requests for others left the calls of before `epoch`? */
function allReachingPassed(arena: Arena, epoch: u32): bool {
  return nextReaching(arena, 0, epoch) == NO_SLOT;
}

/**
 * The first slot from `slot` on whose context executes requests for others, and has not left a call
 * of before `epoch`; NO_SLOT.
 */
export function nextReaching(arena: Arena, slot: u32, epoch: u32): u32 {
  const end: u32 = arena.localEndpointsMax == 0 ? 0 : arena.contextsMax;
  for (let index = slot; index < end; index++) {
    const one = contextSlot(arena, index);
    if (!passed(one, epoch) && reachesAll(one)) return index;
  }
  return NO_SLOT;
}

/** Does the engine of this context execute requests on memory of any domain? */
export function reachesAll(slot: ContextSlot): bool {
  return atomic.load<u32>(changetype<usize>(slot) + offsetof<ContextSlot>('reaches')) != 0;
}

/** The engine of this context will execute requests on memory of any domain. */
export function setReachesAll(slot: ContextSlot): void {
  atomic.store<u32>(changetype<usize>(slot) + offsetof<ContextSlot>('reaches'), 1);
}

/** No slot has this number. */
export const NO_SLOT: u32 = 0xffffffff;

/** `at` when an attachment is there, else 0: another process may have written it. */
export function attachmentAt(arena: Arena, at: usize): usize {
  const offset = at - arena.attachments;
  const end = <usize>(arena.attachmentsMax * ATTACHMENT_SIZE);
  return offset < end && !(offset & (<usize>(ATTACHMENT_SIZE - 1))) ? at : 0;
}

/** Has every context on this list left the calls that it began before `epoch`? */
export function quiesced(arena: Arena, attached: usize, epoch: u32): bool {
  let node = attachmentAt(arena, attached);
  for (let steps: u32 = 0; node != 0 && steps < arena.attachmentsMax; steps++) {
    const slot = changetype<Attachment>(node).slot;
    if (slot < arena.contextsMax && !passed(contextSlot(arena, slot), epoch)) return false;
    node = attachmentAt(arena, changetype<Attachment>(node).next);
  }
  return allReachingPassed(arena, epoch);
}

function lockOf(arena: Arena): usize {
  return changetype<usize>(arena.state) + offsetof<Arena>('lock');
}

/**
 * Control verbs that change lists take the lock; it is held for a few dozen instructions. False: of
 * an arena that several processes share, where the host has taken it around the call: waiting for a
 * lock whose holder may be dead is no work for the engine.
 */
export function lockArena(arena: Arena): bool {
  if (arena.holder != 0) return false;
  const lock = lockOf(arena);
  while (atomic.cmpxchg<u32>(lock, 0, 1) != 0) {}
  return true;
}

/** `taken`: what `lockArena` returned. */
export function unlockArena(arena: Arena, taken: bool): void {
  if (taken) atomic.store<u32>(lockOf(arena), 0);
}
