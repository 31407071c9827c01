/** The target of a request on the local path (LOCAL-PATH.md), as its checks read it. */

/** Filled in at the begin of a turn by local/target.ts. 28 bytes. */
@unmanaged
export class LocalTarget {
  /** Address of the QueuePair, if it belongs to this context; else 0. */
  queuePair: usize;
  pd: u32;
  /** Incarnation of the queue pair, for windows (arena.ts `nextBinding`). */
  binding: u32;
  /** Bits of AccessFlag: the rights of its peer. */
  access: u32;
  destRdAtomicMax: u32;
  /** Addresses of its completion counters; 0: nothing is counted. */
  counterTable: usize;
  /** 1: its context takes messages for it (local/inbox.ts). */
  takesMessages: u32;
}
export const LOCAL_TARGET_SIZE: u32 = 28;

/** Bytes of the buffer for requests whose bytes do not lie in one piece on both sides. */
export const LOCAL_BOUNCE_SIZE: u32 = 4096;
