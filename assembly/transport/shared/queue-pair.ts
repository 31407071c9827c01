/**
 * The queue pair: its struct, its memory, and accessors. requester/ and responder/ hold its
 * behaviour, state-machine.ts its transitions.
 */
import { bitRingBytes } from '../../memory/bit-ring';
import { roundUp } from '../../memory/bytes';
import { RING_HEADER_SIZE } from '../../memory/ring';
import { psnDistance } from '../../wire/psn';
import { PATH_SIZE, Path } from './path';
import { CompletionQueue, SharedReceiveQueue } from './queues';
import { TimerNode } from './timer-wheel';
import {
  RECEIVE_REQUEST_SIZE,
  ReceiveRequest,
  SEND_REQUEST_SIZE,
  SGE_SIZE,
  SendRequest,
  SgeCursor,
  WORK_REQUEST_SIZE,
  WorkRequest,
} from './work-request';

/** The largest part of a slot of QUEUE_PAIR_SIZE bytes; a timer and a path follow it. */
@unmanaged
export class QueuePair {
  /** 4.096 us * 2^timeout; 0: no timer. */
  timeoutMicros: u64;
  /** WRITE in progress: where its next byte goes. */
  messageAddress: u64;
  nextFree: usize;
  /** 0 while the slot is free. */
  qpn: u32;
  /** A QpType. */
  type: u32;
  /** A QpState. */
  state: u32;
  pd: u32;
  sendCq: CompletionQueue;
  receiveCq: CompletionQueue;
  /** Where receive requests come from instead of its own ring. */
  srq: SharedReceiveQueue | null;
  /** Links of the lists (memory/list.ts): queue pairs with packets to send, */
  readyLink: usize;
  /** with FLUSHes for the host (responder/flush.ts), */
  flushLink: usize;
  /** with a pending fence of an invalidation (invalidation-fence.ts), */
  fenceLink: usize;
  /** with a delayed acknowledgement (responder/delayed-ack.ts). */
  delayedAckLink: usize;
  /** Packets in flight that its PathState counts. */
  flightNoted: u32;
  /** Bits of AccessFlag: what peers may do. */
  access: u32;
  pkeyIndex: u32;
  portNumber: u32;
  qkey: u32;
  targetQp: u32;
  /** Path MTU in bytes. */
  mtu: u32;
  /** Every send completes, whatever its flags (`sq_sig_all`). */
  signalAll: u32;
  /** The incarnation of the queue pair (arena.ts `nextBinding`). */
  binding: u32;

  // Queues.
  sendRing: usize;
  sendEntries: u32;
  sendStride: u32;
  sendSgeMax: u32;
  inlineMax: u32;
  sendRequests: usize;
  sendRequestStride: u32;
  receiveRing: usize;
  receiveEntries: u32;
  receiveStride: u32;
  receiveSgeMax: u32;
  /** The engine's copy of the receive request that a message is placed into. */
  receiveRequest: usize;
  resources: usize;
  jobs: usize;
  chunks: usize;
  /** The reorder buffer: addresses of slots, u32, and a ring of bits; `reorderMax` 0: none. */
  aheadSlots: usize;
  reorderMax: u32;
  aheadMap: usize;
  /** Rings of `flightMax` packets in flight: when each was sent last, and bits (in-flight.ts). */
  sentTimes: usize;
  arrivedMap: usize;
  lostMap: usize;
  flightMax: u32;
  /**
   * Entries of `resources` and of `chunks`, and responses that may wait; a power of two. `jobs` has
   * one more entry for a SEND_WITH_INV with a pending fence.
   */
  rdAtomicLimit: u32;
  /** Addresses of completion counters by CountedOperation; 0: nothing is counted. */
  counterTable: usize;

