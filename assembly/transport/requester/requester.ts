/**
 * The requester: turns work requests into packets within the window, and executes local work.
 * completer.ts completes reliable requests when the peer has answered them; unreliable requests
 * complete when they are sent.
 */
import { Opcode } from '../../wire/opcode';
import { psnAdd } from '../../wire/psn';
import { sendDatagram } from '../datagram/datagram';
import { completeSend, enterSendError, fail } from '../queue/completion';
import { fetch, waitsForAll } from '../queue/send-queue';
import { Context, EventKind, beginMessage, hasRoom, pushEvent } from '../shared/context';
import { Aside, sendProbe } from '../shared/keep-alive';
import { Operation, awaitsData, isOf, wireOpcode } from '../shared/operation';
import {
  QueuePair,
  outstanding,
  packetCount,
  pathOf,
  readsInFlight,
  sendRequestAt,
  timerOf,
} from '../shared/queue-pair';
import { AsyncEvent, QpState, QpType, SendFlag, WcStatus } from '../shared/status';
import { SendRequest, SendState } from '../shared/work-request';
import { askedForAck, runBits } from './ack-request';
import {
  beyondKept,
  charge,
  isAlone,
  startProbe,
  mayTransmit,
  mayRequestData,
} from './congestion-window';
import { armRetransmit } from './retransmit-timer';
import { sendPlain, sendsPlain } from './fast-path';
import { noteSentFrom } from './in-flight';
import { executeLocal } from './local-work';
import { addChunk } from './read-chunks';
import { advance, endRequest, readLength, sendData, writeSingle } from './request-packet';
import { anyRepairs, resend, sendRepairs } from './retransmit';

/** Gives a request its PSNs when its first packet is about to be sent. */
function start(qp: QueuePair, request: SendRequest): void {
  request.state = SendState.STARTED;
  request.psnFirst = qp.psnNext;
  request.psnLast = psnAdd(qp.psnNext, packetCount(qp, request.length) - 1);
  request.chargeFirst = qp.chargeSent;
}

/** Is a READ in flight that a FENCE must wait for? Only READs and atomics count (IBA 10.8.3.3). */
function fenced(qp: QueuePair, request: SendRequest): bool {
  return (
    (request.sendFlags & SendFlag.FENCE) != 0 &&
    request.state == <u32>SendState.FETCHED &&
    readsInFlight(qp) > 0
  );
}

function isDone(qp: QueuePair, index: u32): bool {
  return sendRequestAt(qp, index).state == <u32>SendState.DONE;
}

/** Does the queue pair send requests in this state? */
function sending(qp: QueuePair): bool {
  return qp.state == <u32>QpState.RTS || qp.state == <u32>QpState.SQD;
}

/** The request that the next packet belongs to, or null: no packet may be sent. `run`: RunBits. */
function current(context: Context, qp: QueuePair, run: u32): SendRequest | null {
  if (!sending(qp) || qp.rnrWaiting || qp.sendStopped) return null;
  // In SQD what was begun is finished, and nothing is begun.
  const fetches = qp.state != <u32>QpState.SQD;
  if (qp.sendNext == qp.sendFetched && !(fetches && fetch(qp))) return null;
  let request = sendRequestAt(qp, qp.sendNext);
  // Behind a gap, what is done is not done again.
  while (request.state == <u32>SendState.DONE) {
    qp.sendNext++;
    if (qp.sendNext == qp.sendFetched && !(fetches && fetch(qp))) return null;
    request = sendRequestAt(qp, qp.sendNext);
  }
  if (request.state == <u32>SendState.FAILED) {
    qp.sendStopped = 1;
    return null;
  }
  if (qp.state == <u32>QpState.SQD && request.state == <u32>SendState.FETCHED) return null;
  if (!(run || mayTransmit(context, qp)) || fenced(qp, request)) return null;
  if (awaitsData(request)) {
    if (qp.rdAtomicMax == 0) {
      // SQD took away what it was fetched with.
      fail(context, qp, request, WcStatus.LOC_QP_OP_ERR);
      return null;
    }
    if (readsInFlight(qp) >= qp.rdAtomicMax || beyondKept(qp)) return null;
  }
  if (isOf(request, Operation.DATA) && !mayRead(context, qp, request)) return null;
  // Stronger than a fence.
  if (waitsForAll(request) && qp.sendTail != qp.sendNext) return null;
  return request;
}

