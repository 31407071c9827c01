/**
 * The requester: work requests become request packets. It cuts messages into packets, keeps within
 * the window, and goes back when the completer says so. It never frees a reliable request:
 * completer.ts does, when the peer has answered. Unreliable ones are complete when they are sent.
 *
 * READs are cut into requests whose responses keep within our own receive buffer.
 */
import { bthBits, storeBth, storeReth, storeU32 } from '../wire/headers';
import { copiesPayload } from '../wire/icrc';
import { Opcode, Service } from '../wire/opcode';
import { ICRC_SIZE } from '../wire/packet';
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { askedForAck, noteAwaited, wantsAck } from './ack-request';
import { Context, EventKind, hasRoom, packetStart, pushEvent } from './context';
import { sendDatagram } from './datagram';
import { completeSend, enterSendError } from './failure';
import { awaitsData, fetch, waitsForAll } from './fetch';
import { gather, inOnePiece } from './gather';
import { executeLocal, isLocal } from './local-work';
import { QueuePair, chunkAt, pathOf, sendCursor, sendRequestAt } from './queue-pair';
import { packetCount, timerOf } from './queue-pair';
import { AsyncEvent, QpState, QpType, SendFlag, WcStatus, WrOpcode } from './status';
import { sendPlain, sendsPlain } from './plain-send';
import { markedPsn } from './reorder';
import { anyRepairs, forgetRepairs, sendRepairs } from './repair';
import { finishCopying, finishPacket } from './transmit';
import { writeWhole } from './whole-request';
import { armRetransmit, beyondKept, charge, dropProbe, isAlone, startProbe } from './window';
import { windowOpen, windowOpenToRead } from './window';
import { SEND_REQUEST_SIZE, SendRequest, SendState, seekSge } from './work-queue';