  // Requester. Ring indices count up and wrap at 2^32.
  /** First index that was not copied from the ring. */
  sendFetched: u32;
  /** The request whose packets are sent now. */
  sendNext: u32;
  /** The oldest request that is not complete. */
  sendTail: u32;
  /** Bytes of request `sendNext` that were sent. */
  sendOffset: u32;
  psnNext: u32;
  /** The oldest PSN that is not acknowledged. */
  psnUnacked: u32;
  /** The oldest PSN that has not arrived, as far as the peer has reported; acknowledged or not. */
  psnArrived: u32;
  /** The peer has executed all before it. Behind `psnUnacked` while a response is missing. */
  psnExecuted: u32;
  /** One past the highest PSN that was ever sent. */
  psnMax: u32;
  /** Packets since the last AckReq. */
  packetsSinceAckRequest: u32;
  /** Charge that may be under way: half of the peer's receive buffer. */
  windowCharge: u32;
  chargeSent: u32;
  chargeAcked: u32;
  /** As `chargeAcked`, of what has arrived. */
  chargeArrived: u32;
  /** Charge of a packet of one full path MTU. */
  chargeFull: u32;
  timeoutExponent: u32;
  retryLimit: u32;
  retryLeft: u32;
  rnrRetryLimit: u32;
  rnrRetryLeft: u32;
  /** Reads and atomics that may be in flight (`max_rd_atomic`). */
  rdAtomicMax: u32;
  /** Ring of READ requests in flight: chunkHead - chunkTail of them. */
  chunkHead: u32;
  chunkTail: u32;
  /** 1 while an RNR NAK's time has not passed. */
  rnrWaiting: u8;
  drainNotify: u8;
  /** 1: the last packet of a signaled request was sent, and no AckReq since. */
  awaited: u8;
  heardOldNews: u8; // 1: a duplicate, or an ACK of one, since the last check (keep-alive.ts).
  /** Packets that the peer keeps when they come ahead; 0: it keeps none. */
  reorderPeer: u32;
  /** Packets behind `psnArrived` that have arrived; and those that are lost and not sent again. */
  arrivedCount: u32;
  lostCount: u32;
  /** The last packet that is known to have arrived, as PSN. */
  arrivedLast: u32;
  /** When the latest of the packets that have arrived was sent, and its round trip. */
  arrivedMicros: u32;
  arrivedRoundTrip: u32;
  /** When the latest of the packets that are lost was sent. */
  lostMicros: u32;
  /** When the timer last fired after a silence; 1: a round trip across it was measured. */
  silentMicros: u32;
  silentMeasured: u8;
  /** 1: losses were detected, and no needless retransmission was reported since. */
  lossReported: u8;
  /** Bits of Sign (path-mtu.ts). */
  mtuSigns: u8;
  /** 1: modify chose the local path for the requests of this queue pair (LOCAL-PATH.md). */
  localPath: u8;
  /** A packet to be sent again although it may have arrived, as PSN + 1; 0: none. */
  repairPsn: u32;
  /** The oldest packet that was retransmitted after a timeout, as PSN + 1; 0: no packet. */
  oldestRepeated: u32;
  /** The packet whose round trip is measured, and when it was sent; 0: none. */
  probePsn: u32;
  probeMicros: u32;
  roundTripMicros: u32;
  /** Of the list of queue pairs that wait for their path (path-control.ts). */
  heldLink: usize;
  /** Time of the last new ACK, or of the first packet after an idle time; psnUnacked then. */
  progressMicros: u32;
  progressPsn: u32;
  /** Early repetitions since then. */
  earlyRepeats: u8;
  /** 1: something was lost on this way. Silence is taken for a loss sooner. */
  lossy: u8;
  /** 1: only the oldest packet is sent, twice (congestion-window.ts). */
  isAlone: u8;
  /** 1: the SQ_DRAINED event of this stay in SQD was pushed. */
  drained: u8;
  /** The last packet that was repeated early, as PSN + 1; 0: none. */
  repeatedEarly: u32;
  /** 1 when nothing new may be sent: a request failed locally and waits to be the oldest. */
  sendStopped: u32;
  /** The NAK sequence error that was already acted upon, as PSN + 1; 0: none. */
  nakHandled: u32;
  /** An SgeCursor: where in the request's SGE list `sendOffset` lies. */
  sendSgeIndex: u32;
  sendSgeOffset: u32;

