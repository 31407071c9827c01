/**
 * Takes receive requests from a queue pair's own ring or from a shared receive queue. The engine
 * copies a request before it checks it, and uses only the copy.
 */
import { RING_HEADER_SIZE, ringCount, setRingTail } from '../../memory/ring';
import { Context, EventKind, pushEvent } from '../shared/context';
import { QueuePair, receiveRequestAt } from '../shared/queue-pair';
import { SharedReceiveQueue } from '../shared/queues';
import { AsyncEvent } from '../shared/status';
import { ReceiveRequest } from '../shared/work-request';

/** Takes the next receive request. False when none is posted. */
export function takeReceive(context: Context, qp: QueuePair): bool {
  if (!peekReceive(qp)) return false;
  takePeeked(context, qp);
  return true;
}

/** Copies the next receive request, which stays posted. False when none is. */
export function peekReceive(qp: QueuePair): bool {
  // `srq!` would bring a sentence, and with it a data segment.
  const srq = qp.srq;
  if (srq == null) {
    if (ringCount(qp.receiveRing, qp.receiveNext, qp.receiveEntries) == 0) return false;
    const source = changetype<usize>(receiveRequestAt(qp, qp.receiveNext));
    copyRequest(qp, source, qp.receiveStride, qp.receiveSgeMax);
  } else {
    if (ringCount(srq.ring, srq.next, srq.entries) == 0) return false;
    const offset = (srq.next & (srq.entries - 1)) * srq.stride;
    copyRequest(qp, srq.ring + RING_HEADER_SIZE + <usize>offset, srq.stride, srq.sgeMax);
  }
  qp.receiveSgeIndex = 0;
  qp.receiveSgeOffset = 0;
  return true;
}

/** Takes the receive request that `peekReceive` has copied. */
export function takePeeked(context: Context, qp: QueuePair): void {
  qp.receiveHeld = 1;
  const srq = qp.srq;
  if (srq == null) {
    qp.receiveNext++;
    setRingTail(qp.receiveRing, qp.receiveNext);
    return;
  }
  srq.next++;
  setRingTail(srq.ring, srq.next);
  if (srq.limit != 0 && ringCount(srq.ring, srq.next, srq.entries) < srq.limit) {
    srq.limit = 0;
    const object = changetype<usize>(srq);
    pushEvent(context, EventKind.ASYNC, AsyncEvent.SRQ_LIMIT_REACHED, object);
  }
}

/** Is there a receive request, in hand or posted? */
export function hasReceive(qp: QueuePair): bool {
  if (qp.receiveHeld) return true;
  const srq = qp.srq;
  if (srq != null) return ringCount(srq.ring, srq.next, srq.entries) != 0;
  return ringCount(qp.receiveRing, qp.receiveNext, qp.receiveEntries) != 0;
}

function copyRequest(qp: QueuePair, source: usize, stride: u32, sgeMax: u32): void {
  memory.copy(qp.receiveRequest, source, stride);
  const request = changetype<ReceiveRequest>(qp.receiveRequest);
  // The ring's other side may be hostile: the copy is what was checked.
  if (request.sgeCount > sgeMax) request.sgeCount = 0;
}

/** The domain whose keys name the memory of receive requests. */
export function receivePd(qp: QueuePair): u32 {
  const srq = qp.srq;
  return srq == null ? qp.pd : srq.pd;
}
