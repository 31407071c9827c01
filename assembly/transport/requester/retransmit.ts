/**
 * Retransmission: go-back-N, and selective repeat with peers that keep packets that arrive ahead.
 *
 * Selective repeat retransmits the packets that are lost (in-flight.ts), and the oldest when the
 * timer has fired.
 */
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { fail } from '../queue/completion';
import { Context, hasRoom, schedule } from '../shared/context';
import { Operation, awaitsData, isOf } from '../shared/operation';
import { QueuePair, sendCursor, sendRequestAt } from '../shared/queue-pair';
import { WcStatus } from '../shared/status';
import { SEND_REQUEST_SIZE, SendRequest, SendState, seekSge } from '../shared/work-request';
import { askedForAck } from './ack-request';
import {
  chargeBefore,
  dropProbe,
  growCongestionWindow,
  isAlone,
  noteLoss,
  mayRepair,
} from './congestion-window';
import { hastenTimer } from './retransmit-timer';
import {
  detectLosses,
  forgetFlight,
  isMarkedLost,
  noteRepeated,
  oldestLost,
  takeMap,
} from './in-flight';
import { chunkOf, dropChunksFrom, isMissing, leftOf } from './read-chunks';
import { sendData, writeSingle } from './request-packet';

/** The peer has reported what it keeps behind `psn`, which it misses; see `takeMap`. */
export function takeMissing(
  context: Context,
  qp: QueuePair,
  psn: u32,
  map: usize,
  words: u32,
): void {
  if (qp.rnrWaiting) return;
  if (psnCompare(psn, qp.psnArrived) < 0) missAgain(qp, psn);
  const arrived = takeMap(context, qp, psn, map, words);
  if (arrived > 0) growCongestionWindow(context, qp, arrived);
  repairLosses(context, qp, detectLosses(context, qp));
  hastenTimer(context, qp);
}

/** `lost` more packets are lost. */
export function repairLosses(context: Context, qp: QueuePair, lost: u32): void {
  if (lost == 0) return;
  context.counters.rcvdSeqErr++;
  qp.oldestRepeated = 0;
  dropProbe(qp);
  noteLoss(context, qp, lost);
  schedule(context, qp);
}

/** The peer misses what it said had arrived: it had kept a packet that it no longer trusts. */
function missAgain(qp: QueuePair, psn: u32): void {
  qp.psnArrived = psn;
  qp.chargeArrived = qp.chargeAcked;
  // The rings have room for some packets only: those of the oldest belong to later ones by now.
  if (psnDistance(psn, qp.psnNext) > qp.flightMax) forgetFlight(qp);
}

/**
 * No answer arrived in time: retransmits the oldest packet, which makes the peer report its gaps.
 * `certain`: the peer is not just slow, so the next answer is that to this packet.
 */
export function repairOldest(qp: QueuePair, certain: bool): void {
  qp.repairPsn = qp.psnUnacked + 1;
  qp.oldestRepeated = certain ? qp.psnUnacked + 1 : 0;
  dropProbe(qp);
}

/**
 * Everything before the oldest packet is acknowledged. Was that the answer to a repeated one, and
 * to it alone? A peer that had kept any later packet would have reported it: all are lost.
 */
export function allIsLost(qp: QueuePair): bool {
  const repeated = qp.oldestRepeated;
  qp.oldestRepeated = 0;
  if (qp.psnUnacked == qp.psnNext || qp.psnUnacked != qp.psnArrived) return false;
  return repeated != 0 && psnAdd(repeated - 1, 1) == qp.psnUnacked;
}

export function forgetRepairs(qp: QueuePair): void {
  qp.oldestRepeated = 0;
  qp.repairPsn = 0;
  forgetFlight(qp);
}

export function anyRepairs(qp: QueuePair): bool {
  return qp.repairPsn != 0 || qp.lostCount != 0;
}

