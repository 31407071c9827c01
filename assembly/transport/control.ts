/**
 * Control verbs: create, modify, resize and destroy queue pairs, completion queues, shared receive
 * queues and address handles. They return an Errno; on any other than OK they have changed nothing.
 */
import { nextBinding, setReachesAll } from '../memory/arena';
import { Errno } from '../memory/errno';
import { LOCAL_PATH, slotOfNumber } from '../memory/local-endpoint';
import {
  RING_HEADER_SIZE,
  ringCount,
  ringHead,
  ringInit,
  ringTail,
  setRingHead,
  setRingTail,
} from '../memory/ring';
import { AccessFlag } from '../region/access-flag';
import { releaseProtectionDomain, useProtectionDomain } from '../region/protection-domain';
import { MTU_BYTES_MAX } from '../wire/packet';
import { PSN_MASK } from '../wire/psn';
import { MULTICAST_QPN, pathOfHandle } from './datagram/datagram';
import { leaveAll } from './datagram/multicast';
import { usesLocalPath } from './local/target';
import { enterError } from './queue/completion';
import { charge, openCongestionWindow } from './requester/congestion-window';
import { noteDrained } from './requester/requester';
import { forgetRepairs } from './requester/retransmit';
import { forgetDelayedAck } from './responder/delayed-ack';
import { forgetFlushes } from './responder/flush';
import { AddressHandle, Context, indexAt, schedule, unschedule } from './shared/context';
import { forgetFence } from './shared/invalidation-fence';
import { updateLocalEndpoint, withdrawAndWait } from './shared/local-endpoint';
import { abandonMessages } from './shared/local-messages';
import { forgetPacketAuth } from './shared/packet-auth';
import { markOf } from './shared/packet-mark';
import { Path, preparePath } from './shared/path';
import { joinPath, leavePath } from './shared/path-control';
import {
  GENERAL_SERVICES_QPN,
  MessageKind,
  QueuePair,
  QueuePairParameters,
  RANDOM_QPNS,
  RESOURCE_SIZE,
  checksOf,
  forgetAnswers,
  initQueuePair,
  pathOf,
  timerOf,
} from './shared/queue-pair';
import {
  CompletionQueue,
  CqNotify,
  SHARED_RECEIVE_QUEUE_SIZE,
  SharedReceiveQueue,
  WORK_COMPLETION_SIZE,
  WorkCompletion,
} from './shared/queues';
import { dropDemand, forgetAhead, noteDemand } from './shared/reorder-pool';
import { QpAttribute, transitionAllowed } from './shared/state-machine';
import { Mtu, QpState, QpType } from './shared/status';
import { removeTimer } from './shared/timer-wheel';
import { RECEIVE_REQUEST_SIZE, SGE_SIZE } from './shared/work-request';

/** BTH and the largest headers, pad and ICRC: what a path MTU adds to its payload. */
const PACKET_OVERHEAD: u32 = 64;
/** Fixed by the 24-bit number's layout: 8 bits of socket slot, 16 random ones. */
const QPN_RANDOM_MASK: u32 = 0xffff;

/**
 * A completion queue over `ring`, which has room for `entries`. Returns its address, or 0 when
 * none is free.
 */
export function createCompletionQueue(context: Context, ring: usize, entries: u32): usize {
  const at = context.completionQueueFree;
  if (at == 0) return 0;
  const cq = changetype<CompletionQueue>(at);
  context.completionQueueFree = cq.nextFree;
  context.completionQueueCount++;
  ringInit(ring);
  cq.nextFree = 0;
  cq.ring = ring;
  cq.entries = entries;
  cq.armed = CqNotify.NONE;
  cq.dead = 0;
  cq.ignoreOverrun = 0;
  cq.useCount = 0;
  return at;
}

