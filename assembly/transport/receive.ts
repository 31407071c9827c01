/**
 * The receive path: checks each packet from the network in this order, and drops it silently at the
 * first failed check (IBA 9.6.1): length and headers, opcode, queue pair, state, service, source
 * address, ICRC, P_Key. A sender that is not connected gets no answer, not even a NAK.
 */
import {
  aethMsn,
  aethSyndrome,
  bthAckRequest,
  bthCongestion,
  bthMark,
  bthOpcode,
  bthPkey,
  bthPsn,
  bthTargetQp,
  loadU64,
  mayTalk,
} from '../wire/headers';
import { icrcOfDoubled, icrcSolveIpId } from '../wire/icrc';
import { ICRC_LANES } from '../wire/icrc-lanes';
import { Header, Opcode, PacketFlag, Service, flagsOf, headersLength } from '../wire/opcode';
import {
  ICRC_SIZE,
  PACKET_SIZE_MAX,
  PacketStatus,
  checkPacket,
  headerIn,
  payloadLength,
} from '../wire/packet';
import { SyndromeKind, syndromeKind } from '../wire/syndrome';
import { MULTICAST_QPN, receiveDatagram } from './datagram/datagram';
import { NO_MSN, believesMsn, mayAnswer } from './requester/answer-checks';
import {
  receiveAcknowledge,
  receiveArrivalReport,
  receiveCongestion,
  receiveSelectiveAck,
} from './requester/completer';
import { noteNeedless } from './requester/in-flight';
import { receiveAtomicResponse, receiveReadResponse } from './requester/read-response';
import {
  CONTINUED_LEAST,
  receiveContinued,
  receivePlain,
  receivesPlain,
} from './responder/fast-path';
import { isPrefetchable, prefetchKeys } from './responder/prefetch';
import { receiveRequestPacket } from './responder/responder';
import { noteCongestion } from './responder/response';
import { receiveUnreliable } from './responder/unreliable';
import {
  Context,
  MEMBERSHIP_SIZE,
  Membership,
  RECEIVE_DESCRIPTOR_SIZE,
  ReceiveDescriptor,
  findQueuePair,
} from './shared/context';
import { PACKET_AUTH, PACKET_TRAILER_SIZE, openPacket } from './shared/packet-auth';
import { Path, PseudoHeader } from './shared/path';
import { QueuePair, pathOf } from './shared/queue-pair';
import { checksTogether, computeTogether, expectedIcrc, receiveStart } from './shared/send-buffer';
import { requests, serves } from './shared/state-machine';
import { QpType } from './shared/status';

/** BTH byte 4: the packet met congestion. */
const FECN: u32 = 0x80;
/** The shortest authenticated packet, a SEND of no bytes: BTH, counter, tag, ICRC. */
const AUTHENTIC_LEAST: u32 = 12 + PACKET_TRAILER_SIZE + ICRC_SIZE;

/** Takes in the first `count` descriptors. */
export function receiveBatch(context: Context, count: u32): void {
  const total = min<u32>(count, context.receivePackets);
  for (let index: u32 = 0; index < total; index++) {
    const at = context.receiveDescriptors + <usize>(index * RECEIVE_DESCRIPTOR_SIZE);
    const descriptor = changetype<ReceiveDescriptor>(at);
    const length = descriptor.length;
    const segment = descriptor.segmentSize;
    context.counters.rcvdBytes += length;
    if (segment == 0 || segment >= length) {
      context.counters.rcvdPkts++;
      receivePacket(context, descriptor, descriptor.address, length);
      continue;
    }
    receiveRun(context, descriptor, segment, length);
  }
}

