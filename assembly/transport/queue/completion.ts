/**
 * Completions, and the ERR and SQE states. Every posted request, signalled or not, completes once
 * and in order; in ERR it is flushed (IBA 10.3.1.7). A completion queue that overflows puts the
 * queue pair into ERR, which flushes: so both are in one file.
 *
 * A full completion queue is dead (CQ_ERR, man ibv_poll_cq), and its queue pairs go to ERR with
 * their next completion. Only a queue with `ignoreOverrun` overwrites its oldest entry.
 */
import {
  RING_HEADER_SIZE,
  giveRingTail,
  ringHead,
  ringTail,
  setRingHead,
  setRingTail,
} from '../../memory/ring';
import { Context, EventKind, pushEvent } from '../shared/context';
import { withdrawEndpoint } from '../shared/local-endpoint';
import { abandonMessages } from '../shared/local-messages';
import { completionOpcode } from '../shared/operation';
import { leavePath } from '../shared/path-control';
import { QueuePair, pathOf, sendRequestAt, timerOf } from '../shared/queue-pair';
import { CompletionQueue, CqNotify, WORK_COMPLETION_SIZE, WorkCompletion } from '../shared/queues';
import { forgetAhead } from '../shared/reorder-pool';
import {
  AsyncEvent,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcOpcode,
  WcStatus,
} from '../shared/status';
import { cancelTimer } from '../shared/timer-wheel';
import { ReceiveRequest, SendRequest, SendState } from '../shared/work-request';
import { CountedOperation, countCompletion, countSend } from './completion-counter';
import { takeReceive } from './receive-queue';
import { fetch } from './send-queue';

/**
 * Completes the oldest send request, and what waited behind it for nothing else. So the oldest one
 * is never DONE.
 */
export function completeSend(context: Context, qp: QueuePair, status: u32, vendor: u32): void {
  completeOldest(context, qp, status, vendor);
  while (qp.sendTail != qp.sendFetched && qp.state != QpState.ERR) {
    if (sendRequestAt(qp, qp.sendTail).state != SendState.DONE) break;
    if (qp.sendNext == qp.sendTail) qp.sendNext++;
    completeOldest(context, qp, status, 0);
  }
}

/** Completes the oldest send request and gives its place in the ring back. */
function completeOldest(context: Context, qp: QueuePair, status: u32, vendor: u32): void {
  const request: SendRequest = sendRequestAt(qp, qp.sendTail);
  const signalled = qp.signalAll != 0 || (request.sendFlags & SendFlag.SIGNALED) != 0;
  const failed = status != WcStatus.SUCCESS;
  if (qp.counterTable != 0) {
    countSend(qp.counterTable, completionOpcode(request), status, request.length);
  }
  qp.sendTail++;
  if (!signalled && !failed) {
    giveRingTail(qp.sendRing, qp.sendTail);
    return;
  }
  // The place first, then the completion: a thread that sees the completion may post at once.
  setRingTail(qp.sendRing, qp.sendTail);
  const completion = nextCompletion(context, qp.sendCq);
  if (completion == null) {
    // It takes the queue pair with it: nothing may be lost silently.
    if (qp.state != QpState.ERR) fatal(context, qp);
    return;
  }
  completion.wrId = request.wrId;
  completion.status = status;
  completion.opcode = completionOpcode(request);
  completion.byteLength = request.length;
  completion.qpn = qp.qpn;
  completion.vendorError = vendor;
  publishCompletion(context, qp.sendCq, failed);
}

/** Completes the receive request in hand. */
export function completeReceive(
  context: Context,
  qp: QueuePair,
  status: u32,
  opcode: u32,
  byteLength: u32,
  immediate: u32,
  flags: u32,
  solicited: bool,
): void {
  countCompletion(qp.counterTable, CountedOperation.RECV, status, byteLength);
  const completion = nextCompletion(context, qp.receiveCq);
  qp.receiveHeld = 0;
  if (completion == null) {
    if (qp.state != QpState.ERR) fatal(context, qp);
    return;
  }
  completion.wrId = changetype<ReceiveRequest>(qp.receiveRequest).wrId;
  completion.status = status;
  completion.opcode = opcode;
  completion.byteLength = byteLength;
  completion.immediate = flags & (WcFlag.WITH_IMM | WcFlag.WITH_INV) ? immediate : 0;
  completion.flags = flags;
  completion.qpn = qp.qpn;
  completion.sourceQp = qp.sourceQp;
  completion.sourcePort = qp.sourcePort;
  publishCompletion(context, qp.receiveCq, solicited || status != WcStatus.SUCCESS);
}

/** A completion queue overflowed under this queue pair. */
function fatal(context: Context, qp: QueuePair): void {
  enterError(context, qp);
  pushEvent(context, EventKind.ASYNC, AsyncEvent.QP_FATAL, changetype<usize>(qp));
}

/** To ERR: stops everything and flushes both queues. Safe to call again. */
export function enterError(context: Context, qp: QueuePair): void {
  if (qp.state != QpState.ERR) stop(context, qp);
  flushQueues(context, qp);
}