/** EBUSY while a queue pair names it. */
export function destroyCompletionQueue(context: Context, cq: CompletionQueue): u32 {
  if (cq.ring == 0) return Errno.EINVAL;
  if (cq.useCount > 0) return Errno.EBUSY;
  cq.ring = 0;
  cq.nextFree = context.completionQueueFree;
  context.completionQueueFree = changetype<usize>(cq);
  context.completionQueueCount--;
  return Errno.OK;
}

/**
 * A queue pair in RESET. ENOMEM: none is free; EINVAL: no such PD; EOPNOTSUPP: type; EAGAIN: every
 * drawn number met one that is taken, come with fresh ones.
 */
export function createQueuePair(context: Context, parameters: QueuePairParameters): u32 {
  const type = parameters.type;
  const known = type == <u32>QpType.RC || type == <u32>QpType.UC || type == <u32>QpType.UD;
  if (!known) return Errno.EOPNOTSUPP;
  const special = parameters.number != 0;
  if (special && !takesGeneralServices(context, parameters)) return Errno.EINVAL;
  const at = special ? context.generalServices : context.queuePairFree;
  if (at == 0) return Errno.ENOMEM;
  if (!useProtectionDomain(context.arena, parameters.pd, context.slotIndex)) return Errno.EINVAL;
  const qpn = special ? GENERAL_SERVICES_QPN : drawNumber(context, parameters);
  if (qpn == 0) {
    releaseProtectionDomain(context.arena, parameters.pd, context.slotIndex);
    return Errno.EAGAIN;
  }
  const qp = changetype<QueuePair>(at);
  if (!special) context.queuePairFree = qp.nextFree;
  context.queuePairCount++;
  initQueuePair(qp, parameters, context.rdAtomicMax);
  noteDemand(context, qp.reorderMax);
  qp.binding = nextBinding(context.arena);
  qp.qpn = qpn;
  ringInit(qp.sendRing);
  ringInit(qp.receiveRing);
  qp.sendCq.useCount++;
  qp.receiveCq.useCount++;
  const srq = qp.srq;
  if (srq != null) srq.useCount++;
  store<u32>(indexAt(context, qpn), <u32>at);
  parameters.queuePair = <u32>at;
  parameters.qpn = qpn;
  parameters.sendRing = <u32>qp.sendRing;
  parameters.receiveRing = <u32>qp.receiveRing;
  parameters.sendStride = qp.sendStride;
  return Errno.OK;
}

/** Its number is fixed, and a context has only one. */
function takesGeneralServices(context: Context, parameters: QueuePairParameters): bool {
  return (
    parameters.number == GENERAL_SERVICES_QPN &&
    parameters.type == <u32>QpType.UD &&
    changetype<QueuePair>(context.generalServices).qpn == 0
  );
}

/**
 * As keys: drawn until its own place in the index is free, and its endpoint if one of the numbers
 * has such a place. Numbers 0, 1 and that of groups are the network's, and the place of the general
 * services queue pair is kept for it.
 */
function drawNumber(context: Context, parameters: QueuePairParameters): u32 {
  const random = changetype<usize>(parameters) + offsetof<QueuePairParameters>('random');
  let first: u32 = 0;
  for (let draw: u32 = 0; draw < RANDOM_QPNS; draw++) {
    const low = load<u32>(random + <usize>(draw << 2)) & QPN_RANDOM_MASK;
    const qpn = (context.slotIndex << 16) | low;
    const at = indexAt(context, qpn);
    if (qpn == 0 || qpn == MULTICAST_QPN) continue;
    if (at == indexAt(context, GENERAL_SERVICES_QPN)) continue;
    if (load<u32>(at) != 0) continue;
    if (hasEndpoint(context, qpn)) return qpn;
    if (first == 0) first = qpn;
  }
  return first;
}

/** Has no queue pair of the context the same place among the endpoints (local-endpoint.ts)? */
function hasEndpoint(context: Context, qpn: u32): bool {
  const step = context.arena.localEndpointsMax;
  if (!LOCAL_PATH || step == 0) return true;
  for (let low = qpn & (step - 1); low <= context.queuePairIndexMask; low += step) {
    if (load<u32>(indexAt(context, low)) != 0) return false;
  }
  return true;
}

