/**
 * When a request packet has the AckReq bit: when a completion depends on the acknowledgement, and
 * often enough that the window and the send queue do not fill up.
 */
import { Context } from '../shared/context';
import { fitsBuffer, windowPackets } from '../shared/path-control';
import { QueuePair } from '../shared/queue-pair';
import { QpState, SendFlag } from '../shared/status';
import { SendRequest } from '../shared/work-request';
import { charge, opensBehind, windowOpen } from './congestion-window';

/** A short packet, for which a check of the window is a noticeable part of its cost. */
export const SHORT_BYTES: u32 = 1024;

/**
 * Shall this packet have the AckReq bit? Yes if sending `paused` and a completion depends on it,
 * and often enough that the window never closes for lack of an acknowledgement. `opens`: it does not before (`opensForAll`).
 */
export function wantsAck(context: Context, qp: QueuePair, paused: bool, opens: bool): bool {
  qp.packetsSinceAckRequest++;
  const packets = qp.packetsSinceAckRequest;
  if (
    !(paused && isAwaited(qp)) &&
    (opens ||
      (windowOpen(context, qp) && isSeldomEnough(context, qp, packets, chargeSinceAsked(qp))))
  ) {
    return false;
  }
  askedForAck(qp);
  return true;
}

/** May `packets` packets that together have this charge be without an AckReq bit? */
function isSeldomEnough(context: Context, qp: QueuePair, packets: u32, sum: u32): bool {
  return packets * 4 < windowPackets(context, qp) && fitsBuffer(qp, 4 * sum);
}

/**
 * Charge of what was sent since the last AckReq bit. Where packets get lost all count as full: the
 * acknowledgements tell which.
 */
function chargeSinceAsked(qp: QueuePair): u32 {
  return qp.lossy ? qp.packetsSinceAckRequest * qp.chargeFull : qp.chargeSent - qp.chargeAsked;
}

/**
 * Is the window open for each of the next `packets` packets of at most SHORT_BYTES, and for one
 * more behind them, and does it ask for no acknowledgement before? What closes it grows with each
 * packet, so the last one answers for all.
 */
export function opensForAll(context: Context, qp: QueuePair, packets: u32): bool {
  const all = packets * charge(SHORT_BYTES);
  return (
    !qp.lossy &&
    opensBehind(context, qp, packets, all) &&
    isSeldomEnough(context, qp, qp.packetsSinceAckRequest + packets, chargeSinceAsked(qp) + all)
  );
}

/** The AckReq bit was sent. */
export function askedForAck(qp: QueuePair): void {
  qp.packetsSinceAckRequest = 0;
  qp.chargeAsked = qp.chargeSent;
  qp.awaited = 0;
}

/** A request ends: does it get a completion? */
export function noteAwaited(qp: QueuePair, request: SendRequest): void {
  if (qp.signalAll || request.sendFlags & SendFlag.SIGNALED) qp.awaited = 1;
}

/**
 * Does anything depend on when the last packet is acknowledged? A completion does, and the work
 * behind it; so does room for further requests. Else a peer of our own kind answers when it likes
 * (delayed-ack.ts), on a way that is known and has lost nothing. The local path waits for it, too.
 */
function isAwaited(qp: QueuePair): bool {
  return (
    (qp.awaited | qp.lossy | qp.localPath) != 0 ||
    qp.reorderPeer == 0 ||
    qp.roundTripMicros == 0 ||
    qp.state != <u32>QpState.RTS ||
    qp.sendNext != qp.sendFetched ||
    qp.sendNext - qp.sendTail > qp.sendEntries / 2
  );
}