function mayRead(context: Context, qp: QueuePair, request: SendRequest): bool {
  return mayRequestData(qp, packetCount(qp, readLength(context, qp, request)));
}

/**
 * Sends up to `quantum` packets. True when it stopped because of the quantum or the buffer and has
 * more to send now; false when there is nothing, or it waits for the peer.
 */
export function sendRequests(context: Context, qp: QueuePair, quantum: u32): bool {
  let sent: u32 = 0;
  // Before what is long: behind it the link would send both as one run, which a router that does
  // not take long packets drops as a whole.
  if (qp.asidePending & (<u8>Aside.TRIAL)) sendProbe(context, qp);
  if (anyRepairs(qp) && !qp.rnrWaiting && sending(qp)) {
    sent = sendRepairs(context, qp, quantum);
    if (sent == quantum || !hasRoom(context)) return true;
  }
  const first = qp.psnNext;
  const fresh = qp.psnMax;
  let run = runBits(context, qp, quantum);
  if (sendsPlain(qp)) {
    while (sent < quantum && hasRoom(context) && sendPlain(context, qp, run)) sent++;
  }
  let request = current(context, qp, run);
  let isFull = false;
  while (request != null) {
    isFull = sent == quantum || !hasRoom(context) || !maySendHere(context, qp, request);
    if (isFull) break;
    sent++;
    if (!sendOne(context, qp, request, run)) break;
    // A request behind a READ or an atomic must fit the buffer.
    if (awaitsData(request)) run = 0;
    request = current(context, qp, run);
  }
  noteSentFrom(context, qp, first, fresh);
  if (isFull) return true;
  if (sent > 0 && isAlone(qp)) repeatAlone(context, qp);
  if (qp.state == <u32>QpState.SQD) noteDrained(context, qp);
  return qp.packetsSinceAckRequest > 0 && waitsForAcks(context, qp) && !solicit(context, qp);
}

/** Headers and ICRC of a packet of a WRITE; a RETH and immediate data. */
const PACKET_OVERHEAD: u32 = 16;
const MESSAGE_OVERHEAD: u32 = 20;

/**
 * The first packet of a long WRITE is longer than those behind it, so it begins a run of segments
 * wherever it lies: it may as well begin a buffer. False: it is to begin the next one.
 */
function maySendHere(context: Context, qp: QueuePair, request: SendRequest): bool {
  if (request.state != <u32>SendState.FETCHED) return true;
  const length = request.length;
  if (length <= qp.mtu || wireOpcode(request) != <u32>Opcode.RC_RDMA_WRITE_FIRST) return true;
  const headers = packetCount(qp, length) * PACKET_OVERHEAD + MESSAGE_OVERHEAD;
  return pathOf(qp).ownKind == 0 || beginMessage(context, length + headers);
}

/** Can nothing be sent before what is under way is acknowledged, window or no window? */
function waitsForAcks(context: Context, qp: QueuePair): bool {
  if (!outstanding(qp) || qp.rnrWaiting || !sending(qp)) return false;
  // Other queue pairs to the peer may have become busy after the last AckReq: the window is closed.
  if (qp.sendStopped || qp.state == <u32>QpState.SQD || !mayTransmit(context, qp)) return true;
  if (qp.sendNext == qp.sendFetched) return isDone(qp, qp.sendFetched - 1);
  const next = sendRequestAt(qp, qp.sendNext);
  return waitsForAll(next) || (awaitsData(next) && beyondKept(qp));
}

/**
 * Sends the only packet in flight a second time, directly behind the first: of two adjacent packets
 * a link with periodic losses loses one at most, whatever it carries between two attempts.
 */
