/**
 * The ABI: all exports of the engine. This file decides nothing.
 *
 * The prefix of a name gives its kind. `receive…`, `post…` and `advance…` take input. After each of
 * them the host drains `nextPackets` until it returns 0, then completions and events (rings in
 * memory), and reads `nextDeadline`. All others are control verbs; those at the end of the file
 * expose the codec and the key table to tests and captures. Arguments are numbers: addresses,
 * counts, and `now` in microseconds of a monotonic clock. Every export but `arena…` and
 * `contextSize` takes a context.
 */
import { aeadCrypt, aeadTag, aeadVerify } from './crypto/aead';
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
import { arenaBehind } from './memory/shared';
import {
  CACHE_MODEL,
  CacheModel,
  CacheModelConfig,
  cacheModelBytes,
  initCacheModel,
} from './region/cache-model';
import { fastRevoked, revokeFast } from './region/fast-region';
import {
  RegionParameters,
  findNote,
  killRegion,
  regionReleased,
  registerRegion,
  translate,
} from './region/key-table';
import { Layout, layoutReleased } from './region/layout';
import { setLayout } from './region/layout-compile';
import { LAYOUT_PLACES_BYTES } from './region/layout-find';
import { LayoutParameters, layoutSize } from './region/layout-parameters';
import {
  addNode,
  drainBucket,
  giveNode,
  poolAt,
  poolFree as countFree,
  removeNode,
  takeNode,
} from './region/pool';
import {
  PoolParameters,
  PoolUserParameters,
  addUser,
  closePool,
  lendOwn,
  openPool,
  removeUser,
} from './region/pool-verbs';
import {
  ShareParameters,
  allocProtectionDomain,
  allocSharedDomain,
  attachProtectionDomain,
  deallocProtectionDomain,
  destroyProtectionDomain,
  shareDomain,
} from './region/protection-domain';
import { reapSlot, repairTables } from './region/reap';
import { ReregisterParameters, reregisterRegion, reregistered } from './region/reregister';
import {
  QueuePairAttributes,
  createAddressHandle,
  createCompletionQueue,
  createQueuePair,
  createSharedReceiveQueue,
  destroyAddressHandle,
  destroyCompletionQueue,
  destroyQueuePair,
  destroySharedReceiveQueue,
  modifyQueuePair,
  resizeCompletionQueue,
  resizeSharedReceiveQueue,
} from './transport/control';
import { attachMulticast, detachMulticast } from './transport/datagram/multicast';
import { flushQueues } from './transport/queue/completion';
import { answerDoorbell, answerDoorbells } from './transport/queue/doorbell';
import { receiveBatch } from './transport/receive';
import { timerFired } from './transport/requester/completer';
import { sendDelayedAcks } from './transport/responder/delayed-ack';
import { FlushRequest, expectAnswers, nextFlushOf, takeAnswer } from './transport/responder/flush';
import {
  AddressHandle,
  Context,
  ContextConfig,
  contextBytes,
  initContext,
} from './transport/shared/context';
import { earliestDeadline, scheduleDueFences } from './transport/shared/invalidation-fence';
import { lookForLife } from './transport/shared/keep-alive';
import { PACKET_AUTH, rotateSendKey, setPacketAuth } from './transport/shared/packet-auth';
import {
  QueuePair,
  QueuePairParameters,
  queuePairBytes,
  queuePairOfTimer,
} from './transport/shared/queue-pair';
import {
  CompletionQueue,
  SharedReceiveQueue,
  completionRingBytes,
  sharedRingBytes,
} from './transport/shared/queues';
import { missingAttributes } from './transport/shared/state-machine';
import { QpState } from './transport/shared/status';
import { dueTimer } from './transport/shared/timer-wheel';
import { fillBuffer } from './transport/transmit';
import {
  ICRC_TABLES_SIZE,
  icrcFlow4,
  icrcFlow6,
  icrcOf,
  icrcOfDoubled,
  icrcSolveIpId,
  icrcStart,
  initIcrcTables,
} from './wire/icrc';
import { OPCODE_TABLE_SIZE, initOpcodeTable } from './wire/opcode';
import { PacketFields, buildPacket, parsePacket } from './wire/packet';

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

