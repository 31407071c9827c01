/**
 * The requester: work requests become request packets. It copies requests from the ring, cuts
 * messages into packets, keeps within the window, and goes back when the completer says so. It
 * never frees a request: completer.ts does, when the peer has answered.
 *
 * Window. A receive buffer is charged more than a packet's bytes; `charge` estimates what the
 * peer's kernel takes for one, and the sum of what is under way stays within the context's
 * `windowCharge`. READs are cut into requests whose responses keep within the same window.
 */
import { copyBytes, powerOfTwo } from '../memory/bytes';
import { ringCount } from '../memory/ring';
import { AccessFlag } from '../region/access-flag';
import { translate } from '../region/key-table';
import { bthBits, DEFAULT_PKEY, storeBth, storeReth, storeU32 } from '../wire/headers';
import { Opcode } from '../wire/opcode';
import { ICRC_SIZE } from '../wire/packet';
import { PSN_MASK, psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { Context, hasRoom, packetStart } from './context';
import {
  QueuePair,
  chunkAt,
  pathOf,
  sendCursor,
  sendRequestAt,
  timerOf,
  workRequestAt,
} from './queue-pair';
import { armTimer } from './timer';
import { finishPacket } from './transmit';
import { QpState, SendFlag, WcStatus, WrOpcode } from './status';
import {
  SEND_REQUEST_SIZE,
  SGE_SIZE,
  SendRequest,
  SendState,
  Sge,
  WORK_REQUEST_SIZE,
  seekSge,
  sgeTotal,
} from './work-queue';

/** Longest message (IBA C9-94). */
const MESSAGE_BYTES_MAX: u64 = 0x80000000;

/**
 * What a packet of so many payload bytes takes of a receive buffer. Linux rounds the packet with
 * its headers and bookkeeping up to a power of two and adds its descriptor (measured: link/udp.ts
 * `receiveBufferCharge`).
 */
export function charge(payloadLength: u32): u32 {
  const bytes = payloadLength + 448;
  return 256 + (bytes <= 576 ? 576 : powerOfTwo(bytes));
}

function packetCount(qp: QueuePair, length: u32): u32 {
  return length == 0 ? 1 : (length - 1) / qp.mtu + 1;
}

function isRead(request: SendRequest): bool {
  return request.opcode == WrOpcode.RDMA_READ;
}

/** Cumulative charge of everything before `psn`, which lies in this started request. */
function chargeBefore(qp: QueuePair, request: SendRequest, psn: u32): u32 {
  return request.chargeFirst + psnDistance(request.psnFirst, psn) * qp.chargeFull;
}

/** Copies the next entry of the ring. False when there is none. */
function fetch(qp: QueuePair): bool {
  if (ringCount(qp.sendRing, qp.sendFetched, qp.sendEntries) == 0) return false;
  // The ring can name at most its own entries: what is not complete holds its place.
  if (qp.sendFetched - qp.sendTail >= qp.sendEntries) return false;
  const source = changetype<usize>(workRequestAt(qp, qp.sendFetched));
  const request = sendRequestAt(qp, qp.sendFetched);
  const target = changetype<usize>(request);
  memory.copy(target, source, WORK_REQUEST_SIZE);
  const data = qp.sendStride - WORK_REQUEST_SIZE;
  memory.copy(target + SEND_REQUEST_SIZE, source + WORK_REQUEST_SIZE, data);
  request.state = SendState.FETCHED;
  request.length = 0;
  request.status = checkRequest(qp, request);
  if (request.status != WcStatus.SUCCESS) request.state = SendState.FAILED;
  qp.sendFetched++;
  return true;
}

/** Takes a ring entry that will only be flushed. False when there is none. */
export function fetchForFlush(qp: QueuePair): bool {
  return fetch(qp);
}

/** The copied entry's first look: is it something that this queue pair can do? */
function checkRequest(qp: QueuePair, request: SendRequest): u32 {
  const opcode = request.opcode;
  const known =
    opcode == WrOpcode.SEND ||
    opcode == WrOpcode.SEND_WITH_IMM ||
    opcode == WrOpcode.RDMA_WRITE ||
    opcode == WrOpcode.RDMA_WRITE_WITH_IMM ||
    opcode == WrOpcode.RDMA_READ;
  if (!known) return WcStatus.LOC_QP_OP_ERR;
  if (request.sendFlags & SendFlag.INLINE) {
    if (isRead(request) || request.inlineLength > qp.inlineMax) return WcStatus.LOC_QP_OP_ERR;
    request.length = request.inlineLength;
    return WcStatus.SUCCESS;
  }
  if (request.sgeCount > qp.sendSgeMax) return WcStatus.LOC_QP_OP_ERR;
  const total = sgeTotal(changetype<usize>(request) + SEND_REQUEST_SIZE, request.sgeCount);
  if (total > MESSAGE_BYTES_MAX) return WcStatus.LOC_LEN_ERR;
  request.length = <u32>total;
  return WcStatus.SUCCESS;
}

/** Gives a request its PSNs when its first packet is about to be sent. */
function start(qp: QueuePair, request: SendRequest): void {
  request.state = SendState.STARTED;
  request.psnFirst = qp.psnNext;
  request.psnLast = psnAdd(qp.psnNext, packetCount(qp, request.length) - 1);
  request.chargeFirst = qp.chargeSent;
}

/** Is anything sent and not answered? */
export function outstanding(qp: QueuePair): bool {
  return qp.psnUnacked != qp.psnNext;
}

/** READ requests in flight. */
export function readsInFlight(qp: QueuePair): u32 {
  return qp.chunkHead - qp.chunkTail;
}

function windowOpen(context: Context, qp: QueuePair): bool {
  if (qp.psnUnacked == qp.psnNext) return true;
  return (
    qp.chargeSent - qp.chargeAcked < qp.windowCharge &&
    psnDistance(qp.psnUnacked, qp.psnNext) < context.windowPackets
  );
}

/** Is a READ in flight that a FENCE has to wait for? Only READs and atomics count (IBA 10.8.3.3). */
function fenced(qp: QueuePair, request: SendRequest): bool {
  return (
    (request.sendFlags & SendFlag.FENCE) != 0 &&
    request.state == SendState.FETCHED &&
    readsInFlight(qp) > 0
  );
}

/** The request that the next packet belongs to, or null when there is none to send. */
function current(context: Context, qp: QueuePair): SendRequest | null {
  if (qp.state != QpState.RTS || qp.rnrWaiting || qp.sendStopped) return null;
  if (qp.sendNext == qp.sendFetched && !fetch(qp)) return null;
  const request = sendRequestAt(qp, qp.sendNext);
  if (request.state == SendState.FAILED) {
    qp.sendStopped = 1;
    return null;
  }
  if (!windowOpen(context, qp) || fenced(qp, request)) return null;
  if (isRead(request) && readsInFlight(qp) >= qp.rdAtomicMax) return null;
  return request;
}

/**
 * Sends up to `quantum` packets. True when it stopped because of the quantum or the buffer and has
 * more to send now; false when there is nothing, or it waits for the peer.
 */
export function sendRequests(context: Context, qp: QueuePair, quantum: u32): bool {
  let sent: u32 = 0;
  let request = current(context, qp);
  while (request != null) {
    if (sent == quantum || !hasRoom(context)) return true;
    sent++;
    if (request.state == SendState.FETCHED) start(qp, request);
    if (isRead(request)) sendRead(context, qp, request);
    else if (!sendData(context, qp, request)) return false;
    const timer = timerOf(qp);
    if (timer.deadline == 0 && qp.timeoutMicros != 0) {
      armTimer(context.timers, timer, context.now, qp.timeoutMicros);
    }
    request = current(context, qp);
  }
  return false;
}

/** Uses up PSNs. */
function advance(qp: QueuePair, packets: u32): void {
  const next = psnAdd(qp.psnNext, packets);
  qp.psnNext = next;
  if (psnCompare(next, qp.psnMax) > 0) qp.psnMax = next;
}

function endRequest(qp: QueuePair): void {
  qp.sendNext++;
  qp.sendOffset = 0;
  qp.sendSgeIndex = 0;
  qp.sendSgeOffset = 0;
}

/** Response packets that one READ request asks for at most. */
function readPackets(context: Context, qp: QueuePair): u32 {
  const open = context.receiveCharge / 2 / qp.chargeFull;
  return max<u32>(min<u32>(open, context.windowPackets / 2), 1);
}

/** One READ request; its responses are as many packets as the window takes. */
function sendRead(context: Context, qp: QueuePair, request: SendRequest): void {
  const left = request.length - qp.sendOffset;
  // Cut at the same places whenever it is sent: a repeated READ may not span two that the peer
  // remembers apart.
  const limit = readPackets(context, qp);
  const packets = min<u32>(packetCount(qp, left), limit - ((qp.sendOffset / qp.mtu) % limit));
  const length = min<u32>(left, packets * qp.mtu);
  const packet = packetStart(context);
  const psn = qp.psnNext;
  storeBth(packet, Opcode.RC_RDMA_READ_REQUEST, 0, DEFAULT_PKEY, qp.targetQp, 1, psn);
  storeReth(packet + 12, request.remoteAddress + qp.sendOffset, request.key, length);
  if (psn != qp.psnMax) context.counters.retransmittedPkts++;
  store<u32>(chunkAt(qp, qp.chunkHead), psnAdd(psn, packets - 1));
  qp.chunkHead++;
  qp.sendOffset += length;
  qp.chargeSent += (packets - 1) * qp.chargeFull + charge(length - (packets - 1) * qp.mtu);
  advance(qp, packets);
  qp.packetsSinceAckRequest = 0;
  finishPacket(context, pathOf(qp), qp.qpn, 28 + ICRC_SIZE);
  if (length == left) endRequest(qp);
}

/** Distance between the opcodes of one kind of message. */
function dataOpcode(request: SendRequest, first: bool, last: bool): u32 {
  const send = request.opcode == WrOpcode.SEND || request.opcode == WrOpcode.SEND_WITH_IMM;
  const immediate =
    request.opcode == WrOpcode.SEND_WITH_IMM || request.opcode == WrOpcode.RDMA_WRITE_WITH_IMM;
  const base: u32 = send ? Opcode.RC_SEND_FIRST : Opcode.RC_RDMA_WRITE_FIRST;
  if (first) {
    if (!last) return base;
    return base + (immediate ? 5 : 4);
  }
  if (!last) return base + 1;
  return base + (immediate ? 3 : 2);
}

/** One SEND or WRITE packet. False when the local memory may not be read: the request fails. */
function sendData(context: Context, qp: QueuePair, request: SendRequest): bool {
  const left = request.length - qp.sendOffset;
  const first = qp.sendOffset == 0;
  const last = left <= qp.mtu;
  const payload = last ? left : qp.mtu;
  const pad: u32 = (0 - payload) & 3;
  const opcode = dataOpcode(request, first, last);
  const packet = packetStart(context);
  let header: u32 = 12;
  if (opcode == Opcode.RC_RDMA_WRITE_FIRST || opcode >= <u32>Opcode.RC_RDMA_WRITE_ONLY) {
    storeReth(packet + 12, request.remoteAddress, request.key, request.length);
    header = 28;
  }
  if (last && (request.opcode & 1) != 0) {
    // SEND_WITH_IMM and RDMA_WRITE_WITH_IMM are the odd ones.
    storeU32(packet + header, request.immediate);
    header += 4;
  }
  if (!gather(context, qp, request, packet + header, payload)) {
    fail(context, qp, request, WcStatus.LOC_PROT_ERR);
    return false;
  }
  if (pad) store<u32>(packet + header + payload, 0);
  const psn = qp.psnNext;
  if (psn != qp.psnMax) context.counters.retransmittedPkts++;
  const chargeLength = charge(payload);
  qp.chargeSent += chargeLength;
  qp.sendOffset += payload;
  advance(qp, 1);
  if (last) endRequest(qp);
  const solicited: u32 = last && (request.sendFlags & SendFlag.SOLICITED) != 0 ? 1 : 0;
  const ackRequest = wantsAck(context, qp, last);
  storeBth(
    packet,
    opcode,
    bthBits(solicited, pad),
    DEFAULT_PKEY,
    qp.targetQp,
    ackRequest,
    psn & PSN_MASK,
  );
  finishPacket(context, pathOf(qp), qp.qpn, header + payload + pad + ICRC_SIZE);
  return true;
}

/**
 * An acknowledgement is asked for at the end of the last message there is, and often enough that
 * the window never closes for want of one.
 */
function wantsAck(context: Context, qp: QueuePair, last: bool): u32 {
  qp.packetsSinceAckRequest++;
  const idle =
    last &&
    qp.sendNext == qp.sendFetched &&
    ringCount(qp.sendRing, qp.sendFetched, qp.sendEntries) == 0;
  const sinceCharge = qp.packetsSinceAckRequest * qp.chargeFull;
  if (
    !idle &&
    windowOpen(context, qp) &&
    qp.packetsSinceAckRequest * 4 < context.windowPackets &&
    sinceCharge < qp.windowCharge / 4
  ) {
    return 0;
  }
  qp.packetsSinceAckRequest = 0;
  return 1;
}

/** Copies payload from registered memory, or from the request itself. */
function gather(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: usize,
  length: u32,
): bool {
  const data = changetype<usize>(request) + SEND_REQUEST_SIZE;
  if (request.sendFlags & SendFlag.INLINE) {
    copyBytes(target, data + qp.sendOffset, length);
    return true;
  }
  const cursor = sendCursor(qp);
  let to = target;
  let left = length;
  while (left > 0) {
    const sge = changetype<Sge>(data + <usize>(cursor.index * SGE_SIZE));
    const piece = min<u32>(left, sge.length - cursor.offset);
    if (piece > 0) {
      const from = translate(context.arena, sge.lkey, qp.pd, sge.address + cursor.offset, piece, 0);
      if (from == 0) return false;
      copyBytes(to, from, piece);
    }
    to += piece;
    left -= piece;
    cursor.offset += piece;
    if (cursor.offset == sge.length) {
      cursor.index++;
      cursor.offset = 0;
    }
  }
  return true;
}

/** The request cannot go on; it completes with `status` when everything before it has. */
function fail(context: Context, qp: QueuePair, request: SendRequest, status: u32): void {
  request.state = SendState.FAILED;
  request.status = status;
  qp.sendStopped = 1;
  context.counters.sendErr++;
}

/**
 * Where a READ response with this PSN belongs: writes it to local memory. `offset` counts from the
 * start of the request. False when the local key does not allow it.
 */
export function scatterResponse(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  offset: u32,
  source: usize,
  length: u32,
): bool {
  const sges = changetype<usize>(request) + SEND_REQUEST_SIZE;
  let index: u32 = 0;
  let skip = offset;
  let from = source;
  let left = length;
  while (left > 0) {
    const sge = changetype<Sge>(sges + <usize>(index * SGE_SIZE));
    index++;
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const piece = min<u32>(left, sge.length - skip);
    const need: u32 = AccessFlag.LOCAL_WRITE;
    const to = translate(context.arena, sge.lkey, qp.pd, sge.address + skip, piece, need);
    if (to == 0) return false;
    copyBytes(to, from, piece);
    from += piece;
    left -= piece;
    skip = 0;
  }
  return true;
}

/**
 * Goes back to `psn`, the oldest that is not acknowledged: everything from there is sent again,
 * unchanged but for a READ, which asks for what is missing.
 */
export function goBack(qp: QueuePair, psn: u32): void {
  let index = qp.sendTail;
  qp.psnNext = psn;
  qp.chunkHead = qp.chunkTail;
  qp.packetsSinceAckRequest = 0;
  qp.sendStopped = 0;
  qp.chargeSent = qp.chargeAcked;
  while (index != qp.sendFetched) {
    const request = sendRequestAt(qp, index);
    if (request.state != SendState.STARTED) break;
    if (psnCompare(psn, request.psnLast) <= 0) {
      qp.sendOffset = psnDistance(request.psnFirst, psn) * qp.mtu;
      qp.chargeSent = chargeBefore(qp, request, psn);
      const sges = changetype<usize>(request) + SEND_REQUEST_SIZE;
      seekSge(sendCursor(qp), sges, request.sgeCount, qp.sendOffset);
      qp.sendNext = index;
      // Later requests keep their PSNs: they follow without a gap, as they did before.
      return;
    }
    index++;
  }
  qp.sendNext = index;
  qp.sendOffset = 0;
  qp.sendSgeIndex = 0;
  qp.sendSgeOffset = 0;
}

/** Keeps the window's books when everything before `psn` is acknowledged. */
export function acknowledgeCharge(qp: QueuePair, psn: u32): void {
  const request = sendRequestAt(qp, qp.sendTail);
  if (qp.sendTail != qp.sendFetched && request.state == SendState.STARTED) {
    qp.chargeAcked = chargeBefore(qp, request, psn);
  } else {
    qp.chargeAcked = qp.chargeSent;
  }
}
