/** Structs of the queues that queue pairs share: completion queues and shared receive queues. */
import { RING_HEADER_SIZE } from '../../memory/ring';
import { RECEIVE_REQUEST_SIZE, SGE_SIZE } from './work-request';

/** `ibv_wc`, 64 bytes. On error only wrId, status, qpn and vendorError are valid. */
@unmanaged
export class WorkCompletion {
  wrId: u64;
  /** Microseconds of the engine's clock. */
  timestamp: u64;
  /** A WcStatus. */
  status: u32;
  /** A WcOpcode. */
  opcode: u32;
  byteLength: u32;
  qpn: u32;
  /** UD. */
  sourceQp: u32;
  /** Bits of WcFlag. */
  flags: u32;
  /** Immediate data (WITH_IMM) or the invalidated key (WITH_INV). */
  immediate: u32;
  /** On error: the NAK's syndrome, or 0. */
  vendorError: u32;
  /** UD: the UDP port that the datagram came from. */
  sourcePort: u32;
  reserved0: u32;
  reserved1: u64;
}
export const WORK_COMPLETION_SIZE: u32 = 64;

/** Completions for which a queue is armed. */
export enum CqNotify {
  NONE = 0,
  /** Solicited receives and errors. */
  SOLICITED = 1,
  ANY = 2,
}

/** 64 bytes. */
@unmanaged
export class CompletionQueue {
  nextFree: usize;
  /** The ring: 128 bytes of header, then entries. 0 while the slot is free. */
  ring: usize;
  /** A power of two. */
  entries: u32;
  /** A CqNotify; one shot. */
  armed: u32;
  /** 1 after an overflow. */
  dead: u32;
  /** Queue pairs that name it. */
  useCount: u32;
  /** 1: the oldest completion makes room for the newest (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN). */
  ignoreOverrun: u32;
  reserved: u32;
  reserved1: u64;
  reserved2: u64;
  reserved3: u64;
  reserved4: u64;
}
export const COMPLETION_QUEUE_SIZE: u32 = 64;

/** Bytes of memory that a queue of `entries` (a power of two) needs. */
export function completionRingBytes(entries: u32): u32 {
  return RING_HEADER_SIZE + entries * WORK_COMPLETION_SIZE;
}

/** A shared receive queue, 64 bytes. */
@unmanaged
export class SharedReceiveQueue {
  nextFree: usize;
  /** 0 while the slot is free. */
  ring: usize;
  entries: u32;
  stride: u32;
  sgeMax: u32;
  pd: u32;
  /** Index of the next request. */
  next: u32;
  /** Armed limit: one event when fewer requests are left; 0: not armed. */
  limit: u32;
  /** Queue pairs that take from it. */
  useCount: u32;
  reserved0: u32;
  reserved1: u64;
  reserved2: u64;
  reserved3: u64;
}
export const SHARED_RECEIVE_QUEUE_SIZE: u32 = 64;

/** Bytes of memory that the ring of a shared receive queue needs. */
export function sharedRingBytes(entries: u32, sgeMax: u32): u32 {
  return RING_HEADER_SIZE + entries * (RECEIVE_REQUEST_SIZE + sgeMax * SGE_SIZE);
}
