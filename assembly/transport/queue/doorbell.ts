/**
 * Doorbells: a posting thread tells the engine's thread which queue pairs have new requests. A ring
 * of queue pair indices and a flag per queue pair. A queue pair whose flag is set does not ring
 * again, so a ring with an entry per queue pair never overflows.
 * ```
 *  | ring header | indices: a power of two, one u32 each | flags: one u32 per queue pair |
 * ```
 * The poster sets the flag with an exchange. If the flag was clear, it writes the index and moves
 * the head. The engine clears the flag before it reads the rings of the queue pair, so a later post
 * rings again. Any process may write here: the engine checks each index, and ignores a head that is
 * too far ahead.
 */
import { powerOfTwo } from '../../memory/bytes';
import { RING_HEADER_SIZE, ringCount, ringTail, setRingTail } from '../../memory/ring';
import { Context, schedule } from '../shared/context';
import { QUEUE_PAIR_SIZE, QueuePair } from '../shared/queue-pair';
import { QpState } from '../shared/status';
import { flushQueues, flushSends } from './completion';

/** The queue pair has something new in its send or receive ring. */
export function answerDoorbell(context: Context, qp: QueuePair): void {
  if (qp.state == <u32>QpState.ERR) flushQueues(context, qp);
  else if (qp.state == <u32>QpState.SQE) flushSends(context, qp);
  else schedule(context, qp);
}

/** Answers all that rang. Returns how many. */
export function answerDoorbells(context: Context): u32 {
  const ring = context.doorbells;
  const places = context.queuePairsMax + 1;
  const entries = powerOfTwo(places);
  const flags = ring + RING_HEADER_SIZE + <usize>(4 * entries);
  let tail = ringTail(ring);
  const count = ringCount(ring, tail, entries);
  for (let done: u32 = 0; done < count; done++, tail++) {
    const entry = ring + RING_HEADER_SIZE + <usize>(4 * (tail & (entries - 1)));
    const index = load<u32>(entry);
    if (index >= places) continue;
    atomic.store<u32>(flags + <usize>(4 * index), 0);
    const at = context.queuePairs + <usize>(index * QUEUE_PAIR_SIZE);
    const qp = changetype<QueuePair>(at);
    // It may have been destroyed meanwhile.
    if (qp.qpn != 0) answerDoorbell(context, qp);
  }
  setRingTail(ring, tail);
  return count;
}
