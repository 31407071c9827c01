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
import { scatterResponse } from '../queue/scatter-gather';
import { Context, schedule } from '../shared/context';
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
import { QpState, QpType, WcStatus } from '../shared/status';
import { collapsePath } from '../shared/path-control';
import { armTimer, cancelTimer } from '../shared/timer-wheel';
import { SendRequest, SendState } from '../shared/work-request';
import {
  believesMsn,
  doubtsNak,
  forgetDoubt,
  inFlight,
  isPlausible,
  noteResponse,
  takeMsn,
} from './answer-checks';
import {
  acknowledgeCharge,
  answeredAlone,
  armRetransmit,
  chargeOf,
  cutWindow,
  endProbe,
  growWindow,
  nextDelay,
  noteLoss,
  noteSecondAnswer,
  repeatEarly,
  sendAlone,
  timeoutOf,
} from './congestion-window';
import { detectAllLosses, detectLosses, noteArrivedBefore, noteGap, untilLost } from './in-flight';
import { noteDrained } from './requester';
import { allIsLost, goBack, repairLosses, repairOldest, takeMissing } from './retransmit';

/** rnr_retry that means "for ever". */
const RNR_RETRY_INFINITE: u32 = 7;

/**
 * Completes what an answer for everything before `psn` answers. It stops at a READ or atomic that
 * still waits for data: only its own response completes that (IBA 9.7.5.1.1). False when it did.
 *
 * PSNs are compared by their distance from the oldest one in flight: a message may have 2^23
 * packets, and plain comparison ends there.
 */
function completeBefore(context: Context, qp: QueuePair, psn: u32): bool {
  while (qp.sendTail != qp.sendFetched && qp.state != <u32>QpState.ERR) {
    const request = sendRequestAt(qp, qp.sendTail);
    if (request.state != <u32>SendState.STARTED) break;
    const answered = psnDistance(qp.psnUnacked, psn);
    // What is oldest has the oldest PSN: whatever is answered is answered beyond it.
    if (awaitsData(request)) {
      if (answered == 0) return true;
      if (!isAnswered(qp, request)) return false;
      qp.chunkTail++;
    }
    const last = psnDistance(qp.psnUnacked, request.psnLast);
    if (last >= answered) break;
    moveUnacked(context, qp, psnAdd(request.psnLast, 1));
    completeSend(context, qp, WcStatus.SUCCESS, 0);
  }
  moveUnacked(context, qp, psn);
  return true;
}

/**
 * Does an answer to a later request answer a FLUSH? Only its own response should. But Linux rxe
 * does not repeat a lost response, and it executed the FLUSH before the request that it answers.
 */
function isAnswered(qp: QueuePair, request: SendRequest): bool {
  return isOf(request, Operation.SLOW) && pathOf(qp).doublesFlush != 0;
}

/** Progress: the retry counts start anew. */
function moveUnacked(context: Context, qp: QueuePair, psn: u32): void {
  const packets = psnDistance(qp.psnUnacked, psn);
  if (packets == 0) return;
  endProbe(context, qp, psn);
  const arrived = psnDistance(qp.psnUnacked, qp.psnArrived);
  if (packets > arrived) {
    growWindow(context, qp, noteArrivedBefore(context, qp, psn));
    qp.psnArrived = psn;
  }
  qp.psnUnacked = psn;
  qp.retryLeft = qp.retryLimit;
  qp.rnrRetryLeft = qp.rnrRetryLimit;
  qp.nakHandled = 0;
  checksOf(qp).notReady = 0;
}

/** After any answer: books, timer, and whatever may be sent now. */
function settle(context: Context, qp: QueuePair): void {
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
    failOldest(context, qp, status, 0);
    return;
  }
  completeBefore(context, qp, doubted.doubtedPsn);
  if (qp.state != <u32>QpState.ERR) failOldest(context, qp, statusOfNak(syndrome), syndrome);
}