export function destroyQueuePair(context: Context, qp: QueuePair): u32 {
  if (qp.qpn == 0) return Errno.EINVAL;
  removeEverywhere(context, qp);
  qp.sendCq.useCount--;
  qp.receiveCq.useCount--;
  const srq = qp.srq;
  if (srq != null) srq.useCount--;
  dropDemand(context, qp.reorderMax);
  releaseProtectionDomain(context.arena, qp.pd, context.slotIndex);
  store<u32>(indexAt(context, qp.qpn), 0);
  qp.qpn = 0;
  qp.state = QpState.RESET;
  context.queuePairCount--;
  if (changetype<usize>(qp) == context.generalServices) return Errno.OK;
  qp.nextFree = context.queuePairFree;
  context.queuePairFree = changetype<usize>(qp);
  return Errno.OK;
}

/**
 * Completions of a queue pair that is reset or gone are removed from its queues (IBA 10.2.4.4).
 * The consumer may take entries meanwhile, so they are not moved: their status stays, their queue
 * pair number becomes 0, and polling passes over them.
 */
function discardCompletions(cq: CompletionQueue, qpn: u32): void {
  const head = ringHead(cq.ring);
  // The tail is the consumer's word: no more is looked at than there can be.
  const count = min<u32>(head - ringTail(cq.ring), cq.entries);
  for (let index = head - count; index != head; index++) {
    const at = cq.ring + RING_HEADER_SIZE;
    const offset = (index & (cq.entries - 1)) * WORK_COMPLETION_SIZE;
    const completion = changetype<WorkCompletion>(at + <usize>offset);
    if (completion.qpn == qpn) completion.qpn = 0;
  }
}

/**
 * `ibv_modify_qp`. EINVAL: the change does not exist, or brings the wrong attributes, or a value is
 * out of range; EOPNOTSUPP: it speaks of path migration. Nothing has changed then.
 */
export function modifyQueuePair(
  context: Context,
  qp: QueuePair,
  attributes: QueuePairAttributes,
): u32 {
  const mask = attributes.mask;
  const from = qp.state;
  // CUR_STATE must be the current state: the transition is checked from there.
  if (mask & QpAttribute.CUR_STATE && attributes.currentState != from) return Errno.EINVAL;
  const to = mask & QpAttribute.STATE ? attributes.state : from;
  const draining = qp.state == <u32>QpState.SQD && !qp.drained;
  if (draining && to != <u32>QpState.ERR && to != <u32>QpState.RESET) return Errno.EINVAL;
  if (to > <u32>QpState.ERR) return Errno.EINVAL;
  if (!transitionAllowed(qp.type, from, to, mask)) return Errno.EINVAL;
  if (mask & (QpAttribute.ALT_PATH | QpAttribute.PATH_MIG_STATE)) return Errno.EOPNOTSUPP;
  if (!valuesAllowed(context, attributes)) return Errno.EINVAL;
  if (to == QpState.RESET) {
    reset(context, qp);
    return Errno.OK;
  }
  if (to == QpState.ERR) {
    withdrawAndWait(context, qp);
    enterError(context, qp);
    return Errno.OK;
  }
  const access = qp.access;
  const reads = qp.destRdAtomicMax;
  applyAttributes(context, qp, attributes);
  // An engine that is executing requests has looked at the former rights.
  if ((access & ~qp.access) != 0 || qp.destRdAtomicMax < reads) withdrawAndWait(context, qp);
  enterState(context, qp, to, attributes.drainNotify);
  updateLocalEndpoint(context, qp);
  schedule(context, qp);
  return Errno.OK;
}

