/** Requests that are one packet, answered by one: atomics, FLUSH and ATOMIC WRITE. */
import { storeBth, storeReth, storeU32, storeU64 } from '../wire/headers';
import { Opcode } from '../wire/opcode';
import { ICRC_SIZE } from '../wire/packet';
import { Context, packetStart } from './context';
import { isAtomic } from './fetch';
import { gather } from './gather';
import { QueuePair, pathOf } from './queue-pair';
import { markedPsn } from './reorder';
import { WrOpcode } from './status';
import { finishPacket } from './transmit';
import { SendRequest } from './work-queue';

/** The packet, with the next PSN. False: the bytes of an ATOMIC WRITE may not be read. */
export function writeWhole(context: Context, qp: QueuePair, request: SendRequest): bool {
  if (isAtomic(request)) writeAtomic(context, qp, request);
  else if (request.opcode == <u32>WrOpcode.FLUSH) writeFlush(context, qp, request);
  else return writeAtomicWrite(context, qp, request);
  return true;
}

function writeAtomic(context: Context, qp: QueuePair, request: SendRequest): void {
  const packet = packetStart(context);
  const psn = markedPsn(qp, qp.psnNext);
  const swap = request.opcode == <u32>WrOpcode.ATOMIC_CMP_AND_SWP;
  const opcode: u32 = swap ? Opcode.RC_COMPARE_SWAP : Opcode.RC_FETCH_ADD;
  storeBth(packet, opcode, 0, context.pkey, qp.targetQp, 1, psn);
  storeU64(packet + 12, request.remoteAddress);
  storeU32(packet + 20, request.key);
  storeU64(packet + 24, swap ? request.swap : request.compareAdd);
  storeU64(packet + 32, swap ? request.compareAdd : 0);
  finishPacket(context, pathOf(qp), qp.qpn, 40 + ICRC_SIZE);
}

function writeFlush(context: Context, qp: QueuePair, request: SendRequest): void {
  const packet = packetStart(context);
  const psn = markedPsn(qp, qp.psnNext);
  storeBth(packet, Opcode.RC_FLUSH, 0, context.pkey, qp.targetQp, 1, psn);
  storeU32(packet + 12, request.flush);
  storeReth(packet + 16, request.remoteAddress, request.key, <u32>request.compareAdd);
  finishPacket(context, pathOf(qp), qp.qpn, 32 + ICRC_SIZE);
}

function writeAtomicWrite(context: Context, qp: QueuePair, request: SendRequest): bool {
  const packet = packetStart(context);
  const psn = markedPsn(qp, qp.psnNext);
  if (!gather(context, qp, request, packet + 28, request.length)) return false;
  storeBth(packet, Opcode.RC_ATOMIC_WRITE, 0, context.pkey, qp.targetQp, 1, psn);
  storeReth(packet + 12, request.remoteAddress, request.key, request.length);
  finishPacket(context, pathOf(qp), qp.qpn, 36 + ICRC_SIZE);
  return true;
}
