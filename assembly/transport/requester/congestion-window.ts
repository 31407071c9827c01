/**
 * How many packets may be in flight. Two limits: the peer's receive buffer (`windowCharge`, fixed;
 * shared by queue pairs: peer-share.ts), and a congestion window that starts wide open. Packets
 * that have arrived are not in flight, even if their acknowledgement waits
 * (responder/selective-ack.ts).
 *
 * The window is halved, at most once per window, after a timeout, after a congestion notification
 * (CNP), or after a loss while round trips are long compared with the shortest one: a queue
 * overflows. A loss alone does not halve it: on a link with random losses a smaller window is only
 * slower. It grows by one packet per window.
 */
import { powerOfTwo } from '../../memory/bytes';
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { Context } from '../shared/context';
import {
  cutShare,
  fitsShare,
  growShare,
  leastRoundTrip,
  noteRoundTrip,
} from '../shared/peer-share';
import { QueuePair, sendRequestAt, timerOf } from '../shared/queue-pair';
import { armTimer } from '../shared/timer-wheel';
import { SendRequest, SendState } from '../shared/work-request';

/** The window counts in 1/256 of a packet. */
const UNIT: u32 = 256;
/** Where one loss means that everything behind it is sent again. */
const GO_BACK_PACKETS: u32 = 64;
/** Never less than this many packets, so that a lost one is noticed by those behind it. */
const LEAST: u32 = 4 * UNIT;
/** Window of one packet, which is sent twice. */
const ALONE: u32 = 1;

/**
 * The charge of a packet with `payloadLength` bytes against a receive buffer. Linux rounds the
 * packet with its headers and bookkeeping up to a power of two and adds its descriptor
 * (link/udp/udp.ts, `receiveBufferCharge`: measured).
 */
export function charge(payloadLength: u32): u32 {
  const bytes = payloadLength + 448;
  return 256 + (bytes <= 576 ? 576 : powerOfTwo(bytes));
}

export function openWindow(context: Context, qp: QueuePair): void {
  qp.congestionWindow = context.windowPackets * UNIT;
  qp.cutPending = 0;
  qp.probeMicros = 0;
  qp.roundTripMicros = 0;
  qp.roundTripLeast = 0;
  qp.lossy = 0;
  qp.repeatedEarly = 0;
}

/** May one more packet go? One always may when nothing is on its way. */
export function windowOpen(qp: QueuePair): bool {
  if (qp.psnArrived == qp.psnNext) return true;
  // READs and atomics are not withdrawn (retransmit.ts): packets behind one must fit the buffer.
  const awaited = qp.chunkHead != qp.chunkTail;
  if (awaited && beyondKept(qp)) return false;
  return (
    fitsShare(qp, qp.chargeSent - qp.chargeArrived) &&
    psnDistance(qp.psnArrived, qp.psnNext) * UNIT < qp.congestionWindow
  );
}

/** May one more READ be sent? Arrivals of its responses are not reported. */
export function windowOpenToRead(qp: QueuePair): bool {
  return qp.psnUnacked == qp.psnNext || fitsShare(qp, qp.chargeSent - qp.chargeAcked);
}

/**
 * The window once anything was lost: what is under way beyond what the peer keeps is lost with it.
 * It opens again, slowly. A peer that keeps nothing loses all there is, so less is risked.
 */
function keptWindow(qp: QueuePair): u32 {
  return max<u32>((qp.reorderPeer != 0 ? qp.reorderPeer : GO_BACK_PACKETS) * UNIT, LEAST);
}

/** Are more packets in flight than the peer would keep if the oldest were lost? */
export function beyondKept(qp: QueuePair): bool {
  const kept = qp.reorderPeer;
  return kept != 0 && psnDistance(qp.psnArrived, qp.psnNext) > kept;
}

/**
 * A retransmission got lost as well: only the oldest packet is sent from now on, until it is
 * answered. A retransmitted window loses the same packet each time on a link with periodic losses,
 * if the period divides the number of packets in the window.
 */
