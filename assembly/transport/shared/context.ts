/**
 * A context: the state of one engine, behind one address. State that several engines share lies in
 * the arena (memory/arena.ts). Only the engine that runs this context writes here; its host reads.
 * ```
 *  | Context | Counters | CRC scratch | lanes | timers | QP index | queue pairs | CQs |
 *  | local path | events | doorbells | receive descriptors | send descriptors |
 *  | receive bytes | send buffers |
 * ```
 */
import { AEAD_SCRATCH_SIZE } from '../../crypto/aead';
import { Arena, ContextSlot, contextSlot } from '../../memory/arena';
import { powerOfTwo, roundUp } from '../../memory/bytes';
import { withdrawAllFrom } from '../../memory/local-channel';
import { LOCAL_MESSAGE_SIZE } from '../../memory/local-sizes';
import { List, append, prepend, removeFrom, takeFirst } from '../../memory/list';
import { RING_HEADER_SIZE, ringHead, ringInit, ringTail, setRingHead } from '../../memory/ring';
import { CRC_SCRATCH_SIZE, initCrcScratch } from '../../wire/crc32';
import { DEFAULT_PKEY } from '../../wire/headers';
import { ICRC_LANES_SCRATCH_SIZE } from '../../wire/icrc-lanes';
import { PACKET_SIZE_MAX } from '../../wire/packet';
import { Counters } from './counters';
import { LOCAL_BOUNCE_SIZE, LOCAL_TARGET_SIZE, LocalTarget } from './local-target';
import { PATH_SIZE, Path } from './path';
import { QUEUE_PAIR_SIZE, QueuePair } from './queue-pair';
import {
  COMPLETION_QUEUE_SIZE,
  CompletionQueue,
  SHARED_RECEIVE_QUEUE_SIZE,
  SharedReceiveQueue,
} from './queues';
import { TIMER_WHEEL_SIZE, TimerNode, TimerWheel, initTimers } from './timer-wheel';

export const CONTEXT_MAGIC: u32 = 0x56425243;

/** Packets that one send buffer holds at most. */
export const SEND_BUFFER_PACKETS: u32 = 128;
/** Bytes of one send buffer: a WRITE of 64 KiB in packets of 1 KiB, and room for one packet. */
export const SEND_BUFFER_SIZE: u32 = 71680;
/** A packet may begin up to here: the packets before it fill a UDP super-packet. */
const BUFFER_LIMIT: u32 = 65536 - PACKET_SIZE_MAX;
/** The same where a message begins that ends in this buffer. */
const BUFFER_LIMIT_MAX: u32 = SEND_BUFFER_SIZE - PACKET_SIZE_MAX;

/** Configuration, which the host sets at open. */
@unmanaged
export class ContextConfig {
  localGid0: u64;
  localGid1: u64;
  /** Index of this context in the arena. */
  slot: u32;
  queuePairsMax: u32;
  completionQueuesMax: u32;
  sharedReceiveQueuesMax: u32;
  addressHandlesMax: u32;
  /** Memberships of queue pairs in multicast groups. */
  multicastMax: u32;
  /** The one P_Key, with its membership bit; 0: the default partition, as a full member. */
  pkey: u32;
  /** Reads and atomics in flight per queue pair and direction. */
  rdAtomicMax: u32;
  sendBuffers: u32;
  /** Packets that one call of `receivePackets` takes at most. */
  receivePackets: u32;
  /** Bytes of the area that those packets lie in. */
  receiveBytes: u32;
  /** Entries of the event ring, a power of two. */
  eventsMax: u32;
  /**
   * Half of what a peer's receive buffer holds when it does not say, and half of our own, in the
   * units of requester.ts `charge`.
   */
  windowCharge: u32;
  receiveCharge: u32;
  /** Bound of a queue pair's charge in flight, whatever the peer could hold. */
  windowChargeMax: u32;
  /** Packets in flight of a path, and of a path that nothing is known about. */
  windowPackets: u32;
  initialWindowPackets: u32;
  /** A PseudoHeader, for every path of this context. */
  pseudoHeader: u32;
  localPort: u32;
  /** Longest packet the link carries, BTH to ICRC. */
  packetSizeMax: u32;
  /** Does the link itself bound what is under way, and slow down? */
  paced: u32;
  /** 1: queue pairs of this context may address each other without packets. */
  localPath: u32;
  /** A CongestionControl, or a target for round trips in microseconds. */
  congestionControl: u32;
}