  // Responder.
  psnExpected: u32;
  /** Packets that are kept ahead, and the last of them. */
  aheadCount: u32;
  aheadLast: u32;
  msn: u32;
  /** A MessageKind: what is in progress. */
  message: u32;
  /** Bytes of the message in progress that were placed. */
  messageOffset: u32;
  /** WRITE: bytes of the message that are to come. */
  messageLeft: u32;
  messageKey: u32;
  /** 1 while `receiveRequest` holds one. */
  receiveHeld: u32;
  /** Index of the next receive request in the ring. */
  receiveNext: u32;
  minRnrTimer: u32;
  /** READs and atomics that the peer may have in flight (`max_dest_rd_atomic`). */
  destRdAtomicMax: u32;
  resourceHead: u32;
  jobHead: u32;
  jobTail: u32;
  /** Jobs that cannot be answered yet (JobState). */
  heldJobs: u32;
  /** FLUSHes of jobs before this one were handed to the host. */
  flushFrom: u32;
  /** Charge of arrivals behind a held job since the last report of arrivals. */
  chargeHeld: u32;
  /** 1: the peer asks again for what is still being worked on. */
  busyPending: u8;
  /** ACKs to send: two if the peer has repeated the packet more than once. */
  ackPending: u8;
  /** 1: packets that arrived ahead are to be reported. */
  sackPending: u8;
  /** Bits of Aside: packets to send that are neither requests nor responses. */
  asidePending: u8;
  /** 1: a message without AckReq arrived, and no acknowledgement was sent since. */
  ackDelayed: u8;
  /** 1: the current receive request completes when the fence of its invalidation has passed. */
  receiveFenced: u8;
  /** 1: a packet has arrived twice, and no acknowledgement said so since. */
  hadDuplicate: u8;
  /** 1: it has no packets in flight and waits for the window of the path (path-control.ts). */
  waits: u8;
  /** Syndrome of a NAK that waits to be sent; 0: none. */
  nakPending: u32;
  nakPsn: u32;
  /** 1 from a NAK of the sequence or an RNR NAK until the expected packet comes. */
  nakSent: u8;
  communicationEstablished: u8;
  lastTaken: u8; // 1 once LAST_WQE_REACHED was reported.
  /** 1: it may send although the window of the path is full (path-control.ts). */
  begins: u8;
  /** PSN + 1 of the last packet that the peer retransmitted; 0: no packet. */
  duplicatePsn: u32;
  /** An SgeCursor: where in the receive request `messageOffset` lies. */
  receiveSgeIndex: u32;
  receiveSgeOffset: u32;
  /** UD: queue pair number and UDP port of the sender of the current datagram. */
  sourceQp: u32;
  sourcePort: u32;
  /** When the last congestion notification was sent; 0: never. */
  notifiedMicros: u32;
  /** When the system first refused the oldest packet for its length; 0: never (path-mtu.ts). */
  refusedMicros: u32;
  /** Messages to the target's context without an answer (local/outbox.ts), and their run. */
  localPosted: u32;
  localRun: u32;
  /** Responder: the run whose messages are refused. */
  localRefusedRun: u32;
  /** 1: a message was refused, and the next turn sends packets. */
  localRefused: u8;
  /** 1: the timer fired while messages had no answer. */
  localLate: u8;
  /** Low bits of `sendNext` when the local path last was tried. */
  localSince: u16;
  memoryBytes: u32;
}

/** The struct above, then a timer and a path. */
export const QUEUE_PAIR_TIMER: u32 = 528;
export const QUEUE_PAIR_PATH: u32 = 560;
export const QUEUE_PAIR_SIZE: u32 = 704;

/** What kind of message the responder is in the middle of. */
export enum MessageKind {
  NONE = 0,
  SEND = 1,
  WRITE = 2,
}

/**
 * A READ, atomic, FLUSH or ATOMIC WRITE that the responder took in: kept until the peer can no
 * longer ask for it again. 48 bytes.
 */
@unmanaged
export class Resource {
  address: u64;
  /** Atomics: the original value. */
  value: u64;
  psnFirst: u32;
  psnLast: u32;
  /** PacketFlag of its kind; 0: empty. */
  kind: u32;
  key: u32;
  length: u32;
  msn: u32;
  reserved: u64;
}
export const RESOURCE_SIZE: u32 = 48;

/** How far the answer to a request has come. */
export enum JobState {
  /** May be sent when its turn comes. */
  READY = 0,
  /** A FLUSH to hand to the host. */
  NEW = 1,
  /** A FLUSH that the host is at work on. */
  ASKED = 2,
  /** An atomic or ATOMIC WRITE, to be executed when what is before it is answered. */
  WAITING = 3,
  /** It failed: its answer is `nak`. */
  FAILED = 4,
  /** A SEND_WITH_INV: its receive request completes when the fence has passed. */
  FENCED = 5,
}