function enterState(context: Context, qp: QueuePair, to: u32, drainNotify: u32): void {
  const from = qp.state;
  qp.state = to;
  if (to == <u32>QpState.SQD && from != to) {
    qp.drained = 0;
    qp.drainNotify = <u8>drainNotify;
    noteDrained(context, qp);
  }
  if (to == <u32>QpState.RTS && from == <u32>QpState.RTR) openCongestionWindow(qp);
  // An unreliable datagram has no path of its own: its packets are as long as the link's.
  if (qp.type == <u32>QpType.UD && to == <u32>QpState.RTR) qp.mtu = linkMtu(context);
}

/** The largest path MTU whose packets the link carries. */
function linkMtu(context: Context): u32 {
  let mtu: u32 = MTU_BYTES_MAX;
  while (mtu > 256 && mtu + PACKET_OVERHEAD > context.packetSizeMax) mtu >>= 1;
  return mtu;
}

function mtuBytes(mtu: u32): u32 {
  return 128 << mtu;
}

/** Bytes of payload of a packet that another one of its message follows. */
function fullPayload(a: QueuePairAttributes): u32 {
  const isAgreed = (a.mask & QpAttribute.AV) != 0 && a.payloadBytes != 0;
  return isAgreed ? a.payloadBytes : mtuBytes(a.pathMtu);
}

function valuesAllowed(context: Context, a: QueuePairAttributes): bool {
  const mask = a.mask;
  if (mask & QpAttribute.PATH_MTU) {
    if (a.pathMtu < <u32>Mtu.MTU_256 || a.pathMtu > <u32>Mtu.MTU_4096) return false;
    const least = mtuBytes(a.pathMtu);
    const bytes = fullPayload(a);
    // No full packet has pad bytes (C9-92), and none of half that length (`trialBytes`).
    if (bytes < least || bytes >= 2 * least || (bytes & 7) != 0) return false;
    if (bytes + PACKET_OVERHEAD > context.packetSizeMax) return false;
  }
  if (mask & QpAttribute.PKEY_INDEX && a.pkeyIndex != 0) return false;
  if (mask & QpAttribute.PORT && a.portNumber != 1) return false;
  if (mask & QpAttribute.MAX_QP_RD_ATOMIC && a.maxRdAtomic > context.rdAtomicMax) return false;
  if (mask & QpAttribute.MAX_DEST_RD_ATOMIC && a.maxDestRdAtomic > context.rdAtomicMax)
    return false;
  if (mask & QpAttribute.MIN_RNR_TIMER && a.minRnrTimer > 31) return false;
  if (mask & QpAttribute.TIMEOUT && a.timeout > 31) return false;
  if (mask & QpAttribute.RETRY_CNT && a.retryCount > 7) return false;
  if (mask & QpAttribute.RNR_RETRY && a.rnrRetry > 7) return false;
  if (mask & QpAttribute.DEST_QPN && a.targetQp > PSN_MASK) return false;
  if (mask & QpAttribute.AV && (a.remotePort == 0 || a.remotePort > 65535)) return false;
  if (mask & QpAttribute.ACCESS_FLAGS) {
    const known: u32 =
      AccessFlag.LOCAL_WRITE |
      AccessFlag.REMOTE_WRITE |
      AccessFlag.REMOTE_READ |
      AccessFlag.REMOTE_ATOMIC |
      AccessFlag.FLUSH_GLOBAL |
      AccessFlag.FLUSH_PERSISTENT;
    if (a.accessFlags & ~known) return false;
  }
  return true;
}

