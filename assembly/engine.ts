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
import { powerOfTwo, roundUp } from './memory/bytes';
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
import { keepRegion } from './region/domain-region';
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
  findQueuePair,
  initContext,
  pathOfTimer,
} from './transport/shared/context';
import { noteRefusal } from './transport/requester/path-mtu';
import { resumePath, seedRoundTrip } from './transport/shared/path-control';
import { earliestDeadline, scheduleDueFences } from './transport/shared/invalidation-fence';
import { probePeer } from './transport/shared/keep-alive';
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
import { addSlots, slotBytes } from './transport/shared/reorder-pool';
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

/** Bytes that an arena of this configuration needs. Fills in the sizes of the engine's tables. */
export function arenaBytes(config: ArenaConfig): u32 {
  // Constant tables lie in each process's own memory if several processes share the arena.
  const isShared = config.blocksMax > 0;
  config.opcodeTableSize = isShared ? 0 : OPCODE_TABLE_SIZE;
  config.icrcTablesSize = isShared ? 0 : <u32>ICRC_TABLES_SIZE;
  return arenaSize(config);
}

/** Makes an arena at `arena`: arenaBytes(config) zero bytes, 64-byte aligned. Once per memory. */
export function arenaInit(arena: Arena, config: ArenaConfig): void {
  initArena(arena, config);
  if (config.blocksMax > 0) return;
  initOpcodeTable(arena.opcodeTable);
  initIcrcTables(arena.icrcTables);
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
export function arenaAttach(local: usize, header: usize, config: ArenaConfig, slot: u32): void {
  const a = changetype<Arena>(local);
  const arena = arenaBehind(header);
  const opcodeTable = local + <usize>roundUp(ARENA_SIZE, 64);
  const icrcTables = opcodeTable + <usize>roundUp(OPCODE_TABLE_SIZE, 64);
  const pages = icrcTables + <usize>roundUp(<u32>ICRC_TABLES_SIZE, 64);
  attachArena(a, arena, config, slot, pages);
  a.opcodeTable = opcodeTable;
  a.icrcTables = icrcTables;
  a.layoutPlaces = pages + 2 * NULL_PAGE_SIZE;
  initOpcodeTable(opcodeTable);
  initIcrcTables(icrcTables);
}

/** Bytes for a model of an adapter's caches (CacheModelConfig); 0: this engine has none. */
export function arenaModelBytes(config: CacheModelConfig): u32 {
  return CACHE_MODEL ? cacheModelBytes(config) : 0;
}

/** Counts what the caches would do from now on, at `model`: arenaModelBytes(config) zero bytes. */
export function arenaModelInit(arena: Arena, model: CacheModel, config: CacheModelConfig): void {
  if (!CACHE_MODEL) return;
  initCacheModel(arena, model, config);
}

/** Rebuilds the lists that a dead process may have left inconsistent. */
export function arenaRepair(arena: Arena): void {
  repairTables(arena);
}

/** Takes back what the dead process of a slot had. EAGAIN: not all yet, come again. */
export function arenaReap(arena: Arena, slot: u32): u32 {
  return reapSlot(arena, slot);
}

/** Free bytes of the shared heap. */
export function arenaBytesFree(arena: Arena): u32 {
  return heapBytesFree(arena);
}

/** Takes memory of the shared heap, as BlockParameters say. An Errno. */
export function allocBlock(context: Context, parameters: BlockParameters): u32 {
  return takeBlock(context.arena, context.slotIndex, parameters);
}

/** Holds the block, which another context took, with these bytes. An Errno. */
export function attachBlock(context: Context, parameters: BlockParameters): u32 {
  return holdBlock(context.arena, context.slotIndex, parameters);
}

/** Releases a block; the last holder frees it. An Errno. */
export function deallocBlock(context: Context, address: usize): u32 {
  return freeBlock(context.arena, context.slotIndex, <u32>address);
}

/** `ibv_alloc_shpd` as ShareParameters say. An Errno. */
export function allocShpd(context: Context, parameters: ShareParameters): u32 {
  return allocSharedDomain(context.arena, context.slotIndex, parameters);
}

/** `ibv_share_pd` as ShareParameters say. An Errno. */
export function attachShpd(context: Context, parameters: ShareParameters): u32 {
  return shareDomain(context.arena, context.slotIndex, parameters);
}

/** Bytes that a context of this configuration needs. */
export function contextSize(config: ContextConfig): u32 {
  return contextBytes(config);
}

/** Makes a context at `context`: contextSize(config) zero bytes, 64-byte aligned. */
export function contextInit(context: Context, arena: Arena, config: ContextConfig, now: f64): void {
  initContext(context, arena, config, <u64>now);
}

/** A new protection domain's id, or 0: none is free. */
export function allocPd(context: Context): u32 {
  return allocProtectionDomain(context.arena, context.slotIndex);
}

/** This context takes part in a protection domain that another one made. An Errno. */
export function attachPd(context: Context, pd: u32): u32 {
  return attachProtectionDomain(context.arena, pd, context.slotIndex);
}

/** Ends a protection domain. An Errno; EBUSY while regions or queue pairs name it. */
export function deallocPd(context: Context, pd: u32): u32 {
  return destroyProtectionDomain(context.arena, pd, context.slotIndex);
}

/** This context takes part in it no more. An Errno; EBUSY while its regions or queue pairs do. */
export function detachPd(context: Context, pd: u32): u32 {
  return deallocProtectionDomain(context.arena, pd, context.slotIndex);
}

/** Registers memory, or takes a key of another kind, as RegionParameters say. An Errno. */
export function regMr(context: Context, parameters: RegionParameters): u32 {
  return registerRegion(context.arena, context.slotIndex, parameters);
}

/** A region of this context belongs to its domain from now on (region/domain-region.ts). */
export function setMrKept(context: Context, key: u32): u32 {
  return keepRegion(context.arena, key, context.slotIndex);
}

/** Kills a key at once. Its memory may be used again when `mrReleased` says so. An Errno. */
export function killMr(context: Context, key: u32): u32 {
  return killRegion(context.arena, key, context.slotIndex);
}

/** 1, once: no engine can still access the memory of the killed key. */
export function mrReleased(context: Context, key: u32): u32 {
  return regionReleased(context.arena, key) ? 1 : 0;
}

/** `ibv_rereg_mr` as ReregisterParameters say. An Errno. */
export function reregMr(context: Context, parameters: ReregisterParameters): u32 {
  return reregisterRegion(context.arena, context.slotIndex, parameters);
}

/** 1, once: no engine can still access the former memory of the region. */
export function mrReregistered(context: Context, parameters: ReregisterParameters): u32 {
  return reregistered(context.arena, context.slotIndex, parameters) ? 1 : 0;
}

/** Bytes of the program of a layout of LayoutParameters; 0: refused, as their `fault` says. */
export function mrLayoutBytes(parameters: LayoutParameters): u32 {
  return layoutSize(parameters);
}

/** `ibv_mr_set_layout_…` as LayoutParameters say, whose `fault` says what is wrong. An Errno. */
export function setMrLayout(context: Context, parameters: LayoutParameters): u32 {
  return setLayout(context.arena, context.slotIndex, parameters);
}

/** 1: no engine can still read the program of the layout. */
export function mrLayoutReleased(context: Context, layout: Layout): u32 {
  return layoutReleased(context.arena, layout) ? 1 : 0;
}

/** Bytes of the ring of a completion queue. */
export function cqBytes(entries: u32): u32 {
  return completionRingBytes(entries);
}

/** The queue's address, or 0: none is free. `entries` is a power of two. */
export function createCq(context: Context, ring: usize, entries: u32): usize {
  return createCompletionQueue(context, ring, entries);
}

/** 1: the oldest completion makes room for the newest; 0: a full queue is dead. */
export function setCqIgnoreOverrun(cq: CompletionQueue, ignore: u32): void {
  cq.ignoreOverrun = ignore;
}

/** Arms a queue: CqNotify. The next completion, once, becomes an event. */
export function reqNotifyCq(cq: CompletionQueue, notify: u32): void {
  cq.armed = notify;
}

export function destroyCq(context: Context, cq: CompletionQueue): u32 {
  return destroyCompletionQueue(context, cq);
}

/** Bytes of memory that a queue pair of these parameters needs. */
export function qpBytes(context: Context, parameters: QueuePairParameters): u32 {
  fitFlight(context, parameters);
  return queuePairBytes(parameters, context.rdAtomicMax);
}

/** In flight of a queue pair whose peer keeps fewer packets ahead. */
const FLIGHT_PACKETS: u32 = 512;

/**
 * Sizes the tables of packets in flight and of packets that arrive ahead by the device's limits.
 */
function fitFlight(context: Context, parameters: QueuePairParameters): void {
  const usual = min<u32>(context.windowPackets, FLIGHT_PACKETS);
  parameters.flightPackets = powerOfTwo(max<u32>(max<u32>(usual, parameters.reorderPackets), 64));
}

/** Bytes that reorder buffers take for one packet. */
export function contextReorderSlotBytes(context: Context): u32 {
  return slotBytes(context);
}

/** Gives the reorder buffers zero bytes, 64-byte aligned, until no queue pair keeps packets. */
export function attachReorderBytes(context: Context, memory: usize, bytes: u32): void {
  addSlots(context, memory, bytes);
}

export function createQp(context: Context, parameters: QueuePairParameters): u32 {
  fitFlight(context, parameters);
  return createQueuePair(context, parameters);
}

export function modifyQp(
  context: Context,
  qp: QueuePair,
  attributes: QueuePairAttributes,
  now: f64,
): u32 {
  setNow(context, now);
  return modifyQueuePair(context, qp, attributes);
}

/** Attributes that the change lacks (QpAttribute bits); 0xffffffff: there is no such change. */
export function qpAttributesMissing(qp: QueuePair, to: u32, mask: u32): u32 {
  return missingAttributes(qp.type, qp.state, to, mask);
}

/** Counts the queue pair's completions: a table of addresses by CountedOperation, or 0. */
export function setQpCounters(qp: QueuePair, table: usize): void {
  qp.counterTable = table;
}

/** `ibv_resize_cq` onto a ring of cqBytes(entries). An Errno. */
export function resizeCq(cq: CompletionQueue, ring: usize, entries: u32): u32 {
  return resizeCompletionQueue(cq, ring, entries);
}

/** Bytes of the ring of a shared receive queue. */
export function srqBytes(entries: u32, sgeMax: u32): u32 {
  return sharedRingBytes(entries, sgeMax);
}

/** The queue's address, or 0: none is free, or the protection domain is gone. */
export function createSrq(
  context: Context,
  pd: u32,
  ring: usize,
  entries: u32,
  sgeMax: u32,
): usize {
  return createSharedReceiveQueue(context, pd, ring, entries, sgeMax);
}

/** Arms the limit: one event when fewer requests are left; 0 disarms. */
export function setSrqLimit(srq: SharedReceiveQueue, limit: u32): void {
  srq.limit = limit;
}

/** `ibv_modify_srq` with IBV_SRQ_MAX_WR, onto a ring of srqBytes(entries, sgeMax). An Errno. */
export function resizeSrq(srq: SharedReceiveQueue, ring: usize, entries: u32): u32 {
  return resizeSharedReceiveQueue(srq, ring, entries);
}

export function destroySrq(context: Context, srq: SharedReceiveQueue): u32 {
  return destroySharedReceiveQueue(context, srq);
}

/** An address handle from the AV in QueuePairAttributes: its address, or 0: none is free. */
export function createAh(context: Context, pd: u32, attributes: QueuePairAttributes): usize {
  return createAddressHandle(context, pd, attributes);
}

export function destroyAh(context: Context, handle: AddressHandle): u32 {
  return destroyAddressHandle(context, handle);
}

/** The queue pair joins the group whose 16-byte GID lies at `gid`. An Errno. */
export function attachMcast(context: Context, qp: QueuePair, gid: usize): u32 {
  return attachMulticast(context, qp, load<u64>(gid), load<u64>(gid, 8));
}

export function detachMcast(context: Context, qp: QueuePair, gid: usize): u32 {
  return detachMulticast(context, qp, load<u64>(gid), load<u64>(gid, 8));
}

/** Address of the KeyNote of a region's key, or 0: what was counted for it. */
export function mrNote(context: Context, key: u32): usize {
  return findNote(context.arena, key);
}

export function destroyQp(context: Context, qp: QueuePair): u32 {
  return destroyQueuePair(context, qp);
}

/** Threads take turns, and each reads the clock for itself: time does not go back. */
function setNow(context: Context, now: f64): void {
  context.now = max<u64>(context.now, <u64>now);
}

/** The doorbell of the send ring. */
export function postSend(context: Context, qp: QueuePair, now: f64): void {
  setNow(context, now);
  answerDoorbell(context, qp);
}

/** The doorbells that other threads rang. Returns how many. */
export function postDoorbells(context: Context, now: f64): u32 {
  setNow(context, now);
  return answerDoorbells(context);
}

/** The doorbell of the receive ring. */
export function postRecv(context: Context, qp: QueuePair, now: f64): void {
  setNow(context, now);
  if (qp.state == QpState.ERR) flushQueues(context, qp);
}

/** Takes in the packets of the first `count` receive descriptors. */
export function receivePackets(context: Context, count: u32, now: f64): void {
  setNow(context, now);
  enter(context.arena, context.slot);
  receiveBatch(context, count);
  leave(context.slot);
}

/** The system refused to send a packet of this queue pair, because of its length. */
export function receiveRefusal(context: Context, qpn: u32): void {
  const qp = findQueuePair(context, qpn);
  if (qp != null) noteRefusal(context, qp);
}

/** A handshake with the peer of this queue pair took this number of microseconds. */
export function setQpRoundTrip(context: Context, qp: QueuePair, micros: u32): void {
  seedRoundTrip(context, qp, micros);
}

/** Writes the next FLUSH for the host into a FlushRequest. 0: no FLUSH waits. */
export function nextFlush(context: Context, request: FlushRequest): u32 {
  enter(context.arena, context.slot);
  const found = nextFlushOf(context, request);
  leave(context.slot);
  return found ? 1 : 0;
}

/** The host will answer a FLUSH `count` times instead of once per range. */
export function setFlushAnswers(qp: QueuePair, job: u32, serial: u32, count: u32): void {
  expectAnswers(qp, job, serial, count);
}

/** One of the host's answers to a FLUSH. `failed`: 1: it is not durable, and never will be. */
export function advanceFlush(
  context: Context,
  qp: QueuePair,
  job: u32,
  serial: u32,
  failed: u32,
): void {
  takeAnswer(context, qp, job, serial, failed != 0);
}

/** Fills send buffer `buffer`; returns how many packets it holds, 0: nothing to send. */
export function nextPackets(context: Context, buffer: u32): u32 {
  enter(context.arena, context.slot);
  const count = fillBuffer(context, buffer);
  leave(context.slot);
  return count;
}

/** Time has passed: what is due, happens. */
export function advance(context: Context, now: f64): void {
  setNow(context, now);
  enter(context.arena, context.slot);
  for (
    let node = dueTimer(context.timers, context.now);
    node != null;
    node = dueTimer(context.timers, context.now)
  ) {
    const path = pathOfTimer(context, node);
    if (path != null) resumePath(context, path);
    else timerFired(context, queuePairOfTimer(node));
  }
  scheduleDueFences(context);
  sendDelayedAcks(context);
  leave(context.slot);
}

/** When `advance` is to be called next, in microseconds; 0: not before the next input. */
export function nextDeadline(context: Context): f64 {
  return <f64>earliestDeadline(context);
}

/** The same for delayed acknowledgements: `advance` may be a millisecond or two later. */
export function nextDelayedAck(context: Context): f64 {
  return <f64>context.delayedAckMicros;
}

/** Exported: `setPacketAuth`. */
export function setQpAuth(context: Context, qp: QueuePair, memory: usize): u32 {
  return setPacketAuth(context, qp, memory);
}

/** Exported: `rotateSendKey`. */
export function qpRotateKey(context: Context, qp: QueuePair): u32 {
  return rotateSendKey(context, qp);
}

/**
 * Exported for tests, and for what the host authenticates besides packets: encrypts, in place, what
 * lies behind the first `plain` of `length` bytes at `data`, and writes the tag of all of them to
 * `tag`. `key`: 32 bytes; the nonce is 4 zero bytes, then `nonceLow` and `nonceHigh`.
 */
export function aeadSeal(
  context: Context,
  key: usize,
  nonceLow: u32,
  nonceHigh: u32,
  data: usize,
  length: u32,
  plain: u32,
  tag: usize,
): void {
  if (!PACKET_AUTH) return;
  const scratch = context.authScratch;
  const nonce = ((<u64>nonceHigh) << 32) | nonceLow;
  aeadCrypt(scratch, key, nonce, data + <usize>plain, length - plain);
  aeadTag(scratch, key, nonce, data, length, plain, tag);
}

/** The reverse. 1: the tag fits, and the bytes are decrypted; 0: nothing has changed. */
export function aeadOpen(
  context: Context,
  key: usize,
  nonceLow: u32,
  nonceHigh: u32,
  data: usize,
  length: u32,
  plain: u32,
  tag: usize,
): u32 {
  if (!PACKET_AUTH) return 0;
  const scratch = context.authScratch;
  const nonce = ((<u64>nonceHigh) << 32) | nonceLow;
  if (!aeadVerify(scratch, key, nonce, data, length, plain, tag)) return 0;
  aeadCrypt(scratch, key, nonce, data + <usize>plain, length - plain);
  return 1;
}

/** Checks whether the peer of a queue pair sent a packet; if not, sends a probe: a PeerState. */
export function postProbe(context: Context, qp: QueuePair, now: f64): u32 {
  context.now = max<u64>(context.now, <u64>now);
  return probePeer(context, qp);
}

/** Takes part in a pool of regions as PoolParameters say, or makes it. An Errno. */
export function poolOpen(context: Context, parameters: PoolParameters): u32 {
  return openPool(context.arena, context.slotIndex, parameters);
}

/** Leaves a pool. An Errno; EAGAIN: the last member frees its regions first. */
export function poolClose(context: Context, pool: u32): u32 {
  return closePool(context.arena, context.slotIndex, pool);
}

/** Makes a user of a pool as PoolUserParameters say. An Errno. */
export function poolAddUser(context: Context, parameters: PoolUserParameters): u32 {
  return addUser(context.arena, context.slotIndex, parameters);
}

export function poolRemoveUser(context: Context, user: u32): u32 {
  return removeUser(context.arena, context.slotIndex, user);
}

/** The user lends `count` of its own regions; a negative count takes them back. */
export function poolLend(context: Context, user: u32, count: i32): void {
  lendOwn(context.arena, user, count);
}

/** A region of this context joins a pool, in the pool's own hand. An Errno. */
export function poolAdd(context: Context, pool: u32, key: u32, mark: u32): u32 {
  return addNode(context.arena, context.slotIndex, pool, key, mark);
}

/** A region in the pool's own hand is the context's again. An Errno. */
export function poolRemove(context: Context, pool: u32, index: u32): u32 {
  return removeNode(context.arena, context.slotIndex, pool, index);
}

/** A region for a user (index + 1): PoolTake. Wait-free. */
export function poolTake(context: Context, pool: u32, user: u32, bucket: u32, borrowed: u32): u32 {
  return takeNode(context.arena, context.slotIndex, pool, user, bucket, borrowed);
}

/** Gives a region back. An Errno. Wait-free. */
export function poolGive(context: Context, pool: u32, user: u32, bucket: u32, index: u32): u32 {
  return giveNode(context.arena, context.slotIndex, pool, user, bucket, index);
}

/** Up to `count` regions of a bucket go to the pool. */
export function poolDrain(context: Context, pool: u32, bucket: u32, count: u32): void {
  drainBucket(context.arena, context.slotIndex, pool, bucket, count);
}

/** Free regions. */
export function poolFree(context: Context, pool: u32): u32 {
  const arena = context.arena;
  return countFree(arena, poolAt(arena, pool));
}

/** Invalidates a region for REG_MR without a queue pair. Returns an Errno. */
export function killFastMr(context: Context, key: u32): u32 {
  return revokeFast(context.arena, context.slotIndex, key);
}

/** 1: no engine can still access the memory of the invalidated region. */
export function mrRevoked(context: Context, key: u32): u32 {
  return fastRevoked(context.arena, key) ? 1 : 0;
}

/** Looks a key up as the data path does: the linear address, or 0. */
export function lookupKey(
  context: Context,
  key: u32,
  pd: u32,
  addressHigh: u32,
  addressLow: u32,
  length: u32,
  access: u32,
): usize {
  const address = ((<u64>addressHigh) << 32) | addressLow;
  return translate(context.arena, key, pd, address, length, access);
}

/** The whole codec: packet to PacketFields. A PacketStatus. */
export function parse(context: Context, packet: usize, length: u32, fields: PacketFields): u32 {
  return parsePacket(context.opcodeTable, packet, length, fields);
}

/** PacketFields to headers; returns their bytes, 0: no such opcode. */
export function build(context: Context, packet: usize, fields: PacketFields): u32 {
  return buildPacket(context.opcodeTable, packet, fields);
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
  context: Context,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  packet: usize,
  length: u32,
): u32 {
  const begin = startOf(context.icrcTables, family, source, target, sourcePort, targetPort, length);
  return icrcOf(context.icrcTables, context.crcScratch, begin, packet, length);
}

/** The same, covering the packet twice: how rxe computes the ICRC of a FLUSH request. */
export function icrcDoubled(
  context: Context,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  packet: usize,
  length: u32,
): u32 {
  const begin = startOf(context.icrcTables, family, source, target, sourcePort, targetPort, length);
  return icrcOfDoubled(context.icrcTables, context.crcScratch, begin, packet, length);
}

/** IPv4 identification that explains the difference between two ICRCs, or -1. */
export function ipIdOf(context: Context, difference: u32, length: u32): i32 {
  return icrcSolveIpId(context.icrcTables, difference, length);
}
