/**
 * The responder of reliable connections: checks request packets, executes them in PSN order and
 * answers them. The checks have a fixed order (IBA 9.7.4.1): PSN, opcode sequence, operation
 * allowed, resources, length, key. Only a packet that passes all of them touches memory.
 */
import { allowsRemote, locateWord, translateRemote } from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import { countAtomic, countRead } from '../../region/key-table';
import {
  atomicAddress,
  atomicCompare,
  atomicKey,
  atomicSwapAdd,
  bthAckRequest,
  bthOpcode,
  bthPadCount,
  bthPsn,
  bthSolicited,
  loadU32,
  rethAddress,
  rethKey,
  rethLength,
} from '../../wire/headers';
import {
  Header,
  Opcode,
  PacketFlag,
  RESPONDED,
  flagsOf,
  headerOffset,
  headersOf,
} from '../../wire/opcode';
import { headerIn, payloadLength } from '../../wire/packet';
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { NakCode, SyndromeKind } from '../../wire/syndrome';
import { enterError } from '../queue/completion';
import { CountedOperation, countCompletion } from '../queue/completion-counter';
import { takeReceive } from '../queue/receive-queue';
import { executeAtomic } from '../shared/atomics';
import { Context, EventKind, pushEvent, schedule } from '../shared/context';
import { openResponses } from '../shared/keep-alive';
import { updateLocalEndpoint } from '../shared/local-endpoint';
import { isMarked, reorders } from '../shared/packet-mark';
import { lengthOf, packetOf } from '../shared/reorder-pool';
import { MessageKind, QueuePair, Resource, packetCount, resourceAt } from '../shared/queue-pair';
import { serves } from '../shared/state-machine';
import { AsyncEvent, QpState, WcStatus } from '../shared/status';
import { acknowledgeLater, delayAck } from './delayed-ack';
import {
  acceptAtomicWrite,
  acceptFlush,
  acknowledgeAgain,
  grantsFlush,
  holdWord,
  noteRepeatedRequest,
} from './flush';
import { Invalidation, invalidateReceived } from './invalidating-receive';
import { anyAhead, keepAhead, takeAhead } from './reorder-buffer';
import {
  defer,
  dropJobsFrom,
  firstJobCount,
  jobCount,
  jobRoom,
  pushAtomic,
  pushJob,
  pushRead,
  refuse,
  remember,
  sendNak,
  unsentFrom,
} from './response-queue';
import { completeMessage, disturbsRead, overlapsJob, placeSend, placeWrite } from './scatter';
import { noteHeld } from './selective-ack';

/** Longest message that a RETH may announce (IBA C9-94). */
const MESSAGE_BYTES_MAX: u32 = 0x80000000;
/**
 * A requester's packets are this close to the one that is expected: it has no more in flight (its
 * window ends far below), and repeats nothing that is older. What is further away is forged.
 */
const NEAR_PACKETS: u32 = 1 << 20;

/** A request packet, checked by `receive.ts` up to its P_Key. */
export function receiveRequestPacket(
  context: Context,
  qp: QueuePair,
  packet: usize,
  length: u32,
): void {
  const flags = flagsOf(context.opcodeTable, bthOpcode(packet));
  const psn = bthPsn(packet);
  const order = psnCompare(psn, qp.psnExpected);
  const away = order < 0 ? psnDistance(psn, qp.psnExpected) : psnDistance(qp.psnExpected, psn);
  if (away > NEAR_PACKETS) {
    context.counters.outOfSeqRequest++;
    return;
  }
  openResponses(context, qp);
  noteEstablished(context, qp);
  if (order < 0) receiveDuplicate(context, qp, packet, flags, psn);
  else if (order > 0) receiveAhead(context, qp, packet, length, psn);
  else {
    execute(context, qp, packet, length);
    if (anyAhead(qp)) executeKept(context, qp, psn);
  }
}

