/**
 * The responder: request packets are checked, executed in PSN order, and answered. A packet goes
 * through a line of checks (IBA 9.7.4.1, and the order of reference implementations): PSN, opcode
 * sequence, operation allowed, resources, length, key; only then is memory touched.
 *
 * Answers leave in PSN order: READ responses from `jobs`, and one coalesced ACK, or NAK, that
 * waits until the READs before it are answered.
 */
import { copyBytes } from '../memory/bytes';
import { AccessFlag } from '../region/access-flag';
import { translate } from '../region/key-table';
import {
  DEFAULT_PKEY,
  bthAckRequest,
  bthBits,
  bthOpcode,
  bthPadCount,
  bthPsn,
  bthSolicited,
  loadU32,
  rethAddress,
  rethKey,
  rethLength,
  storeAeth,
  storeBth,
} from '../wire/headers';
import { Header, Opcode, PacketFlag, flagsOf, headerOffset, headersOf } from '../wire/opcode';
import { ICRC_SIZE, payloadLength } from '../wire/packet';
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { ACK_WITHOUT_CREDITS, NakCode, SyndromeKind } from '../wire/syndrome';
import { Context, EventKind, hasRoom, packetStart, pushEvent, schedule } from './context';
import { completeReceive, enterError, takeReceive } from './failure';
import { MessageKind, QueuePair, jobAt, pathOf, receiveCursor, resourceAt } from './queue-pair';
import { AsyncEvent, QpState, WcFlag, WcOpcode, WcStatus } from './status';
import { finishPacket } from './transmit';
import { RECEIVE_REQUEST_SIZE, ReceiveRequest, SGE_SIZE, Sge, sgeTotal } from './work-queue';

/** Longest message that a RETH may announce (IBA C9-94). */
const MESSAGE_BYTES_MAX: u32 = 0x80000000;

/** A request packet, checked by `receive.ts` up to its P_Key. */
export function receiveRequestPacket(
  context: Context,
  qp: QueuePair,
  packet: usize,
  length: u32,
): void {
  const opcode = bthOpcode(packet);
  const flags = flagsOf(context.opcodeTable, opcode);
  const psn = bthPsn(packet);
  if (qp.state == QpState.RTR && !qp.communicationEstablished) {
    qp.communicationEstablished = 1;
    pushEvent(context, EventKind.ASYNC, AsyncEvent.COMM_EST, changetype<usize>(qp));
  }
  const order = psnCompare(psn, qp.psnExpected);
  if (order != 0) {
    if (order < 0) receiveDuplicate(context, qp, packet, flags, psn);
    else receiveAhead(context, qp);
    return;
  }
  qp.nakSent = 0;
  const size = payloadLength(context.opcodeTable, packet, length);
  if (!checkSequence(context, qp, flags, psn)) return;
  if (!checkOperation(context, qp, flags, psn)) return;
  if (!checkResources(context, qp, flags, psn)) return;
  if (!checkLength(context, qp, packet, flags, size)) return;
  if (flags & PacketFlag.READ) {
    acceptRead(context, qp, packet, psn);
    return;
  }
  const placed =
    flags & PacketFlag.SEND
      ? placeSend(context, qp, packet, flags, size)
      : placeWrite(context, qp, packet, flags, size);
  if (!placed) return;
  qp.psnExpected = psnAdd(psn, 1);
  if (flags & PacketFlag.END) endMessage(context, qp, packet, flags);
  if (bthAckRequest(packet)) {
    if (qp.ackPending) context.counters.ackDeferred++;
    qp.ackPending = 1;
    schedule(context, qp);
  }
}

/** A packet is missing: says so once, then waits for it in silence (IBA 9.7.5.1.3). */
function receiveAhead(context: Context, qp: QueuePair): void {
  context.counters.outOfSeqRequest++;
  if (qp.nakSent) return;
  sendNak(context, qp, NakCode.PSN_SEQUENCE_ERROR, qp.psnExpected);
  qp.nakSent = 1;
}

