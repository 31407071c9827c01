/**
 * The requester's half of selective repeat: sends again what a selective acknowledgement says is
 * missing, and goes on with what is new.
 *
 * What was sent again is not sent a third time before a packet that left after it has arrived, or
 * the timer has fired: until then it is still under way.
 */
import { psnAdd, psnCompare, psnDistance } from '../wire/psn';
import { Context, hasRoom, schedule } from './context';
import { QueuePair } from './queue-pair';
import { resend, withdraw } from './requester';
import { highestAhead } from './reorder';
import { dropProbe, noteLoss } from './window';

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
 * Nobody has said anything for too long: the oldest packet asks again for all of them. `certain`:
 * the peer is not just slow, so that the next answer is that of the packet sent now.
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
 * to it alone? A peer that had kept any of what followed would have said so: all of it is lost.
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
