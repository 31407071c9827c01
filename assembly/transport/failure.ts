/**
 * The end of a queue pair's work: the ERR state, and the flushing of its queues. Every request
 * that was posted, signalled or not, gets a completion of its own, in order (IBA 10.3.1.7).
 */
import { giveRingTail, setRingTail } from '../memory/ring';
import { CountedOperation, countCompletion, countSend } from './completion-counter';
import { nextCompletion, publishCompletion } from './completion-queue';
import { Context, EventKind, pushEvent } from './context';
import { QueuePair, pathOf, sendRequestAt, timerOf } from './queue-pair';
import { takeReceive } from './receive-queue';
import { fetch } from './fetch';
import { AsyncEvent, QpState, SendFlag, WcFlag, WcOpcode, WcStatus, WrOpcode } from './status';
import { cancelTimer } from './timer';
import { leavePeer } from './window';
import { ReceiveRequest, SendRequest, SendState } from './work-queue';

/** The completion's name of a send request's operation. */
function completionOpcode(opcode: u32): u32 {
  switch (opcode) {
    case WrOpcode.RDMA_WRITE:
    case WrOpcode.RDMA_WRITE_WITH_IMM:
      return WcOpcode.RDMA_WRITE;
    case WrOpcode.RDMA_READ:
      return WcOpcode.RDMA_READ;
    case WrOpcode.ATOMIC_CMP_AND_SWP:
      return WcOpcode.COMP_SWAP;
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
      return WcOpcode.FETCH_ADD;
    case WrOpcode.LOCAL_INV:
      return WcOpcode.LOCAL_INV;
    case WrOpcode.BIND_MW:
      return WcOpcode.BIND_MW;
    case WrOpcode.REG_MR:
      return WcOpcode.REG_MR;
    case WrOpcode.BIND_MR:
      return WcOpcode.BIND_MR;
    case WrOpcode.FLUSH:
      return WcOpcode.FLUSH;
    case WrOpcode.ATOMIC_WRITE:
      return WcOpcode.ATOMIC_WRITE;
    default:
      return WcOpcode.SEND;
  }
}

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
    countSend(qp.counterTable, completionOpcode(request.opcode), status, request.length);
  }
  qp.sendTail++;
  if (!signalled && !failed) {
    giveRingTail(qp.sendRing, qp.sendTail);
    return;
  }
  // First the place, then the completion: whoever sees that, in another thread, may post at once.
  setRingTail(qp.sendRing, qp.sendTail);
  const completion = nextCompletion(context, qp.sendCq);
  if (completion == null) {
    // It takes the queue pair with it: nothing may be lost silently.
    if (qp.state != QpState.ERR) fatal(context, qp);
    return;
  }
  completion.wrId = request.wrId;
  completion.status = status;
  completion.opcode = completionOpcode(request.opcode);
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
  if (qp.state != QpState.ERR) stop(qp);
  flushQueues(context, qp);
}

/** Nothing more is sent, answered or waited for. */
function stop(qp: QueuePair): void {
  // In order with the look into the rings that follows: who posts looks at the state afterwards.
  atomic.store<u32>(changetype<usize>(qp) + offsetof<QueuePair>('state'), QpState.ERR);
  cancelTimer(timerOf(qp));
  leavePeer(qp, pathOf(qp));
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
  stop(qp);
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
  // What is posted there belongs to others as well; this queue pair takes no more of it.
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
