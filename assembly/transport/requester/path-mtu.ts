/**
 * A path MTU that is larger than the path takes. Two signs: the system refuses to send packets of
 * that length (the interface is smaller), or the peer answers shorter packets while long ones stay
 * unanswered (a network on the way drops them, with or without an ICMP message). The queue pair
 * then ends with RETRY_EXC_ERR and a VendorError that names the path MTU.
 *
 * Congestion looks alike: a queue that counts bytes has room for short packets only. So silence
 * alone starts a round of trials, each of a packet of the path MTU that the next connection would
 * use and two long ones. The round proves a dropped path MTU if nearly all of the shorter packets
 * are answered and no long one is.
 */
import { psnDistance } from '../../wire/psn';
import { Context, schedule } from '../shared/context';
import { Aside, canProbe, trialBytes } from '../shared/keep-alive';
import { Operation, isOf } from '../shared/operation';
import { isPathMtuDoubted, notePathMtu, usualRoundTripMost } from '../shared/path-control';
import {
  QueuePair,
  outstanding,
  readsInFlight,
  sendRequestAt,
  timerOf,
} from '../shared/queue-pair';
import { QpType, VendorError } from '../shared/status';
import { armTimer } from '../shared/timer-wheel';
import { SendRequest } from '../shared/work-request';
import { sendAlone } from './congestion-window';
import { timeoutOf } from './retransmit-timer';
import { repairOldest } from './retransmit';

/**
 * False leaves trials out of the build: a data channel cuts packets itself, and never drops a long
 * one alone.
 */
export const PATH_MTU_TRIALS: bool = true;

/** An interface may refuse packets for this time. */
const REFUSED_MICROS: u32 = 500_000;

/** Bits of `QueuePair.mtuSigns`, since the last packet that was acknowledged. */
enum Sign {
  /** A short packet was sent to be answered; one was answered. */
  SHORT_ASKED = 1,
  SHORT_ANSWERED = 2,
  /** The system still refuses packets after REFUSED_MICROS. */
  REFUSED = 4,
  /** A shorter packet was answered since the last trial. */
  TRIAL_ANSWERED = 8,
  /** A round of trials proved nothing; the next one waits for a timeout. */
  UNPROVEN = 16,
  /** A round of trials proved a dropped path MTU. */
  PROVEN = 32,
  /** Two were: an answer that is late arrives with the next one. */
  TRIALS_ANSWERED = 64,
}

/**
 * Trials of a round, and answers that prove a dropped path MTU: a full queue that counts bytes has
 * room for three of four trials (test/simulation/path-mtu-seeds.ts).
 */
const TRIALS: u16 = 36;
const ANSWERS: u16 = 34;
/** Answers after the proof of another queue pair of the path. */
const MORE_ANSWERS: u16 = 4;
/** Trials without an answer that end a round: 16 of them may be on their way. */
const UNANSWERED_MAX: u16 = 12;
/** Between trials: at least this, and a part of the longest usual round trip, as a shift. */
const TRIAL_MICROS: u32 = 16_000;
const TRIAL_PART: u32 = 4;

/** Everything before a packet is acknowledged: both signs are gone. */
export function passesPath(context: Context, qp: QueuePair): void {
  // No round trip is longer than this silence was.
  if (PATH_MTU_TRIALS && qp.mtuSigns & (<u8>Sign.SHORT_ASKED))
    qp.shortLate = context.now + <u64>(<u32>context.now - qp.shortMicros);
  qp.refusedMicros = 0;
  qp.mtuSigns = 0;
  qp.mtuTrials = 0;
}

/** The oldest request, if its oldest packet or response is longer than that of a trial. */
function longOldest(qp: QueuePair): SendRequest | null {
  if (!PATH_MTU_TRIALS || !outstanding(qp) || qp.sendTail == qp.sendFetched) return null;
  const request = sendRequestAt(qp, qp.sendTail);
  const before = psnDistance(request.psnFirst, qp.psnUnacked) * qp.mtu;
  return request.length > trialBytes(qp) + before ? request : null;
}

/** The system refused a packet of this queue pair, because of its length. */
export function noteRefusal(context: Context, qp: QueuePair): void {
  if (qp.type != <u32>QpType.RC) return;
  const request = longOldest(qp);
  // A READ request is short: the packet was a response.
  if (request == null || isOf(request, Operation.DATA)) return;
  const now = <u32>context.now;
  if (qp.refusedMicros == 0) {
    qp.refusedMicros = max<u32>(now, 1);
    hasten(context, qp, REFUSED_MICROS);
  } else if (now - qp.refusedMicros >= REFUSED_MICROS) {
    qp.mtuSigns |= <u8>Sign.REFUSED;
    hasten(context, qp, 1);
  }
}

/** The retransmit timer fires after `micros` at the latest. */
function hasten(context: Context, qp: QueuePair, micros: u32): void {
  const timer = timerOf(qp);
  if (timer.deadline <= context.now + <u64>micros) return;
  armTimer(context.timers, timer, context.now, micros);
}

/** Is the path MTU known to be too large? */
export function isPathTooShort(qp: QueuePair): bool {
  return PATH_MTU_TRIALS && (qp.mtuSigns & (<u8>(Sign.REFUSED | Sign.PROVEN))) != 0;
}

