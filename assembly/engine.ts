/**
 * The ABI: the only exports of the engine. Nothing is decided here.
 *
 * Names tell the kind. `receive…`, `post…` and `advance…` take input; after any of them the host
 * drains `nextPackets` until it returns 0, then completions and events (rings in memory), then asks
 * `nextDeadline`. Everything else is a control verb. Arguments are numbers: addresses, counts, and
 * `now` in microseconds of a monotonic clock. Every export but `arena…` and `contextSize` takes a
 * context.
 */
import {
  ARENA_SIZE,
  Arena,
  ArenaConfig,
  NULL_PAGE_SIZE,
  arenaSize,
  attachArena,
  enter,
  initArena,
  leave,
} from './memory/arena';
import { roundUp } from './memory/bytes';
import {
  BlockParameters,
  allocBlock as takeBlock,
  freeBlock,
  heapBytesFree,
  holdBlock,
} from './memory/heap';
import {
  RegionParameters,
  findNote,
  killRegion,
  regionReleased,
  registerRegion,
} from './region/key-table';
import {
  CACHE_MODEL,
  CacheModel,
  CacheModelConfig,
  cacheModelBytes,
  initCacheModel,
} from './region/cache-model';
import { arenaBehind } from './memory/shared';
import { reapSlot, repairTables } from './region/reap';
import { Layout, layoutReleased } from './region/layout';
import { LAYOUT_PLACES_BYTES } from './region/layout-find';
import { setLayout } from './region/layout-compile';
import { LayoutParameters, layoutSize } from './region/layout-parameters';
import { ReregisterParameters, reregisterRegion, reregistered } from './region/reregister';
import {
  allocProtectionDomain,
  attachProtectionDomain,
  deallocProtectionDomain,
  destroyProtectionDomain,
} from './region/protection-domain';
import { ShareParameters, allocSharedDomain, shareDomain } from './region/share';
import {
  QueuePairAttributes,
  createAddressHandle,
  destroyAddressHandle,
} from './transport/attributes';
import { timerFired } from './transport/completer';
import { CompletionQueue, completionRingBytes } from './transport/completion-queue';
import {
  AddressHandle,
  Context,
  ContextConfig,
  contextBytes,
  initContext,
} from './transport/context';
import {
  createCompletionQueue,
  createQueuePair,
  createSharedReceiveQueue,
  destroyCompletionQueue,
  destroyQueuePair,
  destroySharedReceiveQueue,
  modifyQueuePair,
  queuePairMemory,
  resizeCompletionQueue,
  resizeSharedReceiveQueue,
  sharedRingBytes,
} from './transport/control';
import { answerDoorbell, answerDoorbells } from './transport/doorbell';
import { flushQueues } from './transport/failure';
import { earliestDeadline, scheduleDueFences } from './transport/invalidation-fence';
import { attachMulticast, detachMulticast } from './transport/multicast';
import { payOwed } from './transport/owed';
import { FlushRequest, expectAnswers, nextFlushOf, takeAnswer } from './transport/persist';
import { QueuePair, QueuePairParameters, queuePairOfTimer } from './transport/queue-pair';
import { SharedReceiveQueue } from './transport/receive-queue';
import { receiveBatch } from './transport/receive';
import { missingAttributes } from './transport/state-machine';
import { QpState } from './transport/status';
import { dueTimer } from './transport/timer';
import { fillBuffer } from './transport/transmit';
import { ICRC_TABLES_SIZE, initIcrcTables } from './wire/icrc';
import { OPCODE_TABLE_SIZE, initOpcodeTable } from './wire/opcode';

export * from './transport/pools';
export { postProbe } from './transport/keep-alive';
export { aeadOpen, aeadSeal, qpRotateKey, setQpAuth } from './transport/packet-auth';
export { lookupKey, parse, build, icrc, icrcDoubled, ipIdOf } from './transport/tools';

function arenaOf(context: usize): Arena {
  return changetype<Context>(context).arena;
}