/** Cumulative charge of everything before `psn`, which lies in this started request. */
export function chargeBefore(qp: QueuePair, request: SendRequest, psn: u32): u32 {
  return request.chargeFirst + psnDistance(request.psnFirst, psn) * qp.chargeFull;
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

/** READ requests and atomics in flight. */
export function readsInFlight(qp: QueuePair): u32 {
  return qp.chunkHead - qp.chunkTail;
}

/** Is a READ in flight that a FENCE must wait for? Only READs and atomics count (IBA 10.8.3.3). */
function fenced(qp: QueuePair, request: SendRequest): bool {
  return (
    (request.sendFlags & SendFlag.FENCE) != 0 &&
    request.state == <u32>SendState.FETCHED &&
    readsInFlight(qp) > 0
  );
}

function isDone(qp: QueuePair, index: u32): bool {
  return sendRequestAt(qp, index).state == <u32>SendState.DONE;
}

/** Does the queue pair send requests in this state? */
function sending(qp: QueuePair): bool {
  return qp.state == <u32>QpState.RTS || qp.state == <u32>QpState.SQD;
}

/** The request that the next packet belongs to, or null when there is none to send. */
function current(context: Context, qp: QueuePair): SendRequest | null {
  if (!sending(qp) || qp.rnrWaiting || qp.sendStopped) return null;
  // In SQD what was begun is finished, and nothing is begun.
  const fetches = qp.state != <u32>QpState.SQD;
  if (qp.sendNext == qp.sendFetched && !(fetches && fetch(qp))) return null;
  let request = sendRequestAt(qp, qp.sendNext);
  // Behind a gap, what is done is not done again.
  while (request.state == <u32>SendState.DONE) {
    qp.sendNext++;
    if (qp.sendNext == qp.sendFetched && !(fetches && fetch(qp))) return null;
    request = sendRequestAt(qp, qp.sendNext);
  }
  if (request.state == <u32>SendState.FAILED) {
    qp.sendStopped = 1;
    return null;
  }
  if (qp.state == <u32>QpState.SQD && request.state == <u32>SendState.FETCHED) return null;
  if (!windowOpen(qp) || fenced(qp, request)) return null;
  if (awaitsData(request) && (readsInFlight(qp) >= qp.rdAtomicMax || beyondKept(qp))) return null;
  if (request.opcode == <u32>WrOpcode.RDMA_READ && !windowOpenToRead(qp)) return null;
  // Stronger than a fence.
  if (waitsForAll(request) && qp.sendTail != qp.sendNext) return null;
  return request;
}

/**
 * Sends up to `quantum` packets. True when it stopped because of the quantum or the buffer and has
 * more to send now; false when there is nothing, or it waits for the peer.
 */
export function sendRequests(context: Context, qp: QueuePair, quantum: u32): bool {
  if (anyRepairs(qp) && !qp.rnrWaiting && sending(qp) && sendRepairs(context, qp)) return true;
  let sent: u32 = 0;
  if (sendsPlain(qp)) {
    while (sent < quantum && hasRoom(context) && sendPlain(context, qp)) sent++;
  }
  let request = current(context, qp);
  while (request != null) {
    if (sent == quantum || !hasRoom(context)) return true;
    sent++;
    if (!sendOne(context, qp, request)) break;
    request = current(context, qp);
  }
  if (sent > 0 && isAlone(qp)) repeatAlone(context, qp);
  if (qp.state == <u32>QpState.SQD) noteDrained(context, qp);
  return qp.packetsSinceAckRequest > 0 && waitsForAcks(qp) && !solicit(context, qp);
}

/** Can nothing be sent before what is under way is acknowledged, window or no window? */
function waitsForAcks(qp: QueuePair): bool {
  if (!outstanding(qp) || qp.rnrWaiting || !sending(qp)) return false;
  // Other queue pairs to the peer may have become busy after the last AckReq: the window is closed.
  if (qp.sendStopped || qp.state == <u32>QpState.SQD || !windowOpen(qp)) return true;
  if (qp.sendNext == qp.sendFetched) return isDone(qp, qp.sendFetched - 1);
  const next = sendRequestAt(qp, qp.sendNext);
  return waitsForAll(next) || (awaitsData(next) && beyondKept(qp));
}

/**
 * Sends the only packet in flight a second time, directly behind the first: of two adjacent packets
 * a link with periodic losses loses one at most, whatever it carries between two attempts.
 */
function repeatAlone(context: Context, qp: QueuePair): void {
  if (outstanding(qp) && hasRoom(context)) resend(context, qp, qp.psnUnacked);
}

/**
 * Nobody was asked to acknowledge the last packet, since more was to follow: sends it once more and
 * asks. False when there is no room for it.
 */
function solicit(context: Context, qp: QueuePair): bool {
  if (!hasRoom(context)) return false;
  resend(context, qp, psnAdd(qp.psnNext, <u32>-1));
  askedForAck(qp);
  return true;
}

/** One packet of this request, or the whole of one that has none. False: it failed or waits. */
function sendOne(context: Context, qp: QueuePair, request: SendRequest): bool {
  if (isLocal(request.opcode)) return executeLocal(context, qp, request);
  if (qp.type == <u32>QpType.UD) return sendUnconnected(context, qp, request);
  if (request.state == <u32>SendState.FETCHED) start(qp, request);
  if (request.opcode == <u32>WrOpcode.RDMA_READ) sendRead(context, qp, request);
  else if (awaitsData(request)) {
    if (!sendWhole(context, qp, request)) return false;
  } else if (!sendData(context, qp, request, false)) return false;
  if (qp.type == <u32>QpType.UC) return true;
  if (timerOf(qp).deadline == 0) armRetransmit(context, qp);
  return true;
}

/** A datagram: complete when it is in the buffer. */
function sendUnconnected(context: Context, qp: QueuePair, request: SendRequest): bool {
  const status = sendDatagram(context, qp, request);
  if (status != <u32>WcStatus.SUCCESS) {
    context.counters.sendErr++;
    enterSendError(context, qp, status);
    return false;
  }
  endRequest(qp);
  completeSend(context, qp, WcStatus.SUCCESS, 0);
  return true;
}

/** In SQD: nothing is in flight any more (IBA 10.3.1.5). Says so once. */
export function noteDrained(context: Context, qp: QueuePair): void {
  if (qp.drained || outstanding(qp)) return;
  const next = sendRequestAt(qp, qp.sendNext);
  const begun = next.state == <u32>SendState.STARTED || next.state == <u32>SendState.FENCED;
  if (qp.sendNext != qp.sendFetched && begun) return;
  qp.drained = 1;
  if (!qp.drainNotify) return;
  pushEvent(context, EventKind.ASYNC, AsyncEvent.SQ_DRAINED, changetype<usize>(qp));
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

/** Counts a packet that was sent before. */
function countRepeat(context: Context, qp: QueuePair, psn: u32): void {
  if (psn != qp.psnMax) context.counters.retransmittedPkts++;
}

/** More make a READ no faster, and its loss dearer. */
const READ_PACKETS_MAX: u32 = 32;

/** Response packets that one READ request asks for at most. */
function readPackets(context: Context, qp: QueuePair): u32 {
  if (isAlone(qp)) return 1;
  const open = context.receiveCharge / 2 / qp.chargeFull;
  return max<u32>(min<u32>(open, min<u32>(context.windowPackets / 2, READ_PACKETS_MAX)), 1);
}

/** Bytes that the READ request at the queue pair's offset asks for. */
function readLength(context: Context, qp: QueuePair, request: SendRequest): u32 {
  const left = request.length - qp.sendOffset;
  // Cut at the same places whenever it is sent: a repeated READ may not span two that the peer
  // remembers apart.
  const limit = readPackets(context, qp);
  const packets = limit - ((qp.sendOffset / qp.mtu) % limit);
  return min<u32>(left, packets * qp.mtu);
}

function writeRead(context: Context, qp: QueuePair, request: SendRequest, length: u32): void {
  const packet = packetStart(context);
  const psn = markedPsn(qp, qp.psnNext);
  storeBth(packet, Opcode.RC_RDMA_READ_REQUEST, 0, context.pkey, qp.targetQp, 1, psn);
  storeReth(packet + 12, request.remoteAddress + qp.sendOffset, request.key, length);
  countRepeat(context, qp, qp.psnNext);
  finishPacket(context, pathOf(qp), qp.qpn, 28 + ICRC_SIZE);
}

/** One READ request; its responses are as many packets as the window takes. */
function sendRead(context: Context, qp: QueuePair, request: SendRequest): void {
  const length = readLength(context, qp, request);
  writeRead(context, qp, request, length);
  const packets = packetCount(qp, length);
  expectData(context, qp, psnAdd(qp.psnNext, packets - 1));
  qp.sendOffset += length;
  qp.chargeSent += (packets - 1) * qp.chargeFull + charge(length - (packets - 1) * qp.mtu);
  advance(qp, packets);
  if (qp.sendOffset == request.length) endRequest(qp);
}

/** A request is in flight whose last response has this PSN. */
function expectData(context: Context, qp: QueuePair, psnLast: u32): void {
  if (qp.psnNext == qp.psnMax) startProbe(context, qp, qp.psnNext);
  store<u32>(chunkAt(qp, qp.chunkHead), psnLast);
  qp.chunkHead++;
  askedForAck(qp);
}

/** An atomic, FLUSH or ATOMIC WRITE. False: its bytes may not be read. */
function sendWhole(context: Context, qp: QueuePair, request: SendRequest): bool {
  if (!writeWhole(context, qp, request)) {
    fail(context, qp, request, WcStatus.LOC_PROT_ERR);
    return false;
  }
  countRepeat(context, qp, qp.psnNext);
  expectData(context, qp, qp.psnNext);
  qp.chargeSent += charge(8);
  advance(qp, 1);
  endRequest(qp);
  return true;
}

/** RDMA_WRITE, with immediate data or without: the first two there are. */
function writes(kind: u32): bool {
  return kind <= <u32>WrOpcode.RDMA_WRITE_WITH_IMM;
}

/** Opcode of a packet of SEND's or WRITE's family, for the queue pair's service. */
function dataOpcode(qp: QueuePair, request: SendRequest, first: bool, last: bool): u32 {
  const service: u32 = qp.type == <u32>QpType.UC ? Service.UC : Service.RC;
  const kind = request.opcode;
  if (kind == <u32>WrOpcode.SEND_WITH_INV && last) {
    return first ? Opcode.RC_SEND_ONLY_WITH_INVALIDATE : Opcode.RC_SEND_LAST_WITH_INVALIDATE;
  }
  // FIRST, MIDDLE, LAST, LAST_WITH_IMM, ONLY, ONLY_WITH_IMM stand in this order for both.
  const family = service + (writes(kind) ? Opcode.RC_RDMA_WRITE_FIRST : Opcode.RC_SEND_FIRST);
  if (!last) return first ? family : family + 1;
  const immediate: u32 = kind & 1 && kind <= <u32>WrOpcode.SEND_WITH_IMM ? 1 : 0;
  return family + (first ? 4 : 2) + immediate;
}

/** Writes the headers behind the BTH; returns where the payload begins. */
function storeExtended(packet: usize, request: SendRequest, first: bool, last: bool): u32 {
  const kind = request.opcode;
  let header: u32 = 12;
  if (first && writes(kind)) {
    storeReth(packet + 12, request.remoteAddress, request.key, request.length);
    header = 28;
  }
  if (!last || kind == <u32>WrOpcode.SEND || kind == <u32>WrOpcode.RDMA_WRITE) return header;
  const invalidate = kind == <u32>WrOpcode.SEND_WITH_INV;
  storeU32(packet + header, invalidate ? request.key : request.immediate);
  return header + 4;
}

/**
 * One SEND or WRITE packet; `ask`: for an acknowledgement in any case. False when the local memory
 * may not be read: the request fails.
 */
function sendData(context: Context, qp: QueuePair, request: SendRequest, ask: bool): bool {
  const left = request.length - qp.sendOffset;
  const first = qp.sendOffset == 0;
  const last = left <= qp.mtu;
  const payload = last ? left : qp.mtu;
  const pad: u32 = (0 - payload) & 3;
  const packet = packetStart(context);
  const header = storeExtended(packet, request, first, last);
  const source = copiesPayload(payload) ? inOnePiece(context, qp, request, payload) : 0;
  if (source == 0 && !gather(context, qp, request, packet + header, payload)) {
    fail(context, qp, request, WcStatus.LOC_PROT_ERR);
    return false;
  }
  if (pad) store<u32>(packet + header + payload, 0);
  const psn = qp.psnNext;
  const fresh = psn == qp.psnMax;
  if (!fresh) context.counters.retransmittedPkts++;
  qp.chargeSent += charge(payload);
  qp.sendOffset += payload;
  advance(qp, 1);
  if (last) {
    endRequest(qp);
    noteAwaited(qp, request);
  }
  const solicited: u32 = last && isSolicited(request) ? 1 : 0;
  const reliable = qp.type == <u32>QpType.RC;
  const ackRequest: u32 = reliable && (wantsAck(qp, last && pauses(qp)) || ask) ? 1 : 0;
  if (ackRequest && fresh) startProbe(context, qp, psn);
  const opcode = dataOpcode(qp, request, first, last);
  const bits = bthBits(solicited, pad);
  storeBth(packet, opcode, bits, context.pkey, qp.targetQp, ackRequest, markedPsn(qp, psn));
  const length = header + payload + pad + ICRC_SIZE;
  finishCopying(context, pathOf(qp), qp.qpn, length, header, source);
  if (!reliable) {
    // Nobody will answer: what is sent is done.
    qp.psnUnacked = qp.psnNext;
    qp.psnArrived = qp.psnNext;
    qp.chargeAcked = qp.chargeSent;
    if (last) completeSend(context, qp, WcStatus.SUCCESS, 0);
  }
  return true;
}

/**
 * Does nothing follow a message's last packet, or only what waits until everything before it is
 * complete?
 */
export function pauses(qp: QueuePair): bool {
  if (qp.state == <u32>QpState.SQD) return true;
  if (qp.sendNext == qp.sendFetched && !fetch(qp)) return true;
  const next = sendRequestAt(qp, qp.sendNext);
  if (qp.reorderPeer != 0 && awaitsData(next)) return true;
  if (waitsForAll(next)) return true;
  return isLocal(next.opcode) || next.state == <u32>SendState.FAILED;
}

/** Only what takes a receive request can be solicited (IBA 9.2.3). */
function isSolicited(request: SendRequest): bool {
  const write = request.opcode == <u32>WrOpcode.RDMA_WRITE;
  return (request.sendFlags & SendFlag.SOLICITED) != 0 && !write;
}

/** The request cannot go on; it completes with `status` when everything before it has. */
export function fail(context: Context, qp: QueuePair, request: SendRequest, status: u32): void {
  context.counters.sendErr++;
  if (qp.type != <u32>QpType.RC) {
    enterSendError(context, qp, status);
    return;
  }
  request.state = SendState.FAILED;
  request.status = status;
  request.vendorError = 0;
  qp.sendStopped = 1;
}

/** The started request that this PSN belongs to, as an index; `sendFetched` when there is none. */
function indexOf(qp: QueuePair, psn: u32): u32 {
  for (let index = qp.sendTail; index != qp.sendFetched; index++) {
    const request = sendRequestAt(qp, index);
    if (request.state == <u32>SendState.DONE) continue;
    if (request.state != <u32>SendState.STARTED) break;
    if (psnDistance(request.psnFirst, psn) <= psnDistance(request.psnFirst, request.psnLast)) {
      return index;
    }
  }
  return qp.sendFetched;
}

/**
 * Sends the packet with this PSN once more and leaves everything else as it stood. PSNs that are
 * those of responses are passed over, but for the oldest: from there on they are missing.
 */
export function resend(context: Context, qp: QueuePair, psn: u32): void {
  const index = indexOf(qp, psn);
  if (index == qp.sendFetched) return;
  const request = sendRequestAt(qp, index);
  const next = qp.sendNext;
  const offset = qp.sendOffset;
  const sgeIndex = qp.sendSgeIndex;
  const sgeOffset = qp.sendSgeOffset;
  const psnNext = qp.psnNext;
  const chargeSent = qp.chargeSent;
  const sinceAckRequest = qp.packetsSinceAckRequest;
  const awaited = qp.awaited;
  qp.sendNext = index;
  qp.sendOffset = psnDistance(request.psnFirst, psn) * qp.mtu;
  qp.psnNext = psn;
  seekSge(sendCursor(qp), sgesOf(request), request.sgeCount, qp.sendOffset);
  if (request.opcode == <u32>WrOpcode.RDMA_READ) {
    const asks = psn == qp.psnUnacked || qp.sendOffset % (readPackets(context, qp) * qp.mtu) == 0;
    if (asks) writeRead(context, qp, request, readLength(context, qp, request));
  } else if (awaitsData(request)) {
    if (!writeWhole(context, qp, request)) return;
    countRepeat(context, qp, psn);
  } else if (!sendData(context, qp, request, true)) return;
  qp.sendNext = next;
  qp.sendOffset = offset;
  qp.sendSgeIndex = sgeIndex;
  qp.sendSgeOffset = sgeOffset;
  qp.psnNext = psnNext;
  qp.chargeSent = chargeSent;
  qp.packetsSinceAckRequest = sinceAckRequest;
  qp.awaited = awaited;
}

function sgesOf(request: SendRequest): usize {
  return changetype<usize>(request) + SEND_REQUEST_SIZE;
}

/**
 * Goes back to `psn`, the oldest that is not acknowledged: everything from there is sent again,
 * unchanged but for a READ, which asks for what is missing.
 */
export function goBack(qp: QueuePair, psn: u32): void {
  qp.chunkHead = qp.chunkTail;
  dropProbe(qp);
  forgetRepairs(qp);
  rewind(qp, psn);
}

/**
 * The peer misses `psn`, and keeps only so much of what follows: what was sent beyond that is sent
 * once more, in its turn. False: there is nothing beyond; behind a READ or atomic there never is
 * (windowOpen), only its responses.
 */
export function withdraw(qp: QueuePair, psn: u32): bool {
  // psnNext moves backwards only: a SACK beyond it names packets that were withdrawn before.
  const beyond = psnCompare(psnAdd(psn, qp.reorderPeer + 1), qp.psnNext);
  if (readsInFlight(qp) > 0 || beyond >= 0) return false;
  rewind(qp, psnAdd(psn, qp.reorderPeer + 1));
  return true;
}

/** The next packet is the one with this PSN. */
function rewind(qp: QueuePair, psn: u32): void {
  if (psnCompare(psn, qp.psnArrived) < 0) {
    qp.psnArrived = qp.psnUnacked;
    qp.chargeArrived = qp.chargeAcked;
  }
  qp.psnNext = psn;
  askedForAck(qp);
  qp.sendStopped = 0;
  qp.chargeSent = qp.chargeAcked;
  qp.sendOffset = 0;
  qp.sendSgeIndex = 0;
  qp.sendSgeOffset = 0;
  const index = indexOf(qp, psn);
  if (index == qp.sendFetched) {
    // Everything that was started is answered.
    qp.sendNext = firstUnstarted(qp);
    return;
  }
  // Later requests keep their PSNs: they follow without a gap, as they did before.
  const request = sendRequestAt(qp, index);
  qp.sendNext = index;
  qp.sendOffset = psnDistance(request.psnFirst, psn) * qp.mtu;
  qp.chargeSent = chargeBefore(qp, request, psn);
  seekSge(sendCursor(qp), sgesOf(request), request.sgeCount, qp.sendOffset);
}

function firstUnstarted(qp: QueuePair): u32 {
  let index = qp.sendTail;
  for (; index != qp.sendFetched; index++) {
    const state = sendRequestAt(qp, index).state;
    if (state != <u32>SendState.STARTED && state != <u32>SendState.DONE) break;
  }
  return index;
}