/** Sends up to `quantum` packets that are lost, as far as the window is open. Returns how many. */
export function sendRepairs(context: Context, qp: QueuePair, quantum: u32): u32 {
  let sent: u32 = 0;
  while (sent < quantum && anyRepairs(qp) && hasRoom(context)) {
    const lost = qp.repairPsn != 0 ? qp.repairPsn : oldestLost(qp);
    // The oldest lost packet, for which all others wait, goes at once (RFC 6675).
    const isFirst = lost == qp.repairPsn || lost == qp.psnArrived + 1;
    if (!isFirst && !mayRepair(qp)) break;
    qp.repairPsn = 0;
    const psn = psnAdd(lost - 1, 0);
    const away = psnDistance(qp.psnUnacked, psn);
    if (lost == 0 || away >= psnDistance(qp.psnUnacked, qp.psnNext)) {
      // The lost packet is withdrawn, and about to be sent anyway.
      forgetFlight(qp);
      break;
    }
    resend(context, qp, psn);
    sent++;
  }
  return sent;
}

/** The started request that this PSN belongs to, as an index; `sendFetched`: no such request. */
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
 * Sends the packet with this PSN once more and leaves everything else as it stood. If it is a
 * response: requests it again, and those behind it that are missing as well.
 */
export function resend(context: Context, qp: QueuePair, psn: u32): void {
  const packets = noteMissing(context, qp, psn);
  const index = indexOf(qp, psn);
  if (index == qp.sendFetched || packets == 0) return;
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
  let isSent: bool = true;
  if (isOf(request, Operation.DATA)) {
    const left = request.length - qp.sendOffset;
    writeSingle(context, qp, request, min<u32>(left, packets * qp.mtu));
  } else if (awaitsData(request)) isSent = writeSingle(context, qp, request, request.length);
  else isSent = sendData(context, qp, request, true, 0);
  if (!isSent) {
    // The request has failed: nothing from this packet on is in flight any more.
    if (request.state == <u32>SendState.STARTED) {
      fail(context, qp, request, WcStatus.LOC_PROT_ERR);
    }
    dropChunksFrom(qp, psn);
    forgetFlight(qp);
    if (psnCompare(psn, qp.psnArrived) < 0) missAgain(qp, qp.psnUnacked);
    return;
  }
  qp.sendNext = next;
  qp.sendOffset = offset;
  qp.sendSgeIndex = sgeIndex;
  qp.sendSgeOffset = sgeOffset;
  qp.psnNext = psnNext;
  qp.chargeSent = chargeSent;
  qp.packetsSinceAckRequest = sinceAckRequest;
  qp.awaited = awaited;
}

/**
 * The packet with this PSN is sent again; of a READ, what is missing from there on: if it is lost,
 * as many packets as are lost, else all. Returns the number of packets; 0: none is missing.
 */
function noteMissing(context: Context, qp: QueuePair, psn: u32): u32 {
  const isLost = isMarkedLost(qp, psn);
  const chunk = chunkOf(qp, psn);
  noteRepeated(context, qp, psn);
  if (chunk == null) return 1;
  if (!isMissing(chunk, psn)) return 0;
  const most: u32 = isAlone(qp) ? 1 : leftOf(chunk, psn);
  let packets: u32 = 1;
  for (; packets < most; packets++) {
    const next = psnAdd(psn, packets);
    if (!isMissing(chunk, next) || (isLost && !isMarkedLost(qp, next))) break;
    noteRepeated(context, qp, next);
  }
  return packets;
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
  qp.psnExecuted = qp.psnUnacked;
  dropProbe(qp);
  forgetRepairs(qp);
  rewind(qp, psn);
}

/** The next packet is the one with this PSN. */
function rewind(qp: QueuePair, psn: u32): void {
  if (psnCompare(psn, qp.psnArrived) < 0) {
    qp.psnArrived = qp.psnUnacked;
    qp.chargeArrived = qp.chargeAcked;
  }
  qp.psnNext = psn;
  qp.sendStopped = 0;
  qp.chargeSent = qp.chargeAcked;
  askedForAck(qp);
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
