/**
 * Which packets in flight have arrived although an older one has not, and which are lost. A packet
 * is lost when one that was sent later has arrived, and after the same round trip the time has
 * passed that packets may be late (RACK, RFC 8985). That time is how late packets were; it grows,
 * too, when a retransmission proves needless: its answer arrives before a round trip has passed.
 *
 * Rings of `flightMax` packets, by PSN: the time of the last transmission, whose lowest bit is 1
 * for a retransmission, and a bit for each that has arrived or is lost.
 */
import { bitsFrom, clearBit, clearBits, isBitSet, setBit } from '../../memory/bit-ring';
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { Context } from '../shared/context';
import {
  doubleLateness,
  noteHasty,
  lateness,
  leastRoundTrip,
  noteDoubtfulRoundTrip,
  noteLateness,
  noteLosses,
  noteRoundTrip,
  usualRoundTrip,
  usualRoundTripLeast,
} from '../shared/path-control';
import { QueuePair, chunkAt, timerOf } from '../shared/queue-pair';
import { isOverdue } from '../shared/timer-wheel';
import { chunkFrom, chunkOf, isMissing, isUnanswered, leftOf } from './read-chunks';

const REPEATED: u32 = 1;
/** Where nothing is known of a path a first round trip counts as this, in microseconds. */
const MICROS_LEAST: u32 = 1000;
/** The least lateness of a path where a packet was late. */
const LATE_LEAST_MICROS: u32 = 25;

function timeAt(qp: QueuePair, psn: u32): usize {
  return qp.sentTimes + <usize>((psn & (qp.flightMax - 1)) << 2);
}

/**
 * Packets from `first` to before `psnNext` are sent: for the first time from `fresh` on, once more
 * before.
 */
export function noteSentFrom(context: Context, qp: QueuePair, first: u32, fresh: u32): void {
  if (qp.flightMax == 0) return;
  const micros = (<u32>context.now) & ~REPEATED;
  if (first == qp.psnArrived) {
    // Nothing was in flight, maybe for so long that times would wrap.
    qp.arrivedMicros = micros - 2;
    qp.lostMicros = micros - 2;
    qp.silentMicros = micros - 2;
    if (first == fresh) qp.silent = 0;
  }
  const count = psnDistance(first, qp.psnNext);
  const again = psnCompare(first, fresh) < 0 ? psnDistance(first, fresh) : 0;
  for (let at: u32 = 0; at < count; at++) {
    store<u32>(timeAt(qp, first + at), at < again ? micros | REPEATED : micros);
  }
  clearBits(qp.arrivedMap, qp.flightMax, first, count);
  clearBits(qp.lostMap, qp.flightMax, first, count);
}

/** The packet with this PSN is sent again. */
export function noteRepeated(context: Context, qp: QueuePair, psn: u32): void {
  if (qp.flightMax == 0) return;
  store<u32>(timeAt(qp, psn), (<u32>context.now) | REPEATED);
  clearLost(qp, psn);
}

/** Microseconds since the packet in flight with this PSN was sent last. */
export function sinceSent(context: Context, qp: QueuePair, psn: u32): u32 {
  return <u32>context.now - (load<u32>(timeAt(qp, psn)) & ~REPEATED);
}

function clearLost(qp: QueuePair, psn: u32): void {
  if (!isBitSet(qp.lostMap, qp.flightMax, psn)) return;
  clearBit(qp.lostMap, qp.flightMax, psn);
  qp.lostCount--;
}

/** Is the packet marked as lost? */
export function isMarkedLost(qp: QueuePair, psn: u32): bool {
  return qp.flightMax != 0 && isBitSet(qp.lostMap, qp.flightMax, psn);
}

