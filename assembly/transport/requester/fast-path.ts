/**
 * The fast path of the requester: consecutive SENDs and WRITEs of one packet and one SGE on a
 * reliable queue pair. It produces what send-queue.ts, requester.ts and request-packet.ts produce,
 * without their checks for other cases. A request that is not of this kind stays unchanged for
 * them.
 */
import { copyBytes } from '../../memory/bytes';
import { ringCount } from '../../memory/ring';
import { translateLocal } from '../../region/access';
import { bthBits, storeBth, storeReth } from '../../wire/headers';
import { Opcode } from '../../wire/opcode';
import { ICRC_SIZE } from '../../wire/packet';
import { psnAdd } from '../../wire/psn';
import { Context, packetStart } from '../shared/context';
import { operationOf } from '../shared/operation';
import { markedPsn } from '../shared/packet-mark';
import { QueuePair, pathOf, sendRequestAt, timerOf, workRequestAt } from '../shared/queue-pair';
import { finishPacket } from '../shared/send-buffer';
import { QpState, QpType, SendFlag, WcStatus, WrOpcode } from '../shared/status';
import { SEND_REQUEST_SIZE, SendState, Sge, WORK_REQUEST_SIZE } from '../shared/work-request';
import { noteAwaited, wantsAck } from './ack-request';
import { charge, startProbe, mayTransmit } from './congestion-window';
import { armRetransmit } from './retransmit-timer';
import { pauses } from './request-packet';

const VECTOR: usize = 16;

/** Is there nothing to be seen to but what is posted next? */
export function sendsPlain(qp: QueuePair): bool {
  return (
    qp.type == <u32>QpType.RC &&
    qp.state == <u32>QpState.RTS &&
    (qp.rnrWaiting | qp.sendStopped) == 0 &&
    qp.chunkHead == qp.chunkTail &&
    qp.psnNext == qp.psnMax &&
    qp.sendSgeMax != 0
  );
}

/**
 * The next request, if it is such a message and may be sent. False: nothing has changed. `run`:
 * RunBits.
 */
export function sendPlain(context: Context, qp: QueuePair, run: u32): bool {
  const index = qp.sendNext;
  const posted = ringCount(qp.sendRing, index, qp.sendEntries);
  if (posted == 0 || !(run || mayTransmit(context, qp))) return false;
  const request = sendRequestAt(qp, index);
  const own = changetype<usize>(request);
  if (index == qp.sendFetched) {
    if (index - qp.sendTail >= qp.sendEntries) return false;
    // Copied before it is looked at: the ring's other side may change it.
    const source = changetype<usize>(workRequestAt(qp, index));
    for (let at: usize = 0; at < WORK_REQUEST_SIZE; at += VECTOR) {
      v128.store(own + at, v128.load(source + at));
    }
    v128.store(own + SEND_REQUEST_SIZE, v128.load(source + WORK_REQUEST_SIZE));
  } else if (index + 1 != qp.sendFetched || request.state != <u32>SendState.FETCHED) return false;
  if (request.sgeCount != 1) return false;
  if (request.sendFlags & ~(<u32>SendFlag.SIGNALED)) return false;
  const write = request.opcode == <u32>WrOpcode.RDMA_WRITE;
  if (!write && request.opcode != <u32>WrOpcode.SEND) return false;
  const sge = changetype<Sge>(own + SEND_REQUEST_SIZE);
  const length = sge.length;
  if (length == 0 || length > qp.mtu) return false;
  const from = translateLocal(context.arena, sge.lkey, qp.pd, sge.address, length, 0);
  if (from == 0) return false;

  const psn = qp.psnNext;
  const next = psnAdd(psn, 1);
  request.operation = operationOf(write ? WrOpcode.RDMA_WRITE : WrOpcode.SEND);
  request.length = length;
  request.state = SendState.STARTED;
  request.status = WcStatus.SUCCESS;
  request.psnFirst = psn;
  request.psnLast = psn;
  request.chargeFirst = qp.chargeSent;
  qp.chargeSent += charge(length);
  qp.psnNext = next;
  qp.psnMax = next;
  qp.sendFetched = index + 1;
  qp.sendNext = index + 1;

  const packet = packetStart(context);
  let opcode: u32 = Opcode.RC_SEND_ONLY;
  let header: u32 = 12;
  if (write) {
    opcode = Opcode.RC_RDMA_WRITE_ONLY;
    header = 28;
    storeReth(packet + 12, request.remoteAddress, request.key, length);
  }
  copyBytes(packet + header, from, length);
  const pad: u32 = (0 - length) & 3;
  if (pad) store<u32>(packet + header + length, 0);
  // Only a hint: if the next entry changes or fails, a later packet has the AckReq bit.
  const follows = posted > 1 && workRequestAt(qp, index + 1).opcode <= <u32>WrOpcode.SEND_WITH_IMM;
  noteAwaited(qp, request);
  const ask = wantsAck(context, qp, !follows && pauses(qp), run);
  if (ask) startProbe(context, qp, psn);
  const marked = markedPsn(qp, psn);
  storeBth(packet, opcode, bthBits(0, pad), context.pkey, qp.targetQp, ask ? 1 : 0, marked);
  finishPacket(context, pathOf(qp), qp.qpn, header + length + pad + ICRC_SIZE);
  if (timerOf(qp).deadline == 0) armRetransmit(context, qp);
  return true;
}
