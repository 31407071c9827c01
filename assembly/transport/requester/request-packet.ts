/** Writes the packets of a request, first transmission and retransmission alike. */
import { bthBits, storeBth } from '../../wire/headers';
import { copiesPayload } from '../../wire/icrc';
import { PacketFlag, flagsOf } from '../../wire/opcode';
import { ICRC_SIZE } from '../../wire/packet';
import { psnAdd, psnCompare } from '../../wire/psn';
import { completeSend, fail } from '../queue/completion';
import { gather, inOnePiece } from '../queue/scatter-gather';
import { fetch, waitsForAll } from '../queue/send-queue';
import { Context, packetStart } from '../shared/context';
import {
  Operation,
  awaitsData,
  isOf,
  messageOpcode,
  storeHeaders,
  wireOpcode,
} from '../shared/operation';
import { markedPsn } from '../shared/packet-mark';
import { windowPackets } from '../shared/path-control';
import { QueuePair, READ_CHUNK_PACKETS, pathOf, sendRequestAt } from '../shared/queue-pair';
import { finishCopying, finishPacket } from '../shared/send-buffer';
import { QpState, QpType, SendFlag, WcStatus } from '../shared/status';
import { SendRequest, SendState } from '../shared/work-request';
import { noteAwaited, wantsAck } from './ack-request';
import { charge, isAlone, startProbe } from './congestion-window';

/**
 * Writes a request of one packet with the next PSN: `length` bytes at `sendOffset`, for a READ.
 * False: the bytes of an ATOMIC WRITE may not be read.
 */
export function writeSingle(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  length: u32,
): bool {
  const packet = packetStart(context);
  const opcode = wireOpcode(request);
  // A FLUSH has the length of its range in `compareAdd`.
  const named = isOf(request, Operation.NO_SGES) ? <u32>request.compareAdd : length;
  const address = request.remoteAddress + qp.sendOffset;
  const header = storeHeaders(context, qp, packet, opcode, request, address, named);
  const carries = flagsOf(context.opcodeTable, opcode) & PacketFlag.PAYLOAD;
  if (carries && !gather(context, qp, request, packet + header, length)) return false;
  storeBth(packet, opcode, 0, context.pkey, qp.targetQp, 1, markedPsn(qp, qp.psnNext));
  if (qp.psnNext != qp.psnMax) context.counters.retransmittedPkts++;
  finishPacket(context, pathOf(qp), qp.qpn, header + (carries ? length : 0) + ICRC_SIZE);
  return true;
}

/** Uses up PSNs. */
export function advance(qp: QueuePair, packets: u32): void {
  const next = psnAdd(qp.psnNext, packets);
  qp.psnNext = next;
  if (psnCompare(next, qp.psnMax) > 0) qp.psnMax = next;
}

export function endRequest(qp: QueuePair): void {
  qp.sendNext++;
  qp.sendOffset = 0;
  qp.sendSgeIndex = 0;
  qp.sendSgeOffset = 0;
}

/** Response packets of a READ request where the loss of one costs all that are behind it. */
const READ_PACKETS_MAX: u32 = 32;
/** With a peer that does selective repeat: at least. */
const READ_PACKETS_LEAST: u32 = 16;

/**
 * Response packets that one READ request asks for at most. With selective repeat that is a power of
 * two within the window: the peer sends them without a pause, and a queue has to take them.
 */
function readPackets(context: Context, qp: QueuePair): u32 {
  if (isAlone(qp)) return 1;
  const open = min<u32>(context.receiveCharge / 2 / qp.chargeFull, context.windowPackets / 2);
  if (qp.reorderPeer == 0) return max<u32>(min<u32>(open, READ_PACKETS_MAX), 1);
  const most = powerBelow(min<u32>(open, READ_CHUNK_PACKETS));
  const least = min<u32>(READ_PACKETS_LEAST, most);
  // A retransmitted READ may have been cut at any multiple of the least.
  if (qp.psnNext != qp.psnMax) return least;
  const part = powerBelow(windowPackets(context, qp));
  return max<u32>(min<u32>(part, most), least);
}

