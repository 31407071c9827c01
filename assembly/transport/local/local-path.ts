/**
 * The local path: the requester's engine executes requests to a queue pair of the same device on
 * the target's memory, without packets (LOCAL-PATH.md). A request has no PSN and no MSN then. It is
 * executed only while no packet of the queue pair waits for an answer; so order stays that of PSNs.
 * A request that is not executed here is left unchanged, and goes by packets.
 */
import { enter } from '../../memory/arena';
import { slotOfNumber } from '../../memory/local-endpoint';
import { completeSend } from '../queue/completion';
import { fetch } from '../queue/send-queue';
import { executeLocal } from '../requester/local-work';
import { endRequest } from '../requester/request-packet';
import { noteDrained } from '../requester/requester';
import { anyRepairs } from '../requester/retransmit';
import { Context } from '../shared/context';
import { Operation, isOf } from '../shared/operation';
import { QueuePair, outstanding, readsInFlight, sendRequestAt } from '../shared/queue-pair';
import { QpState, WcStatus } from '../shared/status';
import { SendRequest, SendState } from '../shared/work-request';
import { Outcome, executeOneSided } from './one-sided';
import { Posting, announceTo, expireMessages, postMessage, settleMessages } from './outbox';
import { prefetchTargets } from './prefetch';
import { findTarget } from './target';
import { executeTwoSided } from './two-sided';

/** Requests, and bytes, of a queue pair before others have their turn. */
const QUANTUM: u32 = 64;
const QUANTUM_BYTES: u32 = 1 << 20;
/** Requests by packets before the next one waits for the answers, to try the local path again. */
const RETRY_AFTER: u32 = 64;
/** Bytes of all queue pairs before the host looks for packets and timers. */
const CALL_BYTES: u32 = 1 << 25;

export enum LocalTurn {
  /** Nothing is left that may be executed now. */
  IDLE = 0,
  /** More may be executed, after other queue pairs. */
  MORE = 1,
  /** The next request goes by packets, or waits for what does. */
  PACKETS = 2,
}

/** A call of `nextPackets` begins. */
export function beginLocalCall(context: Context): void {
  context.localLeft = CALL_BYTES;
  context.localPaused = 0;
  context.wakesBefore = context.wakeCount;
}

/** A request counts as these bytes at least: short ones take time as well. */
const REQUEST_BYTES: u32 = 4096;

/** The call has copied the bytes of a request, or of a part. */
export function charge(context: Context, bytes: u32): void {
  context.localLeft -= min<u32>(max<u32>(bytes, REQUEST_BYTES), context.localLeft);
}

/**
 * Has the call copied as much as it may? The host calls again at once. It wakes the contexts that
 * sleep before that: no other context wakes them. `turns`: of queue pairs in this call.
 */
export function pausesLocally(context: Context, turns: u32): bool {
  // Another process may make the calls while the one that wakes is stopped: once for each wake.
  const wakes = context.wakeCount > context.wakesBefore && context.readyFirst != 0 && turns != 0;
  if (context.localLeft != 0 && !wakes) return false;
  context.localPaused = 1;
  return true;
}

/** Executes requests of a queue pair with `localPath`. A LocalTurn. */
export function takeLocalTurn(context: Context, qp: QueuePair): u32 {
  if (qp.localPosted != 0) {
    settleMessages(context, qp);
    if (qp.localLate) expireMessages(context, qp);
    if (!isWorking(qp)) return LocalTurn.IDLE;
  }
  // A refused request goes by packets once all requests before it are acknowledged.
  if (qp.localRefused && qp.localPosted == 0) {
    qp.localRefused = 0;
    return LocalTurn.PACKETS;
  }
  if (qp.localRefused || !mayExecute(qp)) return waitOrSend(qp);
  if (!hasNext(qp)) return LocalTurn.IDLE;
  // Nothing is held that was looked up before: a fence need not wait for the end of the call. The
  // target is looked up behind it.
  enter(context.arena, context.slot);
  if (!findTarget(context, qp)) return qp.localPosted != 0 ? LocalTurn.IDLE : leaveToPackets(qp);
  const posted = qp.localPosted;
  qp.localSince = <u16>qp.sendNext;
  const turn = executeSome(context, qp);
  if (qp.localPosted > posted) announceTo(context, slotOfNumber(qp.targetQp));
  context.slot.localRequests = context.counters.localRequests;
  return turn;
}

/** A LocalTurn. */
function executeSome(context: Context, qp: QueuePair): u32 {
  const start = context.localLeft;
  let loaded: u32 = 0;
  for (let count: u32 = 0; count < QUANTUM && start - context.localLeft < QUANTUM_BYTES; count++) {
    if (loaded == 0) loaded = prefetchTargets(context, qp);
    loaded--;
    if (!hasNext(qp)) return LocalTurn.IDLE;
    const turn = executeNext(context, qp);
    if (turn != <u32>LocalTurn.MORE) return turn;
    if (context.localLeft == 0) break;
  }
  return LocalTurn.MORE;
}

