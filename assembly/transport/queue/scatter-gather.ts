/**
 * Copies between SGE lists and packets: gathers requests, scatters responses and received SENDs.
 */
import { copyBytes } from '../../memory/bytes';
import { moveLocal, translateLocal } from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import { Context } from '../shared/context';
import { QueuePair, receiveCursor, sendCursor } from '../shared/queue-pair';
import { SendFlag, WcStatus } from '../shared/status';
import {
  RECEIVE_REQUEST_SIZE,
  ReceiveRequest,
  SEND_REQUEST_SIZE,
  SGE_SIZE,
  SendRequest,
  Sge,
  sgeTotal,
} from '../shared/work-request';
import { receivePd } from './receive-queue';

/**
 * Copies the next `length` bytes of the request to `target`: from registered memory, by the queue
 * pair's cursor, or from the request itself. False when a key does not allow it.
 */
export function gather(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: usize,
  length: u32,
): bool {
  const data = changetype<usize>(request) + SEND_REQUEST_SIZE;
  if (request.sendFlags & SendFlag.INLINE) {
    copyBytes(target, data + qp.sendOffset, length);
    return true;
  }
  const arena = context.arena;
  const cursor = sendCursor(qp);
  let to = target;
  let left = length;
  while (left > 0) {
    const sge = changetype<Sge>(data + <usize>(cursor.index * SGE_SIZE));
    const piece = min<u32>(left, sge.length - cursor.offset);
    if (piece > 0) {
      const at = sge.address + cursor.offset;
      const from = translateLocal(arena, sge.lkey, qp.pd, at, piece, 0);
      if (from != 0) copyBytes(to, from, piece);
      else if (!moveLocal(arena, sge.lkey, qp.pd, sge.address, cursor.offset, to, piece, 0)) {
        return false;
      }
    }
    to += piece;
    left -= piece;
    cursor.offset += piece;
    if (cursor.offset == sge.length) {
      cursor.index++;
      cursor.offset = 0;
    }
  }
  return true;
}

/**
 * Where the next `length` bytes of the request lie, if that is one piece of memory: they count as
 * taken. 0: `gather` has to see.
 */
export function inOnePiece(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  length: u32,
): usize {
  if (request.sendFlags & SendFlag.INLINE) return 0;
  const cursor = sendCursor(qp);
  const data = changetype<usize>(request) + SEND_REQUEST_SIZE;
  const sge = changetype<Sge>(data + <usize>(cursor.index * SGE_SIZE));
  if (sge.length - cursor.offset < length) return 0;
  const at = sge.address + cursor.offset;
  const from = translateLocal(context.arena, sge.lkey, qp.pd, at, length, 0);
  if (from == 0) return 0;
  cursor.offset += length;
  if (cursor.offset == sge.length) {
    cursor.index++;
    cursor.offset = 0;
  }
  return from;
}

/** Copies to a layout, `skip` bytes into its SGE. `pd`: that of the queue of the SGE. */
export function scatterLayout(
  context: Context,
  pd: u32,
  sge: Sge,
  skip: u32,
  source: usize,
  length: u32,
): bool {
  const need: u32 = AccessFlag.LOCAL_WRITE;
  return moveLocal(context.arena, sge.lkey, pd, sge.address, skip, source, length, need);
}

/**
 * Writes a response's bytes to local memory. `offset` counts from the start of the request. False
 * when the local key does not allow it.
 */
export function scatterResponse(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  offset: u32,
  source: usize,
  length: u32,
): bool {
  const sges = changetype<usize>(request) + SEND_REQUEST_SIZE;
  let index: u32 = 0;
  let skip = offset;
  let from = source;
  let left = length;
  while (left > 0) {
    const sge = changetype<Sge>(sges + <usize>(index * SGE_SIZE));
    index++;
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const piece = min<u32>(left, sge.length - skip);
    const need: u32 = AccessFlag.LOCAL_WRITE;
    const to = translateLocal(context.arena, sge.lkey, qp.pd, sge.address + skip, piece, need);
    if (to != 0) copyBytes(to, from, piece);
    else if (!scatterLayout(context, qp.pd, sge, skip, from, piece)) return false;
    from += piece;
    left -= piece;
    skip = 0;
  }
  return true;
}

/** Bytes that the receive request in hand can take. */
export function receiveCapacity(qp: QueuePair): u64 {
  const request = changetype<ReceiveRequest>(qp.receiveRequest);
  return sgeTotal(qp.receiveRequest + RECEIVE_REQUEST_SIZE, request.sgeCount);
}

/**
 * Copies `size` bytes to where the receive request's cursor stands. A WcStatus: LOC_PROT_ERR when
 * the application's key does not allow it. The caller has compared with receiveCapacity.
 */
export function scatterReceive(context: Context, qp: QueuePair, source: usize, size: u32): u32 {
  const sges = qp.receiveRequest + RECEIVE_REQUEST_SIZE;
  const pd = receivePd(qp);
  const cursor = receiveCursor(qp);
  let from = source;
  let left = size;
  while (left > 0) {
    const sge = changetype<Sge>(sges + <usize>(cursor.index * SGE_SIZE));
    const piece = min<u32>(left, sge.length - cursor.offset);
    if (piece > 0) {
      const at = sge.address + cursor.offset;
      const need: u32 = AccessFlag.LOCAL_WRITE;
      const to = translateLocal(context.arena, sge.lkey, pd, at, piece, need);
      if (to != 0) copyBytes(to, from, piece);
      else if (!scatterLayout(context, pd, sge, cursor.offset, from, piece)) {
        return WcStatus.LOC_PROT_ERR;
      }
    }
    from += piece;
    left -= piece;
    cursor.offset += piece;
    if (cursor.offset == sge.length) {
      cursor.index++;
      cursor.offset = 0;
    }
  }
  return WcStatus.SUCCESS;
}
