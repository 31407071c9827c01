/**
 * How many packets may be in flight: the window of the path (shared/path-control.ts), what the peer
 * keeps behind a gap, and what its receive buffer takes. Packets that have arrived are not in
 * flight, even if their acknowledgement waits (responder/selective-ack.ts).
 */
import { powerOfTwo } from '../../memory/bytes';
import { psnCompare, psnDistance } from '../../wire/psn';
import { Context } from '../shared/context';
import {
  cutPath,
  fitsBuffer,
  growPath,
  lateness,
  noteLosses,
  noteRoundTrip,
  pathOpen,
} from '../shared/path-control';
import { QueuePair, packetsInFlight, sendRequestAt, timerOf } from '../shared/queue-pair';
import { isOverdue } from '../shared/timer-wheel';
import { SendRequest, SendState } from '../shared/work-request';

/** Where one loss means that everything behind it is sent again. */
const GO_BACK_PACKETS: u32 = 64;
/** This number of acknowledgements in a row without a loss, and a way is no lossy one any more. */
const LOSSY_ACKS: u8 = 255;

/**
 * The charge of a packet with `payloadLength` bytes against a receive buffer. Linux rounds the
 * packet with its headers and bookkeeping up to a power of two and adds its descriptor
 * (link/udp/udp.ts, `receiveBufferCharge`: measured).
 */
export function charge(payloadLength: u32): u32 {
  const bytes = payloadLength + 448;
  return 256 + (bytes <= 576 ? 576 : powerOfTwo(bytes));
}

export function openCongestionWindow(qp: QueuePair): void {
  qp.isAlone = 0;
  qp.probeMicros = 0;
  qp.roundTripMicros = 0;
  qp.lossy = 0;
  qp.repeatedEarly = 0;
}

/** May one more packet go? One always may when nothing is on its way. */
export function mayTransmit(context: Context, qp: QueuePair): bool {
  return qp.psnArrived == qp.psnNext || opensBehind(context, qp, 0, 0);
}

/** May one more packet go behind `ahead` packets of that charge which are not sent yet? */
export function opensBehind(context: Context, qp: QueuePair, ahead: u32, charge: u32): bool {
  if (qp.isAlone) return false;
  // READs and atomics are not withdrawn (retransmit.ts): packets behind one must fit the buffer.
  const awaited = qp.chunkHead != qp.chunkTail;
  // Behind a gap the peer keeps no more; there will be one where packets overtake each other.
  const hasGaps = awaited || context.paced || qp.arrivedCount != 0 || lateness(qp) != 0;
  const span = psnDistance(qp.psnArrived, qp.psnNext) + ahead;
  if (hasGaps && qp.reorderPeer != 0 && span >= qp.reorderPeer) return false;
  if (qp.flightMax != 0 && span >= qp.flightMax) return false;
  const packets = packetsInFlight(qp) + ahead;
  if (qp.reorderPeer == 0 && qp.lossy && packets >= GO_BACK_PACKETS) return false;
  return fitsBuffer(qp, chargeInFlight(qp) + charge) && pathOpen(qp, packets);
}

/** May one more packet be sent again? */
export function mayRepair(qp: QueuePair): bool {
  const packets = packetsInFlight(qp);
  return packets == 0 || pathOpen(qp, packets);
}

function chargeInFlight(qp: QueuePair): u32 {
  const charge = qp.chargeSent - qp.chargeArrived;
  return charge - min<u32>(charge, (qp.arrivedCount + qp.lostCount) * qp.chargeFull);
}

/**
 * May one more READ with `packets` responses be sent? Arrivals of responses are not reported, and
 * each has a place in the rings of what is in flight.
 */
export function mayRequestData(qp: QueuePair, packets: u32): bool {
  if (qp.psnUnacked == qp.psnNext) return true;
  const all = psnDistance(qp.psnArrived, qp.psnNext) + packets;
  if (qp.reorderPeer != 0 && all > qp.flightMax) return false;
  return fitsBuffer(qp, qp.chargeSent - qp.chargeAcked);
}

/** Are more packets in flight than the peer would keep if the oldest were lost? */
export function beyondKept(qp: QueuePair): bool {
  const kept = qp.reorderPeer;
  return kept != 0 && psnDistance(qp.psnArrived, qp.psnNext) >= kept;
}

