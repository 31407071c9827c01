/**
 * The reorder buffer of selective repeat, between peers that agreed on it: keeps packets that
 * arrive ahead of the expected PSN. Selective acknowledgements report them, so that the peer
 * retransmits only the missing packets. Only packets with the peer's mark are kept
 * (shared/packet-mark.ts).
 *
 * Bit i of the map stands for PSN psnExpected + 1 + i.
 */
import { psnDistance } from '../../wire/psn';
import { QueuePair, REORDER_MAX, REORDER_SLOT_SIZE } from '../shared/queue-pair';

/** This many packets behind a gap prove a loss; fewer may be two packets in the wrong order. */
const CERTAIN: u32 = 3;

function slotAt(qp: QueuePair, psn: u32): usize {
  return qp.reorderSlots + <usize>((psn & (qp.reorderMax - 1)) * REORDER_SLOT_SIZE);
}

function bitSet(qp: QueuePair, bit: u32): bool {
  if (bit >= REORDER_MAX) return false;
  const word = bit < 64 ? qp.aheadLow : qp.aheadHigh;
  return (word & bitOf(bit & 63)) != 0;
}

function bitOf(bit: u32): u64 {
  const one: u64 = 1;
  const by: u64 = bit;
  return one << by;
}

export function anyAhead(qp: QueuePair): bool {
  return (qp.aheadLow | qp.aheadHigh) != 0;
}

/** Is it what is kept at `slot`, in all but the request for an acknowledgement and the ICRC? */
function isKept(slot: usize, packet: usize, length: u32): bool {
  const kept = slot + 8;
  const tail: usize = 12;
  return (
    load<u32>(slot) == length &&
    memory.compare(kept, packet, 8) == 0 &&
    memory.compare(kept + tail, packet + tail, length - 16) == 0
  );
}

function dropAhead(qp: QueuePair, bit: u32): void {
  if (bit < 64) qp.aheadLow &= ~bitOf(bit);
  else qp.aheadHigh &= ~bitOf(bit - 64);
}

/** Keeps a packet that arrived ahead. True: report it now. */
export function keepAhead(qp: QueuePair, packet: usize, length: u32, psn: u32): bool {
  const ahead = psnDistance(qp.psnExpected, psn);
  // Beyond the room there is: as if it had been lost.
  if (ahead > qp.reorderMax) return true;
  const bit = ahead - 1;
  if (!bitSet(qp, bit)) {
    const slot = slotAt(qp, psn);
    store<u32>(slot, length);
    memory.copy(slot + 8, packet, length);
    if (bit < 64) qp.aheadLow |= bitOf(bit);
    else qp.aheadHigh |= bitOf(bit - 64);
  } else if (!isKept(slotAt(qp, psn), packet, length)) {
    // One of the two packets is forged. Both are dropped; the peer retransmits the genuine one.
    dropAhead(qp, bit);
  }
  return ahead >= CERTAIN;
}

/**
 * The expected PSN has moved by `moved`. Returns the packet that is expected now, if it is kept,
 * and forgets it; 0 otherwise.
 */
export function takeAhead(qp: QueuePair, moved: u32): usize {
  const kept = bitSet(qp, moved - 1);
  shift(qp, moved);
  return kept ? slotAt(qp, qp.psnExpected) + 8 : 0;
}

/** Length of what takeAhead returned. */
export function keptLength(packet: usize): u32 {
  return load<u32>(packet - 8);
}

function shift(qp: QueuePair, count: u32): void {
  const by: u64 = count & 63;
  if (count >= REORDER_MAX) {
    qp.aheadLow = 0;
    qp.aheadHigh = 0;
  } else if (count >= 64) {
    qp.aheadLow = qp.aheadHigh >> by;
    qp.aheadHigh = 0;
  } else if (count > 0) {
    const over: u64 = 64 - by;
    qp.aheadLow = (qp.aheadLow >> by) | (qp.aheadHigh << over);
    qp.aheadHigh >>= by;
  }
}