/** Public fields are read by the host through exported offsets. */
@unmanaged
export class Context {
  /** Monotonic microseconds of the last input. */
  now: u64;
  localGid0: u64;
  localGid1: u64;
  /** When delayed acknowledgements are sent; 0: no acknowledgement is delayed. */
  delayedAckMicros: u64;
  /** When the fences of invalidations are checked again; 0: no fence is pending. */
  fenceMicros: u64;
  magic: u32;
  size: u32;
  arena: Arena;
  slot: ContextSlot;
  slotIndex: u32;
  /** The arena's read-only tables. */
  opcodeTable: usize;
  icrcTables: usize;
  crcScratch: usize;
  counters: Counters;
  timers: TimerWheel;
  queuePairIndex: usize;
  queuePairIndexMask: u32;
  queuePairs: usize;
  queuePairsMax: u32;
  queuePairFree: usize;
  queuePairCount: u32;
  /** The slot that is kept for the general services queue pair. */
  generalServices: usize;
  completionQueues: usize;
  completionQueuesMax: u32;
  completionQueueFree: usize;
  completionQueueCount: u32;
  sharedReceiveQueues: usize;
  sharedReceiveQueuesMax: u32;
  sharedReceiveQueueFree: usize;
  addressHandles: usize;
  addressHandlesMax: u32;
  addressHandleFree: usize;
  /** Table of Membership. */
  multicast: usize;
  multicastMax: u32;
  multicastCount: u32;
  /** 64 bytes for a global routing header in the making, then a path for strangers' packets. */
  grh: usize;
  strangerPath: Path;
  /** Queue pairs with something to send, first in first out. */
  readyFirst: usize;
  readyLast: usize;
  /** Queue pairs with a delayed acknowledgement (responder/delayed-ack.ts). */
  delayedAckFirst: usize;
  delayedAckLast: usize;
  /** Queue pairs with a pending invalidation fence (invalidation-fence.ts). */
  fenceFirst: usize;
  fenceLast: usize;
  /** Slot + 1 of the context that blocked the fence at the last check; 0: no context did. */
  fenceHolder: u32;
  /** Written by prefetch.ts, so that its loads are not optimised away; never read. */
  prefetched: u32;
  /** Queue pairs that have FLUSHes for the host; 0: none. */
  flushFirst: usize;
  flushLast: usize;
  /** Serial number of the last FLUSH for the host. */
  flushSerial: u32;
  events: usize;
  eventsMax: u32;
  /** Ring of queue pairs with new requests (queue/doorbell.ts). */
  doorbells: usize;
  receiveDescriptors: usize;
  receivePackets: u32;
  receiveArea: usize;
  receiveBytes: u32;
  sendDescriptors: usize;
  sendArea: usize;
  sendBuffers: u32;
  rdAtomicMax: u32;
  windowCharge: u32;
  windowChargeMax: u32;
  receiveCharge: u32;
  /** Table of PathState. */
  pathStates: usize;
  windowPackets: u32;
  initialWindowPackets: u32;
  pseudoHeader: u32;
  localPort: u32;
  pkey: u32;
  packetSizeMax: u32;
  paced: u32;
  congestionControl: u32;
  /** The send buffer that `nextPackets` fills. */
  buffer: usize;
  bufferDescriptor: usize;
  bufferUsed: u32;
  bufferCount: u32;
  /** No packet begins behind this many bytes of the buffer (`beginMessage`). */
  bufferLimit: u32;
  /** Where icrc-lanes.ts works. */
  lanes: usize;
  /** Work area of packet-auth.ts, and queue pairs that have keys. */
  authScratch: usize;
  authenticated: u32;
  /** How many packets at the end of the buffer, of one length, lack an ICRC (send-buffer.ts). */
  unsealed: u32;
  unsealedLength: u32;
  /** The ICRC of the packet that is received, if it has this length and start; 0: not known. */
  aheadLength: u32;
  aheadStart: u32;
  aheadIcrc: u32;
  /** The local path: 1 if it is allowed; the target of the current turn; a buffer. */
  localPath: u32;
  localTarget: LocalTarget;
  localBounce: usize;
  /** Slots of reorder buffers (reorder-pool.ts): a list of free ones, how many, and all. */
  reorderFree: usize;
  reorderFreeCount: u32;
  reorderSlots: u32;
  /** Packets that all queue pairs may keep. */
  reorderDemand: u32;
  /** 1: an event asks the host for more slots. */
  reorderAsked: u32;
  /** Bytes that it may still copy in this call of `nextPackets`; 1: it copied them all. */
  localLeft: u32;
  localPaused: u32;
  /** Channels (memory/local-channel.ts): the count of announcements at the last look, */
  announcedSeen: u32;
  /** the number of the last run of messages, a copy of the current one, */
  localRuns: u32;
  localMessage: usize;
  /** bits of the contexts whose sleeping threads the host is to wake, how many, */
  wakes: usize;
  wakeCount: u32;
  /** and how many when the call of `nextPackets` began. */
  wakesBefore: u32;
  /** 1: the packet that is being received has not left this context. */
  isLooping: u32;
  /** 1: the last wait for other contexts was in vain (local-endpoint.ts). */
  impatient: u32;
}
/** A bit for each of 256 contexts. */
export const WAKES_SIZE: u32 = 32;