/** Does the system refuse packets for good? */
function isRefused(qp: QueuePair): bool {
  return (qp.mtuSigns & (<u8>Sign.REFUSED)) != 0;
}

/** The oldest packet is repeated early. */
export function noteEarlyRepeat(context: Context, qp: QueuePair): void {
  if (qp.earlyRepeats > 1 || isPathMtuDoubted(context, qp)) suspectPath(context, qp, Aside.TRIAL);
}

/** A timeout: a round of trials may begin anew. */
export function noteTimeout(context: Context, qp: QueuePair): void {
  qp.mtuSigns &= ~(<u8>Sign.UNPROVEN);
  if (qp.retryLeft == qp.retryLimit) suspectPath(context, qp, Aside.TRIAL);
  // A path that takes less than a trial. Not each time: a link with periodic losses loses one of
  // three packets if the period divides their number.
  else if (qp.retryLeft + 1 == qp.retryLimit || qp.retryLeft <= 1) {
    suspectPath(context, qp, Aside.PROBE);
  }
}

/** The oldest packet was sent more than once, without an answer: is a shorter one answered? */
function suspectPath(context: Context, qp: QueuePair, aside: u32): void {
  if (longOldest(qp) == null || !canProbe(context, qp)) return;
  qp.asidePending |= <u8>aside;
  if ((qp.mtuSigns & (<u8>Sign.SHORT_ASKED)) == 0) qp.shortMicros = qp.progressMicros;
  qp.mtuSigns |= <u8>Sign.SHORT_ASKED;
  schedule(context, qp);
}

/** A duplicate acknowledgement: the answer to a probe, if one was sent. */
export function noteShortAnswer(context: Context, qp: QueuePair): void {
  if (!PATH_MTU_TRIALS || (qp.mtuSigns & (<u8>Sign.SHORT_ASKED)) == 0) return;
  // It may answer what was sent in an earlier silence.
  if (context.now < qp.shortLate) return;
  let answered = <u8>(Sign.SHORT_ANSWERED | Sign.TRIAL_ANSWERED);
  // The peer may answer the repetition of a READ as well, before it sends the responses.
  if (readsInFlight(qp) == 0) answered |= (qp.mtuSigns & (<u8>Sign.TRIAL_ANSWERED)) << 3;
  qp.mtuSigns |= answered;
  if (qp.mtuTrials != 0 || qp.refusedMicros != 0) return;
  if (qp.mtuSigns & (<u8>Sign.UNPROVEN)) return;
  // The retries are exhausted before the round is.
  if (timeoutOf(qp) * (qp.retryLeft + 1) < <u64>(ANSWERS * pauseOf(qp))) return;
  qp.mtuTrials = 1;
  qp.mtuAnswers = 0;
  // The long packet before it may be late.
  hasten(context, qp, pauseOf(qp));
}

function pauseOf(qp: QueuePair): u32 {
  return max<u32>(TRIAL_MICROS, usualRoundTripMost(qp) >> TRIAL_PART);
}

/**
 * The timer fired. True: the next trial has begun. False: no round of trials is under way any more,
 * or it has proven that the path MTU is too large.
 */
export function tryPath(context: Context, qp: QueuePair): bool {
  if (!PATH_MTU_TRIALS || isRefused(qp) || qp.mtuTrials == 0) return false;
  const request = longOldest(qp);
  const answered = <u8>(Sign.TRIAL_ANSWERED | Sign.TRIALS_ANSWERED);
  const trial = qp.mtuTrials;
  qp.mtuAnswers = min<u16>(qp.mtuAnswers + <u16>popcnt<u32>(qp.mtuSigns & answered), trial);
  qp.mtuSigns &= ~answered;
  const answers = qp.mtuAnswers;
  if (request == null || trial - answers > UNANSWERED_MAX) {
    qp.mtuTrials = 0;
    qp.mtuSigns |= <u8>Sign.UNPROVEN;
    return false;
  }
  if (answers >= (isPathMtuDoubted(context, qp) ? MORE_ANSWERS : ANSWERS)) {
    notePathMtu(context, qp);
    qp.mtuSigns |= <u8>Sign.PROVEN;
    return false;
  }
  qp.mtuTrials++;
  armTimer(context.timers, timerOf(qp), context.now, pauseOf(qp));
  if (trial < TRIALS) {
    // The oldest packet alone, twice: a link with periodic losses loses one of them at most.
    sendAlone(qp);
    repairOldest(qp, false);
    suspectPath(context, qp, Aside.TRIAL);
  }
  return true;
}

/** Why is there no answer? A VendorError with the path MTU; 0: the peer is silent. */
export function silenceOf(qp: QueuePair): u32 {
  if (longOldest(qp) == null) return 0;
  if (isRefused(qp)) return <u32>VendorError.PATH_MTU_REFUSED + qp.mtu;
  const answered = (qp.mtuSigns & (<u8>Sign.SHORT_ANSWERED)) != 0;
  return answered ? <u32>VendorError.PATH_MTU + qp.mtu : 0;
}
