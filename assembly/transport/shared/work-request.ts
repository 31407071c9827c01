/**
 * Work requests in memory. The application writes `WorkRequest`s and receive requests into rings
 * that it shares with the engine. The application may change an entry at any time, so the engine
 * copies each entry before it checks it, and uses only its copy (`SendRequest`).
 */

/** A piece of local memory: `ibv_sge`. 16 bytes. */
@unmanaged
export class Sge {
  address: u64;
  length: u32;
  lkey: u32;
}
export const SGE_SIZE: u32 = 16;

/** An entry of the send ring, 80 bytes; SGEs, or inline data, follow. */
@unmanaged
export class WorkRequest {
  wrId: u64;
  /** RDMA and atomics: virtual address at the peer. */
  remoteAddress: u64;
  /** FLUSH: bytes of the range. */
  compareAdd: u64;
  swap: u64;
  /** A WrOpcode. */
  opcode: u32;
  /** Bits of SendFlag. */
  sendFlags: u32;
  /** R_Key of the target, or the key to invalidate. */
  key: u32;
  /** The four bytes of immediate data, as a big-endian number. */
  immediate: u32;
  sgeCount: u32;
  /** SendFlag.INLINE: bytes that follow in place of SGEs. */
  inlineLength: u32;
  /** UD. */
  addressHandle: u32;
  remoteQpn: u32;
  remoteQkey: u32;
  /** FLUSH: placement in 3:0, selectivity in 5:4. */
  flush: u32;
  reserved0: u32;
  reserved1: u32;
}
export const WORK_REQUEST_SIZE: u32 = 80;

/** The same entry when it is BIND_MW, REG_MR or BIND_MR (of which `target` says all). */
@unmanaged
export class BindRequest {
  wrId: u64;
  /** BIND_MW: address of the first byte in the region; REG_MR: by which it will be named. */
  address: u64;
  length: u64;
  /** REG_MR: where the first byte lies in linear memory. */
  memory: u64;
  opcode: u32;
  sendFlags: u32;
  /** The key that the window or region gets. */
  key: u32;
  /** A key that it had. */
  target: u32;
  sgeCount: u32;
  inlineLength: u32;
  /** BIND_MW: key of the region; REG_MR: key of the area that the memory lies in. */
  base: u32;
  /** Bits of AccessFlag. */
  access: u32;
  reserved0: u64;
  reserved1: u64;
}

/** An entry of the receive ring, 16 bytes; SGEs follow. */
@unmanaged
export class ReceiveRequest {
  wrId: u64;
  sgeCount: u32;
  reserved: u32;
}
export const RECEIVE_REQUEST_SIZE: u32 = 16;

/** How far a send request has come. */
export enum SendState {
  /** Copied from the ring; no packet was sent. */
  FETCHED = 0,
  /** Has PSNs. */
  STARTED = 1,
  /** Cannot be executed; fails with `status` when it is the oldest. */
  FAILED = 2,
  /** Is executed, has no packets, and completes when everything before it has. */
  DONE = 3,
  /** Executed; completes when the fence of its invalidation has passed. */
  FENCED = 4,
  /** A part of its bytes was copied on the local path; it has no PSNs. */
  COPYING = 5,
  /** A message in a channel to another context; `psnFirst` is its index there. */
  POSTED = 6,
}

/** The engine's own copy of a work request, 128 bytes; SGEs, or inline data, follow. */
@unmanaged
export class SendRequest {
  wrId: u64;
  remoteAddress: u64;
  compareAdd: u64;
  swap: u64;
  opcode: u32;
  sendFlags: u32;
  key: u32;
  immediate: u32;
  sgeCount: u32;
  inlineLength: u32;
  addressHandle: u32;
  remoteQpn: u32;
  remoteQkey: u32;
  flush: u32;
  reserved0: u32;
  reserved1: u32;
  /** All above mirrors WorkRequest. Bytes of the whole message. */
  length: u32;
  /** A SendState. */
  state: u32;
  psnFirst: u32;
  psnLast: u32;
  /** Window charge that stood before its first packet (requester.ts). */
  chargeFirst: u32;
  /** FAILED: a WcStatus. */
  status: u32;
  /** FENCED: the epoch that other engines must have reached, and the start of the wait. */
  fenceEpoch: u32;
  fenceSince: u32;
  /** FAILED: the vendor error of the completion. */
  vendorError: u32;
  /** The row of its opcode (operation.ts). */
  operation: u32;
  reserved4: u64;
}
export const SEND_REQUEST_SIZE: u32 = 128;

/** A walk over an SGE list. */
@unmanaged
export class SgeCursor {
  index: u32;
  /** Bytes of that SGE that lie behind. */
  offset: u32;
}

/** Bytes that all SGEs name together; u64, since 32 lengths overflow u32. */
export function sgeTotal(sges: usize, count: u32): u64 {
  let total: u64 = 0;
  for (let index: u32 = 0; index < count; index++) {
    total += changetype<Sge>(sges + <usize>(index * SGE_SIZE)).length;
  }
  return total;
}

/** Places a cursor `position` bytes into the list. */
export function seekSge(cursor: SgeCursor, sges: usize, count: u32, position: u32): void {
  let index: u32 = 0;
  let left = position;
  while (index < count) {
    const length = changetype<Sge>(sges + <usize>(index * SGE_SIZE)).length;
    if (left < length) break;
    left -= length;
    index++;
  }
  cursor.index = index;
  cursor.offset = left;
}