/** Bytes that an arena of this configuration needs. Fills in the sizes of the engine's tables. */
export function arenaBytes(config: usize): u32 {
  const c = changetype<ArenaConfig>(config);
  // What never changes lies in each process's own memory where there are several.
  const isShared = c.blocksMax > 0;
  c.opcodeTableSize = isShared ? 0 : OPCODE_TABLE_SIZE;
  c.icrcTablesSize = isShared ? 0 : <u32>ICRC_TABLES_SIZE;
  return arenaSize(c);
}

/** Makes an arena at `arena`: arenaBytes(config) zero bytes, 64-byte aligned. Once per memory. */
export function arenaInit(arena: usize, config: usize): void {
  const a = changetype<Arena>(arena);
  const c = changetype<ArenaConfig>(config);
  initArena(a, c);
  if (c.blocksMax > 0) return;
  initOpcodeTable(a.opcodeTable);
  initIcrcTables(a.icrcTables);
}

/** Bytes of its own memory that a process needs for an arena that it shares. */
export function arenaLocalBytes(): u32 {
  const tables = roundUp(OPCODE_TABLE_SIZE, 64) + roundUp(<u32>ICRC_TABLES_SIZE, 64);
  return roundUp(ARENA_SIZE, 64) + tables + 2 * NULL_PAGE_SIZE + LAYOUT_PLACES_BYTES;
}

/**
 * Makes a process's own part, in slot `slot`, of an arena that arenaInit made for several behind
 * the DeviceHeader at `header`, with the same configuration: arenaLocalBytes() zero bytes at
 * `local`, which is its arena from here on.
 */
export function arenaAttach(local: usize, header: usize, config: usize, slot: u32): void {
  const a = changetype<Arena>(local);
  const arena = arenaBehind(header);
  const opcodeTable = local + <usize>roundUp(ARENA_SIZE, 64);
  const icrcTables = opcodeTable + <usize>roundUp(OPCODE_TABLE_SIZE, 64);
  const pages = icrcTables + <usize>roundUp(<u32>ICRC_TABLES_SIZE, 64);
  attachArena(a, arena, changetype<ArenaConfig>(config), slot, pages);
  a.opcodeTable = opcodeTable;
  a.icrcTables = icrcTables;
  a.layoutPlaces = pages + 2 * NULL_PAGE_SIZE;
  initOpcodeTable(opcodeTable);
  initIcrcTables(icrcTables);
}

/** Bytes for a model of an adapter's caches (CacheModelConfig); 0: this engine has none. */
export function arenaModelBytes(config: usize): u32 {
  return CACHE_MODEL ? cacheModelBytes(changetype<CacheModelConfig>(config)) : 0;
}

/** Counts what the caches would do from now on, at `model`: arenaModelBytes(config) zero bytes. */
export function arenaModelInit(arena: usize, model: usize, config: usize): void {
  if (!CACHE_MODEL) return;
  const c = changetype<CacheModelConfig>(config);
  initCacheModel(changetype<Arena>(arena), changetype<CacheModel>(model), c);
}

/** Makes the lists anew that somebody may have left half changed who died with the lock. */
export function arenaRepair(arena: usize): void {
  repairTables(changetype<Arena>(arena));
}

/** Takes back what the dead process of a slot had. EAGAIN: not all yet, come again. */
export function arenaReap(arena: usize, slot: u32): u32 {
  return reapSlot(changetype<Arena>(arena), slot);
}

/** Bytes of the shared heap that nobody holds. */
export function arenaBytesFree(arena: usize): u32 {
  return heapBytesFree(changetype<Arena>(arena));
}

/** Takes memory of the shared heap, as BlockParameters say. An Errno. */
export function allocBlock(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return takeBlock(c.arena, c.slotIndex, changetype<BlockParameters>(parameters));
}

/** Holds the block, which another context took, with these bytes. An Errno. */
export function attachBlock(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return holdBlock(c.arena, c.slotIndex, changetype<BlockParameters>(parameters));
}

