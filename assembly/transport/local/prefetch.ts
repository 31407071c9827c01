/**
 * Loads what the next requests of a send ring will need: key entries and notes, then the target's
 * bytes, so that they wait for memory together (responder/prefetch.ts does it for packets). It only
 * reads: the requests are checked when their turn comes, and may have changed by then.
 */
import { ringCount } from '../../memory/ring';
import { entryAt, noteAt, slotIndex } from '../../region/key-table';
import { Context } from '../shared/context';
import { QueuePair, workRequestAt } from '../shared/queue-pair';
import { WrOpcode } from '../shared/status';
import { Sge, WORK_REQUEST_SIZE } from '../shared/work-request';

/** Requests at once: what is loaded for more is evicted before it is used. */
const AHEAD: u32 = 16;
/** Larger ones are work enough to hide the wait. */
const LENGTH_MAX: u32 = 512;

/** Returns for how many requests, from the next one on, it has loaded. */
export function prefetchTargets(context: Context, qp: QueuePair): u32 {
  const posted = ringCount(qp.sendRing, qp.sendFetched, qp.sendEntries);
  const count = min<u32>(posted, AHEAD);
  if (count < 2 || !isShort(qp, qp.sendFetched)) return 1;
  const first = workRequestAt(qp, qp.sendFetched).key;
  // One region: its entry is in the cache, and its bytes follow each other.
  if (workRequestAt(qp, qp.sendFetched + count - 1).key == first) return count;
  const arena = context.arena;
  let sum: u32 = 0;
  for (let next: u32 = 0; next < count; next++) {
    const index = slotIndex(arena, workRequestAt(qp, qp.sendFetched + next).key);
    sum += load<u32>(changetype<usize>(entryAt(arena, index)));
    sum += load<u32>(changetype<usize>(noteAt(arena, index)));
  }
  // An entry may change under this look: no sum of its words may lead out of memory.
  const limit = (<u64>memory.size()) << 16;
  for (let next: u32 = 0; next < count; next++) {
    const request = workRequestAt(qp, qp.sendFetched + next);
    if (request.opcode > <u32>WrOpcode.ATOMIC_FETCH_AND_ADD) continue;
    const entry = entryAt(arena, slotIndex(arena, request.key));
    const offset = request.remoteAddress - entry.iova;
    const place = <u64>entry.address + offset;
    if (offset < entry.length && place < limit) sum += load<u8>(<usize>place);
  }
  // So that no compiler leaves out the loads.
  context.prefetched = sum;
  return count;
}

function isShort(qp: QueuePair, index: u32): bool {
  const at = changetype<usize>(workRequestAt(qp, index)) + WORK_REQUEST_SIZE;
  return qp.sendSgeMax != 0 && changetype<Sge>(at).length <= LENGTH_MAX;
}
