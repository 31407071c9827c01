/**
 * Selective acknowledgements. With the syndrome of a NAK: packets before the PSN are acknowledged,
 * and the map names packets that arrived ahead (reorder-buffer.ts).
 *
 * With the syndrome of an ACK, between Verbena peers: arrivals behind a held FLUSH. A held FLUSH
 * holds back all acknowledgements from its PSN on. But packets that have arrived are no longer in
 * flight, and a slow disk should find much work when it is done. So the responder reports them, and
 * acknowledges nothing: all packets before the PSN have arrived, and those that the map names.
 */
import { bitsFrom } from '../../memory/bit-ring';
import { storeAeth, storeBth } from '../../wire/headers';
import { Opcode } from '../../wire/opcode';
import { ICRC_SIZE } from '../../wire/packet';
import { psnAdd } from '../../wire/psn';
import { ACK_WITHOUT_CREDITS } from '../../wire/syndrome';
import { charge } from '../requester/congestion-window';
import { Context, hasRoom, packetStart, schedule } from '../shared/context';
import { QueuePair, pathOf } from '../shared/queue-pair';
import { finishPacket } from '../shared/send-buffer';
import { aheadSpan } from './reorder-buffer';

/** Words of the map in the header; further ones are the payload. */
const HEADER_WORDS: u32 = 2;
/** Reports per window of arrivals. */
const REPORTS_PER_WINDOW: u32 = 4;

/** Does the peer understand it? */
function reportsArrivals(qp: QueuePair): bool {
  return pathOf(qp).ownKind != 0;
}

/** Responder: `size` bytes of payload came behind a job that is held. */
export function noteHeld(context: Context, qp: QueuePair, size: u32): void {
  // Of small packets it is their number that counts (congestion-window.ts `beyondKept`).
  qp.chargeHeld += max<u32>(charge(size), qp.chargeFull / REPORTS_PER_WINDOW);
  if (reportsArrivals(qp) && isDue(context, qp)) schedule(context, qp);
}

function isDue(context: Context, qp: QueuePair): bool {
  return (
    qp.chargeHeld >= min<u32>(context.receiveCharge, context.windowChargeMax) / REPORTS_PER_WINDOW
  );
}

/** Responder, where the oldest answer is held. True when there was no room. */
export function reportArrivals(context: Context, qp: QueuePair): bool {
  if (!reportsArrivals(qp) || (!qp.sackPending && !isDue(context, qp))) return false;
  if (!hasRoom(context)) return true;
  qp.chargeHeld = 0;
  sendSelectiveAck(context, qp, ACK_WITHOUT_CREDITS);
  return false;
}

/**
 * Everything before the expected PSN is here, and what is kept behind it named. The syndrome of a
 * NAK acknowledges it, that of an ACK does not (selective-ack.ts).
 */
export function sendSelectiveAck(context: Context, qp: QueuePair, syndrome: u32): void {
  const packet = packetStart(context);
  const opcode: u32 = Opcode.MSP_SELECTIVE_ACKNOWLEDGE;
  const span = aheadSpan(qp);
  const words = min<u32>(max<u32>((span + 63) >> 6, HEADER_WORDS), qp.mtu >> 3);
  const reports = takeDuplicate(qp);
  storeBth(packet, opcode, 0, context.pkey, qp.targetQp, reports, qp.psnExpected);
  storeAeth(packet + 12, syndrome, qp.msn);
  for (let word: u32 = 0; word < words; word++) {
    const bits = aheadBits(qp, word << 6, span);
    store<u64>(packet + 16 + ((<usize>word) << 3), bswap<u64>(bits));
  }
  qp.sackPending = 0;
  finishPacket(context, pathOf(qp), qp.qpn, 16 + (words << 3) + ICRC_SIZE);
}

/**
 * Has a packet arrived twice since the last acknowledgement? Between Verbena peers the AckReq bit
 * of an acknowledgement reports it: one of the two transmissions was needless (RFC 2883).
 */
export function takeDuplicate(qp: QueuePair): u32 {
  const reports: u32 = qp.hadDuplicate && qp.reorderPeer != 0 ? 1 : 0;
  qp.hadDuplicate = 0;
  return reports;
}

/** Bit i is 1 if the packet `from` + 1 + i behind the expected one is kept, up to `span`. */
function aheadBits(qp: QueuePair, from: u32, span: u32): u64 {
  if (span <= from) return 0;
  const bits = bitsFrom(qp.aheadMap, qp.reorderMax, psnAdd(qp.psnExpected, 1 + from));
  // Beyond the span the ring begins anew.
  return span - from >= 64 ? bits : bits & (((<u64>1) << (span - from)) - 1);
}
