/** Attributes as the host writes them, and what is made of the address vector among them. */
import { Errno } from '../memory/errno';
import { releaseProtectionDomain, useProtectionDomain } from '../region/protection-domain';
import { AddressHandle, Context } from './context';
import { pathOfHandle } from './datagram';
import { Path, preparePath } from './path';

/** `ibv_qp_attr`, written by the host. Only the members that the mask names count. */
@unmanaged
export class QueuePairAttributes {
  /** AV: the peer's GID, in network order. */
  remoteGid0: u64;
  remoteGid1: u64;
  /** AV: the peer's UDP port. */
  remotePort: u32;
  /** Bits of QpAttribute. */
  mask: u32;
  state: u32;
  currentState: u32;
  /** An Mtu. */
  pathMtu: u32;
  qkey: u32;
  receivePsn: u32;
  sendPsn: u32;
  targetQp: u32;
  accessFlags: u32;
  pkeyIndex: u32;
  portNumber: u32;
  maxRdAtomic: u32;
  maxDestRdAtomic: u32;
  minRnrTimer: u32;
  timeout: u32;
  retryCount: u32;
  rnrRetry: u32;
  /** AV: the peer's receive buffer in bytes; 0: it did not say. */
  receiveBufferBytes: u32;
  /** EN_SQD_ASYNC_NOTIFY. */
  drainNotify: u32;
  /** AV: packets that the peer keeps when they come ahead; 0: it does not speak of that. */
  reorderPackets: u32;
  /** AV: 1: the peer is of our own kind. */
  ownKind: u32;
  /** AV: 1 when FLUSH requests to the peer need the ICRC of Linux rxe. */
  doublesFlush: u32;
  /** AV: UDP port that our packets leave from; 0: the one that we listen at. */
  sourcePort: u32;
}

/** Fills in a path from here to that endpoint. */
export function setPath(context: Context, path: Path, a: QueuePairAttributes): void {
  path.localGid0 = context.localGid0;
  path.localGid1 = context.localGid1;
  path.localPort = context.localPort;
  path.remoteGid0 = a.remoteGid0;
  path.remoteGid1 = a.remoteGid1;
  path.remotePort = a.remotePort;
  path.ownKind = <u16>a.ownKind;
  path.sourcePort = <u16>(a.sourcePort != 0 ? a.sourcePort : context.localPort);
  path.pseudoHeader = context.pseudoHeader;
  preparePath(context.icrcTables, path);
}

/** `ibv_create_ah`: its address, or 0 when none is free. */
export function createAddressHandle(context: Context, pd: u32, a: QueuePairAttributes): usize {
  const at = context.addressHandleFree;
  if (at == 0 || !useProtectionDomain(context.arena, pd, context.slotIndex)) return 0;
  const handle = changetype<AddressHandle>(at);
  context.addressHandleFree = handle.nextFree;
  handle.pd = pd;
  setPath(context, pathOfHandle(handle), a);
  return at;
}

export function destroyAddressHandle(context: Context, handle: AddressHandle): u32 {
  if (handle.pd == 0) return Errno.EINVAL;
  releaseProtectionDomain(context.arena, handle.pd, context.slotIndex);
  handle.pd = 0;
  handle.nextFree = context.addressHandleFree;
  context.addressHandleFree = changetype<usize>(handle);
  return Errno.OK;
}