function repeatAlone(context: Context, qp: QueuePair): void {
  if (outstanding(qp) && hasRoom(context)) resend(context, qp, qp.psnUnacked);
}

/**
 * The last packet had no AckReq bit, since more was expected to follow: retransmits it with the
 * bit. False: the buffer is full.
 */
function solicit(context: Context, qp: QueuePair): bool {
  if (!hasRoom(context)) return false;
  resend(context, qp, psnAdd(qp.psnNext, <u32>-1));
  askedForAck(qp);
  return true;
}

/** Sends one packet of this request, or executes local work. False: it failed or waits. */
function sendOne(context: Context, qp: QueuePair, request: SendRequest, run: u32): bool {
  if (isOf(request, Operation.LOCAL)) return executeLocal(context, qp, request);
  if (qp.type == <u32>QpType.UD) return sendUnconnected(context, qp, request);
  if (request.state == <u32>SendState.FETCHED) start(qp, request);
  if (isOf(request, Operation.DATA)) sendRead(context, qp, request);
  else if (awaitsData(request)) {
    if (!sendWhole(context, qp, request)) return false;
  } else if (!sendData(context, qp, request, false, run)) return false;
  if (qp.type == <u32>QpType.UC) return true;
  if (timerOf(qp).deadline == 0) armRetransmit(context, qp);
  return true;
}

/** A datagram: complete when it is in the buffer. */
function sendUnconnected(context: Context, qp: QueuePair, request: SendRequest): bool {
  const status = sendDatagram(context, qp, request);
  if (status != <u32>WcStatus.SUCCESS) {
    context.counters.sendErr++;
    enterSendError(context, qp, status);
    return false;
  }
  endRequest(qp);
  completeSend(context, qp, WcStatus.SUCCESS, 0);
  return true;
}

/** In SQD: nothing is in flight any more (IBA 10.3.1.5). Says so once. */
export function noteDrained(context: Context, qp: QueuePair): void {
  if (qp.drained || outstanding(qp) || qp.localPosted != 0) return;
  const next = sendRequestAt(qp, qp.sendNext);
  const state = next.state;
  const begun =
    state == <u32>SendState.STARTED ||
    state == <u32>SendState.FENCED ||
    state == <u32>SendState.COPYING;
  if (qp.sendNext != qp.sendFetched && begun) return;
  qp.drained = 1;
  if (!qp.drainNotify) return;
  pushEvent(context, EventKind.ASYNC, AsyncEvent.SQ_DRAINED, changetype<usize>(qp));
}

/** One READ request; its responses are as many packets as the window takes. */
function sendRead(context: Context, qp: QueuePair, request: SendRequest): void {
  const length = readLength(context, qp, request);
  writeSingle(context, qp, request, length);
  const packets = packetCount(qp, length);
  expectData(context, qp, psnAdd(qp.psnNext, packets - 1));
  qp.sendOffset += length;
  qp.chargeSent += (packets - 1) * qp.chargeFull + charge(length - (packets - 1) * qp.mtu);
  advance(qp, packets);
  if (qp.sendOffset == request.length) endRequest(qp);
}

/** A request is in flight whose last response has this PSN. */
function expectData(context: Context, qp: QueuePair, psnLast: u32): void {
  if (qp.psnNext == qp.psnMax) startProbe(context, qp, qp.psnNext);
  addChunk(qp, psnLast);
  askedForAck(qp);
}

/** An atomic, FLUSH or ATOMIC WRITE. False: its bytes may not be read. */
function sendWhole(context: Context, qp: QueuePair, request: SendRequest): bool {
  if (!writeSingle(context, qp, request, request.length)) {
    fail(context, qp, request, WcStatus.LOC_PROT_ERR);
    return false;
  }
  expectData(context, qp, qp.psnNext);
  qp.chargeSent += charge(8);
  advance(qp, 1);
  endRequest(qp);
  return true;
}