/** A response in the queue. 88 bytes. */
@unmanaged
export class ResponseJob {
  /** READ, WAITING: in the peer's addressing; FLUSH without a key: in linear memory. */
  address: u64;
  /** Atomics: the word before the operation; WAITING: the operand. */
  value: u64;
  /** WAITING COMPARE_SWAP: the value to compare with. */
  compare: u64;
  /** PacketFlag of the request. */
  kind: u32;
  /** PSN of the next packet. */
  psn: u32;
  psnLast: u32;
  key: u32;
  /** READ: bytes to send; FENCED: bytes of the message. */
  left: u32;
  msn: u32;
  /** FLUSH: bytes of the range. */
  flushLength: u32;
  /** A JobState. */
  state: u32;
  /** FLUSH: distinguishes it from earlier FLUSHes in this place. */
  serial: u32;
  /** FLUSH: outstanding answers of the host. */
  answersLeft: u32;
  /** WAITING atomics: index of their Resource. */
  resource: u32;
  /** FENCED: the epoch that other engines must have reached. */
  fenceEpoch: u32;
  /** FAILED: syndrome of the NAK. */
  nak: u32;
  /** When the request arrived: low 32 bits of microseconds. */
  since: u32;
  /** 1: the first response packet was sent. */
  started: u8;
  /** Held jobs: 1 when nothing before it waits for an acknowledgement. */
  beforeAcked: u8;
  /** WAITING: 1 for COMPARE_SWAP. */
  swaps: u8;
  /** FENCED: 1 for a solicited SEND. */
  solicited: u8;
  /** FLUSH: 1 for a whole region. */
  wholeRegion: u8;
  /** 1: the request was retransmitted; 2: its response of one packet is sent twice. */
  repeated: u8;
  reserved: u16;
}
export const RESPONSE_JOB_SIZE: u32 = 88;

/**
 * A READ request in flight, or another request that a response of its own answers: which of its
 * responses have been placed. 24 bytes.
 */
@unmanaged
export class ReadChunk {
  /** Bit i: the response with PSN `psnFirst` + i. */
  placed: u64;
  psnFirst: u32;
  psnLast: u32;
  /** Index of the work request. */
  request: u32;
  reserved: u32;
}
export const READ_CHUNK_SIZE: u32 = 24;
/** Bits of `ReadChunk.placed`. */
export const READ_CHUNK_PACKETS: u32 = 64;

/** The timer of a queue pair: retransmission, or the wait after an RNR NAK. */
export function timerOf(qp: QueuePair): TimerNode {
  return changetype<TimerNode>(changetype<usize>(qp) + <usize>QUEUE_PAIR_TIMER);
}

export function queuePairOfTimer(node: TimerNode): QueuePair {
  return changetype<QueuePair>(changetype<usize>(node) - <usize>QUEUE_PAIR_TIMER);
}

/** Packets of a message of `length` bytes; an empty message has one packet. */
export function packetCount(qp: QueuePair, length: u32): u32 {
  return length == 0 ? 1 : (length - 1) / qp.mtu + 1;
}

export function pathOf(qp: QueuePair): Path {
  return changetype<Path>(changetype<usize>(qp) + QUEUE_PAIR_PATH);
}

export function sendCursor(qp: QueuePair): SgeCursor {
  return changetype<SgeCursor>(changetype<usize>(qp) + offsetof<QueuePair>('sendSgeIndex'));
}

export function receiveCursor(qp: QueuePair): SgeCursor {
  return changetype<SgeCursor>(changetype<usize>(qp) + offsetof<QueuePair>('receiveSgeIndex'));
}

/** Entry of the ring that the application writes. */
export function workRequestAt(qp: QueuePair, index: u32): WorkRequest {
  const at = (index & (qp.sendEntries - 1)) * qp.sendStride;
  return changetype<WorkRequest>(qp.sendRing + RING_HEADER_SIZE + <usize>at);
}

/** The engine's own copy. */
export function sendRequestAt(qp: QueuePair, index: u32): SendRequest {
  const at = (index & (qp.sendEntries - 1)) * qp.sendRequestStride;
  return changetype<SendRequest>(qp.sendRequests + <usize>at);
}

export function receiveRequestAt(qp: QueuePair, index: u32): ReceiveRequest {
  const at = (index & (qp.receiveEntries - 1)) * qp.receiveStride;
  return changetype<ReceiveRequest>(qp.receiveRing + RING_HEADER_SIZE + <usize>at);
}

export function resourceAt(qp: QueuePair, index: u32): Resource {
  const at = (index & (qp.rdAtomicLimit - 1)) * RESOURCE_SIZE;
  return changetype<Resource>(qp.resources + <usize>at);
}