/** Everything from `psnArrived` to before `psn` has arrived. Returns how many had not before. */
export function noteArrivedBefore(context: Context, qp: QueuePair, psn: u32): u32 {
  const count = psnDistance(qp.psnArrived, psn);
  if (count == 0 || qp.flightMax == 0) return count;
  const known = qp.arrivedCount;
  const last = psnAdd(psn, <u32>-1);
  if (!isBitSet(qp.arrivedMap, qp.flightMax, last) && count <= qp.flightMax) {
    // Packets behind a retransmitted one arrived earlier: they give no sample.
    const isFirst = !(load<u32>(timeAt(qp, qp.psnArrived)) & REPEATED);
    if (isFirst) sampleRoundTrip(context, qp, last);
    noteTime(context, qp, last);
  }
  const ahead: u32 = qp.arrivedCount == 0 ? 0 : psnDistance(qp.psnArrived, qp.arrivedLast);
  let left = min<u32>(count, qp.flightMax);
  for (let each = qp.psnArrived; left > 0 && qp.arrivedCount + qp.lostCount > 0; left--) {
    if (isBitSet(qp.arrivedMap, qp.flightMax, each)) {
      clearBit(qp.arrivedMap, qp.flightMax, each);
      qp.arrivedCount--;
    } else if (psnDistance(qp.psnArrived, each) < ahead) noteOvertaken(context, qp, each);
    clearLost(qp, each);
    each = psnAdd(each, 1);
  }
  return count - (known - qp.arrivedCount);
}

/** The packet has arrived behind some that were sent later: the next one may be as late. */
function noteOvertaken(context: Context, qp: QueuePair, psn: u32): void {
  const time = load<u32>(timeAt(qp, psn));
  if (time & REPEATED) return;
  const late = <u32>context.now - time - qp.arrivedRoundTrip;
  if (<i32>late > <i32>lateness(qp)) noteLateness(context, qp, late + (late >> 2));
}

/**
 * The packet has just been acknowledged. Of one that was sent twice it is not known which has
 * arrived (Karn). If the timer has fired since, one sample counts for each time; if it could not,
 * since this process stood still, none does.
 */
function sampleRoundTrip(context: Context, qp: QueuePair, psn: u32): void {
  const time = load<u32>(timeAt(qp, psn));
  if (time & REPEATED) return;
  if (isOverdue(timerOf(qp), context.now)) {
    qp.silentMicros = <u32>context.now;
    qp.silent = 0;
  }
  const sample = max<u32>(<u32>context.now - time, 1);
  const passed = <u32>context.now - qp.silentMicros;
  if (passed >= sample) noteRoundTrip(context, qp, sample);
  else if (qp.silent) {
    qp.silent = 0;
    noteDoubtfulRoundTrip(context, qp, time, doubtfulSample(qp, sample, passed));
  }
}

/**
 * The timer fired `passed` microseconds ago, between a packet and its acknowledgement. If the least
 * round trip fits into that time, this is the answer to the retransmission, and something was lost:
 * the time before the timer is no part of a round trip. If the answer was late only, a peer that
 * keeps packets ahead of a gap reports the duplicate (`noteNeedless`). Otherwise the path has
 * become longer, at most to twice the usual round trip at a time.
 */
function doubtfulSample(qp: QueuePair, sample: u32, passed: u32): u32 {
  const least = leastRoundTrip(qp);
  if (least != 0 && passed >= least) return passed;
  return min<u32>(sample, max<u32>(2 * usualRoundTrip(qp), MICROS_LEAST));
}

/**
 * When the packet that has arrived was sent. A retransmission was answered by its first
 * transmission, if no round trip has passed since: it was needless, and its time says nothing.
 */
function noteTime(context: Context, qp: QueuePair, psn: u32): void {
  const time = load<u32>(timeAt(qp, psn));
  const micros = time & ~REPEATED;
  // Behind a silence it is the answer to the retransmission (`allIsLost`).
  if (time & REPEATED && qp.oldestRepeated != psn + 1) {
    const least = leastRoundTrip(qp);
    const passed = <u32>context.now - micros;
    if (passed < least - (least >> 3)) {
      doubleLateness(context, qp, micros, least >> 3);
      return;
    }
    // With a queue it may still be the first transmission.
    if (passed < usualRoundTripLeast(qp)) return;
  }
  if (<i32>(micros - qp.arrivedMicros) < 0) return;
  qp.arrivedMicros = micros;
  qp.arrivedRoundTrip = <u32>context.now - micros;
}

/**
 * The peer has received a packet twice: what was detected as lost was late, and the next one may be
 * as late. Once for each detection.
 */