/** Nothing more is sent, answered or waited for. */
function stop(context: Context, qp: QueuePair): void {
  withdrawEndpoint(context, qp);
  abandonMessages(context, qp);
  // Ordered before the reads of the rings below: a poster reads the state after it has posted.
  atomic.store<u32>(changetype<usize>(qp) + offsetof<QueuePair>('state'), QpState.ERR);
  cancelTimer(timerOf(qp));
  leavePath(qp, pathOf(qp));
  forgetAhead(context, qp);
  qp.rnrWaiting = 0;
  qp.jobTail = qp.jobHead;
  qp.heldJobs = 0;
  qp.receiveFenced = 0;
  qp.busyPending = 0;
  qp.ackPending = 0;
  qp.sackPending = 0;
}

/** Completes the oldest send request with `status`, all others with WR_FLUSH_ERR. */
export function failOldest(context: Context, qp: QueuePair, status: u32, vendor: u32): void {
  // The state changes first: nothing that a completion sets off may find the queue pair at work.
  stop(context, qp);
  if (qp.sendTail != qp.sendFetched) completeSend(context, qp, status, vendor);
  flushQueues(context, qp);
}

/** Flushes what was posted; also called for what is posted in ERR. */
export function flushQueues(context: Context, qp: QueuePair): void {
  flushSends(context, qp);
  flushReceives(context, qp);
}

/** Also called for what is posted in SQE. */
export function flushSends(context: Context, qp: QueuePair): void {
  for (;;) {
    if (qp.sendTail == qp.sendFetched && !fetch(qp)) break;
    completeSend(context, qp, WcStatus.WR_FLUSH_ERR, 0);
  }
  qp.sendNext = qp.sendTail;
  qp.sendOffset = 0;
  qp.sendSgeIndex = 0;
  qp.sendSgeOffset = 0;
}

function flushReceives(context: Context, qp: QueuePair): void {
  if (qp.receiveHeld) flushReceive(context, qp);
  if (qp.srq == null) {
    while (takeReceive(context, qp)) flushReceive(context, qp);
    return;
  }
  // Other queue pairs use the shared queue as well; this one takes no more requests from it.
  if (qp.lastTaken) return;
  qp.lastTaken = 1;
  pushEvent(context, EventKind.ASYNC, AsyncEvent.QP_LAST_WQE_REACHED, changetype<usize>(qp));
}

/**
 * A send of an unreliable queue pair failed: the oldest completes with `status`, what follows is
 * flushed, and receiving goes on (SQE, IBA 10.3.1.6).
 */
export function enterSendError(context: Context, qp: QueuePair, status: u32): void {
  qp.state = QpState.SQE;
  completeSend(context, qp, status, 0);
  flushSends(context, qp);
}

function flushReceive(context: Context, qp: QueuePair): void {
  completeReceive(context, qp, WcStatus.WR_FLUSH_ERR, WcOpcode.RECV, 0, 0, 0, false);
}

/** The entry that the next completion is written to, cleared; null when the queue is full. */
export function nextCompletion(context: Context, cq: CompletionQueue): WorkCompletion | null {
  if (cq.dead) return null;
  const head = ringHead(cq.ring);
  if (head - ringTail(cq.ring) >= cq.entries && !cq.ignoreOverrun) {
    cq.dead = 1;
    pushEvent(context, EventKind.ASYNC, AsyncEvent.CQ_ERR, changetype<usize>(cq));
    return null;
  }
  const at = cq.ring + RING_HEADER_SIZE + <usize>((head & (cq.entries - 1)) * WORK_COMPLETION_SIZE);
  // For so few bytes memory.fill is a call too many.
  const zero = i64x2.splat(0);
  for (let to = at; to < at + WORK_COMPLETION_SIZE; to += 16) v128.store(to, zero);
  const completion = changetype<WorkCompletion>(at);
  completion.timestamp = context.now;
  return completion;
}

/** Is there room for one more completion? */
export function hasCompletionRoom(cq: CompletionQueue): bool {
  if (cq.dead) return false;
  return cq.ignoreOverrun != 0 || ringHead(cq.ring) - ringTail(cq.ring) < cq.entries;
}

/** Publishes the last written completion; pushes an event if the queue is armed. */
export function publishCompletion(context: Context, cq: CompletionQueue, solicited: bool): void {
  setRingHead(cq.ring, ringHead(cq.ring) + 1);
  if (cq.armed == CqNotify.ANY || (cq.armed == CqNotify.SOLICITED && solicited)) {
    cq.armed = CqNotify.NONE;
    pushEvent(context, EventKind.COMPLETION, 0, changetype<usize>(cq));
  }
}

/** The request cannot go on; it completes with `status` when everything before it has. */
export function fail(context: Context, qp: QueuePair, request: SendRequest, status: u32): void {
  context.counters.sendErr++;
  if (qp.type != <u32>QpType.RC) {
    enterSendError(context, qp, status);
    return;
  }
  request.state = SendState.FAILED;
  request.status = status;
  request.vendorError = 0;
  qp.sendStopped = 1;
}