function sendNak(context: Context, qp: QueuePair, syndrome: u32, psn: u32): void {
  // A NAK that ends the connection is never displaced by one that asks for more.
  if (qp.nakPending >= <u32>NakCode.INVALID_REQUEST) return;
  qp.nakPending = syndrome;
  qp.nakPsn = psn;
  schedule(context, qp);
}

/**
 * A fatal NAK (IBA class C): the answer goes out, the queue pair goes to ERR, and a receive
 * request in hand, or an asynchronous event, tells the application.
 */
function refuse(context: Context, qp: QueuePair, syndrome: u32, psn: u32, status: u32): void {
  if (qp.receiveHeld) completeReceive(context, qp, status, WcOpcode.RECV, 0, 0, 0, false);
  else {
    const access = syndrome == NakCode.REMOTE_ACCESS_ERROR;
    const event: u32 = access ? AsyncEvent.QP_ACCESS_ERR : AsyncEvent.QP_REQ_ERR;
    pushEvent(context, EventKind.ASYNC, event, changetype<usize>(qp));
  }
  enterError(context, qp);
  sendNak(context, qp, syndrome, psn);
}

/** MIDDLE and LAST continue what is in progress; FIRST and ONLY need an end before. */
function checkSequence(context: Context, qp: QueuePair, flags: u32, psn: u32): bool {
  let fits: bool;
  if (flags & PacketFlag.START) fits = qp.message == MessageKind.NONE;
  else if (flags & PacketFlag.SEND) fits = qp.message == MessageKind.SEND;
  else fits = qp.message == MessageKind.WRITE;
  if (fits) return true;
  refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
  return false;
}

/** Does the queue pair grant this kind of operation to its peer? */
function checkOperation(context: Context, qp: QueuePair, flags: u32, psn: u32): bool {
  let granted = false;
  if (flags & PacketFlag.SEND) granted = true;
  else if (flags & PacketFlag.WRITE) granted = (qp.access & AccessFlag.REMOTE_WRITE) != 0;
  else if (flags & PacketFlag.READ) granted = (qp.access & AccessFlag.REMOTE_READ) != 0;
  if (granted) return true;
  refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
  return false;
}

/** A receive request for what needs one; a place to answer a READ from. */
function checkResources(context: Context, qp: QueuePair, flags: u32, psn: u32): bool {
  const sendStarts = (flags & PacketFlag.SEND) != 0 && (flags & PacketFlag.START) != 0;
  const writeEnds = (flags & PacketFlag.WRITE) != 0 && (flags & PacketFlag.RECEIVE) != 0;
  if (sendStarts || writeEnds) {
    if (qp.receiveHeld || takeReceive(qp)) return true;
    context.counters.sendRnrErr++;
    sendNak(context, qp, SyndromeKind.RNR_NAK | qp.minRnrTimer, psn);
    // Packets behind this one are ahead of what is expected: no word about them.
    qp.nakSent = 1;
    return false;
  }
  if (flags & PacketFlag.READ && qp.jobHead - qp.jobTail >= qp.destRdAtomicMax) {
    refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_QP_OP_ERR);
    return false;
  }
  return true;
}

/** Payload against path MTU, pad and what the message's RETH promised (IBA 9.7.4.1.6, C9-92). */
function checkLength(context: Context, qp: QueuePair, packet: usize, flags: u32, size: u32): bool {
  let good = size <= qp.mtu;
  if (!(flags & PacketFlag.END)) good = size == qp.mtu && bthPadCount(packet) == 0;
  else if (!(flags & PacketFlag.START)) good = good && size > 0;
  const reth = headersOf(context.opcodeTable, bthOpcode(packet)) & Header.RETH;
  if (reth) {
    const dma = rethLength(
      packet + headerOffset(context.opcodeTable, bthOpcode(packet), Header.RETH),
    );
    if (dma > MESSAGE_BYTES_MAX) good = false;
    if (flags & PacketFlag.WRITE)
      good = good && (flags & PacketFlag.END ? dma == size : dma > size);
  } else if (flags & PacketFlag.WRITE) {
    good = good && (flags & PacketFlag.END ? qp.messageLeft == size : qp.messageLeft > size);
  }
  if (good) return true;
  refuse(context, qp, NakCode.INVALID_REQUEST, bthPsn(packet), WcStatus.LOC_LEN_ERR);
  return false;
}

