/**
 * The completer: acknowledgements and responses complete requests, or make the requester
 * retransmit. It trusts no field of a packet beyond the checks of checkPacket and the ICRC.
 */
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import {
  NakCode,
  SyndromeKind,
  rnrTimerMicros,
  syndromeKind,
  syndromeValue,
} from '../../wire/syndrome';
import { completeSend, enterSendError, failOldest } from '../queue/completion';
import { Context, EventKind, pushEvent, schedule } from '../shared/context';
import { Operation, awaitsData, isOf } from '../shared/operation';
import {
  QueuePair,
  checksOf,
  chunkAt,
  outstanding,
  pathOf,
  sendRequestAt,
  timerOf,
} from '../shared/queue-pair';
import { AsyncEvent, QpState, QpType, WcStatus } from '../shared/status';
import { collapsePath } from '../shared/path-control';
import { armTimer, cancelTimer } from '../shared/timer-wheel';
import { SendRequest, SendState } from '../shared/work-request';
import {
  believesMsn,
  doubtsNak,
  forgetDoubt,
  inFlight,
  isPlausible,
  takeMsn,
} from './answer-checks';
import {
  acknowledgeCharge,
  chargeOf,
  cutCongestionWindow,
  endProbe,
  growCongestionWindow,
  noteLoss,
  sendAlone,
} from './congestion-window';
import {
  answeredAlone,
  armRetransmit,
  endSilence,
  hastenTimer,
  nextDelay,
  noteSecondAnswer,
  repeatEarly,
  timeoutOf,
  untilAnswer,
} from './retransmit-timer';
import {
  detectAllLosses,
  detectLosses,
  fitsRings,
  noteArrivedBefore,
  noteExecuted,
  noteGap,
  noteLostEarly,
  untilLost,
} from './in-flight';
import {
  isPathTooShort,
  noteEarlyRepeat,
  noteShortAnswer,
  noteTimeout,
  passesPath,
  silenceOf,
  tryPath,
} from './path-mtu';
import { chunkFrom, covers, placedFrom } from './read-chunks';
import { noteDrained } from './requester';
import { allIsLost, goBack, repairLosses, repairOldest, takeMissing } from './retransmit';

/** rnr_retry that means "for ever". */
const RNR_RETRY_INFINITE: u32 = 7;

/**
 * Completes what an answer for everything before `psn` answers. It stops at a READ or atomic that
 * still waits for data: only its own responses complete that (IBA 9.7.5.1.1). False when it did; a
 * peer that does selective repeat need not answer again what is behind it.
 *
 * PSNs are compared by their distance from the oldest one in flight: a message may have 2^23
 * packets, and plain comparison ends there.
 */
export function completeBefore(context: Context, qp: QueuePair, psn: u32): bool {
  const oldest = qp.psnUnacked;
  const known = psnDistance(oldest, qp.psnExecuted);
  if (isBeyond(qp, psn, qp.psnExecuted)) qp.psnExecuted = psn;
  // The end of the requests that are complete: one acknowledgement is one round trip.
  let end = oldest;
  while (qp.sendTail != qp.sendFetched && qp.state != <u32>QpState.ERR) {
    const request = sendRequestAt(qp, qp.sendTail);
    if (request.state != <u32>SendState.STARTED) break;
    if (awaitsData(request)) {
      moveUnacked(context, qp, end);
      takePlaced(context, qp);
      // The oldest request has the oldest PSN: any acknowledged PSN is beyond it.
      if (!isOver(qp, request)) {
        if (qp.psnUnacked == qp.psnExecuted) return true;
        if (!isAnswered(qp, request)) {
          const moved = psnDistance(oldest, qp.psnUnacked);
          missesResponse(context, qp, psnAdd(oldest, max<u32>(known, moved)));
          return false;
        }
        moveUnacked(context, qp, psnAdd(request.psnLast, 1));
        qp.chunkTail = chunkFrom(qp, qp.chunkTail, qp.psnUnacked);
      }
      end = qp.psnUnacked;
    } else {
      if (!isBeyond(qp, qp.psnExecuted, request.psnLast)) break;
      end = psnAdd(request.psnLast, 1);
    }
    completeSend(context, qp, WcStatus.SUCCESS, 0);
  }
  moveUnacked(context, qp, qp.psnExecuted);
  return true;
}