function applyAttributes(context: Context, qp: QueuePair, a: QueuePairAttributes): void {
  const mask = a.mask;
  if (mask & QpAttribute.ACCESS_FLAGS) qp.access = a.accessFlags;
  if (mask & QpAttribute.PKEY_INDEX) qp.pkeyIndex = a.pkeyIndex;
  if (mask & QpAttribute.PORT) qp.portNumber = a.portNumber;
  if (mask & QpAttribute.QKEY) qp.qkey = a.qkey;
  if (mask & QpAttribute.DEST_QPN) qp.targetQp = a.targetQp;
  if (mask & QpAttribute.RQ_PSN) {
    qp.psnExpected = a.receivePsn & PSN_MASK;
    checksOf(qp).sendMark = markOf(qp.psnExpected);
  }
  if (mask & QpAttribute.MAX_DEST_RD_ATOMIC) qp.destRdAtomicMax = a.maxDestRdAtomic;
  if (mask & QpAttribute.MIN_RNR_TIMER) qp.minRnrTimer = a.minRnrTimer;
  if (mask & QpAttribute.MAX_QP_RD_ATOMIC) qp.rdAtomicMax = a.maxRdAtomic;
  if (mask & QpAttribute.PATH_MTU) {
    qp.mtu = fullPayload(a);
    qp.chargeFull = charge(qp.mtu);
  }
  if (mask & QpAttribute.TIMEOUT) {
    qp.timeoutExponent = a.timeout;
    // 4.096 us * 2^timeout; 0 means that there is no timer at all.
    qp.timeoutMicros = a.timeout == 0 ? 0 : (((<u64>4096) << a.timeout) + 999) / 1000;
  }
  if (mask & QpAttribute.RETRY_CNT) {
    qp.retryLimit = a.retryCount;
    qp.retryLeft = a.retryCount;
  }
  if (mask & QpAttribute.RNR_RETRY) {
    qp.rnrRetryLimit = a.rnrRetry;
    qp.rnrRetryLeft = a.rnrRetry;
  }
  if (mask & QpAttribute.SQ_PSN) {
    qp.psnNext = a.sendPsn & PSN_MASK;
    checksOf(qp).keepMark = markOf(qp.psnNext);
    qp.psnUnacked = qp.psnNext;
    qp.psnArrived = qp.psnNext;
    qp.psnExecuted = qp.psnNext;
    qp.psnMax = qp.psnNext;
    qp.arrivedLast = qp.psnNext;
  }
  if (mask & QpAttribute.AV) applyPath(context, qp, a);
}

function applyPath(context: Context, qp: QueuePair, a: QueuePairAttributes): void {
  const announced = a.receiveBufferBytes / 2;
  const holds = announced == 0 ? context.windowCharge : announced;
  qp.windowCharge = min<u32>(holds, context.windowChargeMax);
  qp.reorderPeer = min<u32>(a.reorderPackets, qp.flightMax);
  leavePath(qp, pathOf(qp));
  setPath(context, pathOf(qp), a);
  joinPath(context, qp, pathOf(qp), holds);
  pathOf(qp).doublesFlush = <u8>a.doublesFlush;
  if (qp.type == <u32>QpType.RC) pathOf(qp).isOwn = 0;
  qp.localPath = u8(a.wireOnly == 0 && usesLocalPath(context, qp));
  if (qp.localPath != 0 && slotOfNumber(qp.targetQp) != context.slotIndex) {
    setReachesAll(context.slot);
  }
}

/** `ibv_create_srq` over a ring: its address, or 0 when none is free or the PD is gone. */
export function createSharedReceiveQueue(
  context: Context,
  pd: u32,
  ring: usize,
  entries: u32,
  sgeMax: u32,
): usize {
  const at = context.sharedReceiveQueueFree;
  if (at == 0 || !useProtectionDomain(context.arena, pd, context.slotIndex)) return 0;
  const srq = changetype<SharedReceiveQueue>(at);
  context.sharedReceiveQueueFree = srq.nextFree;
  memory.fill(at, 0, SHARED_RECEIVE_QUEUE_SIZE);
  ringInit(ring);
  srq.ring = ring;
  srq.entries = entries;
  srq.sgeMax = sgeMax;
  srq.stride = RECEIVE_REQUEST_SIZE + sgeMax * SGE_SIZE;
  srq.pd = pd;
  return at;
}

