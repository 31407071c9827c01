/**
 * WRITEs of one packet that are what was expected, one after the other: the line of checks of
 * receive.ts and responder.ts, with all that is about anything else left out. A packet that is not
 * as plain, or wrong, is left to those, and nothing has changed.
 */
import { copyBytes } from '../memory/bytes';
import { AccessFlag } from '../region/access-flag';
import { countWrite } from '../region/key-table';
import { translateRemote } from '../region/window';
import {
  bthAckRequest,
  bthOpcode,
  bthPadCount,
  bthPkey,
  bthPsn,
  bthVersion,
  loadU32,
  rethAddress,
  rethKey,
  rethLength,
} from '../wire/headers';
import { Opcode } from '../wire/opcode';
import { ICRC_SIZE } from '../wire/packet';
import { psnAdd } from '../wire/psn';
import { Context } from './context';
import { mayTalk } from './receive';
import { MessageKind, QueuePair } from './queue-pair';
import { anyAhead } from './reorder';
import { acknowledgeLater } from './responder';
import { serves } from './state-machine';
import { QpState, QpType } from './status';

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
    qp.message == <u32>MessageKind.NONE &&
    qp.jobHead == qp.jobTail &&
    (qp.heldJobs | qp.nakSent | qp.nakPending) == 0 &&
    qp.counterTable == 0 &&
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
  const psn = bthPsn(packet);
  const size = length - HEADERS - ICRC_SIZE - bthPadCount(packet);
  if (
    bthOpcode(packet) != <u32>Opcode.RC_RDMA_WRITE_ONLY ||
    load<u32>(packet + length - ICRC_SIZE) != icrc ||
    // With it the byte that tells of congestion: it is 0.
    loadU32(packet + 4) != qp.qpn ||
    psn != qp.psnExpected ||
    bthVersion(packet) != 0 ||
    !mayTalk(bthPkey(packet), context.pkey)
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
  const counters = context.counters;
  counters.icrcExact++;
  counters.rdmaRecvs++;
  qp.psnExpected = psnAdd(psn, 1);
  qp.msn = (qp.msn + 1) & 0xffffff;
  if (bthAckRequest(packet)) acknowledgeLater(context, qp);
  return true;
}
