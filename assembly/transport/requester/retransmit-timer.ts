/**
 * The retransmit timer: how long a requester waits for an answer before it sends the oldest packet
 * again (retransmit.ts, requester.ts). Silence is a loss, a peer that is slow, or one that is gone.
 */
import { psnAdd } from '../../wire/psn';
import { Context } from '../shared/context';
import { noteDoubtfulRoundTrip, usualRoundTrip, usualRoundTripMost } from '../shared/path-control';
import { QueuePair, timerOf } from '../shared/queue-pair';
import { armTimer } from '../shared/timer-wheel';
import { noteLossy } from './congestion-window';
import { sinceSent, untilLost } from './in-flight';

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
  return min<u64>(answeredAlone(qp) ? followerDelay(qp) : earlyDelay(context, qp), left);
}

/**
 * The packet that was repeated early is answered, and the one behind it is not: it is lost as well,
 * unless the peer was slow, and answers one after the other.
 */
function followerDelay(qp: QueuePair): u64 {
  return (usualRoundTrip(qp) >> 1) + REPEAT_SLACK_MICROS;
}

function repeatsEarly(qp: QueuePair): bool {
  if (qp.reorderPeer == 0 || qp.timeoutMicros > MEASURED_MICROS_MAX) return false;
  return usualRoundTripMost(qp) != 0 && qp.earlyRepeats < REPEATS_MAX;
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

/**
 * The oldest packet was answered after a timeout. It was sent again, so no round trip is measured
 * (Karn), but none can be shorter than the time since then: a path whose round trips are longer
 * than the timeout would never be known. (Of early repetitions `noteHasty` tells.)
 */
export function endSilence(context: Context, qp: QueuePair): void {
  // In a round of trials it was sent again since the timer fired.
  if (qp.mtuTrials != 0 || qp.retryLeft == qp.retryLimit) return;
  const passed = <u32>context.now - qp.silentMicros;
  if (passed > max<u32>(usualRoundTrip(qp), REPEAT_SLACK_MICROS))
    noteDoubtfulRoundTrip(context, qp, qp.silentMicros, passed);
}

/** As long as the timeout leaves time to ask again before it. */
function delayedAckSlack(qp: QueuePair): u64 {
  return min<u64>(DELAYED_ACK_SLACK_MICROS, qp.timeoutMicros / 2);
}

/** Of longer timeouts (29 to 31) the time that has passed is not known: it has 32 bits. */
const MEASURED_MICROS_MAX: u64 = 0x80000000;

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
  if (qp.reorderPeer == 0 || qp.timeoutMicros > MEASURED_MICROS_MAX) return false;
  if (sinceProgress(context, qp) >= timeoutOf(qp)) return false;
  qp.earlyRepeats++;
  // Until a second answer says otherwise (`noteSecondAnswer`).
  noteLossy(qp);
  qp.repeatedEarly = qp.psnUnacked + 1;
  armTimer(context.timers, timerOf(qp), context.now, nextDelay(context, qp));
  return true;
}

/**
 * A second answer to a packet. If the packet was retransmitted for lack of an answer, both
 * times were heard: nothing was lost, the peer was slow.
 */
export function noteSecondAnswer(qp: QueuePair, psn: u32): bool {
  if (qp.repeatedEarly == 0 || qp.repeatedEarly - 1 != psn) return false;
  qp.repeatedEarly = 0;
  qp.lossy = 0;
  return true;
}
