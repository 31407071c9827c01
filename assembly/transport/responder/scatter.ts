/**
 * Writes payload to memory: SENDs to the current receive request, WRITEs to the address in their
 * RETH. Returns a status; the responder of the service turns it into an answer.
 */
import { copyBytes } from '../../memory/bytes';
import {
  allowsRemote,
  hullBytes,
  hullStart,
  moveRemote,
  translateLocal,
  translateRemote,
} from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import { countWrite } from '../../region/key-table';
import {
  bthOpcode,
  bthSolicited,
  loadU32,
  rethAddress,
  rethKey,
  rethLength,
} from '../../wire/headers';
import { Header, PacketFlag, headerOffset, headersLength, headersOf } from '../../wire/opcode';
import { headerIn } from '../../wire/packet';
import { completeReceive } from '../queue/completion';
import { CountedOperation, countCompletion } from '../queue/completion-counter';
import { receivePd } from '../queue/receive-queue';
import { receiveCapacity, scatterReceive } from '../queue/scatter-gather';
import { Context } from '../shared/context';
import { JobState, MessageKind, QueuePair, jobAt } from '../shared/queue-pair';
import { WcFlag, WcOpcode, WcStatus } from '../shared/status';
import { RECEIVE_REQUEST_SIZE, ReceiveRequest, SGE_SIZE, Sge } from '../shared/work-request';

/** A SEND packet's payload. A WcStatus: LOC_LEN_ERR, LOC_PROT_ERR. */
export function placeSend(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  size: u32,
): u32 {
  const offset = flags & PacketFlag.START ? 0 : qp.messageOffset;
  if (<u64>offset + size > receiveCapacity(qp)) return WcStatus.LOC_LEN_ERR;
  const payload = packet + headersLength(context.opcodeTable, bthOpcode(packet));
  const status = scatterReceive(context, qp, payload, size);
  if (status != WcStatus.SUCCESS) return status;
  qp.messageOffset = offset + size;
  qp.message = MessageKind.SEND;
  return WcStatus.SUCCESS;
}

/**
 * A WRITE packet's payload. The key is looked up for the whole message when it begins, and again
 * for every packet: it may be gone in between. A WcStatus: LOC_ACCESS_ERR.
 */
export function placeWrite(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  size: u32,
): u32 {
  const need: u32 = AccessFlag.REMOTE_WRITE;
  let checked = size;
  if (flags & PacketFlag.START) {
    const reth = headerIn(context.opcodeTable, packet, Header.RETH);
    qp.messageAddress = rethAddress(reth);
    qp.messageKey = rethKey(reth);
    qp.messageLeft = rethLength(reth);
    qp.messageOffset = 0;
    checked = qp.messageLeft;
  }
  // A zero-length WRITE names no byte: neither key nor address is looked at (IBA C9-88).
  if (checked > 0) {
    const to = translateRemote(
      context.arena,
      qp.messageKey,
      qp.pd,
      qp.binding,
      qp.messageAddress,
      checked,
      need,
    );
    const payload = packet + headersLength(context.opcodeTable, bthOpcode(packet));
    if (to != 0) copyBytes(to, payload, size);
    else if (!writeLayout(context, qp, checked, payload, size)) {
      qp.message = MessageKind.NONE;
      return WcStatus.LOC_ACCESS_ERR;
    }
    if (flags & PacketFlag.START) countWrite(context.arena, qp.messageKey, checked);
  }
  qp.messageAddress += size;
  qp.messageLeft -= size;
  qp.messageOffset += size;
  qp.message = MessageKind.WRITE;
  if (qp.messageLeft == 0) {
    const operation = CountedOperation.REMOTE_RDMA_WRITE;
    countCompletion(qp.counterTable, operation, WcStatus.SUCCESS, qp.messageOffset);
  }
  return WcStatus.SUCCESS;
}

/** `size` bytes to the layout that the message names, which must have `checked` bytes there. */
function writeLayout(
  context: Context,
  qp: QueuePair,
  checked: u32,
  payload: usize,
  size: u32,
): bool {
  const arena = context.arena;
  const key = qp.messageKey;
  const address = qp.messageAddress;
  const need: u32 = AccessFlag.REMOTE_WRITE;
  if (!allowsRemote(arena, key, qp.pd, address, checked, need)) return false;
  return moveRemote(arena, key, qp.pd, address, payload, size, need, true);
}

