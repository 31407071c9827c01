/**
 * Completion queues: a ring of completions that the engine fills and the application empties.
 * A full queue is dead, never silently overwritten (man ibv_poll_cq): CQ_ERR, and the queue pairs
 * that use it go to ERR when they next have something to say. Only who asked for it at creation
 * loses the oldest instead.
 */
import { RING_HEADER_SIZE, ringHead, ringTail, setRingHead } from '../memory/ring';
import { Context, EventKind, pushEvent } from './context';
import { AsyncEvent } from './status';

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

/** What a completion queue is armed for. */
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

/** The entry that the next completion is written to, cleared; null when the queue is full. */
export function nextCompletion(context: Context, cq: CompletionQueue): WorkCompletion | null {
  if (cq.dead) return null;
  const head = ringHead(cq.ring);
  if (head - ringTail(cq.ring) >= cq.entries && !cq.ignoreOverrun) {
    cq.dead = 1;
    pushEvent(context, EventKind.ASYNC, AsyncEvent.CQ_ERR, changetype<usize>(cq));
    return null;
  }
  const at = cq.ring + RING_HEADER_SIZE + <usize>((head & (cq.entries - 1)) * WORK_COMPLETION_SIZE);
  // For so few bytes memory.fill is a call too many.
  const zero = i64x2.splat(0);
  for (let to = at; to < at + WORK_COMPLETION_SIZE; to += 16) v128.store(to, zero);
  const completion = changetype<WorkCompletion>(at);
  completion.timestamp = context.now;
  return completion;
}

/** Makes the completion written last visible, and rings the bell if somebody waits for it. */
export function publishCompletion(context: Context, cq: CompletionQueue, solicited: bool): void {
  setRingHead(cq.ring, ringHead(cq.ring) + 1);
  if (cq.armed == CqNotify.ANY || (cq.armed == CqNotify.SOLICITED && solicited)) {
    cq.armed = CqNotify.NONE;
    pushEvent(context, EventKind.COMPLETION, 0, changetype<usize>(cq));
  }
}