/** EBUSY while a queue pair takes from it. */
export function destroySharedReceiveQueue(context: Context, srq: SharedReceiveQueue): u32 {
  if (srq.ring == 0) return Errno.EINVAL;
  if (srq.useCount > 0) return Errno.EBUSY;
  releaseProtectionDomain(context.arena, srq.pd, context.slotIndex);
  srq.ring = 0;
  srq.nextFree = context.sharedReceiveQueueFree;
  context.sharedReceiveQueueFree = changetype<usize>(srq);
  return Errno.OK;
}

/**
 * Moves a completion queue to a larger or smaller ring: what was not polled keeps its order. EINVAL
 * when it does not fit.
 */
export function resizeCompletionQueue(cq: CompletionQueue, ring: usize, entries: u32): u32 {
  const head = ringHead(cq.ring);
  // Overwritten completions are gone, and the consumer writes the tail: clamp the count.
  const count = min<u32>(head - ringTail(cq.ring), cq.entries);
  const tail = head - count;
  if (cq.dead || count > entries) return Errno.EINVAL;
  ringInit(ring);
  for (let index = tail; index != head; index++) {
    const from = RING_HEADER_SIZE + (index & (cq.entries - 1)) * WORK_COMPLETION_SIZE;
    const to = RING_HEADER_SIZE + (index & (entries - 1)) * WORK_COMPLETION_SIZE;
    memory.copy(ring + <usize>to, cq.ring + <usize>from, WORK_COMPLETION_SIZE);
  }
  setRingHead(ring, head);
  setRingTail(ring, tail);
  cq.ring = ring;
  cq.entries = entries;
  return Errno.OK;
}

/**
 * Moves a shared receive queue to a larger or smaller ring: what was not taken keeps its order.
 * EINVAL when it does not fit.
 */
export function resizeSharedReceiveQueue(srq: SharedReceiveQueue, ring: usize, entries: u32): u32 {
  const count = ringCount(srq.ring, srq.next, srq.entries);
  if (count > entries) return Errno.EINVAL;
  const head = srq.next + count;
  ringInit(ring);
  for (let index = srq.next; index != head; index++) {
    const from = RING_HEADER_SIZE + (index & (srq.entries - 1)) * srq.stride;
    const to = RING_HEADER_SIZE + (index & (entries - 1)) * srq.stride;
    memory.copy(ring + <usize>to, srq.ring + <usize>from, srq.stride);
  }
  setRingHead(ring, head);
  setRingTail(ring, srq.next);
  srq.ring = ring;
  srq.entries = entries;
  return Errno.OK;
}

/** Reset or destroyed: off all lists, out of all groups, without keys; its completions are gone. */
function removeEverywhere(context: Context, qp: QueuePair): void {
  withdrawAndWait(context, qp);
  abandonMessages(context, qp);
  removeTimer(context.timers, timerOf(qp));
  unschedule(context, qp);
  forgetDelayedAck(context, qp);
  forgetAhead(context, qp);
  forgetFlushes(context, qp);
  forgetFence(context, qp);
  discardCompletions(qp.sendCq, qp.qpn);
  if (qp.receiveCq != qp.sendCq) discardCompletions(qp.receiveCq, qp.qpn);
  leaveAll(context, qp);
  forgetPacketAuth(context, qp);
  leavePath(qp, pathOf(qp));
}

/** Back to the beginning: queues empty, nothing in flight, completions gone. */
function reset(context: Context, qp: QueuePair): void {
  removeEverywhere(context, qp);
  ringInit(qp.sendRing);
  ringInit(qp.receiveRing);
  // Everything from the requester's state on is state; what stands before describes the queues.
  const state = offsetof<QueuePair>('sendFetched');
  memory.fill(changetype<usize>(qp) + state, 0, offsetof<QueuePair>('memoryBytes') - state);
  memory.fill(qp.resources, 0, qp.rdAtomicLimit * RESOURCE_SIZE);
  qp.message = MessageKind.NONE;
  forgetRepairs(qp);
  forgetAnswers(qp);
  // The next peer finds no window that was bound for this one.
  qp.binding = nextBinding(context.arena);
  qp.state = QpState.RESET;
}

