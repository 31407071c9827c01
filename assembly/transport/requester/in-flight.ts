/**
 * Which packets in flight have arrived although an older one has not, and which are lost. A packet
 * is lost when one that was sent later has arrived, and after the same round trip the time has
 * passed that packets may be late (RACK, RFC 8985). That time is how late packets were; it grows,
 * too, when a retransmission proves needless: its answer arrives before a round trip has passed.
 *
 * Rings of `flightMax` packets, by PSN: the time of the last transmission, whose lowest bit is 1
 * for a retransmission, and a bit for each that has arrived or is lost.
 */
import { bitsFrom, clearBit, isBitSet, setBit } from '../../memory/bit-ring';
import { psnAdd, psnCompare, psnDistance } from '../../wire/psn';
import { Context } from '../shared/context';
import {
  lateness,
  leastRoundTrip,
  noteLateness,
  noteRoundTrip,
  usualRoundTrip,
  usualRoundTripLeast,
} from '../shared/path-control';
import { QueuePair } from '../shared/queue-pair';

const REPEATED: u32 = 1;
/** Where nothing is known of a path a first round trip counts as this, in microseconds. */
const MICROS_LEAST: u32 = 1000;

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
  }
  for (let psn = first; psn != qp.psnNext; psn = psnAdd(psn, 1)) {
    const isAgain = psnCompare(psn, fresh) < 0;
    store<u32>(timeAt(qp, psn), isAgain ? micros | REPEATED : micros);
    clearBit(qp.arrivedMap, qp.flightMax, psn);
    clearBit(qp.lostMap, qp.flightMax, psn);
  }
}

/** The packet with this PSN is sent again. */
export function noteRepeated(context: Context, qp: QueuePair, psn: u32): void {
  if (qp.flightMax == 0) return;
  store<u32>(timeAt(qp, psn), (<u32>context.now) | REPEATED);
  clearLost(qp, psn);
}

function clearLost(qp: QueuePair, psn: u32): void {
  if (!isBitSet(qp.lostMap, qp.flightMax, psn)) return;
  clearBit(qp.lostMap, qp.flightMax, psn);
  qp.lostCount--;
}

/** Everything from `psnArrived` to before `psn` has arrived. Returns how many had not before. */
export function noteArrivedBefore(context: Context, qp: QueuePair, psn: u32): u32 {
  const count = psnDistance(qp.psnArrived, psn);
  if (count == 0 || qp.flightMax == 0) return count;
  const known = qp.arrivedCount;
  const last = psnAdd(psn, <u32>-1);
  if (!isBitSet(qp.arrivedMap, qp.flightMax, last) && count <= qp.flightMax) {
    // What waited for a retransmission has arrived before.
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
  if (<i32>late > <i32>lateness(qp)) noteLateness(qp, late + (late >> 2));
}

/**
 * The packet has just been acknowledged. Of one that was sent twice it is not known which has
 * arrived (Karn). If the timer has fired since, this may be the answer to what it sent: the packet
 * had arrived, and its answer was lost. Or the path has become longer: one such round trip counts
 * for each time, at most as twice the usual one.
 */
function sampleRoundTrip(context: Context, qp: QueuePair, psn: u32): void {
  const time = load<u32>(timeAt(qp, psn));
  if (time & REPEATED) return;
  const sample = max<u32>(<u32>context.now - time, 1);
  if (<u32>context.now - qp.silentMicros >= sample) noteRoundTrip(context, qp, sample);
  else if (!qp.silentMeasured) {
    qp.silentMeasured = 1;
    noteRoundTrip(context, qp, min<u32>(sample, max<u32>(2 * usualRoundTrip(qp), MICROS_LEAST)));
  }
}

/**
 * When the packet that has arrived was sent. A retransmission was answered by its first
 * transmission, if no round trip has passed since: it was needless, and its time says nothing.
 */
function noteTime(context: Context, qp: QueuePair, psn: u32): void {
  const time = load<u32>(timeAt(qp, psn));
  const micros = time & ~REPEATED;
  if (time & REPEATED) {
    const least = leastRoundTrip(qp);
    const passed = <u32>context.now - micros;
    if (passed < least - (least >> 3)) {
      noteLateness(qp, max<u32>(2 * lateness(qp), least >> 3));
      return;
    }
    // With a queue it may still be the first transmission.
    if (passed < usualRoundTripLeast(qp)) return;
  }
  if (<i32>(micros - qp.arrivedMicros) < 0) return;
  qp.arrivedMicros = micros;
  qp.arrivedRoundTrip = <u32>context.now - micros;
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
 * stands for PSN `psn` + 1 + i, and `psn` is `psnArrived`. Returns how many packets have arrived
 * that had not before.
 */
export function takeMap(context: Context, qp: QueuePair, psn: u32, map: usize, words: u32): u32 {
  const before = qp.arrivedCount;
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
      last = psnAdd(first, bit);
      markArrived(context, qp, last);
    }
  }
  if (qp.arrivedCount != before) sampleRoundTrip(context, qp, last);
  return qp.arrivedCount - before;
}

/** Distance of the last packet that a map names; 0: it names none. */
function lastOf(map: usize, words: u32): u32 {
  for (let word = words; word > 0; word--) {
    const bits = bswap<u64>(load<u64>(map + ((<usize>(word - 1)) << 3)));
    if (bits != 0) return (word << 6) - <u32>clz<u64>(bits);
  }
  return 0;
}

function markArrived(context: Context, qp: QueuePair, psn: u32): void {
  setBit(qp.arrivedMap, qp.flightMax, psn);
  qp.arrivedCount++;
  clearLost(qp, psn);
  const isFurther = psnDistance(qp.psnArrived, psn) > psnDistance(qp.psnArrived, qp.arrivedLast);
  if (isFurther || qp.arrivedCount == 1) qp.arrivedLast = psn;
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

/** Of `span` packets from the oldest on. */
function markLosses(context: Context, qp: QueuePair, span: u32): u32 {
  const before = qp.lostCount;
  if (span >= qp.flightMax) return 0;
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
      noteLostTime(qp, psn);
    }
  }
  return qp.lostCount - before;
}

/** The oldest packet is lost, as the peer has told. */
export function noteGap(context: Context, qp: QueuePair): void {
  if (qp.flightMax != 0) noteLostTime(qp, qp.psnUnacked);
  else qp.lostMicros = <u32>context.now - qp.roundTripMicros;
}

function noteLostTime(qp: QueuePair, psn: u32): void {
  const micros = load<u32>(timeAt(qp, psn)) & ~REPEATED;
  if (<i32>(micros - qp.lostMicros) > 0) qp.lostMicros = micros;
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