/** Where datagrams go: 16 bytes, then a Path. */
@unmanaged
export class AddressHandle {
  nextFree: usize;
  /** 0 while the slot is free. */
  pd: u32;
  reserved: u64;
}
export const ADDRESS_HANDLE_PATH: u32 = 16;
export const ADDRESS_HANDLE_SIZE: u32 = ADDRESS_HANDLE_PATH + PATH_SIZE;

/** A queue pair's membership in a multicast group. 24 bytes. */
@unmanaged
export class Membership {
  gid0: u64;
  gid1: u64;
  /** 0: the place is free. */
  queuePair: usize;
  reserved: u32;
}
export const MEMBERSHIP_SIZE: u32 = 24;

/** Entry that `nextPackets` writes, one per packet. 16 bytes. */
@unmanaged
export class SendDescriptor {
  address: u32;
  length: u32;
  /** Address of the Path: where it goes. */
  path: u32;
  qpn: u32;
}
export const SEND_DESCRIPTOR_SIZE: u32 = 16;

/** Entry that the host writes, one per received packet. 48 bytes. */
@unmanaged
export class ReceiveDescriptor {
  sourceGid0: u64;
  sourceGid1: u64;
  /** The multicast group it was sent to; 0: to us alone. */
  targetGid0: u64;
  targetGid1: u64;
  address: u32;
  length: u32;
  sourcePort: u32;
  /** Not 0: the range holds packets of this size, the last may be shorter (receive offload). */
  segmentSize: u32;
}
export const RECEIVE_DESCRIPTOR_SIZE: u32 = 48;

/**
 * Congestion control of a path: what the queue pairs of this device to one peer share
 * (path-control.ts). Times are low 32 bits of microseconds.
 */
