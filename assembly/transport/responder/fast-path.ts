/**
 * The fast path of the receive side: WRITEs with the expected PSN, of one packet or of many. It
 * makes the checks of receive.ts and responder.ts that such packets can fail. Any other packet, and
 * any packet that fails a check, goes the long way, with nothing changed.
 */
import { copyBytes } from '../../memory/bytes';
import { translateRemote } from '../../region/access';
import { AccessFlag } from '../../region/access-flag';
import { CACHE_MODEL } from '../../region/cache-model';
import { countWrite } from '../../region/key-table';
import {
  bthAckRequest,
  bthOpcode,
  bthPadCount,
  bthPkey,
  bthPsn,
  bthTargetQp,
  bthVersion,
  loadU32,
  mayTalk,
  rethAddress,
  rethKey,
  rethLength,
} from '../../wire/headers';
import { icrcOf } from '../../wire/icrc';
import { Opcode } from '../../wire/opcode';
import { ICRC_SIZE } from '../../wire/packet';
import { psnAdd } from '../../wire/psn';
import { Context, ReceiveDescriptor, findQueuePair } from '../shared/context';
import { Path } from '../shared/path';
import { MessageKind, QueuePair, pathOf } from '../shared/queue-pair';
import { receiveStart } from '../shared/send-buffer';
import { serves } from '../shared/state-machine';
import { QpState, QpType } from '../shared/status';
import { acknowledgeLater, delayAck } from './delayed-ack';
import { anyAhead } from './reorder-buffer';

/** BTH. */
const CONTINUED_HEADERS: u32 = 12;
/** Least bytes of a MIDDLE packet, and of a LAST packet of the same length. */
export const CONTINUED_LEAST: u32 = CONTINUED_HEADERS + 256 + ICRC_SIZE;
/** BTH, RETH. */
const HEADERS: u32 = 28;
const RETH_OFFSET: usize = 12;

/** Does the queue pair await nothing but requests, and has it nothing else to see to? */
export function receivesPlain(qp: QueuePair): bool {
  return (
    qp.type == <u32>QpType.RC &&
    serves(qp.state) &&
    (qp.state != <u32>QpState.RTR || qp.communicationEstablished != 0) &&
    (qp.access & AccessFlag.REMOTE_WRITE) != 0 &&
    qp.jobHead == qp.jobTail &&
    (qp.heldJobs | qp.nakSent | qp.nakPending) == 0 &&
    qp.counterTable == 0 &&
    pathOf(qp).auth == 0 &&
    !anyAhead(qp)
  );
}

/**
 * A packet from the queue pair's peer, by its source, of `length` bytes from BTH to ICRC; `icrc`:
 * what that has to be. False: it is not plain, or not right.
 */
export function receivePlain(
  context: Context,
  qp: QueuePair,
  packet: usize,
  length: u32,
  icrc: u32,
): bool {
  const size = length - HEADERS - ICRC_SIZE - bthPadCount(packet);
  if (
    bthOpcode(packet) != <u32>Opcode.RC_RDMA_WRITE_ONLY ||
    qp.message != <u32>MessageKind.NONE ||
    load<u32>(packet + length - ICRC_SIZE) != icrc ||
    !isNext(context, qp, packet)
  ) {
    return false;
  }
  const reth = packet + RETH_OFFSET;
  // Runs have packets shorter than any MTU (send-buffer.ts), but a size below 0 is above every MTU.
  if (rethLength(reth) != size || size == 0 || size > qp.mtu) return false;
  const need: u32 = AccessFlag.REMOTE_WRITE;
  const key = rethKey(reth);
  const arena = context.arena;
  const to = translateRemote(arena, key, qp.pd, qp.binding, rethAddress(reth), size, need);
  if (to == 0) return false;
  copyBytes(to, packet + HEADERS, size);
  countWrite(arena, key, size);
  endPlain(context, qp);
  advance(context, qp, packet, true);
  return true;
}

/**
 * A packet that continues a WRITE, or ends it, and is as long as the path MTU allows: it has no
 * header but the BTH. `length`: from there to the ICRC, which is looked at when all else is right,
 * since the long way would compute it again.
 */
export function receiveContinued(
  context: Context,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): bool {
  const opcode = bthOpcode(packet);
  const ends = opcode == <u32>Opcode.RC_RDMA_WRITE_LAST;
  // A model of caches counts each look at a key, and what is left to others is looked at again.
  if (CACHE_MODEL || (!ends && opcode != <u32>Opcode.RC_RDMA_WRITE_MIDDLE)) return false;
  const qp = findQueuePair(context, bthTargetQp(packet));
  if (qp == null || qp.message != <u32>MessageKind.WRITE || !receivesPlain(qp)) return false;
  const size = qp.mtu;
  const path = pathOf(qp);
  if (
    length != CONTINUED_HEADERS + size + ICRC_SIZE ||
    bthPadCount(packet) != 0 ||
    (ends ? qp.messageLeft != size : qp.messageLeft <= size) ||
    descriptor.sourceGid0 != path.remoteGid0 ||
    descriptor.sourceGid1 != path.remoteGid1 ||
    path.usesIpIds != 0 ||
    !isNext(context, qp, packet)
  ) {
    return false;
  }
  const need: u32 = AccessFlag.REMOTE_WRITE;
  const key = qp.messageKey;
  const address = qp.messageAddress;
  const to = translateRemote(context.arena, key, qp.pd, qp.binding, address, size, need);
  if (to == 0) return false;
  if (load<u32>(packet + length - ICRC_SIZE) != icrcOn(context, path, descriptor, packet, length)) {
    return false;
  }
  copyBytes(to, packet + CONTINUED_HEADERS, size);
  qp.messageAddress = address + size;
  qp.messageLeft -= size;
  qp.messageOffset += size;
  if (ends) endPlain(context, qp);
  advance(context, qp, packet, ends);
  return true;
}

/** The ICRC that a packet of this path has to have. */
function icrcOn(
  context: Context,
  path: Path,
  descriptor: ReceiveDescriptor,
  packet: usize,
  length: u32,
): u32 {
  if (path.skipsIcrc) return 0;
  const start = receiveStart(context, path, descriptor.sourcePort, length);
  return icrcOf(context.icrcTables, context.crcScratch, start, packet, length);
}

/** For this queue pair, and the packet that it expects? */
function isNext(context: Context, qp: QueuePair, packet: usize): bool {
  return (
    // With it the byte that tells of congestion: it is 0.
    loadU32(packet + 4) == qp.qpn &&
    bthPsn(packet) == qp.psnExpected &&
    bthVersion(packet) == 0 &&
    mayTalk(bthPkey(packet), context.pkey)
  );
}

function endPlain(context: Context, qp: QueuePair): void {
  qp.message = MessageKind.NONE;
  qp.msn = (qp.msn + 1) & 0xffffff;
  context.counters.rdmaRecvs++;
}

function advance(context: Context, qp: QueuePair, packet: usize, ends: bool): void {
  if (pathOf(qp).skipsIcrc) context.counters.icrcSkipped++;
  else context.counters.icrcExact++;
  qp.psnExpected = psnAdd(qp.psnExpected, 1);
  if (bthAckRequest(packet)) acknowledgeLater(context, qp);
  else if (ends) delayAck(context, qp);
}
