/**
 * The reorder buffer of selective repeat, between peers that agreed on it: keeps packets that
 * arrive ahead of the expected PSN. Selective acknowledgements report them, so that the peer
 * retransmits only the missing packets. Only packets with the peer's mark are kept
 * (shared/packet-mark.ts).
 *
 * A ring of bits has one for each PSN (memory/bit-ring.ts), a ring of addresses the slot of its
 * packet (shared/reorder-pool.ts).
 */
import { clearBit, isBitSet, setBit } from '../../memory/bit-ring';
import { psnAdd, psnDistance } from '../../wire/psn';
import { Context } from '../shared/context';
import { QueuePair } from '../shared/queue-pair';
import { giveSlot, keepPacket, lengthOf, packetOf } from '../shared/reorder-pool';

/** This many packets behind a gap prove a loss; fewer may be two packets in the wrong order. */
const CERTAIN: u32 = 3;

/** Where the address of the packet's slot is. */
function placeOf(qp: QueuePair, psn: u32): usize {
  return qp.aheadSlots + ((<usize>(psn & (qp.reorderMax - 1))) << 2);
}

export function anyAhead(qp: QueuePair): bool {
  return qp.aheadCount != 0;
}

/** Distance from the expected PSN of the last packet that is kept; 0: nothing is. */
export function aheadSpan(qp: QueuePair): u32 {
  return qp.aheadCount == 0 ? 0 : psnDistance(qp.psnExpected, qp.aheadLast);
}

/** Is it what is kept at `slot`, in all but the request for an acknowledgement and the ICRC? */
function isKept(slot: usize, packet: usize, length: u32): bool {
  const kept = packetOf(slot);
  const tail: usize = 12;
  return (
    lengthOf(slot) == length &&
    memory.compare(kept, packet, 8) == 0 &&
    memory.compare(kept + tail, packet + tail, length - 16) == 0
  );
}

/** Keeps a packet that arrived ahead. True: report it now. */
export function keepAhead(
  context: Context,
  qp: QueuePair,
  packet: usize,
  length: u32,
  psn: u32,
): bool {
  const ahead = psnDistance(qp.psnExpected, psn);
  // Beyond the room there is: as if it had been lost.
  if (ahead >= qp.reorderMax) return true;
  const place = placeOf(qp, psn);
  if (!isBitSet(qp.aheadMap, qp.reorderMax, psn)) {
    const slot = keepPacket(context, qp.aheadCount, packet, length);
    if (slot == 0) return true;
    store<u32>(place, <u32>slot);
    setBit(qp.aheadMap, qp.reorderMax, psn);
    if (ahead > aheadSpan(qp)) qp.aheadLast = psn;
    qp.aheadCount++;
  } else if (!isKept(load<u32>(place), packet, length)) {
    // One of the two packets is forged. Both are dropped; the peer retransmits the genuine one.
    drop(context, qp, psn);
  } else qp.hadDuplicate = 1;
  return ahead >= CERTAIN;
}

function drop(context: Context, qp: QueuePair, psn: u32): void {
  forget(context, qp, psn);
  if (psn != qp.aheadLast) return;
  let last = psn;
  while (qp.aheadCount != 0 && !isBitSet(qp.aheadMap, qp.reorderMax, last)) last = psnAdd(last, -1);
  qp.aheadLast = last;
}

/**
 * The expected PSN has moved by `moved`. Returns the slot of the packet that is expected now, if it
 * is kept, and forgets it; 0 otherwise. What it moved over is forgotten.
 */
export function takeAhead(context: Context, qp: QueuePair, moved: u32): usize {
  let psn = psnAdd(qp.psnExpected, 0 - moved);
  for (let count = min<u32>(moved, qp.reorderMax); count > 0 && qp.aheadCount != 0; count--) {
    if (isBitSet(qp.aheadMap, qp.reorderMax, psn)) forget(context, qp, psn);
    psn = psnAdd(psn, 1);
  }
  if (qp.aheadCount == 0 || !isBitSet(qp.aheadMap, qp.reorderMax, qp.psnExpected)) return 0;
  return forget(context, qp, qp.psnExpected);
}

/** Returns its slot, which is free. */
function forget(context: Context, qp: QueuePair, psn: u32): usize {
  const place = placeOf(qp, psn);
  const slot = <usize>load<u32>(place);
  store<u32>(place, 0);
  giveSlot(context, slot);
  clearBit(qp.aheadMap, qp.reorderMax, psn);
  qp.aheadCount--;
  return slot;
}
