/**
 * How much may be on its way. Two bounds: the peer's receive buffer (`windowCharge`, fixed), and a
 * congestion window that starts wide open and learns. What has arrived is on its way no more, also
 * where its acknowledgement has to wait (arrival.ts). The queue pairs of a device with packets in
 * flight to one peer share half of its receive buffer in equal parts: 64 queue pairs that each fill
 * it would overrun the buffer.
 *
 * It is cut by half, at most once per window, when a timeout says that nothing gets through, when
 * the peer says that its packets were marked (CNP), or when packets are lost while round trips are
 * long against the shortest one seen: a queue is overflowing. Loss alone does not cut it: on a wire
 * that drops at random a smaller window is only slower. It opens by one packet per window.
 */
import { powerOfTwo } from '../memory/bytes';
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { Context, PeerShare, peerShare } from './context';
import { Path } from './path';
import { QueuePair, pathOf, timerOf } from './queue-pair';
import { armTimer } from './timer';

/** The window counts in 1/256 of a packet. */
const UNIT: u32 = 256;
/** Where one loss means that everything behind it is sent again. */
const GO_BACK_PACKETS: u32 = 64;
/** Never less than this many packets, so that a lost one is noticed by those behind it. */
const LEAST: u32 = 4 * UNIT;
/** Window of one packet, which is sent twice. */
const ALONE: u32 = 1;

/**
 * What a packet of so many payload bytes takes of a receive buffer. Linux rounds the packet with
 * its headers and bookkeeping up to a power of two and adds its descriptor (measured: link/udp.ts
 * `receiveBufferCharge`).
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

/** The path is set: `charge` is half of the peer's receive buffer. */
export function joinPeer(context: Context, qp: QueuePair, path: Path, charge: u32): void {
  leavePeer(qp, path);
  const share = peerShare(context, path.remoteGid0, path.remoteGid1);
  if (share.busy == 0 || charge < share.charge) share.charge = charge;
  path.share = changetype<usize>(share);
}

/** Counts the queue pair as busy while it has packets in flight. */
export function noteBusy(qp: QueuePair): void {
  const busy: u8 = qp.psnUnacked != qp.psnNext ? 1 : 0;
  const at = pathOf(qp).share;
  if (busy == qp.isBusy || at == 0) return;
  qp.isBusy = busy;
  const share = changetype<PeerShare>(at);
  share.busy += busy ? 1 : -1;
}

/** Removes the queue pair from the count of its peer: RESET, ERR, a new path, destroyed. */
export function leavePeer(qp: QueuePair, path: Path): void {
  if (qp.isBusy) changetype<PeerShare>(path.share).busy--;
  qp.isBusy = 0;
  path.share = 0;
}

/** Is `charge` below the limit of this queue pair for packets in flight? */
export function fitsShare(qp: QueuePair, charge: u32): bool {
  if (charge >= qp.windowCharge) return false;
  const at = pathOf(qp).share;
  if (at == 0) return true;
  const share = changetype<PeerShare>(at);
  const busy = share.busy + 1 - qp.isBusy;
  return busy < 2 || <u64>charge * busy < <u64>share.charge;
}

/** May one more packet go? One always may when nothing is on its way. */
export function windowOpen(qp: QueuePair): bool {
  if (qp.psnArrived == qp.psnNext) return true;
  // READs and atomics are not withdrawn (requester.ts): what comes ahead of one must find room.
  const awaited = qp.chunkHead != qp.chunkTail;
  if (awaited && beyondKept(qp)) return false;
  return (
    fitsShare(qp, qp.chargeSent - qp.chargeArrived) &&
    psnDistance(qp.psnArrived, qp.psnNext) * UNIT < qp.congestionWindow
  );
}

/** May one more READ be asked for? Nobody is told what has arrived of its answers. */
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

/** Is more on its way than a peer would keep that misses the oldest of it? */
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
export function cutWindow(qp: QueuePair): void {
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
  if (qp.roundTripLeast != 0 && qp.roundTripMicros > 2 * qp.roundTripLeast + 200) cutWindow(qp);
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
/** Each early repetition waits twice as long as the one before, so many times. */
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
 * How long to wait. A peer that keeps what came ahead is asked again early, after two round trips:
 * repeating the oldest packet costs one packet, and what it lacks is known a round trip later; a
 * READ or atomic, whose answer may be what got lost, is asked for again. All others wait for the
 * queue pair's timeout.
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
 * An answer to what is answered already. If it was asked for twice, for want of an answer, both
 * times were heard: nothing was lost, the peer was slow.
 */
export function noteSecondAnswer(qp: QueuePair, psn: u32): void {
  if (qp.repeatedEarly == 0 || qp.repeatedEarly - 1 != psn) return;
  qp.repeatedEarly = 0;
  qp.lossy = 0;
}
