/**
 * Retransmission: go-back-N, and selective repeat with peers that keep packets that arrive ahead.
 *
 * Selective repeat retransmits the packets that a selective acknowledgement reports missing. It
 * retransmits a packet again only when a packet sent after it has arrived, or the timer has fired:
 * until then it may still be in flight.
 */
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { Context, hasRoom, schedule } from '../shared/context';
import { Operation, awaitsData, isOf } from '../shared/operation';
import { QueuePair, readsInFlight, sendCursor, sendRequestAt } from '../shared/queue-pair';
import { SEND_REQUEST_SIZE, SendRequest, SendState, seekSge } from '../shared/work-request';
import { askedForAck } from './ack-request';
import { chargeBefore, dropProbe, noteLoss } from './congestion-window';
import { readLength, readPackets, sendData, writeSingle } from './request-packet';

/** Notes what is missing. False when that is under way already, or the map is no true one. */
function noteMissing(qp: QueuePair, psn: u32, low: u64, high: u64): bool {
  const top = highestAhead(psn, low, high);
  if (psnDistance(psn, top) >= psnDistance(psn, qp.psnMax)) return false;
  if (psnCompare(top, qp.repairMax) < 0) return false;
  // The map without its highest bit, inverted below it; bit 0 becomes the expected packet itself.
  const missing = psnDistance(psn, top);
  qp.oldestRepeated = 0;
  qp.repairBase = psn;
  qp.repairLow = ((~low << 1) | 1) & mask(missing);
  qp.repairHigh = ((~high << 1) | (~low >> 63)) & mask(missing > 64 ? missing - 64 : 0);
  // Nothing beyond what was withdrawn is under way any more.
  qp.repairMax = withdraw(qp, psn) ? qp.psnNext : qp.psnMax;
  dropProbe(qp);
  return true;
}

/** The peer has said what is missing: it is sent again, unless that is under way. */
export function takeMissing(context: Context, qp: QueuePair, psn: u32, low: u64, high: u64): void {
  if (qp.rnrWaiting || !noteMissing(qp, psn, low, high)) return;
  context.counters.rcvdSeqErr++;
  noteLoss(context, qp);
  schedule(context, qp);
}

/** The lowest `bits` bits. */
function mask(bits: u32): u64 {
  if (bits >= 64) return -1;
  const one: u64 = 1;
  const by: u64 = bits;
  return (one << by) - 1;
}

/**
 * No answer arrived in time: retransmits the oldest packet, which makes the peer report its gaps.
 * `certain`: the peer is not just slow, so the next answer is that to this packet.
 */
export function repairOldest(qp: QueuePair, certain: bool): void {
  if (certain) withdraw(qp, qp.psnUnacked);
  qp.repairBase = qp.psnUnacked;
  qp.repairLow = 1;
  qp.repairHigh = 0;
  qp.repairMax = qp.psnUnacked;
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
  qp.repairLow = 0;
  qp.repairHigh = 0;
  qp.repairMax = qp.psnUnacked;
}

export function anyRepairs(qp: QueuePair): bool {
  return (qp.repairLow | qp.repairHigh) != 0;
}

/** Sends what is missing. True when it stopped for want of room. */
export function sendRepairs(context: Context, qp: QueuePair): bool {
  while (anyRepairs(qp)) {
    if (!hasRoom(context)) return true;
    let bit: u32;
    if (qp.repairLow != 0) {
      bit = <u32>ctz<u64>(qp.repairLow);
      qp.repairLow &= qp.repairLow - 1;
    } else {
      bit = 64 + <u32>ctz<u64>(qp.repairHigh);
      qp.repairHigh &= qp.repairHigh - 1;
    }
    const psn = psnAdd(qp.repairBase, bit);
    // Acknowledged meanwhile, or about to be sent anyway.
    const away = psnDistance(qp.psnUnacked, psn);
    if (away < psnDistance(qp.psnUnacked, qp.psnNext)) resend(context, qp, psn);
  }
  return false;
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
  if (isOf(request, Operation.DATA)) {
    const asks = psn == qp.psnUnacked || qp.sendOffset % (readPackets(context, qp) * qp.mtu) == 0;
    if (asks) writeSingle(context, qp, request, readLength(context, qp, request));
  } else if (awaitsData(request)) {
    if (!writeSingle(context, qp, request, request.length)) return;
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

/** PSN of the highest packet that a map names, counted from its base; 0 for an empty map. */
export function highestAhead(base: u32, low: u64, high: u64): u32 {
  if (high != 0) return psnAdd(base, 128 - <u32>clz<u64>(high));
  return psnAdd(base, 64 - <u32>clz<u64>(low));
}