/** Is `psn` behind `other`? Neither is before the oldest packet that is not acknowledged. */
export function isBeyond(qp: QueuePair, psn: u32, other: u32): bool {
  return psnDistance(qp.psnUnacked, psn) > psnDistance(qp.psnUnacked, other);
}

/** Is all of the oldest request acknowledged, or answered? */
function isOver(qp: QueuePair, request: SendRequest): bool {
  return (
    psnDistance(request.psnFirst, qp.psnUnacked) > psnDistance(request.psnFirst, request.psnLast)
  );
}

/** Moves on over responses of the oldest request that have been placed. */
function takePlaced(context: Context, qp: QueuePair): void {
  while (qp.chunkTail != qp.chunkHead) {
    const chunk = chunkAt(qp, qp.chunkTail);
    if (chunk.request != qp.sendTail) return;
    const packets = placedFrom(chunk, qp.psnUnacked);
    if (packets == 0) return;
    moveUnacked(context, qp, psnAdd(qp.psnUnacked, packets));
    if (covers(chunk, qp.psnUnacked)) return;
    qp.chunkTail++;
  }
}

/**
 * The peer has executed more than its responses tell, and before `from` that was known. Notes what
 * has arrived, with a peer that does selective repeat.
 */
function missesResponse(context: Context, qp: QueuePair, from: u32): void {
  if (qp.reorderPeer == 0 || !fitsRings(qp)) {
    qp.psnExecuted = qp.psnUnacked;
    return;
  }
  // Withdrawn packets are not in flight.
  const end = isBeyond(qp, qp.psnExecuted, qp.psnNext) ? qp.psnNext : qp.psnExecuted;
  const arrived = noteExecuted(context, qp, isBeyond(qp, from, end) ? end : from, end);
  if (arrived > 0) growCongestionWindow(context, qp, arrived);
}

/** A response is missing: waits for it while it may be late, then requests it again. */
export function repairResponses(context: Context, qp: QueuePair): void {
  if (qp.psnExecuted == qp.psnUnacked) {
    retryGap(context, qp);
    return;
  }
  repairLosses(context, qp, detectLosses(context, qp));
  hastenTimer(context, qp);
}

/**
 * Does an answer to a later request answer a FLUSH? Only its own response should. But Linux rxe
 * does not repeat a lost response, and it executed the FLUSH before the request that it answers.
 */
function isAnswered(qp: QueuePair, request: SendRequest): bool {
  return isOf(request, Operation.SLOW) && pathOf(qp).doublesFlush != 0;
}

/** Progress: the retry counts start anew. */
export function moveUnacked(context: Context, qp: QueuePair, psn: u32): void {
  const packets = psnDistance(qp.psnUnacked, psn);
  if (packets == 0) return;
  endProbe(context, qp, psn);
  const arrived = psnDistance(qp.psnUnacked, qp.psnArrived);
  noteLostEarly(context, qp, packets);
  if (packets > arrived) {
    growCongestionWindow(context, qp, noteArrivedBefore(context, qp, psn));
    qp.psnArrived = psn;
  }
  if (qp.silent) endSilence(context, qp);
  if (isBeyond(qp, psn, qp.psnExecuted)) qp.psnExecuted = psn;
  qp.psnUnacked = psn;
  passesPath(context, qp);
  qp.retryLeft = qp.retryLimit;
  qp.rnrRetryLeft = qp.rnrRetryLimit;
  qp.nakHandled = 0;
  checksOf(qp).notReady = 0;
}

