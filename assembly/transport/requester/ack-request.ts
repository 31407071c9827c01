/**
 * When a request packet has the AckReq bit: when a completion depends on the acknowledgement, and
 * often enough that the window and the send queue do not fill up.
 */
import { Context } from '../shared/context';
import { fitsBuffer, windowPackets } from '../shared/path-control';
import { QueuePair } from '../shared/queue-pair';
import { QpState, SendFlag } from '../shared/status';
import { SendRequest } from '../shared/work-request';
import { opensBehind, mayTransmit } from './congestion-window';

/** Facts that hold for each packet of a run. */
export enum RunBits {
  /** The window is open for it, and for one more behind it. */
  OPEN = 1,
  /** It needs no AckReq bit for the window. */
  QUIET = 2,
}

/**
 * Shall this packet have the AckReq bit? Yes if sending `paused` and a completion depends on it,
 * and often enough that the window never closes for lack of an acknowledgement. `run`: RunBits.
 */
export function wantsAck(context: Context, qp: QueuePair, paused: bool, run: u32): bool {
  qp.packetsSinceAckRequest++;
  const packets = qp.packetsSinceAckRequest;
  if (
    !(paused && isAwaited(qp)) &&
    (run & RunBits.QUIET ||
      ((run || mayTransmit(context, qp)) &&
        isSeldomEnough(context, qp, packets, chargeSinceAsked(qp))))
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
 * RunBits of the next `packets` packets of SENDs and WRITEs. What closes the window grows with each
 * packet, so the last one answers for all: a check for each is a noticeable part of its cost.
 */
export function runBits(context: Context, qp: QueuePair, packets: u32): u32 {
  const all = packets * qp.chargeFull;
  if (qp.lossy || !opensBehind(context, qp, packets, all)) return 0;
  const since = qp.packetsSinceAckRequest + packets;
  const isQuiet = isSeldomEnough(context, qp, since, chargeSinceAsked(qp) + all);
  return isQuiet ? RunBits.OPEN | RunBits.QUIET : RunBits.OPEN;
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
