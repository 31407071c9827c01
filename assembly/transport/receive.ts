/**
 * What arrives: the border. A packet is checked in this order, and the first "no" ends it: length
 * and headers, opcode, queue pair, state, service, source address, ICRC, P_Key. Everything up to
 * here is silent (IBA 9.6.1): whoever is not connected is served nothing, not even a NAK.
 */
import {
  DEFAULT_PKEY,
  aethSyndrome,
  bthOpcode,
  bthPkey,
  bthPsn,
  bthTargetQp,
} from '../wire/headers';
import { icrcOf, icrcSolveIpId, icrcStart } from '../wire/icrc';
import { PacketFlag, Service, flagsOf, headersLength } from '../wire/opcode';
import { ICRC_SIZE, PacketStatus, checkPacket, payloadLength } from '../wire/packet';
import { SyndromeKind, syndromeKind } from '../wire/syndrome';
import { Context, RECEIVE_DESCRIPTOR_SIZE, ReceiveDescriptor } from './context';
import { receiveAcknowledge, receiveReadResponse } from './completer';
import { Path, PseudoHeader, receiveFlow } from './path';
import { QueuePair, pathOf } from './queue-pair';
import { receiveRequestPacket } from './responder';
import { requests, serves } from './state-machine';
import { QpType } from './status';

/** Slot of a queue pair number in the context's index. */
export function indexAt(context: Context, qpn: u32): usize {
  return context.queuePairIndex + <usize>((qpn & context.queuePairIndexMask) << 2);
}

/** The queue pair of that number, or null. */
export function findQueuePair(context: Context, qpn: u32): QueuePair | null {
  const at = <usize>load<u32>(indexAt(context, qpn));
  if (at == 0) return null;
  const qp = changetype<QueuePair>(at);
  return qp.qpn == qpn ? qp : null;
}

/** Takes in the first `count` descriptors. */
export function receiveBatch(context: Context, count: u32): void {
  const total = min<u32>(count, context.receivePackets);
  for (let index: u32 = 0; index < total; index++) {
    const at = context.receiveDescriptors + <usize>(index * RECEIVE_DESCRIPTOR_SIZE);
    const descriptor = changetype<ReceiveDescriptor>(at);
    const length = descriptor.length;
    const segment = descriptor.segmentSize;
    if (segment == 0 || segment >= length) {
      receivePacket(context, descriptor, descriptor.address, length);
      continue;
    }
    for (let offset: u32 = 0; offset < length; offset += segment) {
      const size = min<u32>(segment, length - offset);
      receivePacket(context, descriptor, descriptor.address + offset, size);
    }
  }
}

function receivePacket(
  context: Context,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): void {
  const counters = context.counters;
  counters.rcvdPkts++;
  counters.rcvdBytes += length;
  const status = checkPacket(context.opcodeTable, packet, length);
  if (status != PacketStatus.OK) {
    if (status == PacketStatus.UNKNOWN_OPCODE) counters.dropUnknownOpcode++;
    else counters.dropMalformed++;
    return;
  }
  const qp = findQueuePair(context, bthTargetQp(packet));
  if (qp == null || !serves(qp.state)) {
    counters.dropQueuePair++;
    return;
  }
  const opcode = bthOpcode(packet);
  const flags = flagsOf(context.opcodeTable, opcode);
  if ((opcode & 0xe0) != <u32>Service.RC || qp.type != QpType.RC) {
    counters.dropService++;
    return;
  }
  const path = pathOf(qp);
  if (descriptor.sourceGid0 != path.remoteGid0 || descriptor.sourceGid1 != path.remoteGid1) {
    counters.dropSource++;
    return;
  }
  if (!checkIcrc(context, path, descriptor.sourcePort, packet, length)) {
    counters.dropIcrc++;
    return;
  }
  if (bthPkey(packet) != DEFAULT_PKEY) {
    counters.dropPkey++;
    return;
  }
  if (flags & PacketFlag.RESPONSE) receiveResponse(context, qp, packet, length, flags);
  else receiveRequestPacket(context, qp, packet, length);
}

/**
 * At full strength first: as a peer that sends IP identification 0. Over IPv4 a socket does not
 * tell the identification, so on a mismatch it is solved for; what then passes has been checked
 * with the 16 bits that are left.
 */
function checkIcrc(
  context: Context,
  path: Path,
  sourcePort: u32,
  packet: usize,
  length: u32,
): bool {
  const tables = context.icrcTables;
  const isIpv4 = path.pseudoHeader == PseudoHeader.IPV4;
  const begin = icrcStart(tables, receiveFlow(tables, path, sourcePort), isIpv4, length);
  const computed = icrcOf(tables, context.crcScratch, begin, packet, length);
  const difference = computed ^ load<u32>(packet + length - ICRC_SIZE);
  if (difference == 0) {
    context.counters.icrcExact++;
    return true;
  }
  if (!isIpv4 || icrcSolveIpId(tables, difference, length) < 0) return false;
  path.usesIpIds = 1;
  context.counters.icrcByIpId++;
  return true;
}

function receiveResponse(
  context: Context,
  qp: QueuePair,
  packet: usize,
  length: u32,
  flags: u32,
): void {
  if (!requests(qp.state)) {
    context.counters.dropQueuePair++;
    return;
  }
  const psn = bthPsn(packet);
  if (flags & PacketFlag.ACKNOWLEDGE) {
    receiveAcknowledge(context, qp, psn, aethSyndrome(packet + 12));
    return;
  }
  if (!(flags & PacketFlag.READ)) {
    context.counters.dropGhost++;
    return;
  }
  // FIRST, LAST and ONLY carry an AETH, which can only be an ACK.
  const hasAeth = !(flags & PacketFlag.MIDDLE);
  if (hasAeth && syndromeKind(aethSyndrome(packet + 12)) != SyndromeKind.ACK) {
    context.counters.dropGhost++;
    return;
  }
  const payload = packet + <usize>headersLength(context.opcodeTable, bthOpcode(packet));
  const size = payloadLength(context.opcodeTable, packet, length);
  receiveReadResponse(context, qp, psn, payload, size);
}
