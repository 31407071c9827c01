/**
 * What has arrived behind a FLUSH, told between peers of our own kind.
 *
 * A FLUSH that the host is at work on holds back all acknowledgements from its PSN on. But the
 * window is there for what is on its way: the peer's receive buffer has room again, and a disk that
 * takes its time should find much to do when it comes back. So the responder says what has arrived
 * and acknowledges nothing by it: a selective acknowledgement with the syndrome of an ACK. All
 * before its PSN is there, and what the map names behind it.
 */
import { psnDistance } from '../wire/psn';
import { ACK_WITHOUT_CREDITS } from '../wire/syndrome';
import { Context, hasRoom, schedule } from './context';
import { QueuePair, pathOf, sendRequestAt } from './queue-pair';
import { takeMissing } from './repair';
import { sendSelectiveAck } from './reorder';
import { chargeBefore } from './requester';
import { charge, growWindow } from './window';
import { SendState } from './work-queue';

/** The peer is told so many times while its window's worth arrives, or what it may send ahead. */
const TELLINGS: u32 = 4;
/** So many packets may wait for an acknowledgement, and a window: PSNs are compared by 23 bits. */
const WAITING_MAX: u32 = 1 << 20;

/** Does the peer understand it? */
function tells(qp: QueuePair): bool {
  return pathOf(qp).ownKind != 0;
}

/** Responder: `size` bytes of payload came behind a job that is held. */
export function noteHeld(context: Context, qp: QueuePair, size: u32): void {
  // Of small packets it is their number that counts (window.ts `beyondKept`).
  qp.chargeHeld += max<u32>(charge(size), qp.chargeFull / TELLINGS);
  if (tells(qp) && isDue(context, qp)) schedule(context, qp);
}

function isDue(context: Context, qp: QueuePair): bool {
  return qp.chargeHeld >= min<u32>(context.receiveCharge, context.windowChargeMax) / TELLINGS;
}

/** Responder, where the oldest answer is held. True when there was no room. */
export function tellArrival(context: Context, qp: QueuePair): bool {
  if (!tells(qp) || (!qp.sackPending && !isDue(context, qp))) return false;
  if (!hasRoom(context)) return true;
  qp.chargeHeld = 0;
  sendSelectiveAck(context, qp, ACK_WITHOUT_CREDITS);
  return false;
}

/** Requester: everything before `psn` has arrived, and what the map names behind it. */
export function receiveArrival(
  context: Context,
  qp: QueuePair,
  psn: u32,
  low: u64,
  high: u64,
): void {
  const arrived = psnDistance(qp.psnUnacked, psn);
  if (arrived > psnDistance(qp.psnUnacked, qp.psnMax)) {
    context.counters.dropGhost++;
    return;
  }
  // It was overtaken by one that says more.
  if (arrived < psnDistance(qp.psnUnacked, qp.psnArrived)) return;
  // Of what is about to be sent once more the books begin anew.
  const sent = psnDistance(qp.psnUnacked, qp.psnNext);
  moveArrived(context, qp, min<u32>(min<u32>(arrived, sent), WAITING_MAX));
  if (qp.reorderPeer != 0 && (low | high) != 0) takeMissing(context, qp, psn, low, high);
  schedule(context, qp);
}

/** So many packets from the oldest that is not acknowledged have arrived. */
function moveArrived(context: Context, qp: QueuePair, packets: u32): void {
  const before = psnDistance(qp.psnUnacked, qp.psnArrived);
  if (packets <= before) return;
  growWindow(context, qp, packets - before);
  qp.psnArrived = (qp.psnUnacked + packets) & 0xffffff;
  qp.chargeArrived = chargeOf(qp, qp.psnArrived);
}

/** Cumulative charge of everything before this PSN: not far from where the requester is. */
function chargeOf(qp: QueuePair, psn: u32): u32 {
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