/** The smallest power of two above this number. */
function jobPlaces(rdAtomic: u32): u32 {
  return 2 * rdAtomic;
}

export function jobAt(qp: QueuePair, index: u32): ResponseJob {
  const at = (index & (jobPlaces(qp.rdAtomicLimit) - 1)) * RESPONSE_JOB_SIZE;
  return changetype<ResponseJob>(qp.jobs + <usize>at);
}

export function chunkAt(qp: QueuePair, index: u32): ReadChunk {
  const at = (index & (qp.rdAtomicLimit - 1)) * READ_CHUNK_SIZE;
  return changetype<ReadChunk>(qp.chunks + <usize>at);
}

/** What a queue pair is made with, written by the host. 76 bytes, then QPN candidates. */
@unmanaged
export class QueuePairParameters {
  type: u32;
  pd: u32;
  sendCq: usize;
  receiveCq: usize;
  /** 0: its own receive ring. */
  srq: usize;
  /** Powers of two. */
  sendEntries: u32;
  receiveEntries: u32;
  sendSgeMax: u32;
  receiveSgeMax: u32;
  inlineMax: u32;
  signalAll: u32;
  /** queuePairBytes() zero bytes, 64-byte aligned. */
  memory: u32;
  /** Out. */
  queuePair: u32;
  qpn: u32;
  sendRing: u32;
  receiveRing: u32;
  sendStride: u32;
  /** Packets kept when they come ahead: a power of two up to REORDER_MAX, or 0. */
  reorderPackets: u32;
  /** Set by the engine: packets in flight that are remembered, a power of two. */
  flightPackets: u32;
  /** 0: a random one; GENERAL_SERVICES_QPN: that one, of type UD. */
  number: u32;
  // RANDOM_QPNS words from a cryptographic generator follow.
  random: u32;
}
export const RANDOM_QPNS: u32 = 16;
/** Where management datagrams go (IBA 13.5.1): connection management among them. */
export const GENERAL_SERVICES_QPN: u32 = 1;

function sendData(parameters: QueuePairParameters): u32 {
  return roundUp(max<u32>(parameters.sendSgeMax * SGE_SIZE, parameters.inlineMax), 16);
}

/** The copy of a receive request must hold the widest one of where they come from. */
function receiveCopy(parameters: QueuePairParameters): u32 {
  const own = RECEIVE_REQUEST_SIZE + parameters.receiveSgeMax * SGE_SIZE;
  if (parameters.srq == 0) return own;
  return max<u32>(own, changetype<SharedReceiveQueue>(parameters.srq).stride);
}

/**
 * Divides a queue pair's memory. `qp` null: only counts.
 * ```
 *  | send ring | receive ring | send requests | receive request | resources | jobs | chunks |
 *  | slots of packets that came ahead | their bits | times of packets in flight | arrived | lost |
 * ```
 */
function layout(qp: QueuePair | null, base: u32, p: QueuePairParameters, rdAtomic: u32): u32 {
  const sendStride = WORK_REQUEST_SIZE + sendData(p);
  const requestStride = SEND_REQUEST_SIZE + sendData(p);
  const receiveStride = RECEIVE_REQUEST_SIZE + p.receiveSgeMax * SGE_SIZE;
  const receiveRing = roundUp(base + RING_HEADER_SIZE + p.sendEntries * sendStride, 64);
  const ringEnd = receiveRing + RING_HEADER_SIZE + p.receiveEntries * receiveStride;
  const requests = roundUp(ringEnd, 64);
  const receiveRequest = requests + p.sendEntries * requestStride;
  const resources = roundUp(receiveRequest + receiveCopy(p), 64);
  const jobs = resources + rdAtomic * RESOURCE_SIZE;
  const chunks = jobs + jobPlaces(rdAtomic) * RESPONSE_JOB_SIZE;
  const reorder = roundUp(chunks + rdAtomic * READ_CHUNK_SIZE, 64);
  const aheadMap = roundUp(reorder + p.reorderPackets * 4, 64);
  const sentTimes = roundUp(aheadMap + bitRingBytes(p.reorderPackets), 64);
  const flight = p.reorderPackets == 0 ? 0 : p.flightPackets;
  const arrivedMap = sentTimes + flight * 4;
  const lostMap = arrivedMap + bitRingBytes(flight);
  const end = roundUp(lostMap + bitRingBytes(flight), 64);
  if (qp != null) {
    qp.sendRing = base;
    qp.sendEntries = p.sendEntries;
    qp.sendStride = sendStride;
    qp.sendRequests = requests;
    qp.sendRequestStride = requestStride;
    qp.receiveRing = receiveRing;
    qp.receiveEntries = p.receiveEntries;
    qp.receiveStride = receiveStride;
    qp.receiveRequest = receiveRequest;
    qp.resources = resources;
    qp.jobs = jobs;
    qp.chunks = chunks;
    qp.aheadSlots = reorder;
    qp.reorderMax = p.reorderPackets;
    qp.aheadMap = aheadMap;
    qp.sentTimes = sentTimes;
    qp.arrivedMap = arrivedMap;
    qp.lostMap = lostMap;
    qp.flightMax = flight;
    qp.rdAtomicLimit = rdAtomic;
    qp.memoryBytes = end - base;
  }
  return end - base;
}