/** Puts SEND payload into the receive request's memory. */
function placeSend(context: Context, qp: QueuePair, packet: usize, flags: u32, size: u32): bool {
  const request = changetype<ReceiveRequest>(qp.receiveRequest);
  const sges = qp.receiveRequest + RECEIVE_REQUEST_SIZE;
  const psn = bthPsn(packet);
  const offset = flags & PacketFlag.START ? 0 : qp.messageOffset;
  if (<u64>offset + size > sgeTotal(sges, request.sgeCount)) {
    refuse(context, qp, NakCode.INVALID_REQUEST, psn, WcStatus.LOC_LEN_ERR);
    return false;
  }
  const cursor = receiveCursor(qp);
  let from = packet + headersEnd(context, packet);
  let left = size;
  while (left > 0) {
    const sge = changetype<Sge>(sges + <usize>(cursor.index * SGE_SIZE));
    const piece = min<u32>(left, sge.length - cursor.offset);
    if (piece > 0) {
      const at = sge.address + cursor.offset;
      const need: u32 = AccessFlag.LOCAL_WRITE;
      const to = translate(context.arena, sge.lkey, qp.pd, at, piece, need);
      if (to == 0) {
        // Our own application's fault: the peer is told that we cannot go on.
        refuse(context, qp, NakCode.REMOTE_OPERATIONAL_ERROR, psn, WcStatus.LOC_PROT_ERR);
        return false;
      }
      copyBytes(to, from, piece);
    }
    from += piece;
    left -= piece;
    cursor.offset += piece;
    if (cursor.offset == sge.length) {
      cursor.index++;
      cursor.offset = 0;
    }
  }
  qp.messageOffset = offset + size;
  qp.message = MessageKind.SEND;
  return true;
}

function headersEnd(context: Context, packet: usize): u32 {
  return load<u8>(context.opcodeTable + <usize>(bthOpcode(packet) << 4) + 4);
}

/**
 * Puts WRITE payload where the RETH said. The key is looked up for the whole message when it
 * begins, and again for every packet: it may be gone in between.
 */
function placeWrite(context: Context, qp: QueuePair, packet: usize, flags: u32, size: u32): bool {
  const psn = bthPsn(packet);
  const need: u32 = AccessFlag.REMOTE_WRITE;
  let to: usize = 0;
  if (flags & PacketFlag.START) {
    const reth = packet + 12;
    const dma = rethLength(reth);
    qp.messageAddress = rethAddress(reth);
    qp.messageKey = rethKey(reth);
    qp.messageLeft = dma;
    if (dma > 0) {
      to = translate(context.arena, qp.messageKey, qp.pd, qp.messageAddress, dma, need);
    }
  } else {
    to = translate(context.arena, qp.messageKey, qp.pd, qp.messageAddress, size, need);
  }
  // A zero-length WRITE names no byte: neither key nor address is looked at (IBA C9-88).
  if (to == 0 && size > 0) {
    qp.message = MessageKind.NONE;
    refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn, WcStatus.LOC_ACCESS_ERR);
    return false;
  }
  copyBytes(to, packet + headersEnd(context, packet), size);
  qp.messageAddress += size;
  qp.messageLeft -= size;
  qp.messageOffset = flags & PacketFlag.START ? size : qp.messageOffset + size;
  qp.message = MessageKind.WRITE;
  return true;
}