/** Lets go of a block; who is last gives it back. An Errno. */
export function deallocBlock(context: usize, address: usize): u32 {
  const c = changetype<Context>(context);
  return freeBlock(c.arena, c.slotIndex, <u32>address);
}

/** `ibv_alloc_shpd` as ShareParameters say. An Errno. */
export function allocShpd(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return allocSharedDomain(c.arena, c.slotIndex, changetype<ShareParameters>(parameters));
}

/** `ibv_share_pd` as ShareParameters say. An Errno. */
export function attachShpd(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return shareDomain(c.arena, c.slotIndex, changetype<ShareParameters>(parameters));
}

/** Bytes that a context of this configuration needs. */
export function contextSize(config: usize): u32 {
  return contextBytes(changetype<ContextConfig>(config));
}

/** Makes a context at `context`: contextSize(config) zero bytes, 64-byte aligned. */
export function contextInit(context: usize, arena: usize, config: usize, now: f64): void {
  initContext(
    changetype<Context>(context),
    changetype<Arena>(arena),
    changetype<ContextConfig>(config),
    <u64>now,
  );
}

/** A new protection domain's id, or 0: none is free. */
export function allocPd(context: usize): u32 {
  return allocProtectionDomain(arenaOf(context), changetype<Context>(context).slotIndex);
}

/** This context takes part in a protection domain that another one made. An Errno. */
export function attachPd(context: usize, pd: u32): u32 {
  return attachProtectionDomain(arenaOf(context), pd, changetype<Context>(context).slotIndex);
}

/** Ends a protection domain. An Errno; EBUSY while regions or queue pairs name it. */
export function deallocPd(context: usize, pd: u32): u32 {
  return destroyProtectionDomain(arenaOf(context), pd, changetype<Context>(context).slotIndex);
}

/** This context takes part in it no more. An Errno; EBUSY while its regions or queue pairs do. */
export function detachPd(context: usize, pd: u32): u32 {
  return deallocProtectionDomain(arenaOf(context), pd, changetype<Context>(context).slotIndex);
}

/** Registers memory, or takes a key of another kind, as RegionParameters say. An Errno. */
export function regMr(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return registerRegion(c.arena, c.slotIndex, changetype<RegionParameters>(parameters));
}

/** Kills a key at once. Its memory may be used again when `mrReleased` says so. An Errno. */
export function killMr(context: usize, key: u32): u32 {
  return killRegion(arenaOf(context), key);
}

/** 1, once, when nobody can be using the memory of a killed key any more. */
export function mrReleased(context: usize, key: u32): u32 {
  return regionReleased(arenaOf(context), key) ? 1 : 0;
}

/** `ibv_rereg_mr` as ReregisterParameters say. An Errno. */
export function reregMr(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return reregisterRegion(c.arena, c.slotIndex, changetype<ReregisterParameters>(parameters));
}

/** 1, once, when nobody can be using what the region was before. */
export function mrReregistered(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return reregistered(c.arena, c.slotIndex, changetype<ReregisterParameters>(parameters)) ? 1 : 0;
}

/** Bytes of the program of a layout of LayoutParameters; 0: refused, as their `fault` says. */
export function mrLayoutBytes(parameters: usize): u32 {
  return layoutSize(changetype<LayoutParameters>(parameters));
}

/** `ibv_mr_set_layout_…` as LayoutParameters say, whose `fault` says what is wrong. An Errno. */
export function setMrLayout(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return setLayout(c.arena, c.slotIndex, changetype<LayoutParameters>(parameters));
}

/** 1 when nobody can be using the program of a layout any more. */
export function mrLayoutReleased(context: usize, layout: usize): u32 {
  return layoutReleased(arenaOf(context), changetype<Layout>(layout)) ? 1 : 0;
}

/** Bytes of the ring of a completion queue. */
export function cqBytes(entries: u32): u32 {
  return completionRingBytes(entries);
}

/** The queue's address, or 0: none is free. `entries` is a power of two. */
export function createCq(context: usize, ring: usize, entries: u32): usize {
  return createCompletionQueue(changetype<Context>(context), ring, entries);
}

