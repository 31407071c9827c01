/** Between a send request's SGEs and a packet: gathers what is sent, scatters what comes back. */
import { copyBytes } from '../memory/bytes';
import { AccessFlag } from '../region/access-flag';
import { moveLocal } from '../region/layout-use';
import { translateLocal } from '../region/null-region';
import { Context } from './context';
import { QueuePair, sendCursor } from './queue-pair';
import { SendFlag } from './status';
import { SEND_REQUEST_SIZE, SGE_SIZE, SendRequest, Sge } from './work-queue';

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
  const cursor = sendCursor(qp);
  let to = target;
  let left = length;
  while (left > 0) {
    const sge = changetype<Sge>(data + <usize>(cursor.index * SGE_SIZE));
    const piece = min<u32>(left, sge.length - cursor.offset);
    if (piece > 0) {
      const at = sge.address + cursor.offset;
      const from = translateLocal(context.arena, sge.lkey, qp.pd, at, piece, 0);
      if (from != 0) copyBytes(to, from, piece);
      else if (!gatherLayout(context, qp, sge, cursor.offset, to, piece)) return false;
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

/** From a layout, `skip` bytes into its SGE. Out of line: memory in a row is what there is mostly. */
function gatherLayout(
  context: Context,
  qp: QueuePair,
  sge: Sge,
  skip: u32,
  target: usize,
  length: u32,
): bool {
  return moveLocal(context.arena, sge.lkey, qp.pd, sge.address, skip, target, length, 0);
}

/** To a layout: what `gatherLayout` is the other way. `pd`: of the queue that has the SGE. */
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
