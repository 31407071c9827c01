/**
 * Where receive requests come from: a queue pair's own ring, or a shared receive queue. Either way
 * the request is copied before it is looked at, and the queue pair works on its copy.
 */
import { RING_HEADER_SIZE, ringCount, setRingTail } from '../memory/ring';
import { Context, EventKind, pushEvent } from './context';
import { QueuePair, receiveRequestAt } from './queue-pair';
import { AsyncEvent } from './status';
import { ReceiveRequest } from './work-queue';

/** A shared receive queue, 64 bytes. */
@unmanaged
export class SharedReceiveQueue {
  nextFree: usize;
  /** 0 while the slot is free. */
  ring: usize;
  entries: u32;
  stride: u32;
  sgeMax: u32;
  pd: u32;
  /** Index of the next request. */
  next: u32;
  /** Armed limit: one event when fewer requests are left; 0: not armed. */
  limit: u32;
  /** Queue pairs that take from it. */
  useCount: u32;
  reserved0: u32;
  reserved1: u64;
  reserved2: u64;
  reserved3: u64;
}
export const SHARED_RECEIVE_QUEUE_SIZE: u32 = 64;

/** Copies the next receive request. False when none is posted. */
export function takeReceive(context: Context, qp: QueuePair): bool {
  // `srq!` would bring a sentence, and with it a data segment.
  const srq = qp.srq;
  const taken = srq == null ? takeOwn(qp) : takeShared(context, srq, qp);
  if (!taken) return false;
  qp.receiveHeld = 1;
  qp.receiveSgeIndex = 0;
  qp.receiveSgeOffset = 0;
  return true;
}

function takeOwn(qp: QueuePair): bool {
  if (ringCount(qp.receiveRing, qp.receiveNext, qp.receiveEntries) == 0) return false;
  const source = changetype<usize>(receiveRequestAt(qp, qp.receiveNext));
  copyRequest(qp, source, qp.receiveStride, qp.receiveSgeMax);
  qp.receiveNext++;
  setRingTail(qp.receiveRing, qp.receiveNext);
  return true;
}

function takeShared(context: Context, srq: SharedReceiveQueue, qp: QueuePair): bool {
  if (ringCount(srq.ring, srq.next, srq.entries) == 0) return false;
  const offset = (srq.next & (srq.entries - 1)) * srq.stride;
  copyRequest(qp, srq.ring + RING_HEADER_SIZE + <usize>offset, srq.stride, srq.sgeMax);
  srq.next++;
  setRingTail(srq.ring, srq.next);
  if (srq.limit != 0 && ringCount(srq.ring, srq.next, srq.entries) < srq.limit) {
    srq.limit = 0;
    const object = changetype<usize>(srq);
    pushEvent(context, EventKind.ASYNC, AsyncEvent.SRQ_LIMIT_REACHED, object);
  }
  return true;
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
