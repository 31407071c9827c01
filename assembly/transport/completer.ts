/**
 * The completer: acknowledgements and responses become completions, or make the requester go
 * back. Nothing here trusts a packet beyond what checkPacket and the ICRC say.
 */
import {
  NakCode,
  SyndromeKind,
  rnrTimerMicros,
  syndromeKind,
  syndromeValue,
} from '../wire/syndrome';
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { Context, schedule } from './context';
import { completeSend, failOldest } from './failure';
import { QueuePair, chunkAt, sendRequestAt, timerOf } from './queue-pair';
import { acknowledgeCharge, goBack, outstanding, scatterResponse } from './requester';
import { QpState, WcStatus, WrOpcode } from './status';
import { armTimer, cancelTimer } from './timer';
import { SendRequest, SendState } from './work-queue';

/** rnr_retry that means "for ever". */
const RNR_RETRY_INFINITE: u32 = 7;

function isRead(request: SendRequest): bool {
  return request.opcode == WrOpcode.RDMA_READ;
}

/** Was this PSN sent, and is it not acknowledged yet? */
function inFlight(qp: QueuePair, psn: u32): bool {
  return psnDistance(qp.psnUnacked, psn) < psnDistance(qp.psnUnacked, qp.psnMax);
}

/**
 * Completes what an answer for everything before `psn` answers. It stops at a READ that still
 * waits for data: only its own responses complete that (IBA 9.7.5.1.1). False when it did.
 */
function completeBefore(context: Context, qp: QueuePair, psn: u32): bool {
  while (qp.sendTail != qp.sendFetched && qp.state != QpState.ERR) {
    const request = sendRequestAt(qp, qp.sendTail);
    if (request.state != SendState.STARTED) break;
    if (isRead(request) && psnCompare(psn, request.psnFirst) > 0) {
      moveUnacked(qp, maxPsn(qp.psnUnacked, request.psnFirst));
      return false;
    }
    if (psnCompare(request.psnLast, psn) >= 0) break;
    moveUnacked(qp, psnAdd(request.psnLast, 1));
    completeSend(context, qp, WcStatus.SUCCESS, 0);
  }
  moveUnacked(qp, maxPsn(qp.psnUnacked, psn));
  return true;
}

function maxPsn(a: u32, b: u32): u32 {
  return psnCompare(a, b) >= 0 ? a : b;
}

/** Progress: the retry counts start anew. */
function moveUnacked(qp: QueuePair, psn: u32): void {
  if (psn == qp.psnUnacked) return;
  qp.psnUnacked = psn;
  qp.retryLeft = qp.retryLimit;
  qp.rnrRetryLeft = qp.rnrRetryLimit;
  qp.nakHandled = 0;
}

/** After any answer: books, timer, and whatever may be sent now. */
function settle(context: Context, qp: QueuePair): void {
  if (qp.state == QpState.ERR) return;
  // The answer may be to packets that were about to be sent once more.
  if (psnCompare(qp.psnUnacked, qp.psnNext) > 0) goBack(qp, qp.psnUnacked);
  acknowledgeCharge(qp, qp.psnUnacked);
  if (!qp.rnrWaiting) {
    const timer = timerOf(qp);
    if (!outstanding(qp)) cancelTimer(context.timers, timer);
    else if (qp.timeoutMicros != 0) {
      armTimer(context.timers, timer, context.now, qp.timeoutMicros);
    }
  }
  failStopped(context, qp);
  schedule(context, qp);
}

/** A request that failed locally completes once it is the oldest. */
export function failStopped(context: Context, qp: QueuePair): void {
  if (!qp.sendStopped || qp.sendTail == qp.sendFetched) return;
  const request = sendRequestAt(qp, qp.sendTail);
  if (request.state == SendState.FAILED) failOldest(context, qp, request.status, 0);
}

/** Sends again from the oldest packet that is not acknowledged, or gives up. */
function retry(context: Context, qp: QueuePair, status: u32): void {
  if (qp.retryLeft == 0) {
    context.counters.retryExceededErr++;
    failOldest(context, qp, status, 0);
    return;
  }
  qp.retryLeft--;
  context.counters.completerRetryErr++;
  acknowledgeCharge(qp, qp.psnUnacked);
  goBack(qp, qp.psnUnacked);
  if (qp.timeoutMicros != 0) {
    armTimer(context.timers, timerOf(qp), context.now, qp.timeoutMicros);
  }
  schedule(context, qp);
}

/** A gap: goes back once, whatever number of packets tell of the same gap. */
function retryGap(context: Context, qp: QueuePair): void {
  if (qp.rnrWaiting || qp.nakHandled == qp.psnUnacked + 1) return;
  retry(context, qp, WcStatus.RETRY_EXC_ERR);
  qp.nakHandled = qp.psnUnacked + 1;
}