@unmanaged
export class PathState {
  /** The peer. */
  gid0: u64;
  gid1: u64;
  /** When the last packet in flight had arrived; 0: none has. */
  idleMicros: u64;
  /** CUBIC: when the window reaches `windowMax` again, in seconds after `epochMicros`. */
  plateauSeconds: f64;
  /** CUBIC: the window that Reno would have, in packets. */
  renoPackets: f64;
  /** Pacing: when all that was sent will have left at the rate of the path, in microseconds. */
  leftMicros: f64;
  /** Share of packets that were lost; and of those that were lost while there was no queue. */
  lossShare: f64;
  linkLossShare: f64;
  /** Share of recent packets with a congestion mark; 0: no mark arrived yet. */
  markShare: f64;
  /** Packets that may be in flight, in 1/256; and how that grows (path-control.ts). */
  window: u32;
  growth: u32;
  /** CUBIC: the window before the last cut, in packets; the beginning of the growth since, or 0. */
  windowMax: u32;
  /** CUBIC: window and growth before the last cut, until its loss turns out to be one; or 0. */
  uncut: u32;
  epochMicros: u32;
  cutMicros: u32;
  /** Smoothed round trip, its variation, and the least of some seconds, in microseconds; or 0. */
  roundTripMicros: u32;
  variationMicros: u32;
  roundTripLeast: u32;
  leastMicros: u32;
  /** The least of the round trips since `leastMicros`, which follows. */
  leastNext: u32;
  /** Least round trip of this round, its begin; the most of recent `roundLeast`s. */
  roundLeast: u32;
  roundMicros: u32;
  roundMost: u32;
  /** Consecutive rounds with and without a queue. */
  queuedRounds: u16;
  freeRounds: u16;
  /** Packets that arrived since `rateMicros`; the most of a recent round trip. */
  roundArrived: u32;
  rateMicros: u32;
  rateMost: u32;
  /** The first of the last round trips that a queue made longer, without one between; 0: none. */
  queuedFirst: u32;
  /** How late a packet may arrive before it counts as lost, and since when that is so. */
  lateMicros: u32;
  lateSince: u32;
  /** When the last packet arrived. After a timeout slow start ends at this window, in 1/256. */
  arrivedMicros: u32;
  slowUntil: u32;
  /** When the last round trip with a mark began; congestion notifications since then. */
  markMicros: u32;
  markCount: u32;
  /** Round trip of a handshake, until one is measured; 0: not known. */
  seedMicros: u32;
  /** When the variation was last doubled, since an early repetition was needless. */
  hastyMicros: u32;
  /** When a round trip last counted in which the timer fired. */
  doubtMicros: u32;
  /** The last path MTU that was proven too large, and when (`notePathMtu`); 0: none. */
  provenMtu: u32;
  /** Queue pairs with this path; those with packets in flight, and all of these packets. */
  users: u32;
  busy: u32;
  inFlight: u32;
  /** Charge that the peer's receive buffer takes at a time. */
  charge: u32;
  /** Queue pairs whose turn has come, that wait for the window, and timeouts of these in a row. */
  granted: u32;
  waiting: u16;
  stalls: u16;
  /** A List of the queue pairs that wait for pacing or for the window. */
  heldFirst: usize;
  heldLast: usize;
}
/** The struct above, then a timer. */
export const PATH_TIMER: u32 = 224;
export const PATH_STATE_SIZE: u32 = 256;
/** Entries, a power of two; a hash of the GID selects where the peer's is looked for. */
export const PATH_STATES: u32 = 256;

/** An entry of the event ring, 16 bytes. */
@unmanaged
export class EngineEvent {
  /** An EventKind. */
  kind: u32;
  /** EventKind.ASYNC: an AsyncEvent. */
  event: u32;
  /** Address of the object it concerns. */
  object: u32;
  reserved: u32;
}
export const ENGINE_EVENT_SIZE: u32 = 16;

export enum EventKind {
  /** A completion queue that was armed has a completion. */
  COMPLETION = 1,
  /** An asynchronous event. */
  ASYNC = 2,
  /** Reorder buffers could use more memory (reorder-pool.ts). */
  REORDER_SHORT = 3,
}