/** The packet that was missing is there: those behind it follow, up to the next gap. */
function executeKept(context: Context, qp: QueuePair, from: u32): void {
  let before = from;
  while (qp.psnExpected != before && serves(qp.state)) {
    const slot = takeAhead(context, qp, psnDistance(before, qp.psnExpected));
    before = qp.psnExpected;
    if (slot == 0) continue;
    const packet = packetOf(slot);
    // A peer that goes back may cut a READ before this packet in two. Then this request is one too
    // many for now, and the peer sends it again.
    const answered = flagsOf(context.opcodeTable, bthOpcode(packet)) & RESPONDED;
    if (answered && firstJobCount(qp) >= qp.destRdAtomicMax) break;
    execute(context, qp, packet, lengthOf(slot));
  }
  if (!serves(qp.state)) return;
  // The peer has been waiting for this gap to close.
  qp.ackPending = 1;
  if (anyAhead(qp)) qp.sackPending = 1;
  schedule(context, qp);
}

/** A request packet with the PSN that is expected. */
function execute(context: Context, qp: QueuePair, packet: usize, length: u32): void {
  const flags = flagsOf(context.opcodeTable, bthOpcode(packet));
  const psn = bthPsn(packet);
  qp.nakSent = 0;
  if (qp.nakPending != 0 && qp.nakPending < <u32>NakCode.INVALID_REQUEST) {
    // The packet that a pending NAK would request has arrived.
    qp.nakPending = 0;
    qp.ackPending = 1;
  }
  const size = payloadLength(context.opcodeTable, packet, length);
  if (!checkSequence(context, qp, flags, psn)) return;
  if (!checkOperation(context, qp, packet, flags, psn)) return;
  if (!checkResources(context, qp, flags, psn)) return;
  if (!checkLength(context, qp, packet, flags, size)) return;
  if (flags & PacketFlag.READ) acceptRead(context, qp, packet, psn);
  else if (flags & PacketFlag.ATOMIC) acceptAtomic(context, qp, packet, psn);
  else if (flags & PacketFlag.FLUSH) acceptFlush(context, qp, packet, psn);
  else if (flags & PacketFlag.ATOMIC_WRITE) acceptAtomicWrite(context, qp, packet, psn);
  else if (flags & (PacketFlag.SEND | PacketFlag.WRITE)) {
    acceptData(context, qp, packet, flags, size);
  } else unreachable();
}

/** The first packet in RTR tells the application that the peer is there. */
export function noteEstablished(context: Context, qp: QueuePair): void {
  if (qp.state != <u32>QpState.RTR || qp.communicationEstablished) return;
  qp.communicationEstablished = 1;
  updateLocalEndpoint(context, qp);
  pushEvent(context, EventKind.ASYNC, AsyncEvent.COMM_EST, changetype<usize>(qp));
}

/** A packet is missing: says so once, then waits for it in silence (IBA 9.7.5.1.3). */
function receiveAhead(context: Context, qp: QueuePair, packet: usize, length: u32, psn: u32): void {
  context.counters.outOfSeqRequest++;
  if (reorders(qp)) {
    if (!isMarked(qp, packet)) return;
    if (!keepAhead(context, qp, packet, length, psn) && !bthAckRequest(packet)) return;
    qp.sackPending = 1;
    schedule(context, qp);
    return;
  }
  if (qp.nakSent) return;
  sendNak(context, qp, NakCode.PSN_SEQUENCE_ERROR, qp.psnExpected);
  qp.nakSent = 1;
}

/** MIDDLE and LAST continue what is in progress; FIRST and ONLY need an end before. */
export function inSequence(qp: QueuePair, flags: u32): bool {
  if (flags & PacketFlag.START) return qp.message == <u32>MessageKind.NONE;
  if (flags & PacketFlag.SEND) return qp.message == <u32>MessageKind.SEND;
  return qp.message == <u32>MessageKind.WRITE;
}

function checkSequence(context: Context, qp: QueuePair, flags: u32, psn: u32): bool {
  if (inSequence(qp, flags)) return true;
  refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
  return false;
}

