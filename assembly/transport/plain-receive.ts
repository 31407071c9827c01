/**
 * WRITEs that are what was expected, one packet after the other, of one packet or of many: the line
 * of checks of receive.ts and responder.ts, with all that is about anything else left out. A packet
 * that is not as plain, or wrong, is left to those, and nothing has changed.
 */
import { copyBytes } from '../memory/bytes';
import { AccessFlag } from '../region/access-flag';
import { CACHE_MODEL } from '../region/cache-model';
import { countWrite } from '../region/key-table';
import { translateRemote } from '../region/window';
import {
  bthAckRequest,
  bthOpcode,
  bthPadCount,
  bthPkey,
  bthPsn,
  bthTargetQp,
  bthVersion,
  loadU32,
  rethAddress,
  rethKey,
  rethLength,
} from '../wire/headers';
import { icrcOf } from '../wire/icrc';
import { Opcode } from '../wire/opcode';
import { ICRC_SIZE } from '../wire/packet';
import { psnAdd } from '../wire/psn';
import { Context, ReceiveDescriptor } from './context';
import { findQueuePair, mayTalk } from './receive';
import { MessageKind, QueuePair, pathOf } from './queue-pair';
import { owe } from './owed';
import { anyAhead } from './reorder';
import { acknowledgeLater } from './responder';
import { receiveStart } from './seal';
import { serves } from './state-machine';
import { QpState, QpType } from './status';

/** BTH. */
const CONTINUED_HEADERS: u32 = 12;
/** Packets of MIDDLEs, and of LASTs that are as long, have at least so many bytes. */
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
  // Runs are of packets shorter than any MTU (seal.ts), but a size below 0 is above every one.
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
 * as whoever does not take the packet has to do it again.
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
  const start = receiveStart(context, path, descriptor.sourcePort, length);
  const icrc = icrcOf(context.icrcTables, context.crcScratch, start, packet, length);
  if (load<u32>(packet + length - ICRC_SIZE) != icrc) return false;
  copyBytes(to, packet + CONTINUED_HEADERS, size);
  qp.messageAddress = address + size;
  qp.messageLeft -= size;
  qp.messageOffset += size;
  if (ends) endPlain(context, qp);
  advance(context, qp, packet, ends);
  return true;
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
  context.counters.icrcExact++;
  qp.psnExpected = psnAdd(qp.psnExpected, 1);
  if (bthAckRequest(packet)) acknowledgeLater(context, qp);
  else if (ends) owe(context, qp);
}