/** Is every request before the next one complete, and is the next one not to wait? */
function mayExecute(qp: QueuePair): bool {
  if ((qp.rnrWaiting | qp.sendStopped) != 0 || outstanding(qp) || qp.psnNext != qp.psnMax) {
    return false;
  }
  if (qp.sendTail + qp.localPosted != qp.sendNext) return false;
  // In SQD what was begun is finished, and nothing is begun.
  if (qp.state != <u32>QpState.RTS && qp.state != <u32>QpState.SQD) return false;
  const drains = qp.state == <u32>QpState.SQD;
  if (qp.sendNext == qp.sendFetched) return !drains;
  const state = sendRequestAt(qp, qp.sendNext).state;
  // Of a STARTED request some packets are answered, and the others not sent yet.
  return drains ? state == <u32>SendState.COPYING : state != <u32>SendState.STARTED;
}

/** Nothing goes by packets while messages have no answer. A LocalTurn. */
function waitOrSend(qp: QueuePair): u32 {
  return qp.localPosted != 0 || pausesPackets(qp) ? LocalTurn.IDLE : LocalTurn.PACKETS;
}

/**
 * Shall the next request wait until the packets in flight are answered? An application that posts
 * faster than acknowledgements arrive would never come back from the wire.
 */
function pausesPackets(qp: QueuePair): bool {
  const count: u32 = (qp.sendNext - qp.localSince) & 0xffff;
  if (count < RETRY_AFTER || qp.state != <u32>QpState.RTS || !outstanding(qp)) return false;
  // Requests that wait for a response or are retransmitted stay in flight; and an acknowledgement
  // has been requested.
  const isBusy = (qp.rnrWaiting | qp.sendStopped | qp.packetsSinceAckRequest) != 0;
  if (isBusy || qp.psnNext != qp.psnMax || anyRepairs(qp) || readsInFlight(qp) != 0) return false;
  if (qp.sendNext == qp.sendFetched) return true;
  return sendRequestAt(qp, qp.sendNext).state == <u32>SendState.FETCHED;
}

function isWorking(qp: QueuePair): bool {
  return qp.state == <u32>QpState.RTS || qp.state == <u32>QpState.SQD;
}

function hasNext(qp: QueuePair): bool {
  return qp.sendNext != qp.sendFetched || fetch(qp);
}

/** The next request goes by packets, from its first byte on. */
function leaveToPackets(qp: QueuePair): u32 {
  const request = sendRequestAt(qp, qp.sendNext);
  if (request.state == <u32>SendState.COPYING) request.state = SendState.FETCHED;
  qp.sendOffset = 0;
  qp.sendSgeIndex = 0;
  qp.sendSgeOffset = 0;
  return LocalTurn.PACKETS;
}

/** The next request takes a receive request in another context. A LocalTurn. */
function postNext(context: Context, qp: QueuePair, request: SendRequest): u32 {
  if (request.state != <u32>SendState.FAILED) {
    const posting = postMessage(context, qp, request, context.localTarget);
    if (posting == <u32>Posting.POSTED) return LocalTurn.MORE;
  }
  // The bytes that were gathered are gathered again.
  const turn = leaveToPackets(qp);
  return qp.localPosted != 0 ? LocalTurn.IDLE : turn;
}

/** A LocalTurn: MORE when the request, or one more part, is executed. */
function executeNext(context: Context, qp: QueuePair): u32 {
  const request = sendRequestAt(qp, qp.sendNext);
  if (context.localTarget.queuePair == 0 && isOf(request, Operation.RECEIVE)) {
    return postNext(context, qp, request);
  }
  if (qp.localPosted != 0) return LocalTurn.IDLE;
  if (request.state == <u32>SendState.FAILED) return LocalTurn.PACKETS;
  if (isOf(request, Operation.LOCAL)) {
    if (!executeLocal(context, qp, request)) return LocalTurn.PACKETS;
    charge(context, 0);
    return LocalTurn.MORE;
  }
  const before = qp.sendOffset;
  const target = context.localTarget;
  const outcome = isOf(request, Operation.RECEIVE)
    ? executeTwoSided(context, qp, request, target)
    : executeOneSided(context, qp, request, target);
  // A queue pair may be its own target.
  if (!isWorking(qp)) return LocalTurn.IDLE;
  if (outcome == <u32>Outcome.REFUSED) return leaveToPackets(qp);
  const end = outcome == <u32>Outcome.PART ? qp.sendOffset : request.length;
  const bytes = end - before;
  charge(context, bytes);
  context.counters.localBytes += bytes;
  if (outcome == <u32>Outcome.PART) {
    request.state = SendState.COPYING;
    return LocalTurn.MORE;
  }
  context.counters.localRequests++;
  endRequest(qp);
  completeSend(context, qp, WcStatus.SUCCESS, 0);
  if (qp.state == <u32>QpState.SQD) noteDrained(context, qp);
  return qp.state == <u32>QpState.RTS ? LocalTurn.MORE : LocalTurn.IDLE;
}