/** The last packet of a SEND or WRITE was placed. */
function endMessage(context: Context, qp: QueuePair, packet: usize, flags: u32): void {
  qp.message = MessageKind.NONE;
  qp.msn = (qp.msn + 1) & 0xffffff;
  context.counters.rdmaRecvs++;
  if (!(flags & PacketFlag.RECEIVE)) return;
  const opcode = bthOpcode(packet);
  const headers = headersOf(context.opcodeTable, opcode);
  let immediate: u32 = 0;
  let wcFlags: u32 = 0;
  if (headers & Header.IMM_DT) {
    immediate = loadU32(packet + headerOffset(context.opcodeTable, opcode, Header.IMM_DT));
    wcFlags = WcFlag.WITH_IMM;
  }
  const write = (flags & PacketFlag.WRITE) != 0;
  completeReceive(
    context,
    qp,
    WcStatus.SUCCESS,
    write ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV,
    qp.messageOffset,
    immediate,
    wcFlags,
    bthSolicited(packet) != 0,
  );
}

/** A new READ request: remembered, and answered by `sendResponses`. */
function acceptRead(context: Context, qp: QueuePair, packet: usize, psn: u32): void {
  const reth = packet + 12;
  const address = rethAddress(reth);
  const key = rethKey(reth);
  const length = rethLength(reth);
  if (length > 0) {
    const need: u32 = AccessFlag.REMOTE_READ;
    if (translate(context.arena, key, qp.pd, address, length, need) == 0) {
      refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, psn, WcStatus.LOC_ACCESS_ERR);
      return;
    }
  }
  const packets = length == 0 ? 1 : (length - 1) / qp.mtu + 1;
  // The count of messages moves when a READ begins to be executed (IBA C9-148).
  qp.msn = (qp.msn + 1) & 0xffffff;
  const resource = resourceAt(qp, qp.resourceHead++);
  resource.kind = PacketFlag.READ;
  resource.psnFirst = psn;
  resource.psnLast = psnAdd(psn, packets - 1);
  resource.address = address;
  resource.key = key;
  resource.length = length;
  resource.msn = qp.msn;
  qp.psnExpected = psnAdd(psn, packets);
  pushJob(qp, psn, address, key, length, qp.msn);
  schedule(context, qp);
}

function pushJob(qp: QueuePair, psn: u32, address: u64, key: u32, length: u32, msn: u32): void {
  const packets = length == 0 ? 1 : (length - 1) / qp.mtu + 1;
  const job = jobAt(qp, qp.jobHead++);
  job.address = address;
  job.psn = psn;
  job.psnLast = psnAdd(psn, packets - 1);
  job.key = key;
  job.left = length;
  job.msn = msn;
  job.started = 0;
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
  if (flags & PacketFlag.READ) {
    repeatRead(context, qp, packet, psn);
    return;
  }
  if (!(flags & (PacketFlag.SEND | PacketFlag.WRITE))) return;
  // One ACK for the newest executed request answers all that came before.
  qp.ackPending = 1;
  schedule(context, qp);
}

/** A repeated READ may ask for the tail of what it asked for at first, with the same key. */
function repeatRead(context: Context, qp: QueuePair, packet: usize, psn: u32): void {
  const reth = packet + 12;
  const address = rethAddress(reth);
  const length = rethLength(reth);
  for (let back: u32 = 1; back <= qp.destRdAtomicMax && back <= qp.rdAtomicLimit; back++) {
    const resource = resourceAt(qp, qp.resourceHead - back);
    if (resource.kind != PacketFlag.READ) continue;
    const skipped = psnDistance(resource.psnFirst, psn);
    if (skipped > psnDistance(resource.psnFirst, resource.psnLast)) continue;
    const offset = skipped * qp.mtu;
    if (resource.key != rethKey(reth) || address - resource.address != <u64>offset) return;
    if (offset > resource.length || length > resource.length - offset) return;
    // What was still to be answered from here on will be asked for again.
    while (qp.jobHead != qp.jobTail && psnCompare(jobAt(qp, qp.jobHead - 1).psn, psn) >= 0) {
      qp.jobHead--;
    }
    if (qp.jobHead != qp.jobTail) cutJob(qp, psn);
    if (qp.jobHead - qp.jobTail >= qp.rdAtomicLimit) return;
    pushJob(qp, psn, address, resource.key, length, resource.msn);
    schedule(context, qp);
    return;
  }
}

