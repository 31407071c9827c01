/**
 * Unreliable datagrams (IBA 9.8.3): a packet is a message. A sent datagram completes at once. A
 * received one needs the right Q_Key and a receive request, whose first 40 bytes get the GRH. A
 * datagram that does not fit is dropped silently.
 */
import {
  bthBits,
  bthOpcode,
  bthSolicited,
  dethQkey,
  dethSourceQp,
  loadU32,
  storeBth,
} from '../../wire/headers';
import { Header, headerOffset, headersLength, headersOf } from '../../wire/opcode';
import { ICRC_SIZE, headerIn, payloadLength } from '../../wire/packet';
import { psnAdd } from '../../wire/psn';
import { completeReceive } from '../queue/completion';
import { takeReceive } from '../queue/receive-queue';
import { gather, receiveCapacity, scatterReceive } from '../queue/scatter-gather';
import {
  ADDRESS_HANDLE_PATH,
  ADDRESS_HANDLE_SIZE,
  AddressHandle,
  Context,
  ReceiveDescriptor,
  packetStart,
} from '../shared/context';
import { messageOpcode, storeHeaders } from '../shared/operation';
import { Path, PseudoHeader } from '../shared/path';
import { QueuePair } from '../shared/queue-pair';
import { finishPacket } from '../shared/send-buffer';
import { SendFlag, WcFlag, WcOpcode, WcStatus } from '../shared/status';
import { SendRequest } from '../shared/work-request';

/** The global routing header, or what stands for it, in front of every received datagram. */
export const GRH_SIZE: u32 = 40;
/** Where packets for a multicast group go. */
export const MULTICAST_QPN: u32 = 0xffffff;

/** The address handle that a request names, or null: the ring's other side may write anything. */
function findAddressHandle(context: Context, qp: QueuePair, at: u32): AddressHandle | null {
  const offset = at - <u32>context.addressHandles;
  if (offset >= context.addressHandlesMax * ADDRESS_HANDLE_SIZE) return null;
  if (offset % ADDRESS_HANDLE_SIZE != 0) return null;
  const handle = changetype<AddressHandle>(<usize>at);
  return handle.pd == qp.pd ? handle : null;
}

/** The path that lies in an address handle, behind its own fields. */
export function pathOfHandle(handle: AddressHandle): Path {
  return changetype<Path>(changetype<usize>(handle) + ADDRESS_HANDLE_PATH);
}

/**
 * Sends one datagram at `packetStart`. A WcStatus: LOC_QP_OP_ERR without an address handle of the
 * same domain, LOC_PROT_ERR. One longer than the path MTU is not sent and succeeds (IBA
 * C10-93.1.1).
 */
export function sendDatagram(context: Context, qp: QueuePair, request: SendRequest): u32 {
  const handle = findAddressHandle(context, qp, request.addressHandle);
  if (handle == null) return WcStatus.LOC_QP_OP_ERR;
  if (request.length > qp.mtu) return WcStatus.SUCCESS;
  const packet = packetStart(context);
  const opcode = messageOpcode(qp.type, request, true, true);
  const header = storeHeaders(context, qp, packet, opcode, request, 0, 0);
  const pad: u32 = (0 - request.length) & 3;
  if (!gather(context, qp, request, packet + header, request.length)) return WcStatus.LOC_PROT_ERR;
  if (pad) store<u32>(packet + header + request.length, 0);
  const solicited: u32 = request.sendFlags & SendFlag.SOLICITED ? 1 : 0;
  const bits = bthBits(solicited, pad);
  storeBth(packet, opcode, bits, context.pkey, request.remoteQpn & 0xffffff, 0, qp.psnNext);
  qp.psnNext = psnAdd(qp.psnNext, 1);
  // No answer will arrive: nothing is in flight.
  qp.psnUnacked = qp.psnNext;
  qp.psnArrived = qp.psnNext;
  const length = header + request.length + pad + ICRC_SIZE;
  finishPacket(context, pathOfHandle(handle), qp.qpn, length);
  return WcStatus.SUCCESS;
}

