/**
 * Doorbells: where a thread that posts tells the thread that runs this context which queue pairs
 * have something new. A ring of queue pair indices; a queue pair that rang and was not looked at
 * yet does not ring again (its flag stands), so the ring, as long as there are queue pairs, is
 * never full.
 * ```
 *  | ring header | indices: a power of two, one u32 each | flags: one u32 per queue pair |
 * ```
 * The poster sets the flag with an exchange and, if it was clear, writes the index and moves the
 * head. The engine clears the flag before it looks at the queue pair: what is posted later rings
 * anew. Whoever writes here may be anybody: an index is checked, a head too far away is ignored.
 */
import { powerOfTwo } from '../memory/bytes';
import { RING_HEADER_SIZE, ringCount, ringTail, setRingTail } from '../memory/ring';
import { Context, schedule } from './context';
import { flushQueues, flushSends } from './failure';
import { QUEUE_PAIR_SIZE, QueuePair } from './queue-pair';
import { QpState } from './status';

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
