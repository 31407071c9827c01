/**
 * The queue pairs of a device with packets in flight to one peer share half of its receive buffer
 * in equal parts: 64 queue pairs that each filled it would overrun the buffer. Several devices that
 * send to one peer do not know of each other: a loss while round trips are long halves the limit of
 * the share, arrivals raise it by one packet for each window.
 */
import { Context, PEER_SHARES, PEER_SHARE_SIZE, PeerShare } from './context';
import { Path } from './path';
import { QueuePair, pathOf } from './queue-pair';

/** The entry of the peer with this GID. */
export function peerShare(context: Context, gid0: u64, gid1: u64): PeerShare {
  const mixed = (gid0 ^ gid1) * 0x9e3779b97f4a7c15;
  const index = (<u32>(mixed >> 32)) & (PEER_SHARES - 1);
  return changetype<PeerShare>(context.peerShares + <usize>(index * PEER_SHARE_SIZE));
}

/** The path is set: `charge` is half of the peer's receive buffer. */
export function joinPeer(context: Context, qp: QueuePair, path: Path, charge: u32): void {
  leavePeer(qp, path);
  const share = peerShare(context, path.remoteGid0, path.remoteGid1);
  if (share.busy == 0 || charge < share.charge) {
    share.charge = charge;
    share.limit = charge;
  }
  path.share = changetype<usize>(share);
}

/** Packets that the limit always allows: a loss is noticed by those behind it. */
const LEAST_PACKETS: u32 = 64;
/** Between two cuts: a round trip, and at least this long, as a queue needs time to drain. */
const CUT_MICROS: u32 = 1000;

/** Packets were lost in a full queue: halves the limit, at most once for each round trip. */
export function cutShare(context: Context, qp: QueuePair): void {
  const at = pathOf(qp).share;
  if (at == 0) return;
  const share = changetype<PeerShare>(at);
  const now = <u32>context.now;
  if (now - share.cutMicros < max<u32>(qp.roundTripMicros, CUT_MICROS)) return;
  share.cutMicros = now;
  const least = min<u32>(share.charge, LEAST_PACKETS * qp.chargeFull);
  share.limit = max<u32>(share.limit - (share.limit >> 2), least);
}

/** `packets` packets of this queue pair have arrived. */
export function growShare(qp: QueuePair, packets: u32): void {
  const at = pathOf(qp).share;
  if (at == 0) return;
  const share = changetype<PeerShare>(at);
  if (share.limit >= share.charge) return;
  const full: u64 = qp.chargeFull;
  const more = <u32>((packets * full * full) / share.limit) + 1;
  share.limit = min<u32>(share.limit + more, share.charge);
}

/** A round trip of this queue pair was measured. */
export function noteRoundTrip(qp: QueuePair, micros: u32): void {
  const at = pathOf(qp).share;
  if (at == 0) return;
  const share = changetype<PeerShare>(at);
  if (share.roundTripLeast == 0 || micros < share.roundTripLeast) share.roundTripLeast = micros;
}

/** The shortest round trip to this peer in microseconds; 0: none is known. */
export function leastRoundTrip(qp: QueuePair): u32 {
  const at = pathOf(qp).share;
  return at == 0 ? qp.roundTripLeast : changetype<PeerShare>(at).roundTripLeast;
}

/** Counts the queue pair as busy while it has packets in flight. */
export function noteBusy(qp: QueuePair): void {
  const busy: u8 = qp.psnUnacked != qp.psnNext ? 1 : 0;
  const at = pathOf(qp).share;
  if (busy == qp.isBusy || at == 0) return;
  qp.isBusy = busy;
  const share = changetype<PeerShare>(at);
  share.busy += busy ? 1 : -1;
}

/** Removes the queue pair from the count of its peer: RESET, ERR, a new path, destroyed. */
export function leavePeer(qp: QueuePair, path: Path): void {
  if (qp.isBusy) changetype<PeerShare>(path.share).busy--;
  qp.isBusy = 0;
  path.share = 0;
}

/** Is `charge` below the limit of this queue pair for packets in flight? */
export function fitsShare(qp: QueuePair, charge: u32): bool {
  if (charge >= qp.windowCharge) return false;
  const at = pathOf(qp).share;
  if (at == 0) return true;
  const share = changetype<PeerShare>(at);
  const busy = share.busy + 1 - qp.isBusy;
  return <u64>charge * busy < <u64>share.limit;
}
