/**
 * Keep-alive probes of idle connections. A probe is a WRITE of 0 bytes with the last acknowledged
 * PSN; it costs no PSN, no work request and no completion. To the responder it is a duplicate,
 * which it acknowledges again and never executes (IBA 9.7.5.1.4), whatever its key. To the
 * requester that ACK is a duplicate (IBA 9.7.5.1.2), and a sign of life.
 *
 * The data path does no work for the keep-alive: at each check of the host, the queue pair's
 * counters are compared with those of the check before.
 */
import { storeBth, storeReth } from '../wire/headers';
import { Opcode } from '../wire/opcode';
import { ICRC_SIZE } from '../wire/packet';
import { psnAdd, psnDistance } from '../wire/psn';
import { checksOf } from './answer-checks';
import { Context, packetStart, schedule } from './context';
import { PATH_SIZE } from './path';
import { QUEUE_PAIR_PATH, QueuePair, pathOf } from './queue-pair';
import { outstanding } from './requester';
import { requests } from './state-machine';
import { QpState, QpType } from './status';
import { finishPacket } from './transmit';

/** Result of a keep-alive check. */
export enum Life {
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
}

/** Counters of both directions at the last check. Stored behind a queue pair's path. */
@unmanaged
export class LastLook {
  psnExpected: u32;
  psnUnacked: u32;
}

/** The highest PSN: the one in Linux rxe's ACK of a duplicate before it has executed anything. */
const NOTHING_EXECUTED: u32 = 0xffffff;

/** Checks whether the peer of a queue pair sent a packet; if not, sends a probe. Returns a Life. */
export function postProbe(context: usize, qp: usize, now: f64): u32 {
  const c = changetype<Context>(context);
  c.now = max<u64>(c.now, <u64>now);
  return lookForLife(c, changetype<QueuePair>(qp));
}

/** Did the peer send a packet since the last check? */
function lookForLife(context: Context, qp: QueuePair): u32 {
  if (qp.state == <u32>QpState.ERR) return Life.SILENT;
  if (qp.type != <u32>QpType.RC || !requests(qp.state)) return Life.HEARD;
  const behind = changetype<usize>(qp) + <usize>(QUEUE_PAIR_PATH + PATH_SIZE);
  const last = changetype<LastLook>(behind);
  const moved = last.psnExpected != qp.psnExpected || last.psnUnacked != qp.psnUnacked;
  const heard = qp.heardOldNews != 0;
  const isStuck = last.psnUnacked == qp.psnUnacked && qp.psnUnacked != qp.psnMax;
  last.psnExpected = qp.psnExpected;
  last.psnUnacked = qp.psnUnacked;
  qp.heardOldNews = 0;
  if (isStuck && checksOf(qp).notReady) return Life.NOT_READY;
  if (moved || heard || outstanding(qp) || isAmbiguous(context, qp)) return Life.HEARD;
  qp.asidePending |= <u8>Aside.PROBE;
  schedule(context, qp);
  return Life.SILENT;
}

/**
 * Could an ACK with that PSN acknowledge packets that are sent next? A queue pair that idles so
 * close to that PSN is not probed: one in many thousands.
 */
function isAmbiguous(context: Context, qp: QueuePair): bool {
  const left = psnDistance(qp.psnUnacked, NOTHING_EXECUTED);
  return pathOf(qp).ownKind == 0 && left < context.windowPackets;
}

/** May a probe be sent? */
export function canProbe(context: Context, qp: QueuePair): bool {
  return requests(qp.state) && !isAmbiguous(context, qp);
}

/** Sends the probe. */
export function sendProbe(context: Context, qp: QueuePair): void {
  qp.asidePending &= ~(<u8>Aside.PROBE);
  if (!requests(qp.state)) return;
  // The ACK of a probe must not count as a second ACK of a retransmission (`noteSecondAnswer`).
  if (!outstanding(qp)) qp.repeatedEarly = 0;
  const packet = packetStart(context);
  const psn = psnAdd(qp.psnUnacked, <u32>-1);
  storeBth(packet, Opcode.RC_RDMA_WRITE_ONLY, 0, context.pkey, qp.targetQp, 1, psn);
  storeReth(packet + 12, 0, 0, 0);
  finishPacket(context, pathOf(qp), qp.qpn, 28 + ICRC_SIZE);
}