/** Does the queue pair grant this kind of operation to its peer? */
function checkOperation(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  psn: u32,
): bool {
  let granted: bool = false;
  if (flags & PacketFlag.SEND) granted = true;
  else if (flags & PacketFlag.WRITE) granted = (qp.access & AccessFlag.REMOTE_WRITE) != 0;
  else if (flags & PacketFlag.READ) granted = (qp.access & AccessFlag.REMOTE_READ) != 0;
  else if (flags & PacketFlag.ATOMIC) granted = (qp.access & AccessFlag.REMOTE_ATOMIC) != 0;
  else if (flags & PacketFlag.FLUSH) granted = grantsFlush(context, qp, packet);
  else if (flags & PacketFlag.ATOMIC_WRITE) granted = (qp.access & AccessFlag.REMOTE_WRITE) != 0;
  if (granted) return true;
  refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
  return false;
}

/** Does this packet need a receive request that is not in hand yet? */
export function needsReceive(flags: u32): bool {
  if (flags & PacketFlag.SEND) return (flags & PacketFlag.START) != 0;
  return (flags & PacketFlag.RECEIVE) != 0;
}

/** A receive request for what needs one; a place to answer a READ or atomic from. */
function checkResources(context: Context, qp: QueuePair, flags: u32, psn: u32): bool {
  if (needsReceive(flags)) {
    if (qp.receiveHeld || takeReceive(context, qp)) return true;
    context.counters.sendRnrErr++;
    sendNak(context, qp, SyndromeKind.RNR_NAK | qp.minRnrTimer, psn);
    // Packets behind this one are ahead of what is expected: no word about them.
    qp.nakSent = 1;
    return false;
  }
  if (!(flags & RESPONDED) || jobCount(qp) < qp.destRdAtomicMax) return true;
  // Linux does not count its FLUSHes: those that are too many wait, where any may come.
  const counts = !(flags & PacketFlag.FLUSH) || qp.destRdAtomicMax == 0;
  if (counts && firstJobCount(qp) >= qp.destRdAtomicMax) {
    refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
    return false;
  }
  // A SEND_WITH_INV with a pending fence has an entry of its own.
  if (jobCount(qp) - <u32>qp.receiveFenced < jobRoom(qp)) return true;
  // The places are taken by answers to repeated requests: soon there will be one.
  defer(context, qp);
  return false;
}

/** Payload against path MTU, pad and what the message's RETH promised (IBA 9.7.4.1.6, C9-92). */
export function lengthFits(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  size: u32,
): bool {
  const end = (flags & PacketFlag.END) != 0;
  if (!end) {
    if (size != qp.mtu || bthPadCount(packet) != 0) return false;
  } else if (size > qp.mtu || (size == 0 && !(flags & PacketFlag.START))) return false;
  // How much a FLUSH reaches is a matter of its key alone.
  if (flags & PacketFlag.FLUSH) return true;
  const table = context.opcodeTable;
  const announces = (headersOf(table, bthOpcode(packet)) & Header.RETH) != 0;
  const total = announces ? rethLength(headerIn(table, packet, Header.RETH)) : qp.messageLeft;
  if (announces && total > MESSAGE_BYTES_MAX) return false;
  if (flags & PacketFlag.ATOMIC_WRITE) {
    return size == 8 && total == 8 && bthPadCount(packet) == 0;
  }
  if (!(flags & PacketFlag.WRITE)) return true;
  return end ? total == size : total > size;
}

function checkLength(context: Context, qp: QueuePair, packet: usize, flags: u32, size: u32): bool {
  if (lengthFits(context, qp, packet, flags, size)) return true;
  refuse(context, qp, NakCode.INVALID_REQUEST, bthPsn(packet), WcStatus.LOC_LEN_ERR);
  return false;
}

/** A SEND or WRITE packet in order. */
function acceptData(context: Context, qp: QueuePair, packet: usize, flags: u32, size: u32): void {
  // A receive request completes when all before it is answered, FLUSHes among them.
  const early = qp.heldJobs > 0 && (flags & PacketFlag.RECEIVE) != 0;
  // The current receive request still belongs to a message with a pending fence.
  const taken = qp.receiveFenced != 0 && (flags & (PacketFlag.RECEIVE | PacketFlag.SEND)) != 0;
  if (early || taken || disturbsRead(context, qp, packet, flags, size)) {
    defer(context, qp);
    return;
  }
  const status =
    flags & PacketFlag.SEND
      ? placeSend(context, qp, packet, flags, size)
      : placeWrite(context, qp, packet, flags, size);
  const psn = bthPsn(packet);
  if (status != <u32>WcStatus.SUCCESS) {
    refuse(context, qp, nakOf(status), psn, status);
    return;
  }
  qp.psnExpected = psnAdd(psn, 1);
  if (flags & PacketFlag.END) endMessage(context, qp, packet, flags);
  // Its completion found no room, or its key could not be invalidated: that is no success.
  if (qp.state == <u32>QpState.ERR) return;
  if (qp.heldJobs > 0) noteHeld(context, qp, size);
  if (bthAckRequest(packet)) acknowledgeLater(context, qp);
  else if (flags & PacketFlag.END) delayAck(context, qp);
}