export function noteNeedless(context: Context, qp: QueuePair): void {
  // Nor was a packet lost that was repeated early.
  const early = qp.repeatedEarly;
  if (early != 0) noteHasty(context, qp, <u32>context.now - sinceSent(context, qp, early - 1));
  qp.repeatedEarly = 0;
  if (!qp.lossReported) return;
  qp.lossReported = 0;
  const least = max<u32>(leastRoundTrip(qp) >> 3, LATE_LEAST_MICROS);
  doubleLateness(context, qp, <u32>context.now - usualRoundTrip(qp), least);
}

/**
 * The oldest `packets` packets are acknowledged. Is one of them a packet that was repeated early,
 * and was it the repetition that arrived? Then its first transmission was lost.
 */
export function noteLostEarly(context: Context, qp: QueuePair, packets: u32): void {
  const early = qp.repeatedEarly;
  if (early == 0 || qp.flightMax == 0 || qp.psnUnacked != qp.psnArrived) return;
  if (psnDistance(qp.psnUnacked, early - 1) >= packets) return;
  const since = sinceSent(context, qp, early - 1);
  const usual = usualRoundTrip(qp);
  if (since < usualRoundTripLeast(qp) || usual == 0) return;
  noteLosses(context, qp, 1, <u32>context.now - since - usual);
}

/** Nothing that is in flight counts any more: it is sent again, from the oldest on. */
export function forgetFlight(qp: QueuePair): void {
  // A late acknowledgement may pass over packets that were withdrawn: their bits would be counted.
  // The map of lost packets follows that of arrived ones.
  memory.fill(qp.arrivedMap, 0, qp.flightMax >> 2);
  qp.arrivedCount = 0;
  qp.lostCount = 0;
  qp.arrivedLast = qp.psnArrived;
}

/** The packet is lost. */
function markLost(qp: QueuePair, psn: u32): void {
  if (isBitSet(qp.lostMap, qp.flightMax, psn)) return;
  setBit(qp.lostMap, qp.flightMax, psn);
  qp.lostCount++;
}

/**
 * Takes the map of a selective acknowledgement: bit i of its `words` words, in network order,
 * stands for PSN `psn` + 1 + i, and everything before `psn` is executed. Returns how many packets
 * have arrived that had not before.
 */
export function takeMap(context: Context, qp: QueuePair, psn: u32, map: usize, words: u32): u32 {
  let arrived: u32 = 0;
  let last = psn;
  if (lastOf(map, words) >= psnDistance(psn, qp.psnMax)) return 0;
  const span = min<u32>(psnDistance(psn, qp.psnNext), qp.flightMax);
  for (let word: u32 = 0; word < words && (word << 6) + 1 < span; word++) {
    const first = psnAdd(psn, 1 + (word << 6));
    let fresh = bswap<u64>(load<u64>(map + ((<usize>word) << 3)));
    fresh &= ~bitsFrom(qp.arrivedMap, qp.flightMax, first);
    for (; fresh != 0; fresh &= fresh - 1) {
      const bit = <u32>ctz<u64>(fresh);
      if ((word << 6) + bit + 1 >= span) break;
      const next = psnAdd(first, bit);
      // A kept request stands for its responses: the map may name them as well.
      if (noteAhead(context, qp, next) == 0) continue;
      markKept(qp, next);
      last = next;
      arrived++;
    }
  }
  if (arrived != 0) sampleRoundTrip(context, qp, last);
  return arrived;
}

/** Distance of the last packet that a map names; 0: it names none. */
function lastOf(map: usize, words: u32): u32 {
  for (let word = words; word > 0; word--) {
    const bits = bswap<u64>(load<u64>(map + ((<usize>(word - 1)) << 3)));
    if (bits != 0) return (word << 6) - <u32>clz<u64>(bits);
  }
  return 0;
}

/**
 * A response is missing, and the peer has executed everything up to `end`; up to `from` that was
 * known. What needs no response has arrived, and so have the responses that were placed; the others
 * may be lost. Returns how many packets had not arrived before. All are in the rings (`fitsRings`).
 */
