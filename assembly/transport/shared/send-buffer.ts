/**
 * The send buffer: appends a finished packet with its authentication trailer and ICRC. ICRCs of
 * adjacent short packets of one length, sent or received, are computed together, ICRC_LANES at a
 * time (wire/icrc-lanes.ts).
 */
import { slotOfNumber } from '../../memory/local-endpoint';
import { bthOpcode, bthTargetQp } from '../../wire/headers';
import { icrcCopying, icrcOf, icrcOfDoubled, icrcStart } from '../../wire/icrc';
import { ICRC_LANES, ICRC_LANES_PACKET_MAX, icrcOfLanes } from '../../wire/icrc-lanes';
import { Opcode } from '../../wire/opcode';
import { ICRC_SIZE } from '../../wire/packet';
import {
  Context,
  ReceiveDescriptor,
  SEND_DESCRIPTOR_SIZE,
  SendDescriptor,
  packetStart,
} from './context';
import { PACKET_AUTH, sealPacket } from './packet-auth';
import { Path, PseudoHeader, receiveFlow } from './path';
import { QueuePair, pathOf } from './queue-pair';
import { QpType } from './status';

/** The highest number of a queue pair that other contexts may serve as well: general services. */
const SHARED_QPN: u32 = 1;

/** Is a packet of UC or UD for a queue pair of this context? Then it is not sent (transmit.ts). */
export function staysHere(context: Context, path: Path, qpn: u32): bool {
  return path.isOwn != 0 && slotOfNumber(qpn) == context.slotIndex && qpn > SHARED_QPN;
}

/** Puts the packet at `packetStart` on the list, and sees to its ICRC. BTH to ICRC: `length`. */
export function finishPacket(context: Context, path: Path, qpn: u32, length: u32): void {
  finishCopying(context, path, qpn, length, 0, 0);
}

/** The same; copies the payload from `source` to behind `header` bytes. 0: payload is in place. */
export function finishCopying(
  context: Context,
  path: Path,
  qpn: u32,
  length: u32,
  header: u32,
  source: usize,
): void {
  const packet = packetStart(context);
  if (PACKET_AUTH && path.auth != 0) {
    if (source != 0) memory.copy(packet + header, source, length - header - ICRC_SIZE);
    length = sealPacket(context, path, packet, length);
    source = 0;
  }
  seal(context, path, packet, length, header, source);
  const descriptor = changetype<SendDescriptor>(context.bufferDescriptor);
  descriptor.address = <u32>packet;
  descriptor.length = length;
  descriptor.path = <u32>changetype<usize>(path);
  descriptor.qpn = qpn;
  context.bufferDescriptor += SEND_DESCRIPTOR_SIZE;
  context.bufferUsed += length;
  context.bufferCount++;
}

/** The shortest packet there is: a BTH, and something behind it. */
const PACKET_MIN: u32 = 20;

/**
 * The packet that ends the buffer, `length` bytes from BTH to ICRC: sealed now, or soon. `source`:
 * where its payload still is, which is to be copied behind `header` bytes; 0: it is there.
 */
export function seal(
  context: Context,
  path: Path,
  packet: usize,
  length: u32,
  header: u32,
  source: usize,
): void {
  if (path.skipsIcrc || staysHere(context, path, bthTargetQp(packet))) {
    // Packets that wait for their ICRC are contiguous.
    if (context.unsealed != 0) sealRest(context);
    if (source != 0) memory.copy(packet + header, source, length - header - ICRC_SIZE);
    store<u32>(packet + length - ICRC_SIZE, 0);
    return;
  }
  const tables = context.icrcTables;
  const start = icrcStart(tables, path.sendFlow, path.pseudoHeader == PseudoHeader.IPV4, length);
  if (context.unsealed != 0 && length != context.unsealedLength) sealRest(context);
  if (source != 0) {
    const scratch = context.crcScratch;
    const icrc = icrcCopying(tables, scratch, start, packet, length, header, source);
    store<u32>(packet + length - ICRC_SIZE, icrc);
    return;
  }
  if (path.doublesFlush && bthOpcode(packet) == <u32>Opcode.RC_FLUSH) {
    sealRest(context);
    const icrc = icrcOfDoubled(tables, context.crcScratch, start, packet, length);
    store<u32>(packet + length - ICRC_SIZE, icrc);
    return;
  }
  if (length > ICRC_LANES_PACKET_MAX || length < PACKET_MIN) {
    sealAlone(context, start, packet, length);
    return;
  }
  // Meanwhile the start of its ICRC stands in the ICRC's place.
  store<u32>(packet + length - ICRC_SIZE, start);
  context.unsealedLength = length;
  if (++context.unsealed == ICRC_LANES) sealTogether(context, packet + length, length);
}