/** 1: the oldest completion makes room for the newest; 0: a full queue is dead. */
export function setCqIgnoreOverrun(cq: usize, ignore: u32): void {
  changetype<CompletionQueue>(cq).ignoreOverrun = ignore;
}

/** Arms a queue: CqNotify. The next completion, once, becomes an event. */
export function reqNotifyCq(cq: usize, notify: u32): void {
  changetype<CompletionQueue>(cq).armed = notify;
}

export function destroyCq(context: usize, cq: usize): u32 {
  return destroyCompletionQueue(changetype<Context>(context), changetype<CompletionQueue>(cq));
}

/** Bytes of memory that a queue pair of these parameters needs. */
export function qpBytes(context: usize, parameters: usize): u32 {
  return queuePairMemory(changetype<Context>(context), changetype<QueuePairParameters>(parameters));
}

export function createQp(context: usize, parameters: usize): u32 {
  return createQueuePair(changetype<Context>(context), changetype<QueuePairParameters>(parameters));
}

export function modifyQp(context: usize, qp: usize, attributes: usize, now: f64): u32 {
  const c = changetype<Context>(context);
  setNow(c, now);
  return modifyQueuePair(c, changetype<QueuePair>(qp), changetype<QueuePairAttributes>(attributes));
}

/** Attributes that the change lacks (QpAttribute bits); 0xffffffff: there is no such change. */
export function qpAttributesMissing(qp: usize, to: u32, mask: u32): u32 {
  const q = changetype<QueuePair>(qp);
  return missingAttributes(q.type, q.state, to, mask);
}

/** Counts the queue pair's completions: a table of addresses by CountedOperation, or 0. */
export function setQpCounters(qp: usize, table: usize): void {
  changetype<QueuePair>(qp).counterTable = table;
}

/** `ibv_resize_cq` onto a ring of cqBytes(entries). An Errno. */
export function resizeCq(cq: usize, ring: usize, entries: u32): u32 {
  return resizeCompletionQueue(changetype<CompletionQueue>(cq), ring, entries);
}

/** Bytes of the ring of a shared receive queue. */
export function srqBytes(entries: u32, sgeMax: u32): u32 {
  return sharedRingBytes(entries, sgeMax);
}

/** The queue's address, or 0: none is free, or the protection domain is gone. */
export function createSrq(context: usize, pd: u32, ring: usize, entries: u32, sgeMax: u32): usize {
  return createSharedReceiveQueue(changetype<Context>(context), pd, ring, entries, sgeMax);
}

/** Arms the limit: one event when fewer requests are left; 0 disarms. */
export function setSrqLimit(srq: usize, limit: u32): void {
  changetype<SharedReceiveQueue>(srq).limit = limit;
}

/** `ibv_modify_srq` with IBV_SRQ_MAX_WR, onto a ring of srqBytes(entries, sgeMax). An Errno. */
export function resizeSrq(srq: usize, ring: usize, entries: u32): u32 {
  return resizeSharedReceiveQueue(changetype<SharedReceiveQueue>(srq), ring, entries);
}

export function destroySrq(context: usize, srq: usize): u32 {
  return destroySharedReceiveQueue(
    changetype<Context>(context),
    changetype<SharedReceiveQueue>(srq),
  );
}

/** An address handle from the AV in QueuePairAttributes: its address, or 0: none is free. */
export function createAh(context: usize, pd: u32, attributes: usize): usize {
  const a = changetype<QueuePairAttributes>(attributes);
  return createAddressHandle(changetype<Context>(context), pd, a);
}

export function destroyAh(context: usize, handle: usize): u32 {
  return destroyAddressHandle(changetype<Context>(context), changetype<AddressHandle>(handle));
}

/** The queue pair joins the group whose 16-byte GID lies at `gid`. An Errno. */
export function attachMcast(context: usize, qp: usize, gid: usize): u32 {
  const q = changetype<QueuePair>(qp);
  return attachMulticast(changetype<Context>(context), q, load<u64>(gid), load<u64>(gid, 8));
}