/** Rebuilds the lists that a dead process may have left inconsistent. */
export function arenaRepair(arena: usize): void {
  repairTables(changetype<Arena>(arena));
}

/** Takes back what the dead process of a slot had. EAGAIN: not all yet, come again. */
export function arenaReap(arena: usize, slot: u32): u32 {
  return reapSlot(changetype<Arena>(arena), slot);
}

/** Free bytes of the shared heap. */
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

/** Releases a block; the last holder frees it. An Errno. */
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

/** 1, once: no engine can still access the memory of the killed key. */
export function mrReleased(context: usize, key: u32): u32 {
  return regionReleased(arenaOf(context), key) ? 1 : 0;
}

/** `ibv_rereg_mr` as ReregisterParameters say. An Errno. */
export function reregMr(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return reregisterRegion(c.arena, c.slotIndex, changetype<ReregisterParameters>(parameters));
}

/** 1, once: no engine can still access the former memory of the region. */
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

/** 1: no engine can still read the program of the layout. */
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
  const rdAtomic = changetype<Context>(context).rdAtomicMax;
  return queuePairBytes(changetype<QueuePairParameters>(parameters), rdAtomic);
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

/** Writes the next FLUSH for the host into a FlushRequest. 0: no FLUSH waits. */
export function nextFlush(context: usize, request: usize): u32 {
  const c = changetype<Context>(context);
  enter(c.arena, c.slot);
  const found = nextFlushOf(c, changetype<FlushRequest>(request));
  leave(c.slot);
  return found ? 1 : 0;
}

/** The host will answer a FLUSH `count` times instead of once per range. */
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
  sendDelayedAcks(c);
  leave(c.slot);
}

/** When `advance` is to be called next, in microseconds; 0: not before the next input. */
export function nextDeadline(context: usize): f64 {
  return <f64>earliestDeadline(changetype<Context>(context));
}

/** The same for delayed acknowledgements: `advance` may be a millisecond or two later. */
export function nextOwed(context: usize): f64 {
  return <f64>changetype<Context>(context).delayedAckMicros;
}

/** Exported: `setPacketAuth`. */
export function setQpAuth(context: usize, qp: usize, memory: usize): u32 {
  return setPacketAuth(changetype<Context>(context), changetype<QueuePair>(qp), memory);
}

/** Exported: `rotateSendKey`. */
export function qpRotateKey(context: usize, qp: usize): u32 {
  return rotateSendKey(changetype<Context>(context), changetype<QueuePair>(qp));
}

/**
 * Exported for tests, and for what the host authenticates besides packets: encrypts, in place, what
 * lies behind the first `plain` of `length` bytes at `data`, and writes the tag of all of them to
 * `tag`. `key`: 32 bytes; the nonce is 4 zero bytes, then `nonceLow` and `nonceHigh`.
 */
export function aeadSeal(
  context: usize,
  key: usize,
  nonceLow: u32,
  nonceHigh: u32,
  data: usize,
  length: u32,
  plain: u32,
  tag: usize,
): void {
  if (!PACKET_AUTH) return;
  const scratch = changetype<Context>(context).authScratch;
  const nonce = ((<u64>nonceHigh) << 32) | nonceLow;
  aeadCrypt(scratch, key, nonce, data + <usize>plain, length - plain);
  aeadTag(scratch, key, nonce, data, length, plain, tag);
}

/** The reverse. 1: the tag fits, and the bytes are decrypted; 0: nothing has changed. */
export function aeadOpen(
  context: usize,
  key: usize,
  nonceLow: u32,
  nonceHigh: u32,
  data: usize,
  length: u32,
  plain: u32,
  tag: usize,
): u32 {
  if (!PACKET_AUTH) return 0;
  const scratch = changetype<Context>(context).authScratch;
  const nonce = ((<u64>nonceHigh) << 32) | nonceLow;
  if (!aeadVerify(scratch, key, nonce, data, length, plain, tag)) return 0;
  aeadCrypt(scratch, key, nonce, data + <usize>plain, length - plain);
  return 1;
}