/** Packets of one size, the last may be shorter: what waits for memory waits together. */
function receiveRun(
  context: Context,
  descriptor: ReceiveDescriptor,
  segment: u32,
  length: u32,
): void {
  const start: usize = descriptor.address;
  const prefetches = isPrefetchable(start, segment);
  const together = checksTogether(segment);
  let computed: u32 = 0;
  let plain: QueuePair | null = null;
  let index: u32 = 0;
  for (let offset: u32 = 0; offset < length; offset += segment, index++) {
    const packet = start + offset;
    const left = length - offset;
    const lane = index & (ICRC_LANES - 1);
    if (lane == 0) {
      if (prefetches) prefetchKeys(context, packet, segment, left);
      computed = 0;
      plain = null;
      if (together && left >= ICRC_LANES * segment) {
        const qp = findQueuePair(context, bthTargetQp(packet));
        if (qp != null && computeTogether(context, qp, descriptor, packet, segment)) {
          computed = pathOf(qp).skipsIcrc ? 0 : segment;
          if (receivesPlain(qp)) plain = qp;
        }
      }
    }
    const icrc = load<u32>(context.lanes + <usize>(lane << 2));
    if (plain != null && receivePlain(context, plain, packet, segment, icrc)) continue;
    // Another packet may change the state that made its successors plain.
    plain = null;
    context.aheadLength = computed;
    context.aheadIcrc = icrc;
    receivePacket(context, descriptor, packet, min<u32>(segment, left));
  }
  context.aheadLength = 0;
  context.counters.rcvdPkts += index;
}

function receivePacket(
  context: Context,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): void {
  if (length >= CONTINUED_LEAST && receiveContinued(context, descriptor, packet, length)) return;
  const counters = context.counters;
  let isAuthentic = false;
  if (PACKET_AUTH && context.authenticated != 0 && length >= AUTHENTIC_LEAST) {
    const opened = receiveAuthenticated(context, descriptor, packet, length);
    if (opened == 0) return;
    isAuthentic = opened != length;
    length = opened;
  }
  const status = checkPacket(context.opcodeTable, packet, length);
  if (status != <u32>PacketStatus.OK) {
    if (status == <u32>PacketStatus.UNKNOWN_OPCODE) counters.dropUnknownOpcode++;
    else counters.dropMalformed++;
    return;
  }
  if (bthTargetQp(packet) == MULTICAST_QPN) {
    receiveMulticast(context, descriptor, packet, length);
    return;
  }
  const qp = findQueuePair(context, bthTargetQp(packet));
  if (qp == null || !serves(qp.state)) {
    counters.dropQueuePair++;
    return;
  }
  if (!serviceFits(qp, bthOpcode(packet))) {
    counters.dropService++;
    return;
  }
  if (qp.type == <u32>QpType.UD) {
    if (!checkStranger(context, descriptor, packet, length)) return;
    receiveDatagram(context, qp, descriptor, packet, length);
    return;
  }
  const path = pathOf(qp);
  if (!isFromPeer(descriptor, path)) {
    counters.dropSource++;
    return;
  }
  if (!isAuthentic) {
    if (path.auth != 0) {
      counters.dropTag++;
      return;
    }
    if (!checkSealed(context, path, descriptor.sourcePort, packet, length)) return;
  }
  receiveConnected(context, qp, packet, length);
}

/**
 * A packet for a queue pair of its own context, on the local path. It has made no way on which
 * bits could flip, so it has no ICRC; all else is checked as for any other packet.
 */
export function receiveOwn(context: Context, packet: usize, length: u32): void {
  const descriptor = changetype<ReceiveDescriptor>(context.localBounce);
  descriptor.sourceGid0 = context.localGid0;
  descriptor.sourceGid1 = context.localGid1;
  descriptor.targetGid0 = 0;
  descriptor.targetGid1 = 0;
  descriptor.sourcePort = context.localPort;
  context.isLooping = 1;
  receivePacket(context, descriptor, packet, length);
  context.isLooping = 0;
}

function isFromPeer(descriptor: ReceiveDescriptor, path: Path): bool {
  return descriptor.sourceGid0 == path.remoteGid0 && descriptor.sourceGid1 == path.remoteGid1;
}

/**
 * A packet for a queue pair with keys: source, ICRC and P_Key, then counter and tag. Returns its
 * length without these; 0: it is dropped, and was counted; `length`: no such queue pair.
 */