/** Ends the last job before `psn`, which it would have reached. */
function cutJob(qp: QueuePair, psn: u32): void {
  const job = jobAt(qp, qp.jobHead - 1);
  if (psnCompare(job.psnLast, psn) < 0) return;
  job.left = psnDistance(job.psn, psn) * qp.mtu;
  job.psnLast = psnAdd(psn, <u32>-1);
}

/**
 * Sends READ responses, then the ACK or NAK that waits behind them. True when it stopped because
 * of the quantum or the buffer.
 */
export function sendResponses(context: Context, qp: QueuePair, quantum: u32): bool {
  for (let sent: u32 = 0; qp.jobHead != qp.jobTail; sent++) {
    if (sent == quantum || !hasRoom(context)) return true;
    if (!sendReadResponse(context, qp)) break;
  }
  if (!qp.ackPending && !qp.nakPending) return false;
  if (!hasRoom(context)) return true;
  let syndrome: u32 = ACK_WITHOUT_CREDITS;
  let psn = psnAdd(qp.psnExpected, <u32>-1);
  if (qp.nakPending) {
    syndrome = qp.nakPending;
    psn = qp.nakPsn;
  }
  // A NAK tells all that an ACK would, and more.
  qp.ackPending = 0;
  qp.nakPending = 0;
  const packet = packetStart(context);
  storeBth(packet, Opcode.RC_ACKNOWLEDGE, 0, DEFAULT_PKEY, qp.targetQp, 0, psn);
  storeAeth(packet + 12, syndrome, qp.msn);
  finishPacket(context, pathOf(qp), qp.qpn, 16 + ICRC_SIZE);
  return false;
}

/** One packet of the oldest READ. False when its memory is gone: the READ ends in a NAK. */
function sendReadResponse(context: Context, qp: QueuePair): bool {
  const job = jobAt(qp, qp.jobTail);
  const size = min<u32>(job.left, qp.mtu);
  let from: usize = 0;
  if (size > 0) {
    const need: u32 = AccessFlag.REMOTE_READ;
    from = translate(context.arena, job.key, qp.pd, job.address, size, need);
    if (from == 0) {
      refuse(context, qp, NakCode.REMOTE_ACCESS_ERROR, job.psn, WcStatus.LOC_ACCESS_ERR);
      return false;
    }
  }
  const last = job.psn == job.psnLast;
  let opcode: u32 = Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;
  if (last && !job.started) opcode = Opcode.RC_RDMA_READ_RESPONSE_ONLY;
  else if (last) opcode = Opcode.RC_RDMA_READ_RESPONSE_LAST;
  else if (!job.started) opcode = Opcode.RC_RDMA_READ_RESPONSE_FIRST;
  const pad: u32 = (0 - size) & 3;
  const packet = packetStart(context);
  storeBth(packet, opcode, bthBits(0, pad), DEFAULT_PKEY, qp.targetQp, 0, job.psn);
  let header: u32 = 12;
  if (opcode != Opcode.RC_RDMA_READ_RESPONSE_MIDDLE) {
    storeAeth(packet + 12, ACK_WITHOUT_CREDITS, job.msn);
    header = 16;
  }
  copyBytes(packet + header, from, size);
  if (pad) store<u32>(packet + header + size, 0);
  job.started = 1;
  job.psn = psnAdd(job.psn, 1);
  job.address += size;
  job.left -= size;
  if (last) qp.jobTail++;
  finishPacket(context, pathOf(qp), qp.qpn, header + size + pad + ICRC_SIZE);
  return true;
}
