/**
 * Checks of answers to the requester. RoCEv2 authenticates no packet, so an attacker that forges
 * the peer's address and knows the queue pair number tries PSNs blindly: with 64 packets in flight
 * one of 262,144 guesses is the PSN of one of them. Three checks stand against it.
 *
 * - The PSN is in flight, or a little older (a late duplicate, the answer to a probe).
 * - The message sequence number (MSN, IBA 9.7.5.2.7) is plausible: not below the last one, and not
 *   above it by more messages than were sent and not answered since. Linux rxe does not count
 *   WRITEs without immediate data, so fewer are plausible as well.
 * - A sweep shows itself by the answers that fail these checks. After SUSPICIOUS of them a fatal
 *   NAK is confirmed: the responder that sent one is in ERR and silent, so the requester repeats
 *   its requests, and an answer proves that the NAK was forged. Silence ends the queue pair with
 *   the status of the NAK.
 *
 * A failed check is counted (`dropGhost`) and the packet dropped.
 */
import { psnDistance } from '../../wire/psn';
import { NakCode } from '../../wire/syndrome';
import { Context } from '../shared/context';
import { openResponses } from '../shared/keep-alive';
import { Operation, isOf } from '../shared/operation';
import { QueuePair, checksOf, packetCount, pathOf, sendRequestAt } from '../shared/queue-pair';
import { SendState } from '../shared/work-request';

/** Of a response that carries none (READ RESPONSE MIDDLE). */
export const NO_MSN: u32 = 0xffffffff;
const MSN_MASK: u32 = 0xffffff;
/** Answers so far behind the oldest PSN in flight are late ones of the peer, at most. */
const LATE_PACKETS: u32 = 4096;
/** Answers that fail the checks before a fatal NAK is confirmed. */
const SUSPICIOUS: u32 = 16;
/** Retries that a doubted NAK leaves. */
const CONFIRMING_RETRIES: u32 = 2;

/** Was this PSN sent, and is it not acknowledged yet? */
export function inFlight(qp: QueuePair, psn: u32): bool {
  return psnDistance(qp.psnUnacked, psn) < psnDistance(qp.psnUnacked, qp.psnMax);
}

/** Linux rxe that has executed nothing acknowledges a probe with this PSN. */
const NOTHING_EXECUTED: u32 = 0xffffff;

/** May an acknowledgement with this PSN and MSN be the peer's? Counts one that may not. */
export function believesMsn(context: Context, qp: QueuePair, psn: u32, msn: u32): bool {
  // One past what was sent: a selective acknowledgement names the PSN that is expected.
  const isSent = psnDistance(qp.psnUnacked, psn) <= psnDistance(qp.psnUnacked, qp.psnMax);
  if (isSent ? isPlausible(qp, msn) : isLate(qp, psn)) {
    openResponses(context, qp);
    return true;
  }
  countFailed(context, qp);
  return false;
}

/** May any answer of the peer have this PSN and MSN? */
export function mayAnswer(qp: QueuePair, psn: u32, msn: u32): bool {
  const isSent = psnDistance(qp.psnUnacked, psn) <= psnDistance(qp.psnUnacked, qp.psnMax);
  return isSent ? msn == NO_MSN || isPlausible(qp, msn) : isLate(qp, psn);
}

/** Is it an acknowledgement that others overtook, or the answer to a probe? */
function isLate(qp: QueuePair, psn: u32): bool {
  if (psnDistance(psn, qp.psnUnacked) <= LATE_PACKETS) return true;
  return psn == NOTHING_EXECUTED && pathOf(qp).ownKind == 0;
}

function countFailed(context: Context, qp: QueuePair): void {
  context.counters.dropGhost++;
  const checks = checksOf(qp);
  if (checks.failed < SUSPICIOUS) checks.failed++;
}

/** Can the peer have executed that many messages? */
export function isPlausible(qp: QueuePair, msn: u32): bool {
  const checks = checksOf(qp);
  const more = (msn - checks.msnSeen) & MSN_MASK;
  if (more > checks.unnumbered + psnDistance(qp.psnUnacked, qp.psnMax)) return false;
  let executed = checks.unnumbered + (qp.sendFetched - qp.sendTail);
  if (more <= executed) return true;
  // A READ is sent as several requests (`readPackets`), each of which is a message.
  for (let index = qp.sendTail; index != qp.sendFetched; index++) {
    const request = sendRequestAt(qp, index);
    if (request.state == <u32>SendState.FETCHED) break;
    if (!isOf(request, Operation.DATA)) continue;
    executed += packetCount(qp, request.length) - 1;
    if (more <= executed) return true;
  }
  return false;
}

/** An acknowledgement was believed. */
export function takeMsn(qp: QueuePair, msn: u32): void {
  const checks = checksOf(qp);
  checks.msnSeen = msn;
  checks.unnumbered = 0;
}

/**
 * A response with data answers `packets` more. Its MSN may be an old one, that of a READ that was
 * executed long ago; a MIDDLE packet carries no MSN.
 */
export function noteResponse(qp: QueuePair, msn: u32, packets: u32): void {
  if (msn != NO_MSN && isPlausible(qp, msn)) {
    takeMsn(qp, msn);
    return;
  }
  const checks = checksOf(qp);
  checks.unnumbered = min<u32>(checks.unnumbered + packets, MSN_MASK);
}

/** Is a NAK to be confirmed before the queue pair ends? Takes it down if so. */
export function doubtsNak(qp: QueuePair, psn: u32, syndrome: u32): bool {
  const checks = checksOf(qp);
  // Without a retransmit timer nothing would confirm it.
  if (checks.failed < SUSPICIOUS || qp.timeoutMicros == 0) return false;
  if (syndrome == <u32>NakCode.PSN_SEQUENCE_ERROR) return false;
  checks.doubtedPsn = psn;
  checks.doubtedNak = <u8>syndrome;
  qp.retryLeft = min<u32>(qp.retryLeft, CONFIRMING_RETRIES);
  return true;
}

/** The peer answers: it is not in ERR, so a NAK that was doubted was forged. */
export function forgetDoubt(qp: QueuePair): void {
  const checks = checksOf(qp);
  if (checks.doubtedNak == 0) return;
  checks.doubtedNak = 0;
  qp.retryLeft = qp.retryLimit;
}