/** Checks whether the peer of a queue pair sent a packet; if not, sends a probe. Returns a Life. */
export function postProbe(context: usize, qp: usize, now: f64): u32 {
  const c = changetype<Context>(context);
  c.now = max<u64>(c.now, <u64>now);
  return lookForLife(c, changetype<QueuePair>(qp));
}

/** Takes part in a pool of regions as PoolParameters say, or makes it. An Errno. */
export function poolOpen(context: usize, parameters: usize): u32 {
  const c = changetype<Context>(context);
  return openPool(c.arena, c.slotIndex, changetype<PoolParameters>(parameters));
}

/** Leaves a pool. An Errno; EAGAIN: the last member frees its regions first. */
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

/** The user lends `count` of its own regions; a negative count takes them back. */
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

/** A region for a user (index + 1): PoolTake. Wait-free. */
export function poolTake(context: usize, pool: u32, user: u32, bucket: u32, borrowed: u32): u32 {
  const c = changetype<Context>(context);
  return takeNode(c.arena, c.slotIndex, pool, user, bucket, borrowed);
}

/** Gives a region back. An Errno. Wait-free. */
export function poolGive(context: usize, pool: u32, user: u32, bucket: u32, index: u32): u32 {
  const c = changetype<Context>(context);
  return giveNode(c.arena, c.slotIndex, pool, user, bucket, index);
}

/** What a bucket has goes to the pool. */
export function poolDrain(context: usize, pool: u32, bucket: u32): void {
  const c = changetype<Context>(context);
  drainBucket(c.arena, c.slotIndex, pool, bucket);
}

/** Free regions. */
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

/** Looks a key up as the data path does: the linear address, or 0. */
export function lookupKey(
  context: usize,
  key: u32,
  pd: u32,
  addressHigh: u32,
  addressLow: u32,
  length: u32,
  access: u32,
): usize {
  const address = ((<u64>addressHigh) << 32) | addressLow;
  return translate(changetype<Context>(context).arena, key, pd, address, length, access);
}

/** The whole codec: packet to PacketFields. A PacketStatus. */
export function parse(context: usize, packet: usize, length: u32, fields: usize): u32 {
  return parsePacket(
    changetype<Context>(context).opcodeTable,
    packet,
    length,
    changetype<PacketFields>(fields),
  );
}

/** PacketFields to headers; returns their bytes, 0: no such opcode. */
export function build(context: usize, packet: usize, fields: usize): u32 {
  return buildPacket(
    changetype<Context>(context).opcodeTable,
    packet,
    changetype<PacketFields>(fields),
  );
}

/** Register after the pseudo header; `family` 4 or 6. */
function startOf(
  tables: usize,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  length: u32,
): u32 {
  const flow =
    family == 4
      ? icrcFlow4(tables, source, target, sourcePort, targetPort)
      : icrcFlow6(tables, source, target, sourcePort, targetPort);
  return icrcStart(tables, flow, family == 4, length);
}

/** ICRC of the packet; `family` 4 or 6; addresses point to 4 or 16 bytes in network order. */
export function icrc(
  context: usize,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  packet: usize,
  length: u32,
): u32 {
  const c = changetype<Context>(context);
  const begin = startOf(c.icrcTables, family, source, target, sourcePort, targetPort, length);
  return icrcOf(c.icrcTables, c.crcScratch, begin, packet, length);
}

/** The same, covering the packet twice: how rxe computes the ICRC of a FLUSH request. */
export function icrcDoubled(
  context: usize,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  packet: usize,
  length: u32,
): u32 {
  const c = changetype<Context>(context);
  const begin = startOf(c.icrcTables, family, source, target, sourcePort, targetPort, length);
  return icrcOfDoubled(c.icrcTables, c.crcScratch, begin, packet, length);
}

/** IPv4 identification that explains the difference between two ICRCs, or -1. */
export function ipIdOf(context: usize, difference: u32, length: u32): i32 {
  return icrcSolveIpId(changetype<Context>(context).icrcTables, difference, length);
}