function receiveAuthenticated(
  context: Context,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): u32 {
  const qp = findQueuePair(context, bthTargetQp(packet));
  if (qp == null || !serves(qp.state)) return length;
  const path = pathOf(qp);
  if (path.auth == 0) return length;
  const counters = context.counters;
  if (length > PACKET_SIZE_MAX || length & 3) {
    counters.dropMalformed++;
    return 0;
  }
  if (!isFromPeer(descriptor, path)) {
    counters.dropSource++;
    return 0;
  }
  if (!checkSealed(context, path, descriptor.sourcePort, packet, length)) return 0;
  return openPacket(context, path, packet, length);
}

/** Has the packet the opcode of a service that this queue pair speaks? */
function serviceFits(qp: QueuePair, opcode: u32): bool {
  const service = opcode & 0xe0;
  if (service == <u32>Service.CNP) return qp.type == <u32>QpType.RC;
  if (service == <u32>Service.MSP) return qp.type == <u32>QpType.RC && speaksOurs(qp);
  if (qp.type == <u32>QpType.RC) return service == <u32>Service.RC;
  if (qp.type == <u32>QpType.UC) return service == <u32>Service.UC;
  return service == <u32>Service.UD;
}

/** Does its peer have opcodes of our own? */
function speaksOurs(qp: QueuePair): bool {
  return qp.reorderPeer != 0 || pathOf(qp).ownKind != 0;
}

/** ICRC, then P_Key; counts what fails. */
function checkSealed(
  context: Context,
  path: Path,
  sourcePort: u32,
  packet: usize,
  length: u32,
): bool {
  if (!checkIcrc(context, path, sourcePort, packet, length)) {
    context.counters.dropIcrc++;
    return false;
  }
  if (mayTalk(bthPkey(packet), context.pkey)) return true;
  context.counters.dropPkey++;
  return false;
}

/** The same for a sender that no queue pair is connected to. */
function checkStranger(
  context: Context,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): bool {
  const path = context.strangerPath;
  const known =
    path.remoteGid0 == descriptor.sourceGid0 &&
    path.remoteGid1 == descriptor.sourceGid1 &&
    path.multicastGid0 == descriptor.targetGid0 &&
    path.multicastGid1 == descriptor.targetGid1;
  if (!known) {
    path.remoteGid0 = descriptor.sourceGid0;
    path.remoteGid1 = descriptor.sourceGid1;
    path.multicastGid0 = descriptor.targetGid0;
    path.multicastGid1 = descriptor.targetGid1;
    const group = (descriptor.targetGid0 | descriptor.targetGid1) != 0;
    path.localGid0 = group ? descriptor.targetGid0 : context.localGid0;
    path.localGid1 = group ? descriptor.targetGid1 : context.localGid1;
    path.localPort = context.localPort;
    path.pseudoHeader = context.pseudoHeader;
    path.receivePort = 0;
  }
  return checkSealed(context, path, descriptor.sourcePort, packet, length);
}

/** One copy for every UD queue pair that joined the group (IBA 10.5.2.1). */
function receiveMulticast(
  context: Context,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): void {
  const group = (descriptor.targetGid0 | descriptor.targetGid1) != 0;
  if (!group || (bthOpcode(packet) & 0xe0) != <u32>Service.UD) {
    context.counters.dropQueuePair++;
    return;
  }
  if (!checkStranger(context, descriptor, packet, length)) return;
  for (let index: u32 = 0; index < context.multicastMax; index++) {
    const at = context.multicast + <usize>(index * MEMBERSHIP_SIZE);
    const member = changetype<Membership>(at);
    const joined =
      member.queuePair != 0 &&
      member.gid0 == descriptor.targetGid0 &&
      member.gid1 == descriptor.targetGid1;
    if (!joined) continue;
    const qp = changetype<QueuePair>(member.queuePair);
    if (serves(qp.state)) receiveDatagram(context, qp, descriptor, packet, length);
  }
}