/** `ibv_qp_attr`, written by the host. Only the members that the mask names count. */
@unmanaged
export class QueuePairAttributes {
  /** AV: the peer's GID, in network order. */
  remoteGid0: u64;
  remoteGid1: u64;
  /** AV: the peer's UDP port. */
  remotePort: u32;
  /** Bits of QpAttribute. */
  mask: u32;
  state: u32;
  currentState: u32;
  /** An Mtu. */
  pathMtu: u32;
  qkey: u32;
  receivePsn: u32;
  sendPsn: u32;
  targetQp: u32;
  accessFlags: u32;
  pkeyIndex: u32;
  portNumber: u32;
  maxRdAtomic: u32;
  maxDestRdAtomic: u32;
  minRnrTimer: u32;
  timeout: u32;
  retryCount: u32;
  rnrRetry: u32;
  /** AV: the peer's receive buffer in bytes; 0: it did not say. */
  receiveBufferBytes: u32;
  /** EN_SQD_ASYNC_NOTIFY. */
  drainNotify: u32;
  /** AV: packets that the peer keeps when they come ahead; 0: it does not speak of that. */
  reorderPackets: u32;
  /** AV: 1: the peer is of our own kind. */
  ownKind: u32;
  /** AV: 1 when FLUSH requests to the peer need the ICRC of Linux rxe. */
  doublesFlush: u32;
  /** AV: 1: both ends agreed that the link keeps bytes whole. */
  skipsIcrc: u32;
  /** AV: UDP port that our packets leave from; 0: the one that we listen at. */
  sourcePort: u32;
  /** AV: 1: requests go by packets even to a queue pair of this device. */
  wireOnly: u32;
  /** AV: payload of a full packet, where both ends agreed on more than the path MTU; 0: that. */
  payloadBytes: u32;
}

/** Fills in a path from here to that endpoint. */
export function setPath(context: Context, path: Path, a: QueuePairAttributes): void {
  path.localGid0 = context.localGid0;
  path.localGid1 = context.localGid1;
  path.localPort = context.localPort;
  path.remoteGid0 = a.remoteGid0;
  path.remoteGid1 = a.remoteGid1;
  path.remotePort = a.remotePort;
  path.ownKind = <u16>a.ownKind;
  path.skipsIcrc = a.skipsIcrc != 0 ? 1 : 0;
  path.isOwn = u8(
    a.wireOnly == 0 &&
      context.localPath != 0 &&
      a.remoteGid0 == context.localGid0 &&
      a.remoteGid1 == context.localGid1 &&
      a.remotePort == context.localPort,
  );
  path.sourcePort = <u16>(a.sourcePort != 0 ? a.sourcePort : context.localPort);
  path.pseudoHeader = context.pseudoHeader;
  preparePath(context.icrcTables, path);
}

/** `ibv_create_ah`: its address, or 0 when none is free. */
export function createAddressHandle(context: Context, pd: u32, a: QueuePairAttributes): usize {
  const at = context.addressHandleFree;
  if (at == 0 || !useProtectionDomain(context.arena, pd, context.slotIndex)) return 0;
  const handle = changetype<AddressHandle>(at);
  context.addressHandleFree = handle.nextFree;
  handle.pd = pd;
  setPath(context, pathOfHandle(handle), a);
  return at;
}

export function destroyAddressHandle(context: Context, handle: AddressHandle): u32 {
  if (handle.pd == 0) return Errno.EINVAL;
  releaseProtectionDomain(context.arena, handle.pd, context.slotIndex);
  handle.pd = 0;
  handle.nextFree = context.addressHandleFree;
  context.addressHandleFree = changetype<usize>(handle);
  return Errno.OK;
}
