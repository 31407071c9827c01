/**
 * The responder's half of selective repeat, spoken between peers that agreed on it: packets that
 * come ahead of what is expected are kept, and the peer is told which ones are there (selective
 * acknowledgement), so that it sends what is missing and nothing else.
 *
 * A bit map counts from the PSN behind the expected one: bit i is psnExpected + 1 + i.
 */
import { storeAeth, storeBth } from '../wire/headers';
import { Opcode } from '../wire/opcode';
import { ICRC_SIZE, PACKET_SIZE_MAX } from '../wire/packet';
import { psnAdd, psnDistance } from '../wire/psn';
import { Context, packetStart } from './context';
import { QueuePair, pathOf } from './queue-pair';
import { finishPacket } from './transmit';

/** Most packets that can be kept: the bits of the map. */
export const REORDER_MAX: u32 = 128;
/** A kept packet: its length, then its bytes. */
export const REORDER_SLOT_SIZE: u32 = 8 + PACKET_SIZE_MAX;
/** So many packets beyond a gap say that it is one, and not two packets that changed places. */
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

/** Does the peer understand what is done here, and is there room for it? */
export function reorders(qp: QueuePair): bool {
  return qp.reorderMax != 0 && qp.reorderPeer != 0;
}

export function anyAhead(qp: QueuePair): bool {
  return (qp.aheadLow | qp.aheadHigh) != 0;
}

/** Keeps a packet that came too early. Says whether the peer is to be told now. */
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

/**
 * Everything before the expected PSN is here, and what is kept behind it named. The syndrome of a
 * NAK acknowledges it, that of an ACK does not (arrival.ts).
 */
export function sendSelectiveAck(context: Context, qp: QueuePair, syndrome: u32): void {
  const packet = packetStart(context);
  const opcode: u32 = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  storeBth(packet, opcode, 0, context.pkey, qp.targetQp, 0, qp.psnExpected);
  storeAeth(packet + 12, syndrome, qp.msn);
  store<u64>(packet + 16, bswap<u64>(qp.aheadLow));
  store<u64>(packet + 24, bswap<u64>(qp.aheadHigh));
  qp.sackPending = 0;
  finishPacket(context, pathOf(qp), qp.qpn, 32 + ICRC_SIZE);
}

/** PSN of the highest packet that a map names, counted from its base; 0 for an empty map. */
export function highestAhead(base: u32, low: u64, high: u64): u32 {
  if (high != 0) return psnAdd(base, 128 - <u32>clz<u64>(high));
  return psnAdd(base, 64 - <u32>clz<u64>(low));
}