/** Bytes of memory that the queues of such a queue pair need. */
export function queuePairBytes(parameters: QueuePairParameters, rdAtomicMax: u32): u32 {
  return layout(null, 0, parameters, rdAtomicMax);
}

/** Fills a free slot's struct; the caller gives it a number. */
export function initQueuePair(
  qp: QueuePair,
  parameters: QueuePairParameters,
  rdAtomicMax: u32,
): void {
  memory.fill(changetype<usize>(qp), 0, QUEUE_PAIR_SIZE);
  layout(qp, parameters.memory, parameters, rdAtomicMax);
  qp.type = parameters.type;
  qp.pd = parameters.pd;
  qp.sendCq = changetype<CompletionQueue>(parameters.sendCq);
  qp.receiveCq = changetype<CompletionQueue>(parameters.receiveCq);
  qp.sendSgeMax = parameters.sendSgeMax;
  qp.receiveSgeMax = parameters.receiveSgeMax;
  qp.inlineMax = parameters.inlineMax;
  qp.signalAll = parameters.signalAll;
  qp.srq = changetype<SharedReceiveQueue | null>(parameters.srq);
}

/** Is anything sent and not answered? */
export function outstanding(qp: QueuePair): bool {
  return qp.psnUnacked != qp.psnNext;
}

/** Packets that may still be on their way (in-flight.ts). */
export function packetsInFlight(qp: QueuePair): u32 {
  return psnDistance(qp.psnArrived, qp.psnNext) - qp.arrivedCount - qp.lostCount;
}

/** READ requests and atomics in flight. */
export function readsInFlight(qp: QueuePair): u32 {
  return qp.chunkHead - qp.chunkTail;
}

/** Counters of both directions at the last check. Stored behind a queue pair's path. */
@unmanaged
export class LastLook {
  psnExpected: u32;
  psnUnacked: u32;
}

/** What the checks know of a queue pair's peer. Behind its path and `LastLook`; 20 bytes. */
@unmanaged
export class AnswerChecks {
  /** The last MSN that was believed. */
  msnSeen: u32;
  /** Packets that were answered since without an MSN. */
  unnumbered: u32;
  doubtedPsn: u32;
  /** Syndrome of a fatal NAK that waits to be confirmed; 0: none. */
  doubtedNak: u8;
  /** Answers that failed the checks, up to SUSPICIOUS. */
  failed: u8;
  /** Of requests that are sent (reorder-buffer.ts), in the BTH's byte 8; 0: none. */
  sendMark: u8;
  /** Of requests that may be kept; 0: none may. */
  keepMark: u8;
  /** UC: WRITEs that no key allowed, up to WRONG_KEYS_MAX (unreliable.ts). */
  wrongKeys: u8;
  /** 1: the last answer was an RNR NAK. */
  notReady: u8;
  /** READ responses sent since the peer's last packet (response-limit.ts). */
  responses: u16;
}

export function checksOf(qp: QueuePair): AnswerChecks {
  const behind = <usize>(QUEUE_PAIR_PATH + PATH_SIZE) + offsetof<LastLook>();
  return changetype<AnswerChecks>(changetype<usize>(qp) + behind);
}

/** The queue pair begins anew. */
export function forgetAnswers(qp: QueuePair): void {
  memory.fill(changetype<usize>(checksOf(qp)), 0, offsetof<AnswerChecks>());
}

/** Most packets that can be kept: their map fits into a packet. */
export const REORDER_MAX: u32 = 8192;