/** Bytes of the ring of doorbells, and of a flag per place of a queue pair (doorbell.ts). */
function doorbellBytes(places: u32): u32 {
  return RING_HEADER_SIZE + 4 * (powerOfTwo(places) + places);
}

function indexSlots(config: ContextConfig): u32 {
  return powerOfTwo(config.queuePairsMax * 2);
}

/** Lays the context out; writes nothing when `context` is null. Returns its size. */
function layout(context: Context | null, base: u32, config: ContextConfig): u32 {
  const counters = base + roundUp(<u32>offsetof<Context>(), 64);
  const scratch = roundUp(counters + <u32>offsetof<Counters>(), 64);
  const lanes = roundUp(scratch + <u32>CRC_SCRATCH_SIZE, 64);
  const authScratch = roundUp(lanes + <u32>ICRC_LANES_SCRATCH_SIZE, 64);
  const shares = roundUp(authScratch + AEAD_SCRATCH_SIZE, 64);
  const timers = shares + PATH_STATES * PATH_STATE_SIZE;
  const index = roundUp(timers + TIMER_WHEEL_SIZE, 64);
  const queuePairs = roundUp(index + indexSlots(config) * 4, 64);
  // One more slot, for the general services queue pair.
  const completionQueues = queuePairs + (config.queuePairsMax + 1) * QUEUE_PAIR_SIZE;
  const srqs = completionQueues + config.completionQueuesMax * COMPLETION_QUEUE_SIZE;
  const handles = srqs + config.sharedReceiveQueuesMax * SHARED_RECEIVE_QUEUE_SIZE;
  const multicast = handles + config.addressHandlesMax * ADDRESS_HANDLE_SIZE;
  const grh = roundUp(multicast + config.multicastMax * MEMBERSHIP_SIZE, 64);
  const localTarget = grh + 64 + PATH_SIZE;
  const localMessage = roundUp(localTarget + LOCAL_TARGET_SIZE, 64);
  const wakes = localMessage + LOCAL_MESSAGE_SIZE;
  const localBounce = roundUp(wakes + WAKES_SIZE, 64);
  const events = localBounce + LOCAL_BOUNCE_SIZE;
  const doorbells = roundUp(events + RING_HEADER_SIZE + config.eventsMax * ENGINE_EVENT_SIZE, 64);
  const receives = roundUp(doorbells + doorbellBytes(config.queuePairsMax + 1), 64);
  const sends = receives + config.receivePackets * RECEIVE_DESCRIPTOR_SIZE;
  const descriptors = config.sendBuffers * SEND_BUFFER_PACKETS * SEND_DESCRIPTOR_SIZE;
  const receiveArea = roundUp(sends + descriptors, 64);
  const sendArea = roundUp(receiveArea + config.receiveBytes, 64);
  const end = sendArea + config.sendBuffers * SEND_BUFFER_SIZE;
  if (context != null) {
    context.counters = changetype<Counters>(<usize>counters);
    context.crcScratch = scratch;
    context.lanes = lanes;
    context.authScratch = authScratch;
    context.pathStates = shares;
    context.timers = changetype<TimerWheel>(<usize>timers);
    context.queuePairIndex = index;
    context.queuePairs = queuePairs;
    context.generalServices = completionQueues - QUEUE_PAIR_SIZE;
    context.completionQueues = completionQueues;
    context.sharedReceiveQueues = srqs;
    context.addressHandles = handles;
    context.multicast = multicast;
    context.grh = grh;
    context.strangerPath = changetype<Path>(<usize>grh + 64);
    context.localTarget = changetype<LocalTarget>(<usize>localTarget);
    context.localBounce = localBounce;
    context.localMessage = localMessage;
    context.wakes = wakes;
    context.events = events;
    context.doorbells = doorbells;
    context.receiveDescriptors = receives;
    context.sendDescriptors = sends;
    context.receiveArea = receiveArea;
    context.sendArea = sendArea;
  }
  return end - base;
}

