/**
 * The mark of requests and their responses between peers that do selective repeat: the seven
 * reserved bits of the BTH's byte 8. It is computed from the first PSN of the other direction,
 * which the messages of the connection manager carry to both sides. An attacker that guesses PSNs
 * fills a place of the reorder buffer as rarely as it hits the expected PSN: 128 places, one of 127
 * marks. The same holds for responses ahead of one that is missing.
 */
import { bthMark } from '../../wire/headers';
import { QueuePair, checksOf } from './queue-pair';

/** Does the peer understand what is done here, and is there room for it? */
export function reorders(qp: QueuePair): bool {
  return qp.reorderMax != 0 && qp.reorderPeer != 0;
}

/** The mark of requests against this first PSN of the other direction: 1 to 127. */
export function markOf(psn: u32): u8 {
  return <u8>(((psn ^ (psn >>> 7) ^ (psn >>> 14) ^ (psn >>> 21)) & 0x7f) % 127) + 1;
}

/** A request's PSN as its BTH has it, with the mark above it where the peer keeps packets. */
export function markedPsn(qp: QueuePair, psn: u32): u32 {
  return reorders(qp) ? psn | ((<u32>checksOf(qp).sendMark) << 24) : psn;
}

/** A response's PSN as its BTH has it: with the mark that the peer's requests have. */
export function answeredPsn(qp: QueuePair, psn: u32): u32 {
  return reorders(qp) ? psn | ((<u32>checksOf(qp).keepMark) << 24) : psn;
}

/** Has the packet the peer's mark? Before this side's first PSN is known, none has. */
export function isMarked(qp: QueuePair, packet: usize): bool {
  const mark: u32 = checksOf(qp).keepMark;
  return mark != 0 && bthMark(packet) == mark;
}