/** The NAK for a message that could not be written to memory. */
function nakOf(status: u32): u32 {
  if (status == <u32>WcStatus.LOC_ACCESS_ERR) return NakCode.REMOTE_ACCESS_ERROR;
  if (status == <u32>WcStatus.LOC_LEN_ERR) return NakCode.INVALID_REQUEST;
  // Our own application's fault.
  return NakCode.REMOTE_OPERATIONAL_ERROR;
}

/** The last packet of a SEND or WRITE was placed. */
function endMessage(context: Context, qp: QueuePair, packet: usize, flags: u32): void {
  qp.message = MessageKind.NONE;
  qp.msn = (qp.msn + 1) & 0xffffff;
  context.counters.rdmaRecvs++;
  if (!(flags & PacketFlag.RECEIVE)) return;
  const opcode = bthOpcode(packet);
  if (headersOf(context.opcodeTable, opcode) & Header.IETH) {
    const key = loadU32(packet + headerOffset(context.opcodeTable, opcode, Header.IETH));
    const psn = bthPsn(packet);
    const solicited = bthSolicited(packet) != 0;
    switch (invalidateReceived(context, qp, key, psn, qp.messageOffset, solicited)) {
      case Invalidation.REFUSED:
        // IBA class J: the data is placed, the queue pair goes to ERR, and no NAK is sent.
        completeMessage(context, qp, packet, flags, WcStatus.REM_INV_REQ_ERR);
        enterError(context, qp);
        return;
      case Invalidation.HELD:
        return;
    }
  }
  completeMessage(context, qp, packet, flags, WcStatus.SUCCESS);
}

/** A new READ request: remembered, and answered packet by packet. */
function acceptRead(context: Context, qp: QueuePair, packet: usize, psn: u32): void {
  const reth = headerIn(context.opcodeTable, packet, Header.RETH);
  const address = rethAddress(reth);
  const key = rethKey(reth);
  const length = rethLength(reth);
  if (length > 0) {
    const need: u32 = AccessFlag.REMOTE_READ;
    if (
      translateRemote(context.arena, key, qp.pd, qp.binding, address, length, need) == 0 &&
      !allowsRemote(context.arena, key, qp.pd, address, length, need)
    ) {
      refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn, WcStatus.LOC_ACCESS_ERR);
      return;
    }
    countRead(context.arena, key, length);
  }
  const operation = CountedOperation.REMOTE_RDMA_READ;
  countCompletion(qp.counterTable, operation, WcStatus.SUCCESS, length);
  const resource = remember(qp, PacketFlag.READ, psn, packetCount(qp, length));
  resource.address = address;
  resource.key = key;
  resource.length = length;
  pushRead(context, qp, psn, address, key, length, qp.msn, 0);
}

/** A new atomic: executed now, once; its answer is kept for repetitions. */
function acceptAtomic(context: Context, qp: QueuePair, packet: usize, psn: u32): void {
  const header = headerIn(context.opcodeTable, packet, Header.ATOMIC_ETH);
  const address = atomicAddress(header);
  if ((<u32>address) & 7) {
    refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
    return;
  }
  const need: u32 = AccessFlag.REMOTE_ATOMIC;
  const key = atomicKey(header);
  const linear = locateWord(context.arena, key, qp.pd, qp.binding, address, need);
  if (linear == 0) {
    refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn, WcStatus.LOC_ACCESS_ERR);
    return;
  }
  const opcode = bthOpcode(packet);
  const operand = atomicSwapAdd(header);
  const compare = atomicCompare(header);
  if (qp.heldJobs > 0) {
    countAtomic(context.arena, key);
    const resource = remember(qp, PacketFlag.ATOMIC, psn, 1);
    holdWord(context, qp, resource, opcode, address, key, operand, compare);
    return;
  }
  if (overlapsJob(context, qp, linear, 8)) {
    defer(context, qp);
    return;
  }
  countAtomic(context.arena, key);
  const value = executeAtomic(opcode, linear, operand, compare);
  const resource = remember(qp, PacketFlag.ATOMIC, psn, 1);
  resource.value = value;
  pushAtomic(context, qp, psn, value, qp.msn, 0);
}

