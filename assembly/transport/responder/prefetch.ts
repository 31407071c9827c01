/**
 * Prefetch: loads the key entry, its note and the first byte of the data of several small packets,
 * before any of them is executed. Small messages to random places wait for memory, and one packet's
 * wait is longer than a processor looks ahead; so their waits overlap. The loads decide nothing:
 * each packet is checked in its turn. test/bench/RESULTS.md has the measurements.
 */
import { entryAt, noteAt, slotIndex } from '../../region/key-table';
import { bthOpcode, rethAddress, rethKey } from '../../wire/headers';
import { Opcode } from '../../wire/opcode';
import { Context } from '../shared/context';

/** Packets that are looked at together. */
export const PREFETCH_PACKETS: u32 = 16;
/** Larger ones are work enough to hide the wait. */
export const PREFETCH_SEGMENT_MAX: u32 = 512;
/** BTH, RETH. */
const RETH_OFFSET: usize = 12;
const HEADERS: u32 = 28;

/** Has the packet a RETH, as most of its run then have? */
export function isPrefetchable(packet: usize, segment: u32): bool {
  if (segment < HEADERS || segment > PREFETCH_SEGMENT_MAX) return false;
  const opcode = bthOpcode(packet);
  return opcode == <u32>Opcode.RC_RDMA_WRITE_ONLY || opcode == <u32>Opcode.RC_RDMA_READ_REQUEST;
}

/** The next packets of a run: `length` bytes, `segment` each. */
export function prefetchKeys(context: Context, packet: usize, segment: u32, length: u32): void {
  const arena = context.arena;
  const most = min<u32>(length, PREFETCH_PACKETS * segment);
  if (most < HEADERS) return;
  const end = packet + most - HEADERS;
  let seen: u32 = 0;
  for (let at = packet; at <= end; at += segment) {
    const index = slotIndex(arena, rethKey(at + RETH_OFFSET));
    seen += entryAt(arena, index).sequence + noteAt(arena, index).writes;
  }
  // An entry may change under this look: no sum of its words may lead out of memory.
  const limit = (<u64>memory.size()) << 16;
  for (let at = packet; at <= end; at += segment) {
    const entry = entryAt(arena, slotIndex(arena, rethKey(at + RETH_OFFSET)));
    const offset = rethAddress(at + RETH_OFFSET) - entry.iova;
    const place = <u64>entry.address + offset;
    if (offset < entry.length && place < limit) seen += load<u8>(<usize>place);
  }
  // So that no compiler leaves out the loads.
  context.prefetched = seen;
}