/**
 * A retransmission got lost as well: only the oldest packet is sent from now on, until it is
 * answered. A retransmitted window loses the same packet each time on a link with periodic losses,
 * if the period divides the number of packets in the window.
 */
export function sendAlone(qp: QueuePair): void {
  qp.isAlone = 1;
}

export function isAlone(qp: QueuePair): bool {
  return qp.isAlone != 0;
}

/** This many packets have arrived. */
export function growCongestionWindow(context: Context, qp: QueuePair, packets: u32): void {
  qp.isAlone = 0;
  if (qp.lossy != 0) qp.lossy--;
  growPath(context, qp, packets);
}

/** A switch on the way has marked packets. */
export function cutCongestionWindow(context: Context, qp: QueuePair): void {
  cutPath(context, qp);
}

/** Something was lost, or seems to be. */
export function noteLossy(qp: QueuePair): void {
  qp.lossy = LOSSY_ACKS;
}

/** Packets were lost. */
export function noteLoss(context: Context, qp: QueuePair, packets: u32): void {
  noteLossy(qp);
  noteLosses(context, qp, packets, qp.lostMicros);
}

/** A packet with this PSN asks for an acknowledgement: measure how long it takes, one at a time. */
export function startProbe(context: Context, qp: QueuePair, psn: u32): void {
  if (qp.probeMicros != 0) return;
  qp.probePsn = psn;
  // 0 means "none": a clock that stands there is a microsecond late.
  qp.probeMicros = max<u32>(<u32>context.now, 1);
}

/** Everything before `psn` is acknowledged. */
export function endProbe(context: Context, qp: QueuePair, psn: u32): void {
  if (qp.probeMicros == 0 || psnCompare(psn, qp.probePsn) <= 0) return;
  // 0 micros stand as 1 (`startProbe`): the answer may arrive before that.
  const sample = <u32>max<i32>(<u32>context.now - qp.probeMicros, 1);
  qp.probeMicros = 0;
  // This process stood still: that is no part of a round trip.
  if (isOverdue(timerOf(qp), context.now)) return;
  qp.roundTripMicros =
    qp.roundTripMicros == 0
      ? sample
      : qp.roundTripMicros - (qp.roundTripMicros >> 3) + (sample >> 3);
  if (qp.flightMax == 0) noteRoundTrip(context, qp, sample);
}

/**
 * Abandons a measurement: its packet is about to be retransmitted, so the sample would be
 * ambiguous.
 */
export function dropProbe(qp: QueuePair): void {
  qp.probeMicros = 0;
}

/** Cumulative charge of everything before this PSN: not far from where the requester is. */
export function chargeOf(qp: QueuePair, psn: u32): u32 {
  if (psn == qp.psnNext) return qp.chargeSent;
  let index = qp.sendNext;
  if (index == qp.sendFetched) index--;
  for (; index - qp.sendTail < qp.sendEntries; index--) {
    const request = sendRequestAt(qp, index);
    if (request.state != <u32>SendState.STARTED) continue;
    const offset = psnDistance(request.psnFirst, psn);
    if (offset <= psnDistance(request.psnFirst, request.psnLast)) {
      return chargeBefore(qp, request, psn);
    }
  }
  return qp.chargeArrived;
}

/** Keeps the window's books when everything before `psnUnacked` is acknowledged. */
export function acknowledgeCharge(qp: QueuePair): void {
  const request = sendRequestAt(qp, qp.sendTail);
  if (qp.sendTail != qp.sendFetched && request.state == <u32>SendState.STARTED) {
    qp.chargeAcked = chargeBefore(qp, request, qp.psnUnacked);
  } else {
    qp.chargeAcked = qp.chargeSent;
  }
  if (qp.psnArrived == qp.psnUnacked) qp.chargeArrived = qp.chargeAcked;
}

/** Cumulative charge of everything before `psn`, which lies in this started request. */
export function chargeBefore(qp: QueuePair, request: SendRequest, psn: u32): u32 {
  return request.chargeFirst + psnDistance(request.psnFirst, psn) * qp.chargeFull;
}
