/**
 * How many READ responses leave while the peer is silent. READ responses are not acknowledged: a
 * request of 60 bytes may ask for 2 GiB, and without a bound they would all be sent to an address
 * whose process has ended. After half a window the responder sends the probe of keep-alive.ts; at
 * its end it waits for any packet of the peer: the ACK of the probe, a request, an acknowledgement.
 * A peer that retransmits its READ because the probe was lost sends such a packet as well.
 */
import { checksOf } from './answer-checks';
import { Context, schedule } from './context';
import { Aside, canProbe } from './keep-alive';
import { QueuePair } from './queue-pair';

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
