/**
 * The responder's half of selective repeat, spoken between peers that agreed on it: packets that
 * come ahead of what is expected are kept, and the peer is told which ones are there (selective
 * acknowledgement), so that it sends what is missing and nothing else.
 *
 * A packet is kept only with the sender's mark in the seven reserved bits of its BTH's byte 8. The
 * mark comes from the first PSN of the other direction, which the connection manager's messages
 * tell both sides. To an attacker that guesses PSNs it makes a packet that is kept as improbable as
 * one that is expected: 128 places, one of 127 marks.
 *
 * A bit map counts from the PSN behind the expected one: bit i is psnExpected + 1 + i.
 */
import { bthMark, storeAeth, storeBth } from '../wire/headers';
import { Opcode } from '../wire/opcode';
import { ICRC_SIZE, PACKET_SIZE_MAX } from '../wire/packet';
import { psnAdd, psnDistance } from '../wire/psn';
import { checksOf } from './answer-checks';
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

/** The mark of requests against this first PSN of the other direction: 1 to 127. */
export function markOf(psn: u32): u8 {
  return <u8>(((psn ^ (psn >>> 7) ^ (psn >>> 14) ^ (psn >>> 21)) & 0x7f) % 127) + 1;
}

/** A request's PSN as its BTH has it, with the mark above it where the peer keeps packets. */
export function markedPsn(qp: QueuePair, psn: u32): u32 {
  return reorders(qp) ? psn | ((<u32>checksOf(qp).sendMark) << 24) : psn;
}

/** Has the packet the peer's mark? Before this side's first PSN is known, none has. */
export function isMarked(qp: QueuePair, packet: usize): bool {
  const mark: u32 = checksOf(qp).keepMark;
  return mark != 0 && bthMark(packet) == mark;
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