/** An ACKNOWLEDGE packet. */
export function receiveAcknowledge(context: Context, qp: QueuePair, psn: u32, syndrome: u32): void {
  if (!inFlight(qp, psn)) {
    if (psnCompare(psn, qp.psnUnacked) > 0) context.counters.dropGhost++;
    return;
  }
  switch (syndromeKind(syndrome)) {
    case SyndromeKind.ACK:
      if (completeBefore(context, qp, psnAdd(psn, 1))) settle(context, qp);
      else {
        // An ACK beyond a READ that has no data yet says that its responses were lost.
        settle(context, qp);
        if (qp.state != QpState.ERR) retryGap(context, qp);
      }
      break;
    case SyndromeKind.RNR_NAK:
      receiveRnrNak(context, qp, psn, syndromeValue(syndrome));
      break;
    case SyndromeKind.NAK:
      receiveNak(context, qp, psn, syndrome);
      break;
    default:
      context.counters.dropGhost++;
  }
}

function receiveRnrNak(context: Context, qp: QueuePair, psn: u32, code: u32): void {
  context.counters.rcvdRnrErr++;
  const reached = completeBefore(context, qp, psn);
  settle(context, qp);
  if (qp.state == QpState.ERR || qp.rnrWaiting) return;
  if (!reached) {
    retryGap(context, qp);
    return;
  }
  if (qp.rnrRetryLimit != RNR_RETRY_INFINITE) {
    if (qp.rnrRetryLeft == 0) {
      context.counters.retryRnrExceededErr++;
      failOldest(context, qp, WcStatus.RNR_RETRY_EXC_ERR, 0);
      return;
    }
    qp.rnrRetryLeft--;
  }
  goBack(qp, psn);
  qp.rnrWaiting = 1;
  const timer = timerOf(qp);
  cancelTimer(context.timers, timer);
  armTimer(context.timers, timer, context.now, rnrTimerMicros(code));
}

function receiveNak(context: Context, qp: QueuePair, psn: u32, syndrome: u32): void {
  const reached = completeBefore(context, qp, psn);
  settle(context, qp);
  if (qp.state == QpState.ERR) return;
  if (!reached || syndrome == NakCode.PSN_SEQUENCE_ERROR) {
    if (reached) context.counters.rcvdSeqErr++;
    retryGap(context, qp);
    return;
  }
  let status: u32 = WcStatus.BAD_RESP_ERR;
  if (syndrome == NakCode.INVALID_REQUEST) status = WcStatus.REM_INV_REQ_ERR;
  else if (syndrome == NakCode.REMOTE_ACCESS_ERROR) status = WcStatus.REM_ACCESS_ERR;
  else if (syndrome == NakCode.REMOTE_OPERATIONAL_ERROR) status = WcStatus.REM_OP_ERR;
  failOldest(context, qp, status, syndrome);
}

/** A READ RESPONSE packet with `length` bytes of payload. */
export function receiveReadResponse(
  context: Context,
  qp: QueuePair,
  psn: u32,
  payload: usize,
  length: u32,
): void {
  if (!inFlight(qp, psn)) {
    context.counters.dropGhost++;
    return;
  }
  // A response answers everything before it, too.
  completeBefore(context, qp, psn);
  if (qp.state == QpState.ERR) return;
  const request = sendRequestAt(qp, qp.sendTail);
  const ours =
    qp.sendTail != qp.sendFetched && request.state == SendState.STARTED && isRead(request);
  if (!ours || psnCompare(psn, request.psnLast) > 0) {
    // Data for something behind an unfinished READ, or for what is no READ at all.
    settle(context, qp);
    if (ours && qp.state != QpState.ERR) retryGap(context, qp);
    else context.counters.dropGhost++;
    return;
  }
  if (psn != qp.psnUnacked) {
    // Never write past a gap: drop, and ask again from the gap on.
    settle(context, qp);
    if (qp.state != QpState.ERR) retryGap(context, qp);
    return;
  }
  takeResponse(context, qp, request, psn, payload, length);
}

function takeResponse(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  psn: u32,
  payload: usize,
  length: u32,
): void {
  const offset = psnDistance(request.psnFirst, psn) * qp.mtu;
  if (length != min<u32>(qp.mtu, request.length - offset)) {
    failOldest(context, qp, WcStatus.BAD_RESP_ERR, 0);
    return;
  }
  if (!scatterResponse(context, qp, request, offset, payload, length)) {
    failOldest(context, qp, WcStatus.LOC_PROT_ERR, 0);
    return;
  }
  moveUnacked(qp, psnAdd(psn, 1));
  if (qp.chunkTail != qp.chunkHead && load<u32>(chunkAt(qp, qp.chunkTail)) == psn) qp.chunkTail++;
  if (psn == request.psnLast) completeSend(context, qp, WcStatus.SUCCESS, 0);
  settle(context, qp);
}

/** The queue pair's timer fired: the wait after an RNR NAK is over, or nobody answered. */
export function timerFired(context: Context, qp: QueuePair): void {
  if (qp.rnrWaiting) {
    qp.rnrWaiting = 0;
    if (qp.timeoutMicros != 0 && outstanding(qp)) {
      armTimer(context.timers, timerOf(qp), context.now, qp.timeoutMicros);
    }
    schedule(context, qp);
    return;
  }
  if (!outstanding(qp)) return;
  context.counters.timeouts++;
  qp.nakHandled = 0;
  retry(context, qp, WcStatus.RETRY_EXC_ERR);
}
