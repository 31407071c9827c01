/**
 * Keep-alive probes. A probe is a WRITE of 0 bytes with the last acknowledged PSN. It uses no PSN,
 * no work request and no completion. The responder treats it as a duplicate: it acknowledges it
 * again and never executes it (IBA 9.7.5.1.4), whatever its key. The requester treats that ACK as a
 * duplicate (IBA 9.7.5.1.2); it proves that the peer is alive.
 *
 * Two users: the host checks idle connections (`probePeer` compares counters with those of the
 * last check, so the data path does no work for it); and the responder limits READ responses to a
 * silent peer. READ responses are not acknowledged: a request of 60 bytes may ask for 2 GiB, and
 * without a limit all of them would go to an address whose process has ended. After half of
 * RESPONSES_MAX the responder sends a probe; at RESPONSES_MAX it waits for any packet of the peer.
 */
import { storeBth, storeReth } from '../../wire/headers';
import { Opcode } from '../../wire/opcode';
import { ICRC_SIZE } from '../../wire/packet';
import { psnAdd, psnDistance } from '../../wire/psn';
import { Context, packetStart, schedule } from './context';
import { PATH_SIZE } from './path';
import { LastLook, QUEUE_PAIR_PATH, QueuePair, checksOf, outstanding, pathOf } from './queue-pair';
import { finishPacket } from './send-buffer';
import { requests } from './state-machine';
import { QpState, QpType } from './status';

/** Result of a keep-alive check. */
export enum PeerState {
  /** The peer sent a packet since the last check, or requests are outstanding: retries decide. */
  HEARD = 0,
  /** No packet since the last check: a probe was sent, unless the queue pair is in ERR. */
  SILENT = 1,
  /** The oldest request was answered with RNR NAKs only since the last check. */
  NOT_READY = 2,
}

/** Bits of `QueuePair.asidePending`: packets to send that are neither requests nor responses. */
export enum Aside {
  CONGESTION = 1,
  PROBE = 2,
  /** A probe with payload: a trial of the path (requester/path-mtu.ts). */
  TRIAL = 4,
}

/** A path MTU that nearly every path takes. The host falls back to it (host/cm/path-mtus.ts). */
const FALLBACK_MTU: u32 = 1024;

/** Payload of a trial: fits the path MTU that the next connection would have. */
export function trialBytes(qp: QueuePair): u32 {
  return qp.mtu > FALLBACK_MTU ? FALLBACK_MTU : qp.mtu >> 1;
}

/** The highest PSN: the one in Linux rxe's ACK of a duplicate before it has executed anything. */
export const NOTHING_EXECUTED: u32 = 0xffffff;

/** Did the peer send a packet since the last check? */
export function probePeer(context: Context, qp: QueuePair): u32 {
  if (qp.state == <u32>QpState.ERR) return PeerState.SILENT;
  if (qp.type != <u32>QpType.RC || !requests(qp.state)) return PeerState.HEARD;
  const behind = changetype<usize>(qp) + <usize>(QUEUE_PAIR_PATH + PATH_SIZE);
  const last = changetype<LastLook>(behind);
  const moved = last.psnExpected != qp.psnExpected || last.psnUnacked != qp.psnUnacked;
  const heard = qp.heardOldNews != 0;
  const isStuck = last.psnUnacked == qp.psnUnacked && qp.psnUnacked != qp.psnMax;
  last.psnExpected = qp.psnExpected;
  last.psnUnacked = qp.psnUnacked;
  qp.heardOldNews = 0;
  if (isStuck && checksOf(qp).notReady) return PeerState.NOT_READY;
  if (moved || heard || outstanding(qp) || isAmbiguous(context, qp)) return PeerState.HEARD;
  qp.asidePending |= <u8>Aside.PROBE;
  schedule(context, qp);
  return PeerState.SILENT;
}

/**
 * Could an ACK with that PSN acknowledge packets that are sent next? A queue pair that idles so
 * close to that PSN is not probed: one in many thousands.
 */
export function isAmbiguous(context: Context, qp: QueuePair): bool {
  const left = psnDistance(qp.psnUnacked, NOTHING_EXECUTED);
  return pathOf(qp).ownKind == 0 && left < context.windowPackets;
}

/** May a probe be sent? */
export function canProbe(context: Context, qp: QueuePair): bool {
  return requests(qp.state) && !isAmbiguous(context, qp);
}

/** Sends the probe, with the payload of a trial or none. */
export function sendProbe(context: Context, qp: QueuePair): void {
  const isTrial = (qp.asidePending & (<u8>Aside.TRIAL)) != 0;
  qp.asidePending &= ~(<u8>(Aside.PROBE | Aside.TRIAL));
  if (!requests(qp.state)) return;
  // The ACK of a probe must not count as a second ACK of a retransmission (`noteSecondAnswer`).
  if (!outstanding(qp)) qp.repeatedEarly = 0;
  const packet = packetStart(context);
  const psn = psnAdd(qp.psnUnacked, <u32>-1);
  storeBth(packet, Opcode.RC_RDMA_WRITE_ONLY, 0, context.pkey, qp.targetQp, 1, psn);
  const size = isTrial ? trialBytes(qp) : 0;
  storeReth(packet + 12, 0, 0, size);
  memory.fill(packet + 28, 0, size);
  finishPacket(context, pathOf(qp), qp.qpn, 28 + size + ICRC_SIZE);
}

/** Packets. */
const RESPONSE_WINDOW: u16 = 1024;

/** Is the window closed? Not where the queue pair cannot probe. */
export function awaitsSign(context: Context, qp: QueuePair): bool {
  return checksOf(qp).responses >= RESPONSE_WINDOW && canProbe(context, qp);
}

/** A READ response leaves. */
export function countResponse(context: Context, qp: QueuePair): void {
  const checks = checksOf(qp);
  if (checks.responses >= RESPONSE_WINDOW) return;
  if (++checks.responses != RESPONSE_WINDOW / 2 || !canProbe(context, qp)) return;
  qp.asidePending |= <u8>Aside.PROBE;
  schedule(context, qp);
}

/** The peer sent a packet: the window opens. */
export function openResponses(context: Context, qp: QueuePair): void {
  const checks = checksOf(qp);
  if (checks.responses >= RESPONSE_WINDOW) schedule(context, qp);
  checks.responses = 0;
}