export function noteExecuted(context: Context, qp: QueuePair, from: u32, end: u32): u32 {
  let arrived: u32 = 0;
  let psn = from;
  if (qp.psnArrived != qp.psnUnacked) {
    moveArrivedBack(qp);
    psn = qp.psnUnacked;
  }
  for (let index = qp.chunkTail; psn != end; psn = psnAdd(psn, 1)) {
    index = chunkFrom(qp, index, psn);
    const isOpen = index != qp.chunkHead && isMissing(chunkAt(qp, index), psn);
    if (isOpen) unmarkArrived(qp, psn);
    else arrived += noteAhead(context, qp, psn);
  }
  return arrived;
}

/** Has everything that is not acknowledged a place of its own in the rings? */
export function fitsRings(qp: QueuePair): bool {
  return psnDistance(qp.psnUnacked, qp.psnNext) <= qp.flightMax;
}

/** A packet has arrived, and an older one may not have. 0: it had arrived before. */
export function noteAhead(context: Context, qp: QueuePair, psn: u32): u32 {
  if (isBitSet(qp.arrivedMap, qp.flightMax, psn)) return 0;
  markArrived(context, qp, psn);
  return 1;
}

/**
 * Arrivals were reported beyond a request whose response is missing: they count one by one from
 * now on.
 */
function moveArrivedBack(qp: QueuePair): void {
  const end = qp.psnArrived;
  if (qp.arrivedCount == 0) qp.arrivedLast = psnAdd(end, <u32>-1);
  for (let psn = qp.psnUnacked; psn != end; psn = psnAdd(psn, 1)) {
    setBit(qp.arrivedMap, qp.flightMax, psn);
    qp.arrivedCount++;
  }
  qp.psnArrived = qp.psnUnacked;
  qp.chargeArrived = qp.chargeAcked;
}

/**
 * The request had arrived, and waited there; its response may be lost. When the request was sent
 * says nothing of how late the response is.
 */
function unmarkArrived(qp: QueuePair, psn: u32): void {
  if (!isBitSet(qp.arrivedMap, qp.flightMax, psn)) return;
  clearBit(qp.arrivedMap, qp.flightMax, psn);
  qp.arrivedCount--;
  store<u32>(timeAt(qp, psn), load<u32>(timeAt(qp, psn)) | REPEATED);
}

/** The peer keeps a READ request: no response is lost before the request is executed. */
function markKept(qp: QueuePair, psn: u32): void {
  if (qp.chunkHead == qp.chunkTail) return;
  const chunk = chunkOf(qp, psn);
  if (chunk == null || chunk.psnFirst != psn || !isUnanswered(chunk)) return;
  for (let left = leftOf(chunk, psn) - 1; left > 0; left--) {
    psn = psnAdd(psn, 1);
    if (isBitSet(qp.arrivedMap, qp.flightMax, psn)) continue;
    setBit(qp.arrivedMap, qp.flightMax, psn);
    qp.arrivedCount++;
    clearLost(qp, psn);
  }
  if (isFurther(qp, psn)) qp.arrivedLast = psn;
}

/** Is it behind all others that are known to have arrived? */
function isFurther(qp: QueuePair, psn: u32): bool {
  return psnDistance(qp.psnArrived, psn) > psnDistance(qp.psnArrived, qp.arrivedLast);
}

function markArrived(context: Context, qp: QueuePair, psn: u32): void {
  setBit(qp.arrivedMap, qp.flightMax, psn);
  qp.arrivedCount++;
  clearLost(qp, psn);
  if (qp.arrivedCount == 1 || isFurther(qp, psn)) qp.arrivedLast = psn;
  else noteOvertaken(context, qp, psn);
  noteTime(context, qp, psn);
}

/** Marks what is lost, and notes when the last of these was sent. Returns how many there are. */
export function detectLosses(context: Context, qp: QueuePair): u32 {
  if (qp.arrivedCount == 0) return 0;
  return markLosses(context, qp, psnDistance(qp.psnArrived, qp.arrivedLast));
}

/** The same, of all that is in flight: what was sent last may have arrived. */
export function detectAllLosses(context: Context, qp: QueuePair): u32 {
  return markLosses(context, qp, psnDistance(qp.psnArrived, qp.psnNext));
}

