/**
 * The responder of unreliable connections (IBA 9.8.2). It never answers. A gap or an error drops
 * the message in progress; the next message starts afresh.
 */
import { AccessFlag } from '../../region/access-flag';
import { bthOpcode, bthPsn } from '../../wire/headers';
import { PacketFlag, flagsOf } from '../../wire/opcode';
import { payloadLength } from '../../wire/packet';
import { psnAdd } from '../../wire/psn';
import { completeReceive, enterError } from '../queue/completion';
import { takeReceive } from '../queue/receive-queue';
import { Context, EventKind, pushEvent } from '../shared/context';
import { MessageKind, QueuePair, checksOf } from '../shared/queue-pair';
import { AsyncEvent, WcOpcode, WcStatus } from '../shared/status';
import { inSequence, lengthFits, needsReceive, noteEstablished } from './responder';
import { completeMessage, placeSend, placeWrite } from './scatter';

/** WRITEs that no key allows, in one incarnation of a queue pair: the last one ends it. */
const WRONG_KEYS_MAX: u8 = 16;

/** A packet of a UC queue pair, checked by `receive.ts` up to its P_Key. */
export function receiveUnreliable(
  context: Context,
  qp: QueuePair,
  packet: usize,
  length: u32,
): void {
  const flags = flagsOf(context.opcodeTable, bthOpcode(packet));
  const psn = bthPsn(packet);
  noteEstablished(context, qp);
  if (psn != qp.psnExpected) {
    context.counters.outOfSeqRequest++;
    dropMessage(context, qp, WcStatus.SUCCESS);
  }
  // Whatever came before: this is where the count goes on.
  qp.psnExpected = psnAdd(psn, 1);
  if (flags & PacketFlag.START) {
    if (qp.message != <u32>MessageKind.NONE) dropMessage(context, qp, WcStatus.SUCCESS);
  } else if (!inSequence(qp, flags)) {
    // The message in progress lacks this packet's part: it must not be completed as if it were
    // whole.
    dropMessage(context, qp, WcStatus.SUCCESS);
    return;
  }
  const size = payloadLength(context.opcodeTable, packet, length);
  const status = accept(context, qp, packet, flags, size);
  if (status != <u32>WcStatus.SUCCESS) {
    dropMessage(context, qp, status);
    if (status == <u32>WcStatus.LOC_ACCESS_ERR) countWrongKey(context, qp);
    return;
  }
  if (!(flags & PacketFlag.END)) return;
  qp.message = MessageKind.NONE;
  context.counters.rdmaRecvs++;
  if (flags & PacketFlag.RECEIVE) completeMessage(context, qp, packet, flags, WcStatus.SUCCESS);
}

/**
 * No answer tells the peer of a wrong key (IBA 9.9.3, the responder of an unreliable service drops
 * the packet), so one that tries keys could go on for ever.
 */
function countWrongKey(context: Context, qp: QueuePair): void {
  const checks = checksOf(qp);
  if (++checks.wrongKeys < WRONG_KEYS_MAX) return;
  enterError(context, qp);
  pushEvent(context, EventKind.ASYNC, AsyncEvent.QP_ACCESS_ERR, changetype<usize>(qp));
}

/** A WcStatus; anything but SUCCESS ends the message. */
function accept(context: Context, qp: QueuePair, packet: usize, flags: u32, size: u32): u32 {
  if (flags & PacketFlag.WRITE && !(qp.access & AccessFlag.REMOTE_WRITE)) {
    return WcStatus.LOC_ACCESS_ERR;
  }
  if (needsReceive(flags) && !qp.receiveHeld && !takeReceive(context, qp)) {
    return WcStatus.LOC_QP_OP_ERR;
  }
  if (!lengthFits(context, qp, packet, flags, size)) return WcStatus.LOC_LEN_ERR;
  return flags & PacketFlag.SEND
    ? placeSend(context, qp, packet, flags, size)
    : placeWrite(context, qp, packet, flags, size);
}

/**
 * The message in progress will never be whole. Its receive request waits for the next message; one
 * that came from a shared queue cannot wait here, and completes in error (IBA class D1).
 */
function dropMessage(context: Context, qp: QueuePair, status: u32): void {
  qp.message = MessageKind.NONE;
  qp.messageOffset = 0;
  if (!qp.receiveHeld) return;
  if (qp.srq != null) {
    const reason: u32 = status == <u32>WcStatus.SUCCESS ? WcStatus.LOC_LEN_ERR : status;
    completeReceive(context, qp, reason, WcOpcode.RECV, 0, 0, 0, false);
    return;
  }
  qp.receiveSgeIndex = 0;
  qp.receiveSgeOffset = 0;
}