/** At full strength first: as a peer that sends IP identification 0. */
function checkIcrc(
  context: Context,
  path: Path,
  sourcePort: u32,
  packet: usize,
  length: u32,
): bool {
  if (context.isLooping) return true;
  const stated = load<u32>(packet + length - ICRC_SIZE);
  if (path.skipsIcrc && stated == 0) {
    context.counters.icrcSkipped++;
    return true;
  }
  const tables = context.icrcTables;
  const isIpv4 = path.pseudoHeader == <u32>PseudoHeader.IPV4;
  const begin = receiveStart(context, path, sourcePort, length);
  const scratch = context.crcScratch;
  const difference = expectedIcrc(context, begin, packet, length) ^ stated;
  if (icrcPasses(context, path, isIpv4, difference, length)) return true;
  if (bthOpcode(packet) != <u32>Opcode.RC_FLUSH) return false;
  // Linux rxe covers FLUSH requests twice: so their end is further from the identification.
  const doubled = icrcOfDoubled(tables, scratch, begin, packet, length) ^ stated;
  if (!icrcPasses(context, path, isIpv4, doubled, 2 * length - ICRC_SIZE)) return false;
  path.doublesFlush = 1;
  return true;
}

/**
 * Is there no difference between the ICRC computed and the one stated, or one that an IPv4
 * identification explains? A socket does not tell it, so it is solved for; what then passes has
 * been checked with the 16 bits that are left. `length`: of what is covered, and an ICRC.
 */
function icrcPasses(
  context: Context,
  path: Path,
  isIpv4: bool,
  difference: u32,
  length: u32,
): bool {
  if (difference == 0) {
    context.counters.icrcExact++;
    return true;
  }
  if (!isIpv4 || icrcSolveIpId(context.icrcTables, difference, length) < 0) return false;
  path.usesIpIds = 1;
  context.counters.icrcByIpId++;
  return true;
}

/** A packet for a connected queue pair, from its peer and whole. */
function receiveConnected(context: Context, qp: QueuePair, packet: usize, length: u32): void {
  const flags = flagsOf(context.opcodeTable, bthOpcode(packet));
  if (flags & PacketFlag.CONGESTION) {
    receiveCongestion(context, qp);
    return;
  }
  if (bthCongestion(packet) & FECN && qp.type == <u32>QpType.RC) {
    noteCongestion(context, qp);
  }
  if (flags & PacketFlag.RESPONSE) receiveResponse(context, qp, packet, length, flags);
  else if (qp.type == <u32>QpType.UC) receiveUnreliable(context, qp, packet, length);
  else receiveRequestPacket(context, qp, packet, length);
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
  const hasAeth = !(flags & PacketFlag.MIDDLE);
  const table = context.opcodeTable;
  const aeth = headerIn(table, packet, Header.AETH);
  const msn: u32 = hasAeth ? aethMsn(aeth) : NO_MSN;
  const isRepeated = qp.reorderPeer != 0 && bthAckRequest(packet);
  if (isRepeated && mayAnswer(qp, psn, msn)) noteNeedless(context, qp);
  if (bthOpcode(packet) == <u32>Opcode.MSP_SELECTIVE_ACKNOWLEDGE) {
    if (!believesMsn(context, qp, psn, msn)) return;
    const map = headerIn(table, packet, Header.SELECTIVE_ACK);
    // The header has two words of the map, the payload the rest.
    const words = (length - <u32>(map - packet) - ICRC_SIZE) >> 3;
    if (syndromeKind(aethSyndrome(aeth)) == <u32>SyndromeKind.ACK) {
      receiveArrivalReport(context, qp, psn, map, words);
    } else receiveSelectiveAck(context, qp, psn, msn, map, words);
    return;
  }
  if (flags & PacketFlag.ACKNOWLEDGE) {
    receiveAcknowledge(context, qp, psn, aethSyndrome(aeth), msn);
    return;
  }
  // FIRST, LAST, ONLY and atomic responses carry an AETH, which can only be an ACK.
  if (hasAeth && syndromeKind(aethSyndrome(aeth)) != <u32>SyndromeKind.ACK) {
    context.counters.dropGhost++;
    return;
  }
  const mark = bthMark(packet);
  if (flags & PacketFlag.ATOMIC) {
    const original = loadU64(headerIn(table, packet, Header.ATOMIC_ACK_ETH));
    receiveAtomicResponse(context, qp, psn, msn, mark, original);
    return;
  }
  const payload = packet + <usize>headersLength(context.opcodeTable, bthOpcode(packet));
  const size = payloadLength(context.opcodeTable, packet, length);
  receiveReadResponse(context, qp, psn, msn, mark, payload, size);
}
