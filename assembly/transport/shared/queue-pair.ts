/**
 * The queue pair: its struct, its memory, and accessors. requester/ and responder/ hold its
 * behaviour, state-machine.ts its transitions.
 */
import { bitRingBytes } from '../../memory/bit-ring';
import { roundUp } from '../../memory/bytes';
import { RING_HEADER_SIZE } from '../../memory/ring';
import { psnDistance } from '../../wire/psn';
import { ResponderState } from './responder-state';
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
export class QueuePair extends ResponderState {
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
export const QUEUE_PAIR_TIMER: u32 = 544;
export const QUEUE_PAIR_PATH: u32 = 576;
export const QUEUE_PAIR_SIZE: u32 = 704;

/** Kind of the message that the responder is receiving. */
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
  /** WAITING atomics: the value to compare with. */
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
  /** WAITING: the wire opcode. */
  opcode: u8;
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

/** Parameters of a new queue pair, written by the host. 76 bytes, then QPN candidates. */
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

/** State of the answer checks of a queue pair. Behind its path and `LastLook`; 20 bytes. */
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