/** Of `span` packets from the oldest on. A READ without any response is one packet that is lost. */
function markLosses(context: Context, qp: QueuePair, span: u32): u32 {
  let lost: u32 = 0;
  if (span > qp.flightMax) return 0;
  for (let from: u32 = 0; from < span; from += 64) {
    const first = psnAdd(qp.psnArrived, from);
    let open = ~(
      bitsFrom(qp.arrivedMap, qp.flightMax, first) | bitsFrom(qp.lostMap, qp.flightMax, first)
    );
    for (; open != 0; open &= open - 1) {
      const away = from + <u32>ctz<u64>(open);
      if (away >= span) break;
      const psn = psnAdd(qp.psnArrived, away);
      if (!isLost(context, qp, psn)) continue;
      markLost(qp, psn);
      noteLostTime(context, qp, psn);
      if (lost == 0 || !isWithRequest(qp, psn)) lost++;
    }
  }
  if (lost != 0) qp.lossReported = 1;
  return lost;
}

/** Is it a response whose request counts as lost? */
function isWithRequest(qp: QueuePair, psn: u32): bool {
  if (qp.chunkHead == qp.chunkTail) return false;
  const chunk = chunkOf(qp, psn);
  return chunk != null && psn != chunk.psnFirst && isUnanswered(chunk);
}

/** The oldest packet is lost, as the peer has reported. */
export function noteGap(context: Context, qp: QueuePair): void {
  if (qp.flightMax != 0) noteLostTime(context, qp, qp.psnUnacked);
  else qp.lostMicros = <u32>context.now - qp.roundTripMicros;
}

/** The last of the lost packets, by their ages: the one before may be an hour old. */
function noteLostTime(context: Context, qp: QueuePair, psn: u32): void {
  const now = <u32>context.now;
  const micros = load<u32>(timeAt(qp, psn)) & ~REPEATED;
  if (now - micros < now - qp.lostMicros) qp.lostMicros = micros;
}

/**
 * The peer reports a gap when some packets are behind it (reorder-buffer.ts). Packets of one time
 * were sent in the order of their PSNs, but for one that was sent again.
 */
function isLost(context: Context, qp: QueuePair, psn: u32): bool {
  const time = load<u32>(timeAt(qp, psn));
  const micros = time & ~REPEATED;
  if (<i32>(qp.arrivedMicros - micros) < <i32>(time & REPEATED)) return false;
  return <u32>context.now - micros >= waitMicros(context, qp);
}

/** Time after which a packet is lost that others have overtaken. */
function waitMicros(context: Context, qp: QueuePair): u32 {
  // A link that paces itself loses next to nothing, and may carry packets on several ways.
  return qp.arrivedRoundTrip + (context.paced ? 2 * qp.roundTripMicros : lateness(qp));
}

/** Microseconds until the oldest packet, which others have overtaken, is lost; 0: no packet did. */
export function untilLost(context: Context, qp: QueuePair): u32 {
  if (qp.arrivedCount == 0) return 0;
  const time = load<u32>(timeAt(qp, qp.psnArrived));
  if (time & REPEATED || isBitSet(qp.lostMap, qp.flightMax, qp.psnArrived)) return 0;
  // A READ or an atomic: the request has arrived, its response has not.
  if (isBitSet(qp.arrivedMap, qp.flightMax, qp.psnArrived)) return 0;
  if (<i32>(qp.arrivedMicros - time) < 0) return 0;
  const passed = <u32>context.now - time;
  const wait = waitMicros(context, qp);
  return passed < wait ? wait - passed : 1;
}

/** The oldest packet that is lost and was not sent again, as PSN + 1; 0: none. */
export function oldestLost(qp: QueuePair): u32 {
  if (qp.lostCount == 0) return 0;
  const span = min<u32>(psnDistance(qp.psnArrived, qp.psnNext), qp.flightMax);
  for (let from: u32 = 0; from < span; from += 64) {
    const first = psnAdd(qp.psnArrived, from);
    const lost = bitsFrom(qp.lostMap, qp.flightMax, first);
    if (lost == 0) continue;
    // Behind the next PSN there are bits of packets that were withdrawn.
    const away = from + <u32>ctz<u64>(lost);
    return away < span ? psnAdd(qp.psnArrived, away) + 1 : 0;
  }
  return 0;
}
