/**
 * The requests in flight that responses of their own answer: READ requests, of up to
 * READ_CHUNK_PACKETS responses each, atomics, FLUSHes and ATOMIC WRITEs. The chunk of a request
 * remembers which responses have been placed, in any order.
 */
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { QueuePair, ReadChunk, chunkAt } from '../shared/queue-pair';

/** The next request has responses from `psnNext` to `psnLast`. */
export function addChunk(qp: QueuePair, psnLast: u32): void {
  const chunk = chunkAt(qp, qp.chunkHead++);
  chunk.placed = 0;
  chunk.psnFirst = qp.psnNext;
  chunk.psnLast = psnLast;
  chunk.request = qp.sendNext;
}

/** Requests from this PSN on are no longer in flight. */
export function dropChunksFrom(qp: QueuePair, psn: u32): void {
  while (qp.chunkHead != qp.chunkTail) {
    if (psnCompare(chunkAt(qp, qp.chunkHead - 1).psnFirst, psn) < 0) return;
    qp.chunkHead--;
  }
}

function bitOf(chunk: ReadChunk, psn: u32): u64 {
  return <u64>psnDistance(chunk.psnFirst, psn);
}

export function covers(chunk: ReadChunk, psn: u32): bool {
  return psnDistance(chunk.psnFirst, psn) <= psnDistance(chunk.psnFirst, chunk.psnLast);
}

/** Is it a response of this chunk, and not placed yet? */
export function isMissing(chunk: ReadChunk, psn: u32): bool {
  return covers(chunk, psn) && ((chunk.placed >> bitOf(chunk, psn)) & 1) == 0;
}

/** False: it had been placed before. */
export function notePlaced(chunk: ReadChunk, psn: u32): bool {
  if (!isMissing(chunk, psn)) return false;
  const one: u64 = 1;
  chunk.placed |= one << bitOf(chunk, psn);
  return true;
}

/** Responses from `psn` on that have been placed, up to the first one that is missing. */
export function placedFrom(chunk: ReadChunk, psn: u32): u32 {
  if (!covers(chunk, psn)) return 0;
  return <u32>ctz<u64>(~(chunk.placed >> bitOf(chunk, psn)));
}

/** The first chunk, from index `from` on, that does not end before `psn`; `chunkHead`: none. */
export function chunkFrom(qp: QueuePair, from: u32, psn: u32): u32 {
  let index = from;
  while (index != qp.chunkHead && psnCompare(chunkAt(qp, index).psnLast, psn) < 0) index++;
  return index;
}

/** The chunk that has a response with this PSN, or null. */
export function chunkOf(qp: QueuePair, psn: u32): ReadChunk | null {
  const index = chunkFrom(qp, qp.chunkTail, psn);
  if (index == qp.chunkHead) return null;
  const chunk = chunkAt(qp, index);
  return covers(chunk, psn) ? chunk : null;
}

/** Is a response before this one missing, of this chunk or of an older one? */
export function isAhead(qp: QueuePair, chunk: ReadChunk, psn: u32): bool {
  const oldest = chunkAt(qp, qp.chunkTail);
  if (changetype<usize>(oldest) != changetype<usize>(chunk)) return true;
  const next = covers(chunk, qp.psnUnacked) ? qp.psnUnacked : chunk.psnFirst;
  return psn != next;
}

/** Has nothing of this chunk been placed? */
export function isUnanswered(chunk: ReadChunk): bool {
  return chunk.placed == 0;
}

/** PSNs of a chunk from `psn` on. */
export function leftOf(chunk: ReadChunk, psn: u32): u32 {
  return psnDistance(psn, psnAdd(chunk.psnLast, 1));
}