/** A datagram for a UD queue pair, checked by `receive.ts` up to its P_Key. */
export function receiveDatagram(
  context: Context,
  qp: QueuePair,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): void {
  const counters = context.counters;
  const deth = headerIn(context.opcodeTable, packet, Header.DETH);
  if (dethQkey(deth) != qp.qkey) {
    counters.dropQkey++;
    return;
  }
  if (!qp.receiveHeld && !takeReceive(context, qp)) {
    counters.dropReceive++;
    return;
  }
  const opcode = bthOpcode(packet);
  const size = payloadLength(context.opcodeTable, packet, length);
  if (<u64>GRH_SIZE + size > receiveCapacity(qp)) {
    // The request stays in hand for a datagram that fits; the queue pair stays up.
    counters.dropReceive++;
    return;
  }
  qp.receiveSgeIndex = 0;
  qp.receiveSgeOffset = 0;
  const grh = context.grh;
  writeGrh(context, descriptor, grh, length);
  let status = scatterReceive(context, qp, grh, GRH_SIZE);
  if (status == <u32>WcStatus.SUCCESS) {
    const payload = packet + headersLength(context.opcodeTable, opcode);
    status = scatterReceive(context, qp, payload, size);
  }
  let flags: u32 = WcFlag.GRH;
  let immediate: u32 = 0;
  if (headersOf(context.opcodeTable, opcode) & Header.IMM_DT) {
    flags |= WcFlag.WITH_IMM;
    immediate = loadU32(packet + headerOffset(context.opcodeTable, opcode, Header.IMM_DT));
  }
  counters.rdmaRecvs++;
  qp.sourceQp = dethSourceQp(deth);
  qp.sourcePort = descriptor.sourcePort;
  const solicited = bthSolicited(packet) != 0;
  completeReceive(context, qp, status, WcOpcode.RECV, GRH_SIZE + size, immediate, flags, solicited);
}

/**
 * Writes the header before the payload: the IPv6 header (links without IP have one in form), or 20
 * zero bytes and the IPv4 header, as far as a socket reports it (IBA A17.4.5.1).
 */
function writeGrh(context: Context, descriptor: ReceiveDescriptor, grh: usize, length: u32): void {
  const group = (descriptor.targetGid0 | descriptor.targetGid1) != 0;
  const target = group
    ? changetype<usize>(descriptor) + offsetof<ReceiveDescriptor>('targetGid0')
    : changetype<usize>(context) + offsetof<Context>('localGid0');
  memory.fill(grh, 0, GRH_SIZE);
  if (context.pseudoHeader == <u32>PseudoHeader.IPV4) {
    const ip = grh + 20;
    store<u32>(ip, bswap<u32>(0x45000000 | (length + 28)));
    store<u32>(ip, bswap<u32>(0x00004000), 4);
    store<u32>(ip, bswap<u32>(0x40110000), 8);
    store<u32>(ip, <u32>(descriptor.sourceGid1 >> 32), 12);
    store<u32>(ip, load<u32>(target, 12), 16);
    store<u16>(ip, ipChecksum(ip), 10);
    return;
  }
  store<u32>(grh, bswap<u32>(0x60000000));
  store<u32>(grh, bswap<u32>(((length + 8) << 16) | 0x1140), 4);
  // An address is two fields of 8 bytes, one after the other.
  v128.store(grh, v128.load(changetype<usize>(descriptor)), 8);
  v128.store(grh, v128.load(target), 24);
}

/** The checksum of a 20-byte IPv4 header whose checksum field is 0, in network order. */
function ipChecksum(ip: usize): u16 {
  let sum: u32 = 0;
  for (let at: usize = 0; at < 20; at += 2) sum += load<u16>(ip + at);
  sum = (sum & 0xffff) + (sum >>> 16);
  sum = (sum & 0xffff) + (sum >>> 16);
  return <u16>~sum;
}