export function contextBytes(config: ContextConfig): u32 {
  return layout(null, 0, config);
}

/** `context`: contextBytes(config) zero bytes, 64-byte aligned. */
export function initContext(context: Context, arena: Arena, config: ContextConfig, now: u64): void {
  context.size = layout(context, <u32>changetype<usize>(context), config);
  context.arena = arena;
  context.slotIndex = config.slot;
  context.slot = contextSlot(arena, config.slot);
  context.opcodeTable = arena.opcodeTable;
  context.icrcTables = arena.icrcTables;
  context.now = now;
  context.queuePairIndexMask = indexSlots(config) - 1;
  context.queuePairsMax = config.queuePairsMax;
  context.completionQueuesMax = config.completionQueuesMax;
  context.sharedReceiveQueuesMax = config.sharedReceiveQueuesMax;
  context.addressHandlesMax = config.addressHandlesMax;
  context.multicastMax = config.multicastMax;
  context.rdAtomicMax = config.rdAtomicMax;
  context.eventsMax = config.eventsMax;
  context.receivePackets = config.receivePackets;
  context.receiveBytes = config.receiveBytes;
  context.sendBuffers = config.sendBuffers;
  context.windowCharge = config.windowCharge;
  context.receiveCharge = config.receiveCharge;
  context.windowChargeMax = config.windowChargeMax;
  context.windowPackets = config.windowPackets;
  context.initialWindowPackets = min<u32>(config.initialWindowPackets, config.windowPackets);
  context.pseudoHeader = config.pseudoHeader;
  context.localPort = config.localPort;
  context.pkey = config.pkey == 0 ? DEFAULT_PKEY : config.pkey;
  context.localGid0 = config.localGid0;
  context.localGid1 = config.localGid1;
  context.packetSizeMax = config.packetSizeMax;
  context.paced = config.paced;
  context.congestionControl = config.congestionControl;
  context.localPath = config.localPath;
  initCrcScratch(context.crcScratch);
  initTimers(context.timers, now);
  ringInit(context.events);
  context.queuePairFree = freeList(
    context.queuePairs,
    config.queuePairsMax,
    QUEUE_PAIR_SIZE,
    offsetof<QueuePair>('nextFree'),
  );
  context.completionQueueFree = freeList(
    context.completionQueues,
    config.completionQueuesMax,
    COMPLETION_QUEUE_SIZE,
    offsetof<CompletionQueue>('nextFree'),
  );
  context.sharedReceiveQueueFree = freeList(
    context.sharedReceiveQueues,
    config.sharedReceiveQueuesMax,
    SHARED_RECEIVE_QUEUE_SIZE,
    offsetof<SharedReceiveQueue>('nextFree'),
  );
  context.addressHandleFree = freeList(
    context.addressHandles,
    config.addressHandlesMax,
    ADDRESS_HANDLE_SIZE,
    offsetof<AddressHandle>('nextFree'),
  );
  context.slot.port = config.localPort;
  context.slot.context = changetype<usize>(context);
  withdrawAllFrom(arena, config.slot);
  context.magic = CONTEXT_MAGIC;
}

/** Links `count` slots of `size` bytes through the word at `field`; returns the first. */
function freeList(slots: usize, count: u32, size: u32, field: usize): usize {
  let first: usize = 0;
  for (let index = count; index > 0; index--) {
    const slot = slots + <usize>((index - 1) * size);
    store<u32>(slot + field, <u32>first);
    first = slot;
  }
  return first;
}

/** Tells the host. When the ring is full the event is counted as lost. */
export function pushEvent(context: Context, kind: u32, event: u32, object: usize): void {
  const ring = context.events;
  const head = ringHead(ring);
  if (head - ringTail(ring) >= context.eventsMax) {
    context.counters.eventsLost++;
    return;
  }
  const index = head & (context.eventsMax - 1);
  const at = ring + RING_HEADER_SIZE + <usize>(index * ENGINE_EVENT_SIZE);
  const entry = changetype<EngineEvent>(at);
  entry.kind = kind;
  entry.event = event;
  entry.object = <u32>object;
  setRingHead(ring, head + 1);
}

