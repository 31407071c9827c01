/**
 * READ responses and ATOMIC ACKNOWLEDGEs: to memory, and what they complete. With a peer that does
 * selective repeat a response behind a missing one is placed at once (read-chunks.ts).
 */
import { psnAdd, psnDistance } from '../../wire/psn';
import { completeSend, failOldest } from '../queue/completion';
import { scatterResponse } from '../queue/scatter-gather';
import { Context } from '../shared/context';
import { Operation, awaitsData, isOf } from '../shared/operation';
import { QueuePair, ReadChunk, checksOf, sendRequestAt } from '../shared/queue-pair';
import { QpState, WcStatus } from '../shared/status';
import { SendRequest, SendState } from '../shared/work-request';
import { forgetDoubt, inFlight, noteResponse } from './answer-checks';
import {
  completeBefore,
  isBeyond,
  moveUnacked,
  repairResponses,
  retryGap,
  settle,
} from './completer';
import { growCongestionWindow } from './congestion-window';
import { noteSecondAnswer } from './retransmit-timer';
import { fitsRings, noteAhead } from './in-flight';
import { noteHasty } from '../shared/path-control';
import { chunkOf, isAhead, notePlaced } from './read-chunks';

/** Is a response with data about what is in flight? Counts it, and takes its MSN. */
function isAnswer(context: Context, qp: QueuePair, psn: u32, msn: u32): bool {
  if (!inFlight(qp, psn)) {
    if (noteSecondAnswer(qp, psn)) noteHasty(context, qp, qp.silentMicros);
    context.counters.dropGhost++;
    return false;
  }
  forgetDoubt(qp);
  const end = psnAdd(psn, 1);
  noteResponse(qp, msn, isBeyond(qp, end, qp.psnExecuted) ? psnDistance(qp.psnExecuted, end) : 0);
  return true;
}

/** A READ RESPONSE packet with `length` bytes of payload. `mark`: in its BTH (packet-mark.ts). */
export function receiveReadResponse(
  context: Context,
  qp: QueuePair,
  psn: u32,
  msn: u32,
  mark: u32,
  payload: usize,
  length: u32,
): void {
  const kind: u32 = Operation.DATA | Operation.EMPTY;
  takeResponse(context, qp, psn, msn, mark, kind, payload, length);
}

/** An ATOMIC ACKNOWLEDGE packet with the original value, in the machine's order. */
export function receiveAtomicResponse(
  context: Context,
  qp: QueuePair,
  psn: u32,
  msn: u32,
  mark: u32,
  original: u64,
): void {
  // Its bytes lie in the machine's order in memory, wherever the SGEs cut them.
  store<u64>(context.grh, original);
  takeResponse(context, qp, psn, msn, mark, Operation.ATOMIC, context.grh, 8);
}

/** `kind`: bits of Operation, of requests that have such responses. */
function takeResponse(
  context: Context,
  qp: QueuePair,
  psn: u32,
  msn: u32,
  mark: u32,
  kind: u32,
  payload: usize,
  length: u32,
): void {
  const chunk = inFlight(qp, psn) ? chunkOf(qp, psn) : null;
  if (chunk != null && isAhead(qp, chunk, psn) && qp.reorderPeer != 0 && fitsRings(qp)) {
    // A forged packet must hit the mark as well, since any of many PSNs will do.
    if (mark != checksOf(qp).sendMark) context.counters.dropGhost++;
    else if (isAnswer(context, qp, psn, msn))
      takeAhead(context, qp, chunk, psn, kind, payload, length);
    return;
  }
  if (!isAnswer(context, qp, psn, msn)) return;
  // A response answers everything before it, too.
  completeBefore(context, qp, psn);
  if (qp.state == <u32>QpState.ERR) return;
  const request = sendRequestAt(qp, qp.sendTail);
  const waits =
    qp.sendTail != qp.sendFetched && request.state == <u32>SendState.STARTED && awaitsData(request);
  if (waits && isOf(request, kind) && psn == qp.psnUnacked) {
    takeNext(context, qp, request, chunk, psn, payload, length);
    return;
  }
  // Behind something whose data is missing, or an answer to something else.
  settle(context, qp);
  if (qp.state == <u32>QpState.ERR) return;
  if (waits && psn != qp.psnUnacked) retryGap(context, qp);
  else context.counters.dropGhost++;
}

/** Writes a response to memory. A WcStatus. */
function place(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  psn: u32,
  payload: usize,
  length: u32,
): u32 {
  const offset = psnDistance(request.psnFirst, psn) * qp.mtu;
  let expected: u32 = isOf(request, Operation.ATOMIC) ? 8 : 0;
  if (isOf(request, Operation.DATA)) expected = min<u32>(qp.mtu, request.length - offset);
  if (length != expected) return WcStatus.BAD_RESP_ERR;
  const isPlaced = scatterResponse(context, qp, request, offset, payload, length);
  return isPlaced ? WcStatus.SUCCESS : WcStatus.LOC_PROT_ERR;
}

/** The response that is next. */
function takeNext(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  chunk: ReadChunk | null,
  psn: u32,
  payload: usize,
  length: u32,
): void {
  const status = place(context, qp, request, psn, payload, length);
  if (status != <u32>WcStatus.SUCCESS) {
    failOldest(context, qp, status, 0);
    return;
  }
  if (chunk == null) {
    // Its request is about to be sent once more.
    moveUnacked(context, qp, psnAdd(psn, 1));
    if (psn == request.psnLast) completeSend(context, qp, WcStatus.SUCCESS, 0);
  } else {
    notePlaced(chunk, psn);
    if (qp.psnExecuted != qp.psnUnacked)
      growCongestionWindow(context, qp, noteAhead(context, qp, psn));
    if (!completeBefore(context, qp, psnAdd(psn, 1))) {
      settle(context, qp);
      if (qp.state != <u32>QpState.ERR) repairResponses(context, qp);
      return;
    }
  }
  settle(context, qp);
}

/**
 * A response behind one that is missing goes to its place. If there was one with its PSN before it
 * is written even so: the genuine response replaces a forged one that came before it.
 */
function takeAhead(
  context: Context,
  qp: QueuePair,
  chunk: ReadChunk,
  psn: u32,
  kind: u32,
  payload: usize,
  length: u32,
): void {
  const request = sendRequestAt(qp, chunk.request);
  // Data that cannot be placed fail the request later, when it is the oldest.
  const isTaken =
    isOf(request, kind) &&
    place(context, qp, request, psn, payload, length) == <u32>WcStatus.SUCCESS;
  if (!isTaken) {
    context.counters.dropGhost++;
    return;
  }
  if (!notePlaced(chunk, psn)) return;
  completeBefore(context, qp, psnAdd(psn, 1));
  if (qp.state == <u32>QpState.ERR) return;
  const arrived = noteAhead(context, qp, psn);
  if (arrived > 0) growCongestionWindow(context, qp, arrived);
  settle(context, qp);
  if (qp.state != <u32>QpState.ERR) repairResponses(context, qp);
}
