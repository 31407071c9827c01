/**
 * State that requester and responder of a queue pair share: attributes, list links, rings, maps.
 */
import { CompletionQueue, SharedReceiveQueue } from './queues';

@unmanaged
export class QueuePairBase {
  /** 4.096 us * 2^timeout; 0: no timer. */
  timeoutMicros: u64;
  /** WRITE in progress: where its next byte goes. */
  messageAddress: u64;
  nextFree: usize;
  /** 0 while the slot is free. */
  qpn: u32;
  /** A QpType. */
  type: u32;
  /** A QpState. */
  state: u32;
  pd: u32;
  sendCq: CompletionQueue;
  receiveCq: CompletionQueue;
  /** Where receive requests come from instead of its own ring. */
  srq: SharedReceiveQueue | null;
  /** Links of the lists (memory/list.ts): queue pairs with packets to send, */
  readyLink: usize;
  /** with FLUSHes for the host (responder/flush.ts), */
  flushLink: usize;
  /** with a pending fence of an invalidation (invalidation-fence.ts), */
  fenceLink: usize;
  /** with a delayed acknowledgement (responder/delayed-ack.ts). */
  delayedAckLink: usize;
  /** Packets in flight that its PathState counts. */
  flightNoted: u32;
  /** Bits of AccessFlag: what peers may do. */
  access: u32;
  pkeyIndex: u32;
  portNumber: u32;
  qkey: u32;
  targetQp: u32;
  /** Path MTU in bytes, or the longer payload that both ends agreed on. */
  mtu: u32;
  /** Every send completes, whatever its flags (`sq_sig_all`). */
  signalAll: u32;
  /** The incarnation of the queue pair (arena.ts `nextBinding`). */
  binding: u32;

  // Queues.
  sendRing: usize;
  sendEntries: u32;
  sendStride: u32;
  sendSgeMax: u32;
  inlineMax: u32;
  sendRequests: usize;
  sendRequestStride: u32;
  receiveRing: usize;
  receiveEntries: u32;
  receiveStride: u32;
  receiveSgeMax: u32;
  /** The engine's copy of the receive request that a message is placed into. */
  receiveRequest: usize;
  resources: usize;
  jobs: usize;
  chunks: usize;
  /** The reorder buffer: addresses of slots, u32, and a ring of bits; `reorderMax` 0: none. */
  aheadSlots: usize;
  reorderMax: u32;
  aheadMap: usize;
  /** Rings of `flightMax` packets in flight: when each was sent last, and bits (in-flight.ts). */
  sentTimes: usize;
  arrivedMap: usize;
  lostMap: usize;
  flightMax: u32;
  /**
   * Entries of `resources` and of `chunks`, and responses that may wait; a power of two. `jobs` has
   * one more entry for a SEND_WITH_INV with a pending fence.
   */
  rdAtomicLimit: u32;
  /** Addresses of completion counters by CountedOperation; 0: nothing is counted. */
  counterTable: usize;
}