function readyList(context: Context): List {
  return changetype<List>(changetype<usize>(context) + offsetof<Context>('readyFirst'));
}

/** Puts a queue pair at the end of the list of those that may have packets to send. */
export function schedule(context: Context, qp: QueuePair): void {
  append(readyList(context), changetype<usize>(qp) + offsetof<QueuePair>('readyLink'));
}

/**
 * The same after its turn, before which the buffer had this many packets. A queue pair that sent
 * nothing because its message begins the next buffer (`beginMessage`) goes to the front.
 */
export function scheduleAgain(context: Context, qp: QueuePair, packetsBefore: u32): void {
  if (context.bufferLimit != 0 || context.bufferCount != packetsBefore) schedule(context, qp);
  else prepend(readyList(context), changetype<usize>(qp) + offsetof<QueuePair>('readyLink'));
}

export function pathTimer(state: PathState): TimerNode {
  return changetype<TimerNode>(changetype<usize>(state) + <usize>PATH_TIMER);
}

/** The path of this timer, or null: it is the timer of a queue pair. */
export function pathOfTimer(context: Context, node: TimerNode): PathState | null {
  const at = changetype<usize>(node) - context.pathStates;
  if (at >= <usize>(PATH_STATES * PATH_STATE_SIZE)) return null;
  return changetype<PathState>(changetype<usize>(node) - <usize>PATH_TIMER);
}

/** Takes the queue pair that has waited longest; null: no queue pair is ready. */
export function takeReady(context: Context): QueuePair | null {
  const link = takeFirst(readyList(context));
  return link == 0 ? null : changetype<QueuePair>(link - offsetof<QueuePair>('readyLink'));
}

/** Removes a queue pair from the ready list: reset or destroyed. */
export function unschedule(context: Context, qp: QueuePair): void {
  removeFrom(readyList(context), changetype<usize>(qp) + offsetof<QueuePair>('readyLink'));
}

/** Is there room for one more packet, whatever its size? */
export function hasRoom(context: Context): bool {
  return context.bufferCount < SEND_BUFFER_PACKETS && context.bufferUsed <= context.bufferLimit;
}

/** An empty buffer. */
export function beginBuffer(context: Context, buffer: usize, descriptor: usize): void {
  context.buffer = buffer;
  context.bufferDescriptor = descriptor;
  context.bufferUsed = 0;
  context.bufferCount = 0;
  context.bufferLimit = BUFFER_LIMIT;
}

/**
 * A message of `size` bytes begins. If it fits a buffer, it lies in one: this one, or the next, and
 * then there is no more room in this one. A run of the kernel's segments ends with the buffer, so a
 * cut costs one more. False: the next one.
 */
export function beginMessage(context: Context, size: u32): bool {
  const end = context.bufferUsed + size;
  if (end <= BUFFER_LIMIT || size > BUFFER_LIMIT_MAX) return true;
  context.bufferLimit = end <= BUFFER_LIMIT_MAX ? BUFFER_LIMIT_MAX : 0;
  return context.bufferLimit != 0;
}

/** Where the next packet goes. */
export function packetStart(context: Context): usize {
  return context.buffer + context.bufferUsed;
}

/** Slot of a queue pair number in the context's index. */
export function indexAt(context: Context, qpn: u32): usize {
  return context.queuePairIndex + <usize>((qpn & context.queuePairIndexMask) << 2);
}

/** The queue pair of that number, or null. */
export function findQueuePair(context: Context, qpn: u32): QueuePair | null {
  const at = <usize>load<u32>(indexAt(context, qpn));
  if (at == 0) return null;
  const qp = changetype<QueuePair>(at);
  return qp.qpn == qpn ? qp : null;
}