/** A gap: goes back once, whatever number of packets tell of the same gap. */
function retryGap(context: Context, qp: QueuePair): void {
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
    if (isPlausible(qp, msn)) qp.heardOldNews = 1;
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
  goBack(qp, psn);
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

/** Is a response with data about what is in flight? Counts it, and takes its MSN. */
function isAnswer(context: Context, qp: QueuePair, psn: u32, msn: u32): bool {
  if (!inFlight(qp, psn)) {
    noteSecondAnswer(qp, psn);
    context.counters.dropGhost++;
    return false;
  }
  forgetDoubt(qp);
  noteResponse(qp, msn, psnDistance(qp.psnUnacked, psn) + 1);
  return true;
}

/** A READ RESPONSE packet with `length` bytes of payload. */
export function receiveReadResponse(
  context: Context,
  qp: QueuePair,
  psn: u32,
  msn: u32,
  payload: usize,
  length: u32,
): void {
  if (!isAnswer(context, qp, psn, msn)) return;
  // A response answers everything before it, too.
  completeBefore(context, qp, psn);
  if (qp.state == QpState.ERR) return;
  const request = sendRequestAt(qp, qp.sendTail);
  const ours =
    qp.sendTail != qp.sendFetched &&
    request.state == <u32>SendState.STARTED &&
    isOf(request, Operation.DATA | Operation.EMPTY);
  const answered = psnDistance(qp.psnUnacked, psn);
  if (!ours || answered > psnDistance(qp.psnUnacked, request.psnLast)) {
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
  const reads = isOf(request, Operation.DATA);
  if (length != (reads ? min<u32>(qp.mtu, request.length - offset) : 0)) {
    failOldest(context, qp, WcStatus.BAD_RESP_ERR, 0);
    return;
  }
  if (!scatterResponse(context, qp, request, offset, payload, length)) {
    failOldest(context, qp, WcStatus.LOC_PROT_ERR, 0);
    return;
  }
  moveUnacked(context, qp, psnAdd(psn, 1));
  if (qp.chunkTail != qp.chunkHead && load<u32>(chunkAt(qp, qp.chunkTail)) == psn) qp.chunkTail++;
  if (psn == request.psnLast) completeSend(context, qp, WcStatus.SUCCESS, 0);
  settle(context, qp);
}

/** An ATOMIC ACKNOWLEDGE packet with the original value, in the machine's order. */
export function receiveAtomicResponse(
  context: Context,
  qp: QueuePair,
  psn: u32,
  msn: u32,
  original: u64,
): void {
  if (!isAnswer(context, qp, psn, msn)) return;
  completeBefore(context, qp, psn);
  if (qp.state == <u32>QpState.ERR) return;
  const request = sendRequestAt(qp, qp.sendTail);
  const ours = qp.sendTail != qp.sendFetched && request.state == <u32>SendState.STARTED;
  if (
    !ours ||
    psn != qp.psnUnacked ||
    psn != request.psnFirst ||
    !isOf(request, Operation.ATOMIC)
  ) {
    // Behind something whose data is missing, or no answer to an atomic at all.
    settle(context, qp);
    if (ours && awaitsData(request) && qp.state != <u32>QpState.ERR) retryGap(context, qp);
    else context.counters.dropGhost++;
    return;
  }
  // Its bytes lie in the machine's order in memory, wherever the SGEs cut them.
  store<u64>(context.grh, original);
  if (!scatterResponse(context, qp, request, 0, context.grh, 8)) {
    failOldest(context, qp, WcStatus.LOC_PROT_ERR, 0);
    return;
  }
  moveUnacked(context, qp, psnAdd(psn, 1));
  if (qp.chunkTail != qp.chunkHead && load<u32>(chunkAt(qp, qp.chunkTail)) == psn) qp.chunkTail++;
  completeSend(context, qp, WcStatus.SUCCESS, 0);
  settle(context, qp);
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
      retryGap(context, qp);
      return;
    }
  }
  takeMissing(context, qp, psn, map, words);
}

/** The peer's packets from us met congestion. */
export function receiveCongestion(context: Context, qp: QueuePair): void {
  context.counters.cnpsReceived++;
  cutWindow(context, qp);
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
  if (!outstanding(qp)) return;
  const lost = qp.reorderPeer == 0 ? 0 : detectLosses(context, qp);
  repairLosses(context, qp, lost);
  if (lost != 0 || untilLost(context, qp) != 0) {
    armTimer(context.timers, timerOf(qp), context.now, nextDelay(context, qp));
    return;
  }
  qp.silentMicros = <u32>context.now;
  qp.silentMeasured = 0;
  // Of a FLUSH it is mostly the answer that is late, not what was sent behind it that is lost.
  const selective = oldestFlushes(qp) || (qp.reorderPeer != 0 && !oldestAwaitsData(qp));
  const alone = answeredAlone(qp);
  if (repeatEarly(context, qp)) {
    repairOldest(qp, alone || qp.earlyRepeats > 1);
    schedule(context, qp);
    return;
  }
  context.counters.timeouts++;
  collapsePath(context, qp, <u32>timeoutOf(qp));
  qp.nakHandled = 0;
  retry(context, qp, WcStatus.RETRY_EXC_ERR, selective);
}

/** Limit of packets that wait for an acknowledgement: PSN comparison has 23 bits. */
const WAITING_MAX: u32 = 1 << 20;

/** Requester: everything before `psn` has arrived, and what the map names behind it. */
export function receiveArrival(
  context: Context,
  qp: QueuePair,
  psn: u32,
  map: usize,
  words: u32,
): void {
  const arrived = psnDistance(qp.psnUnacked, psn);
  if (arrived > psnDistance(qp.psnUnacked, qp.psnMax)) {
    context.counters.dropGhost++;
    return;
  }
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
  growWindow(context, qp, noteArrivedBefore(context, qp, psn));
  qp.psnArrived = psn;
  qp.chargeArrived = chargeOf(qp, qp.psnArrived);
}
