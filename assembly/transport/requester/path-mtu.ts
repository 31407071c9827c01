/**
 * A path MTU that is larger than the path takes. Two signs: the system refuses to send packets of
 * that length (the interface is smaller), or the peer answers short packets while long ones stay
 * unanswered (a network on the way drops them). The queue pair then ends with RETRY_EXC_ERR and a
 * VendorError that names the path MTU.
 */
import { Context, schedule } from '../shared/context';
import { Aside, canProbe } from '../shared/keep-alive';
import { Operation, isOf } from '../shared/operation';
import { QueuePair, outstanding, sendRequestAt, timerOf } from '../shared/queue-pair';
import { QpType, VendorError } from '../shared/status';
import { armTimer } from '../shared/timer-wheel';
import { SendRequest } from '../shared/work-request';

/** An interface may refuse packets for this time. */
const REFUSED_MICROS: u32 = 500_000;

/** Bits of `QueuePair.mtuSigns`, since the last packet that was acknowledged. */
enum Sign {
  /** A short packet was sent to be answered; one was answered. */
  SHORT_ASKED = 1,
  SHORT_ANSWERED = 2,
  /** The system still refuses packets after REFUSED_MICROS. */
  REFUSED = 4,
}

/** Everything before a packet is acknowledged: both signs are gone. */
export function passesPath(qp: QueuePair): void {
  qp.refusedMicros = 0;
  qp.mtuSigns = 0;
}

/** The oldest request, if it has a packet of the path MTU; else null. */
function longOldest(qp: QueuePair): SendRequest | null {
  if (!outstanding(qp) || qp.sendTail == qp.sendFetched) return null;
  const request = sendRequestAt(qp, qp.sendTail);
  return request.length >= qp.mtu ? request : null;
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

/** Does the system refuse packets for good? */
export function isRefused(qp: QueuePair): bool {
  return (qp.mtuSigns & (<u8>Sign.REFUSED)) != 0;
}

/**
 * No answer arrived in time, again: would a short packet be answered? Asked after the second
 * timeout and before the last: a link with periodic losses loses one of three packets each time, if
 * the period divides their number.
 */
export function askShortly(context: Context, qp: QueuePair): void {
  const isSecond = qp.retryLeft + 1 == qp.retryLimit;
  if (!isSecond && qp.retryLeft > 1) return;
  if (longOldest(qp) == null || !canProbe(context, qp)) return;
  qp.asidePending |= <u8>Aside.PROBE;
  qp.mtuSigns |= <u8>Sign.SHORT_ASKED;
  schedule(context, qp);
}

/** An acknowledgement of what was acknowledged before: of a probe, if one was sent. */
export function noteShortAnswer(qp: QueuePair): void {
  if (qp.mtuSigns & (<u8>Sign.SHORT_ASKED)) qp.mtuSigns |= <u8>Sign.SHORT_ANSWERED;
}

/** Why is there no answer? A VendorError with the path MTU; 0: the peer is silent. */
export function silenceOf(qp: QueuePair): u32 {
  if (longOldest(qp) == null) return 0;
  if (isRefused(qp)) return <u32>VendorError.PATH_MTU_REFUSED + qp.mtu;
  const answered = (qp.mtuSigns & (<u8>Sign.SHORT_ANSWERED)) != 0;
  return answered ? <u32>VendorError.PATH_MTU + qp.mtu : 0;
}
