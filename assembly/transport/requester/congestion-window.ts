/**
 * How many packets may be in flight: the window of the path (shared/path-control.ts), what the peer
 * keeps behind a gap, and what its receive buffer takes. And when silence means a loss. Packets
 * that have arrived are not in flight, even if their acknowledgement waits
 * (responder/selective-ack.ts).
 */
import { powerOfTwo } from '../../memory/bytes';
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { Context } from '../shared/context';
import { sinceSent, untilLost } from './in-flight';
import {
  cutPath,
  fitsBuffer,
  growPath,
  lateness,
  noteLosses,
  noteRoundTrip,
  pathOpen,
  usualRoundTrip,
  usualRoundTripMost,
} from '../shared/path-control';
import { QueuePair, packetsInFlight, sendRequestAt, timerOf } from '../shared/queue-pair';
import { armTimer } from '../shared/timer-wheel';
import { SendRequest, SendState } from '../shared/work-request';

/** Where one loss means that everything behind it is sent again. */
const GO_BACK_PACKETS: u32 = 64;

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
  growPath(context, qp, packets);
}

/** A switch on the way has marked packets. */
export function cutCongestionWindow(context: Context, qp: QueuePair): void {
  cutPath(context, qp);
}

/** Packets were lost. */
export function noteLoss(context: Context, qp: QueuePair, packets: u32): void {
  qp.lossy = 1;
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

/**
 * Slack of an early repetition: acknowledgements wait for the event loop of a busy peer. Where
 * nothing was lost yet a silence is most likely that of a peer without a processor: a few turns of
 * a scheduler.
 */
const REPEAT_SLACK_MICROS: u32 = 1000;
const DELAYED_ACK_SLACK_MICROS: u32 = 20_000;
/** Each early retransmission waits twice as long as the one before, this many times. */
const REPEATS_MAX: u32 = 6;

/** The retransmit timer starts anew: something was heard, or something is sent after a silence. */
export function armRetransmit(context: Context, qp: QueuePair): void {
  if (qp.timeoutMicros == 0) return;
  qp.progressMicros = <u32>context.now;
  qp.progressPsn = qp.psnUnacked;
  qp.earlyRepeats = 0;
  armTimer(context.timers, timerOf(qp), context.now, nextDelay(context, qp));
}

/** Others have overtaken the oldest packet: its wait may end before the timer does. */
export function hastenTimer(context: Context, qp: QueuePair): void {
  const wait = untilLost(context, qp);
  const timer = timerOf(qp);
  // Trials of the path MTU have intervals of their own.
  if (
    wait == 0 ||
    qp.mtuTrials != 0 ||
    timer.deadline == 0 ||
    timer.deadline <= context.now + <u64>wait
  )
    return;
  armTimer(context.timers, timer, context.now, wait);
}

/**
 * Delay of the retransmit timer. With selective repeat the requester retransmits early, after two
 * round trips: the oldest packet costs one packet, and the peer's answer reports its gaps; a READ
 * or atomic whose response was lost is repeated. With other peers it waits for the queue pair's
 * timeout.
 */
export function nextDelay(context: Context, qp: QueuePair): u64 {
  const wait = untilLost(context, qp);
  if (wait != 0) return wait;
  const timeout = timeoutOf(qp);
  const left = timeout - min<u64>(timeout, sinceProgress(context, qp));
  if (!repeatsEarly(qp)) return left;
  return min<u64>(earlyDelay(context, qp), left);
}

function repeatsEarly(qp: QueuePair): bool {
  return qp.reorderPeer != 0 && usualRoundTripMost(qp) != 0 && qp.earlyRepeats < REPEATS_MAX;
}

/** Delay of an early repetition after the packet was sent. */
function earlyDelay(context: Context, qp: QueuePair): u64 {
  // The round trip of a handshake says nothing of a queue that has filled since.
  const isKnown = qp.lossy && !context.paced && usualRoundTrip(qp) != 0;
  const slack: u64 = isKnown ? REPEAT_SLACK_MICROS : delayedAckSlack(qp);
  const doublings: u64 = qp.earlyRepeats;
  return (<u64>usualRoundTripMost(qp) + slack) << doublings;
}

/**
 * Delay until an early repetition of the oldest packet, which was retransmitted after the timer was
 * armed: its answer may be under way. 0: the packet has had its time.
 */
export function untilAnswer(context: Context, qp: QueuePair): u64 {
  const timeout = timeoutOf(qp);
  const passed = sinceProgress(context, qp);
  if (!repeatsEarly(qp) || passed >= timeout || qp.psnUnacked != qp.psnArrived) return 0;
  const sent: u64 = sinceSent(context, qp, qp.psnUnacked);
  const delay = earlyDelay(context, qp);
  return sent >= delay ? 0 : min<u64>(delay - sent, timeout - passed);
}

/**
 * A queue pair's timeout may be shorter than the round trip of its path: then a retransmission and
 * its answer have time.
 */
export function timeoutOf(qp: QueuePair): u64 {
  return max<u64>(qp.timeoutMicros, 2 * <u64>usualRoundTripMost(qp));
}

/** As long as the timeout leaves time to ask again before it. */
function delayedAckSlack(qp: QueuePair): u64 {
  return min<u64>(DELAYED_ACK_SLACK_MICROS, qp.timeoutMicros / 2);
}

function sinceProgress(context: Context, qp: QueuePair): u64 {
  return <u64>(<u32>context.now - qp.progressMicros);
}

/**
 * Was the last early repetition answered, and by that answer nothing else? Once that is a peer that
 * is slow; when the timer fires again it is one that has nothing of what follows.
 */
export function answeredAlone(qp: QueuePair): bool {
  const repeated = qp.repeatedEarly;
  return repeated != 0 && psnAdd(repeated - 1, 1) == qp.psnUnacked;
}

/** The timer fired. True when it is time for an early repetition, false when it is the timeout. */
export function repeatEarly(context: Context, qp: QueuePair): bool {
  if (qp.reorderPeer == 0 || sinceProgress(context, qp) >= timeoutOf(qp)) return false;
  qp.earlyRepeats++;
  // Until a second answer says otherwise (`noteSecondAnswer`).
  qp.lossy = 1;
  qp.repeatedEarly = qp.psnUnacked + 1;
  armTimer(context.timers, timerOf(qp), context.now, nextDelay(context, qp));
  return true;
}

/**
 * A second answer to a packet. If the packet was retransmitted for lack of an answer, both
 * times were heard: nothing was lost, the peer was slow.
 */
export function noteSecondAnswer(qp: QueuePair, psn: u32): void {
  if (qp.repeatedEarly == 0 || qp.repeatedEarly - 1 != psn) return;
  qp.repeatedEarly = 0;
  qp.lossy = 0;
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
