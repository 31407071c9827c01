/**
 * The unreliable connection's responder (IBA 9.8.2): as the reliable one, but nothing is ever
 * answered. A gap or an error drops the message in progress; the next message begins afresh.
 */
import { AccessFlag } from '../region/access-flag';
import { bthOpcode, bthPsn } from '../wire/headers';
import { PacketFlag, flagsOf } from '../wire/opcode';
import { payloadLength } from '../wire/packet';
import { psnAdd } from '../wire/psn';
import { Context } from './context';
import { completeReceive } from './failure';
import { completeMessage, placeSend, placeWrite } from './place';
import { MessageKind, QueuePair } from './queue-pair';
import { takeReceive } from './receive-queue';
import { inSequence, lengthFits, needsReceive, noteEstablished } from './responder';
import { WcOpcode, WcStatus } from './status';

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
    // What is in progress lacks this packet's part: it must not be completed as if it were whole.
    dropMessage(context, qp, WcStatus.SUCCESS);
    return;
  }
  const size = payloadLength(context.opcodeTable, packet, length);
  const status = accept(context, qp, packet, flags, size);
  if (status != <u32>WcStatus.SUCCESS) {
    dropMessage(context, qp, status);
    return;
  }
  if (!(flags & PacketFlag.END)) return;
  qp.message = MessageKind.NONE;
  context.counters.rdmaRecvs++;
  if (flags & PacketFlag.RECEIVE) completeMessage(context, qp, packet, flags, WcStatus.SUCCESS);
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