function sealAlone(context: Context, start: u32, packet: usize, length: u32): void {
  const icrc = icrcOf(context.icrcTables, context.crcScratch, start, packet, length);
  store<u32>(packet + length - ICRC_SIZE, icrc);
}

/** ICRC_LANES packets that end at `end`. */
function sealTogether(context: Context, end: usize, length: u32): void {
  const words = context.lanes;
  const first = end - <usize>(ICRC_LANES * length);
  let place = first + length - ICRC_SIZE;
  for (let lane: usize = 0; lane < ICRC_LANES; lane++, place += length) {
    store<u32>(words + (lane << 2), load<u32>(place));
  }
  icrcOfLanes(context.icrcTables, words, first, length);
  place = first + length - ICRC_SIZE;
  for (let lane: usize = 0; lane < ICRC_LANES; lane++, place += length) {
    store<u32>(place, load<u32>(words + (lane << 2)));
  }
  context.unsealed = 0;
}

/** Those that found no company. */
export function sealRest(context: Context): void {
  const length = context.unsealedLength;
  let packet = packetStart(context) - <usize>(context.unsealed * length);
  for (; context.unsealed != 0; context.unsealed--, packet += length) {
    sealAlone(context, load<u32>(packet + length - ICRC_SIZE), packet, length);
  }
}

/** Of packets of a run: are they short enough to be looked at together, and is their length one? */
export function checksTogether(segment: u32): bool {
  return segment >= PACKET_MIN && segment <= ICRC_LANES_PACKET_MAX && (segment & 3) == 0;
}

/**
 * Computes the ICRCs of ICRC_LANES packets of one run, as if all of them were for the queue pair of
 * the first one, `qp`. False: it has no peer, or another one. Nothing is decided here: a packet
 * that turns out to be another one's is computed for itself. Where a path has no ICRC all are 0.
 */
export function computeTogether(
  context: Context,
  qp: QueuePair,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): bool {
  if (qp.type == <u32>QpType.UD) return false;
  const path = pathOf(qp);
  if (descriptor.sourceGid0 != path.remoteGid0 || descriptor.sourceGid1 != path.remoteGid1) {
    return false;
  }
  const words = context.lanes;
  const start = path.skipsIcrc ? 0 : receiveStart(context, path, descriptor.sourcePort, length);
  const all = i32x4.splat(start);
  for (let at = words; at < words + 4 * ICRC_LANES; at += 16) v128.store(at, all);
  if (path.skipsIcrc) return true;
  icrcOfLanes(context.icrcTables, words, packet, length);
  context.aheadStart = start;
  return true;
}

/** The ICRC that a packet should have, `start` as `receiveStart` says. */
export function expectedIcrc(context: Context, start: u32, packet: usize, length: u32): u32 {
  if (context.aheadLength == length && context.aheadStart == start) return context.aheadIcrc;
  return icrcOf(context.icrcTables, context.crcScratch, start, packet, length);
}

/** Where the ICRC of a packet from that port begins. */
export function receiveStart(context: Context, path: Path, sourcePort: u32, length: u32): u32 {
  const tables = context.icrcTables;
  const isIpv4 = path.pseudoHeader == <u32>PseudoHeader.IPV4;
  return icrcStart(tables, receiveFlow(tables, path, sourcePort), isIpv4, length);
}