/**
 * Did the peer retransmit this packet before? Then responses to it were lost, and this response is
 * sent twice: of two adjacent packets a link with periodic losses loses one at most.
 */
function isRepeatedAgain(qp: QueuePair, psn: u32): bool {
  const again = qp.duplicatePsn == psn + 1;
  qp.duplicatePsn = psn + 1;
  return again;
}

/** Is it a probe (shared/keep-alive.ts), which repeats no packet? */
function isProbe(packet: usize): bool {
  return bthOpcode(packet) == <u32>Opcode.RC_RDMA_WRITE_ONLY && rethKey(packet + 12) == 0;
}

/** A request that was executed before (IBA 9.7.5.1.4): answered again, never executed again. */
function receiveDuplicate(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  psn: u32,
): void {
  context.counters.duplicateRequest++;
  qp.heardOldNews = 1;
  const times: u32 = isRepeatedAgain(qp, psn) ? 2 : 1;
  if (flags & (PacketFlag.SEND | PacketFlag.WRITE)) {
    if (qp.heldJobs > 0) noteHeld(context, qp, qp.mtu);
    if (qp.receiveFenced) noteRepeatedRequest(context, qp, psn);
    // One ACK for the newest executed request answers all that came before.
    qp.ackPending = <u8>times;
    if (!isProbe(packet)) qp.hadDuplicate = 1;
    acknowledgeAgain(qp, psn);
    schedule(context, qp);
    return;
  }
  let counted: u32 = 0;
  for (let back: u32 = 1; back <= qp.rdAtomicLimit; back++) {
    const resource = resourceAt(qp, qp.resourceHead - back);
    // Of FLUSHes there may be more than that.
    const counts = resource.kind != <u32>PacketFlag.FLUSH;
    if (counts && counted++ == qp.destRdAtomicMax) return;
    const skipped = psnDistance(resource.psnFirst, psn);
    if (resource.kind == 0 || skipped > psnDistance(resource.psnFirst, resource.psnLast)) continue;
    if (resource.kind != (flags & RESPONDED)) return;
    noteRepeatedRequest(context, qp, psn);
    if (flags & PacketFlag.READ) repeatRead(context, qp, packet, resource, skipped, times);
    else if (!(reorders(qp) && unsentFrom(qp, psn, 1) == 0) && dropJobsFrom(qp, psn)) {
      pushJob(context, qp, resource.kind, psn, resource.msn, times).value = resource.value;
    }
    return;
  }
}

/** A repeated READ may ask for the tail of what it asked for at first, with the same key. */
function repeatRead(
  context: Context,
  qp: QueuePair,
  packet: usize,
  resource: Resource,
  skipped: u32,
  times: u32,
): void {
  const reth = headerIn(context.opcodeTable, packet, Header.RETH);
  const address = rethAddress(reth);
  const length = rethLength(reth);
  const offset = skipped * qp.mtu;
  if (resource.key != rethKey(reth) || address - resource.address != <u64>offset) return;
  if (offset > resource.length || length > resource.length - offset) return;
  const psn = bthPsn(packet);
  let left = length;
  if (reorders(qp)) {
    const packets = packetCount(qp, length);
    const unsent = unsentFrom(qp, psn, packets);
    if (unsent == 0) return;
    if (unsent < packets) left = unsent * qp.mtu;
  }
  if (!dropJobsFrom(qp, psn)) return;
  pushRead(context, qp, psn, address, resource.key, left, resource.msn, times);
}