/** After any answer: books, timer, and whatever may be sent now. */
export function settle(context: Context, qp: QueuePair): void {
  if (qp.state == QpState.ERR) return;
  // The answer may be to packets that were about to be sent once more.
  if (psnCompare(qp.psnUnacked, qp.psnNext) > 0) goBack(qp, qp.psnUnacked);
  acknowledgeCharge(qp);
  if (!qp.rnrWaiting) {
    // A response to a packet behind the oldest one must not restart the timer of the oldest.
    const isNews = qp.progressPsn != qp.psnUnacked || timerOf(qp).deadline == 0;
    if (!outstanding(qp)) cancelTimer(timerOf(qp));
    else if (isNews) armRetransmit(context, qp);
  }
  failStopped(context, qp);
  if (qp.state == <u32>QpState.SQD) noteDrained(context, qp);
  schedule(context, qp);
}

/** A request that failed locally completes once it is the oldest. */
export function failStopped(context: Context, qp: QueuePair): void {
  if (!qp.sendStopped || qp.sendTail == qp.sendFetched) return;
  const request = sendRequestAt(qp, qp.sendTail);
  if (request.state != SendState.FAILED) return;
  if (qp.type == <u32>QpType.RC) failOldest(context, qp, request.status, request.vendorError);
  else {
    qp.sendStopped = 0;
    enterSendError(context, qp, request.status);
  }
}

/** Sends again from the oldest packet that is not acknowledged, or gives up. */
function retry(context: Context, qp: QueuePair, status: u32, selective: bool): void {
  if (qp.retryLeft == 0) {
    context.counters.retryExceededErr++;
    failUnanswered(context, qp, status);
    return;
  }
  const again = qp.retryLeft != qp.retryLimit;
  qp.retryLeft--;
  context.counters.completerRetryErr++;
  acknowledgeCharge(qp);
  const alone = again && !oldestFlushes(qp);
  if (alone) sendAlone(qp);
  // A peer that keeps what came ahead tells what it lacks when it sees the oldest packet again.
  if (selective && !alone && qp.psnUnacked != qp.psnNext) repairOldest(qp, true);
  else goBack(qp, qp.psnUnacked);
  armRetransmit(context, qp);
  schedule(context, qp);
}

/** The peer does not answer. A NAK doubted meanwhile was then its last packet. */
function failUnanswered(context: Context, qp: QueuePair, status: u32): void {
  const doubted = checksOf(qp);
  const syndrome: u32 = doubted.doubtedNak;
  if (syndrome == 0 || !inFlight(qp, doubted.doubtedPsn)) {
    const vendor = silenceOf(qp);
    if (vendor != 0) {
      context.counters.pathMtuErr++;
      pushEvent(context, EventKind.ASYNC, AsyncEvent.PATH_MTU_ERR, changetype<usize>(qp));
    }
    failOldest(context, qp, status, vendor);
    return;
  }
  completeBefore(context, qp, doubted.doubtedPsn);
  if (qp.state != <u32>QpState.ERR) failOldest(context, qp, statusOfNak(syndrome), syndrome);
}

/** A gap: goes back once, whatever number of packets tell of the same gap. */
export function retryGap(context: Context, qp: QueuePair): void {
  if (qp.rnrWaiting || qp.nakHandled == qp.psnUnacked + 1) return;
  noteGap(context, qp);
  noteLoss(context, qp, 1);
  retry(context, qp, WcStatus.RETRY_EXC_ERR, false);
  qp.nakHandled = qp.psnUnacked + 1;
}