export function detachMcast(context: usize, qp: usize, gid: usize): u32 {
  const q = changetype<QueuePair>(qp);
  return detachMulticast(changetype<Context>(context), q, load<u64>(gid), load<u64>(gid, 8));
}

/** Address of the KeyNote of a region's key, or 0: what was counted for it. */
export function mrNote(context: usize, key: u32): usize {
  return findNote(arenaOf(context), key);
}

export function destroyQp(context: usize, qp: usize): u32 {
  return destroyQueuePair(changetype<Context>(context), changetype<QueuePair>(qp));
}

/** Threads take turns, and each reads the clock for itself: time does not go back. */
function setNow(context: Context, now: f64): void {
  context.now = max<u64>(context.now, <u64>now);
}

/** The doorbell of the send ring. */
export function postSend(context: usize, qp: usize, now: f64): void {
  const c = changetype<Context>(context);
  setNow(c, now);
  answerDoorbell(c, changetype<QueuePair>(qp));
}

/** The doorbells that other threads rang. Returns how many. */
export function postDoorbells(context: usize, now: f64): u32 {
  const c = changetype<Context>(context);
  setNow(c, now);
  return answerDoorbells(c);
}

/** The doorbell of the receive ring. */
export function postRecv(context: usize, qp: usize, now: f64): void {
  const c = changetype<Context>(context);
  const q = changetype<QueuePair>(qp);
  setNow(c, now);
  if (q.state == QpState.ERR) flushQueues(c, q);
}

/** Takes in the packets of the first `count` receive descriptors. */
export function receivePackets(context: usize, count: u32, now: f64): void {
  const c = changetype<Context>(context);
  setNow(c, now);
  enter(c.arena, c.slot);
  receiveBatch(c, count);
  leave(c.slot);
}

/** Writes the next FLUSH for the host to carry out into a FlushRequest. 0: there is none. */
export function nextFlush(context: usize, request: usize): u32 {
  const c = changetype<Context>(context);
  enter(c.arena, c.slot);
  const found = nextFlushOf(c, changetype<FlushRequest>(request));
  leave(c.slot);
  return found ? 1 : 0;
}

/** The host will answer a FLUSH so many times, and not once for each of its ranges. */
export function setFlushAnswers(qp: usize, job: u32, serial: u32, count: u32): void {
  expectAnswers(changetype<QueuePair>(qp), job, serial, count);
}

/** One of the host's answers to a FLUSH. `failed`: 1: it is not durable, and never will be. */
export function advanceFlush(context: usize, qp: usize, job: u32, serial: u32, failed: u32): void {
  const c = changetype<Context>(context);
  takeAnswer(c, changetype<QueuePair>(qp), job, serial, failed != 0);
}

/** Fills send buffer `buffer`; returns how many packets it holds, 0: nothing to send. */
export function nextPackets(context: usize, buffer: u32): u32 {
  const c = changetype<Context>(context);
  enter(c.arena, c.slot);
  const count = fillBuffer(c, buffer);
  leave(c.slot);
  return count;
}

/** Time has passed: what is due, happens. */
export function advance(context: usize, now: f64): void {
  const c = changetype<Context>(context);
  setNow(c, now);
  enter(c.arena, c.slot);
  for (let node = dueTimer(c.timers, c.now); node != null; node = dueTimer(c.timers, c.now)) {
    timerFired(c, queuePairOfTimer(node));
  }
  scheduleDueFences(c);
  payOwed(c);
  leave(c.slot);
}

/** When `advance` is to be called next, in microseconds; 0: not before the next input. */
export function nextDeadline(context: usize): f64 {
  return <f64>earliestDeadline(changetype<Context>(context));
}

/** The same for what nobody waits for: it may be called a millisecond or two later. */
export function nextOwed(context: usize): f64 {
  return <f64>changetype<Context>(context).owedMicros;
}
