/**
 * When a request packet has the AckReq bit: when a completion depends on the acknowledgement, and
 * often enough that the window and the send queue do not fill up.
 */
import { Context } from '../shared/context';
import { fitsBuffer, windowPackets } from '../shared/path-control';
import { QueuePair } from '../shared/queue-pair';
import { QpState, SendFlag } from '../shared/status';
import { SendRequest } from '../shared/work-request';
import { windowOpen } from './congestion-window';

/**
 * Shall this packet have the AckReq bit? Yes if sending `paused` and a completion depends on it,
 * and often enough that the window never closes for lack of an acknowledgement.
 */
export function wantsAck(context: Context, qp: QueuePair, paused: bool): bool {
  qp.packetsSinceAckRequest++;
  const packets = qp.packetsSinceAckRequest;
  if (
    !(paused && isAwaited(qp)) &&
    windowOpen(context, qp) &&
    packets * 4 < windowPackets(context, qp) &&
    fitsBuffer(qp, 4 * packets * qp.chargeFull)
  ) {
    return false;
  }
  askedForAck(qp);
  return true;
}

/** The AckReq bit was sent. */
export function askedForAck(qp: QueuePair): void {
  qp.packetsSinceAckRequest = 0;
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