export function sendAlone(qp: QueuePair): void {
  qp.congestionWindow = ALONE;
}

export function isAlone(qp: QueuePair): bool {
  return qp.congestionWindow == ALONE;
}

/** This many packets have arrived. */
export function growWindow(context: Context, qp: QueuePair, packets: u32): void {
  growShare(qp, packets);
  if (isAlone(qp)) {
    qp.congestionWindow = LEAST;
    return;
  }
  const most = context.windowPackets * UNIT;
  if (qp.congestionWindow >= most) return;
  let more = (packets * UNIT * UNIT) / qp.congestionWindow + 1;
  // There a loss costs more.
  if (qp.congestionWindow >= keptWindow(qp)) more = (more + 7) / 8;
  const grown = qp.congestionWindow + more;
  qp.congestionWindow = min<u32>(grown, most);
}

/** Halves the window, unless it was halved for packets that are still under way. */
export function cutWindow(context: Context, qp: QueuePair): void {
  cutShare(context, qp);
  if (qp.cutPending && psnCompare(qp.psnUnacked, qp.cutPsn) < 0) return;
  qp.cutPending = 1;
  qp.cutPsn = qp.psnMax;
  qp.congestionWindow = max<u32>(qp.congestionWindow >> 1, LEAST);
}

/** Packets were lost. */
export function noteLoss(context: Context, qp: QueuePair): void {
  qp.lossy = 1;
  qp.congestionWindow = min<u32>(qp.congestionWindow, keptWindow(qp));
  // A link with a window of its own has slowed down by itself.
  if (context.paced) return;
  // Twice the shortest round trip, and some slack for a busy machine.
  const least = leastRoundTrip(qp);
  if (least != 0 && qp.roundTripMicros > 2 * least + 200) cutWindow(context, qp);
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
  const sample = max<u32>(<u32>context.now - qp.probeMicros, 1);
  qp.probeMicros = 0;
  qp.roundTripMicros =
    qp.roundTripMicros == 0
      ? sample
      : qp.roundTripMicros - (qp.roundTripMicros >> 3) + (sample >> 3);
  if (qp.roundTripLeast == 0 || sample < qp.roundTripLeast) qp.roundTripLeast = sample;
  noteRoundTrip(qp, sample);
}

/** What is measured would be of a packet that is sent twice: give it up. */
export function dropProbe(qp: QueuePair): void {
  qp.probeMicros = 0;
}

/**
 * Slack of an early repetition: acknowledgements wait for the event loop of a busy peer. Where
 * nothing was lost yet a silence is most likely that of a peer without a processor: a few turns of
 * a scheduler.
 */
const REPEAT_SLACK_MICROS: u32 = 1000;
const PATIENT_SLACK_MICROS: u32 = 20_000;
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

/**
 * Delay of the retransmit timer. With selective repeat the requester retransmits early, after two
 * round trips: the oldest packet costs one packet, and the peer's answer reports its gaps; a READ
 * or atomic whose response was lost is repeated. With other peers it waits for the queue pair's
 * timeout.
 */
function nextDelay(context: Context, qp: QueuePair): u64 {
  const left = qp.timeoutMicros - min<u64>(qp.timeoutMicros, sinceProgress(context, qp));
  if (qp.reorderPeer == 0 || qp.roundTripMicros == 0 || qp.earlyRepeats >= REPEATS_MAX) return left;
  const slack: u64 = qp.lossy ? REPEAT_SLACK_MICROS : patience(qp);
  const doublings: u64 = qp.earlyRepeats;
  const early = (<u64>(2 * qp.roundTripMicros) + slack) << doublings;
  return min<u64>(early, left);
}

/** As long as the timeout leaves time to ask again before it. */
function patience(qp: QueuePair): u64 {
  return min<u64>(PATIENT_SLACK_MICROS, qp.timeoutMicros / 2);
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
  if (qp.reorderPeer == 0 || sinceProgress(context, qp) >= qp.timeoutMicros) return false;
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
