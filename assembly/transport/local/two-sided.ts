/**
 * Requests on the local path that take a receive request of the target: SEND, SEND and WRITE with
 * immediate data. Without a receive request, with one that is too small, and with a key that does
 * not allow it, a request goes by packets: RNR NAK and errors are the responder's.
 */
import { completeReceive } from '../queue/completion';
import { hasReceive, peekReceive, takePeeked } from '../queue/receive-queue';
import { gather, inOnePiece, receiveCapacity, scatterReceive } from '../queue/scatter-gather';
import { Context } from '../shared/context';
import { LOCAL_BOUNCE_SIZE, LocalTarget } from '../shared/local-target';
import { Operation, isOf } from '../shared/operation';
import { QueuePair, receiveCursor } from '../shared/queue-pair';
import { QpState, SendFlag, WcFlag, WcOpcode, WcStatus, WrOpcode } from '../shared/status';
import { SendRequest } from '../shared/work-request';
import { Outcome, write } from './one-sided';
import { LONG_BYTES } from './outbox';

/** A message up to this length is gathered before its receive request is written. */
const SHORT_BYTES: u32 = 256;

/** Executes a request that takes a receive request, or a part of a long WRITE. An Outcome. */
export function executeTwoSided(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  target: LocalTarget,
): u32 {
  // SEND_WITH_INV completes after a fence.
  if (request.opcode > <u32>WrOpcode.SEND_WITH_IMM) return Outcome.REFUSED;
  const peer = changetype<QueuePair>(target.queuePair);
  const writes = request.opcode == <u32>WrOpcode.RDMA_WRITE_WITH_IMM;
  if (writes) {
    if (!hasReceive(peer)) return Outcome.REFUSED;
    const outcome = write(context, qp, request, target);
    if (outcome != <u32>Outcome.DONE) return outcome;
  }
  // A request that is refused, perhaps for its own key, takes nothing from a shared receive queue.
  if (!peer.receiveHeld && !peekReceive(peer)) return Outcome.REFUSED;
  if (!writes && !send(context, qp, request, peer)) return Outcome.REFUSED;
  if (!peer.receiveHeld) takePeeked(context, peer);
  completeReceive(
    context,
    peer,
    WcStatus.SUCCESS,
    writes ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV,
    request.length,
    request.immediate,
    isOf(request, Operation.IMMEDIATE) ? WcFlag.WITH_IMM : 0,
    (request.sendFlags & SendFlag.SOLICITED) != 0,
  );
  // Without room for its completion the target is in ERR, and packets are not answered.
  return peer.state == <u32>QpState.ERR ? Outcome.REFUSED : Outcome.DONE;
}

/** False: not executed. The packets of the request find the receive request as it was. */
function send(context: Context, qp: QueuePair, request: SendRequest, peer: QueuePair): bool {
  const length = request.length;
  if (length > LONG_BYTES || <u64>length > receiveCapacity(peer)) return false;
  const cursor = receiveCursor(peer);
  cursor.index = 0;
  cursor.offset = 0;
  if (!deliver(context, qp, request, peer, length)) {
    cursor.index = 0;
    cursor.offset = 0;
    return false;
  }
  context.counters.rdmaRecvs++;
  return true;
}

/** One copy, if the message lies in one piece. False: a key does not allow it. */
function deliver(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  peer: QueuePair,
  length: u32,
): bool {
  if (length > SHORT_BYTES) {
    const from = inOnePiece(context, qp, request, length);
    if (from != 0) return scatterReceive(context, peer, from, length) == <u32>WcStatus.SUCCESS;
  }
  const buffer = context.localBounce;
  for (let done: u32 = 0; done < length; done += LOCAL_BOUNCE_SIZE) {
    const size = min<u32>(length - done, LOCAL_BOUNCE_SIZE);
    if (!gather(context, qp, request, buffer, size)) return false;
    if (scatterReceive(context, peer, buffer, size) != <u32>WcStatus.SUCCESS) return false;
  }
  return true;
}