/**
 * Would writing these bytes change what a READ that is still being answered has to return? Then
 * the request must wait, or requests would not be executed in order.
 */
export function disturbsRead(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  size: u32,
): bool {
  if (qp.jobHead == qp.jobTail || size == 0) return false;
  return changesAnswer(context, qp, packet, flags, size);
}

/** The same, where there are READs to be answered. */
function changesAnswer(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  size: u32,
): bool {
  if (flags & PacketFlag.SEND) return receiveDisturbs(context, qp);
  let address = qp.messageAddress;
  let key = qp.messageKey;
  if (flags & PacketFlag.START) {
    const reth = headerIn(context.opcodeTable, packet, Header.RETH);
    address = rethAddress(reth);
    key = rethKey(reth);
  }
  const linear = translateRemote(context.arena, key, qp.pd, qp.binding, address, size, 0);
  if (linear != 0) return overlapsJob(context, qp, linear, size);
  return overlapsJob(
    context,
    qp,
    hullStart(context.arena, key, qp.pd),
    hullBytes(context.arena, key, qp.pd),
  );
}

/** The same for the whole receive request in hand: its pieces are where a SEND may go. */
function receiveDisturbs(context: Context, qp: QueuePair): bool {
  const request = changetype<ReceiveRequest>(qp.receiveRequest);
  for (let index: u32 = 0; index < request.sgeCount; index++) {
    const at = qp.receiveRequest + RECEIVE_REQUEST_SIZE + <usize>(index * SGE_SIZE);
    const sge = changetype<Sge>(at);
    const linear = translateLocal(
      context.arena,
      sge.lkey,
      receivePd(qp),
      sge.address,
      sge.length,
      0,
    );
    if (sge.length == 0) continue;
    if (linear != 0) {
      if (overlapsJob(context, qp, linear, sge.length)) return true;
      continue;
    }
    const start = hullStart(context.arena, sge.lkey, receivePd(qp));
    const bytes = hullBytes(context.arena, sge.lkey, receivePd(qp));
    if (overlapsJob(context, qp, start, bytes)) return true;
  }
  return false;
}

/**
 * Does a READ that is being answered still need a byte of this linear range? Of a layout all that
 * lies between its first and its last byte counts.
 */
export function overlapsJob(context: Context, qp: QueuePair, linear: usize, size: u32): bool {
  if (linear == 0) return false;
  for (let index = qp.jobTail; index != qp.jobHead; index++) {
    const job = jobAt(qp, index);
    // An atomic that waits is still to change, or to read, its word.
    const waits = job.state == <u32>JobState.WAITING;
    if (!waits && (job.kind != <u32>PacketFlag.READ || job.left == 0)) continue;
    let bytes: u32 = waits ? 8 : job.left;
    let start = translateRemote(context.arena, job.key, qp.pd, qp.binding, job.address, bytes, 0);
    if (start == 0) {
      start = hullStart(context.arena, job.key, qp.pd);
      bytes = hullBytes(context.arena, job.key, qp.pd);
    }
    if (start != 0 && linear < start + bytes && start < linear + size) return true;
  }
  return false;
}

/** The message is whole: completes the receive request that it took, if any. */
export function completeMessage(
  context: Context,
  qp: QueuePair,
  packet: usize,
  flags: u32,
  status: u32,
): void {
  const opcode = bthOpcode(packet);
  const headers = headersOf(context.opcodeTable, opcode);
  let immediate: u32 = 0;
  let wcFlags: u32 = 0;
  if (headers & Header.IMM_DT) {
    immediate = loadU32(packet + headerOffset(context.opcodeTable, opcode, Header.IMM_DT));
    wcFlags = WcFlag.WITH_IMM;
  } else if (headers & Header.IETH) {
    immediate = loadU32(packet + headerOffset(context.opcodeTable, opcode, Header.IETH));
    wcFlags = WcFlag.WITH_INV;
  }
  const write = (flags & PacketFlag.WRITE) != 0;
  completeReceive(
    context,
    qp,
    status,
    write ? WcOpcode.RECV_RDMA_WITH_IMM : WcOpcode.RECV,
    qp.messageOffset,
    immediate,
    wcFlags,
    bthSolicited(packet) != 0,
  );
}