/** The largest power of two that is not greater; 1 at least. */
function powerBelow(value: u32): u32 {
  const one: u32 = 1;
  return one << (31 - <u32>clz<u32>(value | 1));
}

/** Bytes that the READ request at the queue pair's offset asks for. */
export function readLength(context: Context, qp: QueuePair, request: SendRequest): u32 {
  const left = request.length - qp.sendOffset;
  // A repeated READ may not span two that the peer remembers apart.
  const limit = readPackets(context, qp);
  const packets = limit - ((qp.sendOffset / qp.mtu) % limit);
  return min<u32>(left, packets * qp.mtu);
}

/**
 * One SEND or WRITE packet; `ask`: for an acknowledgement in any case; `run`: RunBits. False
 * when the local memory may not be read: the request fails.
 */
export function sendData(
  context: Context,
  qp: QueuePair,
  request: SendRequest,
  ask: bool,
  run: u32,
): bool {
  const left = request.length - qp.sendOffset;
  const first = qp.sendOffset == 0;
  const last = left <= qp.mtu;
  const payload = last ? left : qp.mtu;
  const pad: u32 = (0 - payload) & 3;
  const packet = packetStart(context);
  const opcode = messageOpcode(qp.type, request, first, last);
  const address = request.remoteAddress;
  const header = storeHeaders(context, qp, packet, opcode, request, address, request.length);
  const source = copiesPayload(payload) ? inOnePiece(context, qp, request, payload) : 0;
  if (source == 0 && !gather(context, qp, request, packet + header, payload)) {
    fail(context, qp, request, WcStatus.LOC_PROT_ERR);
    return false;
  }
  if (pad) store<u32>(packet + header + payload, 0);
  const psn = qp.psnNext;
  const fresh = psn == qp.psnMax;
  if (!fresh) context.counters.retransmittedPkts++;
  qp.chargeSent += charge(payload);
  qp.sendOffset += payload;
  advance(qp, 1);
  if (last) {
    endRequest(qp);
    noteAwaited(qp, request);
  }
  const solicited: u32 = last && isSolicited(request) ? 1 : 0;
  const reliable = qp.type == <u32>QpType.RC;
  const ackRequest: u32 =
    reliable && (wantsAck(context, qp, last && pauses(qp), run) || ask) ? 1 : 0;
  if (ackRequest && fresh) startProbe(context, qp, psn);
  const bits = bthBits(solicited, pad);
  storeBth(packet, opcode, bits, context.pkey, qp.targetQp, ackRequest, markedPsn(qp, psn));
  const length = header + payload + pad + ICRC_SIZE;
  finishCopying(context, pathOf(qp), qp.qpn, length, header, source);
  if (!reliable) {
    // No answer will arrive: a sent packet is complete.
    qp.psnUnacked = qp.psnNext;
    qp.psnArrived = qp.psnNext;
    qp.chargeAcked = qp.chargeSent;
    if (last) completeSend(context, qp, WcStatus.SUCCESS, 0);
  }
  return true;
}

/**
 * Does nothing follow a message's last packet, or only what waits until everything before it is
 * complete?
 */
export function pauses(qp: QueuePair): bool {
  if (qp.state == <u32>QpState.SQD) return true;
  if (qp.sendNext == qp.sendFetched && !fetch(qp)) return true;
  const next = sendRequestAt(qp, qp.sendNext);
  if (qp.reorderPeer != 0 && awaitsData(next)) return true;
  if (waitsForAll(next)) return true;
  return isOf(next, Operation.LOCAL) || next.state == <u32>SendState.FAILED;
}

/** Only a message that consumes a receive request can be solicited (IBA 9.2.3). */
function isSolicited(request: SendRequest): bool {
  return (request.sendFlags & SendFlag.SOLICITED) != 0 && isOf(request, Operation.RECEIVE);
}