/** An ACKNOWLEDGE packet. */
export function receiveAcknowledge(
  context: Context,
  qp: QueuePair,
  psn: u32,
  syndrome: u32,
  msn: u32,
): void {
  if (!believesMsn(context, qp, psn, msn)) return;
  if (!inFlight(qp, psn)) {
    if (isPlausible(qp, msn)) {
      qp.heardOldNews = 1;
      noteShortAnswer(context, qp);
    }
    if (psnCompare(psn, qp.psnUnacked) > 0) context.counters.dropGhost++;
    else noteSecondAnswer(qp, psn);
    return;
  }
  if (syndromeKind(syndrome) == <u32>SyndromeKind.NAK && doubtsNak(qp, psn, syndrome)) return;
  forgetDoubt(qp);
  takeMsn(qp, msn);
  switch (syndromeKind(syndrome)) {
    case SyndromeKind.ACK:
      if (completeBefore(context, qp, psnAdd(psn, 1))) {
        const lost = allIsLost(qp);
        settle(context, qp);
        if (lost && qp.state != QpState.ERR && qp.psnUnacked != qp.psnNext) {
          if (qp.reorderPeer == 0) goBack(qp, qp.psnUnacked);
          else repairLosses(context, qp, detectAllLosses(context, qp));
          schedule(context, qp);
        }
      } else {
        // An ACK beyond a READ that has no data yet says that its responses were lost, or are late.
        settle(context, qp);
        if (qp.state != QpState.ERR) repairResponses(context, qp);
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
  passesPath(context, qp);
  context.counters.rcvdRnrErr++;
  const reached = completeBefore(context, qp, psn);
  settle(context, qp);
  if (qp.state == QpState.ERR || qp.rnrWaiting) return;
  if (!reached) {
    retryGap(context, qp);
    return;
  }
  if (!takesReceive(qp) && !oldestFlushes(qp)) {
    // An RNR NAK is legal for what needs a receive request; any other has no end of its own.
    const syndrome = (<u32>SyndromeKind.RNR_NAK) | code;
    if (!doubtsNak(qp, psn, syndrome)) failOldest(context, qp, WcStatus.BAD_RESP_ERR, syndrome);
    return;
  }
  checksOf(qp).notReady = 1;
  if (oldestFlushes(qp)) {
    // The peer is executing it and is alive: the requester retransmits after the time in the NAK.
    qp.retryLeft = qp.retryLimit;
    cancelTimer(timerOf(qp));
    armTimer(context.timers, timerOf(qp), context.now, rnrTimerMicros(code));
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
  // Not to the PSN of the NAK: answers to what was before it may have completed more.
  goBack(qp, qp.psnUnacked);
  qp.rnrWaiting = 1;
  const timer = timerOf(qp);
  cancelTimer(timer);
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
  failOldest(context, qp, statusOfNak(syndrome), syndrome);
}

/** How a request completes that was refused with this NAK. */
function statusOfNak(syndrome: u32): u32 {
  if (syndrome == <u32>NakCode.INVALID_REQUEST) return WcStatus.REM_INV_REQ_ERR;
  if (syndrome == <u32>NakCode.REMOTE_ACCESS_ERROR) return WcStatus.REM_ACCESS_ERR;
  if (syndrome == <u32>NakCode.REMOTE_OPERATIONAL_ERROR) return WcStatus.REM_OP_ERR;
  return WcStatus.BAD_RESP_ERR;
}

/**
 * A selective acknowledgement: everything before `psn` has arrived, and what the map names behind
 * it; `psn` itself has not.
 */
export function receiveSelectiveAck(
  context: Context,
  qp: QueuePair,
  psn: u32,
  msn: u32,
  map: usize,
  words: u32,
): void {
  if (qp.reorderPeer == 0 || !inFlight(qp, psn)) {
    context.counters.dropGhost++;
    return;
  }
  forgetDoubt(qp);
  takeMsn(qp, msn);
  if (psn != qp.psnUnacked) {
    const reached = completeBefore(context, qp, psn);
    settle(context, qp);
    if (qp.state == <u32>QpState.ERR) return;
    if (!reached) {
      repairResponses(context, qp);
      if (qp.psnExecuted == qp.psnUnacked || isBeyond(qp, psn, qp.psnNext)) return;
    }
  }
  noteShortAnswer(context, qp);
  takeMissing(context, qp, psn, map, words);
}

/** The peer's packets from us met congestion. */
export function receiveCongestion(context: Context, qp: QueuePair): void {
  context.counters.cnpsReceived++;
  cutCongestionWindow(context, qp);
}

/** Does the oldest request wait for a response? Lost responses are requested one by one. */
function oldestAwaitsData(qp: QueuePair): bool {
  return qp.sendTail != qp.sendFetched && awaitsData(sendRequestAt(qp, qp.sendTail));
}

/** Does the oldest request take a receive request of the peer? */
function takesReceive(qp: QueuePair): bool {
  if (qp.sendTail == qp.sendFetched) return false;
  return isOf(sendRequestAt(qp, qp.sendTail), Operation.RECEIVE);
}

/** Is the oldest request a FLUSH, for which the peer may take its time? */
function oldestFlushes(qp: QueuePair): bool {
  if (qp.sendTail == qp.sendFetched) return false;
  const request = sendRequestAt(qp, qp.sendTail);
  return isOf(request, Operation.SLOW) && request.state == <u32>SendState.STARTED;
}

/** The queue pair's timer fired: the wait after an RNR NAK is over, or no answer arrived. */
export function timerFired(context: Context, qp: QueuePair): void {
  if (qp.rnrWaiting) {
    qp.rnrWaiting = 0;
    if (outstanding(qp)) armRetransmit(context, qp);
    schedule(context, qp);
    return;
  }
  if (qp.localPosted != 0) {
    // The local path's turn sees to it.
    qp.localLate = 1;
    schedule(context, qp);
    return;
  }
  if (!outstanding(qp) || tryPath(context, qp)) return;
  if (isPathTooShort(qp)) {
    context.counters.retryExceededErr++;
    failUnanswered(context, qp, WcStatus.RETRY_EXC_ERR);
    return;
  }
  const lost = qp.reorderPeer == 0 ? 0 : detectLosses(context, qp);
  repairLosses(context, qp, lost);
  if (lost != 0 || untilLost(context, qp) != 0) {
    armTimer(context.timers, timerOf(qp), context.now, nextDelay(context, qp));
    return;
  }
  const wait = untilAnswer(context, qp);
  if (wait != 0) {
    armTimer(context.timers, timerOf(qp), context.now, wait);
    return;
  }
  qp.silentMicros = <u32>context.now;
  qp.silent = 1;
  // Of a FLUSH it is mostly the answer that is late, not what was sent behind it that is lost.
  const selective = oldestFlushes(qp) || (qp.reorderPeer != 0 && !oldestAwaitsData(qp));
  const alone = answeredAlone(qp);
  if (repeatEarly(context, qp)) {
    repairOldest(qp, alone || qp.earlyRepeats > 1);
    noteEarlyRepeat(context, qp);
    schedule(context, qp);
    return;
  }
  context.counters.timeouts++;
  noteTimeout(context, qp);
  collapsePath(context, qp, <u32>timeoutOf(qp));
  qp.nakHandled = 0;
  retry(context, qp, WcStatus.RETRY_EXC_ERR, selective);
}

/** Limit of packets that wait for an acknowledgement: PSN comparison has 23 bits. */
const WAITING_MAX: u32 = 1 << 20;

/** Requester: everything before `psn` has arrived, and what the map names behind it. */
export function receiveArrivalReport(
  context: Context,
  qp: QueuePair,
  psn: u32,
  map: usize,
  words: u32,
): void {
  const arrived = psnDistance(qp.psnUnacked, psn);
  // One beyond what was sent is not believed: an acknowledgement overtook this one.
  if (arrived > psnDistance(qp.psnUnacked, qp.psnMax)) return;
  // While a response is missing, arrivals count one by one.
  if (qp.psnExecuted != qp.psnUnacked) return;
  // It was overtaken by one that says more.
  if (arrived < psnDistance(qp.psnUnacked, qp.psnArrived)) return;
  // Of what is about to be sent once more the books begin anew.
  const sent = psnDistance(qp.psnUnacked, qp.psnNext);
  moveArrived(context, qp, min<u32>(min<u32>(arrived, sent), WAITING_MAX));
  if (qp.reorderPeer != 0 && qp.psnArrived == psn) takeMissing(context, qp, psn, map, words);
  schedule(context, qp);
}

/** `packets` packets from the oldest unacknowledged one on have arrived. */
function moveArrived(context: Context, qp: QueuePair, packets: u32): void {
  const before = psnDistance(qp.psnUnacked, qp.psnArrived);
  if (packets <= before) return;
  const psn = psnAdd(qp.psnUnacked, packets);
  growCongestionWindow(context, qp, noteArrivedBefore(context, qp, psn));
  qp.psnArrived = psn;
  qp.chargeArrived = chargeOf(qp, qp.psnArrived);
}
