/** The responder's part of a queue pair, behind the requester's. */
import { RequesterState } from './requester-state';

@unmanaged
export class ResponderState extends RequesterState {
  psnExpected: u32;
  /** Packets that are kept ahead, and the last of them. */
  aheadCount: u32;
  aheadLast: u32;
  msn: u32;
  /** A MessageKind: what is in progress. */
  message: u32;
  /** Bytes of the message in progress that were placed. */
  messageOffset: u32;
  /** WRITE: bytes of the message that are to come. */
  messageLeft: u32;
  messageKey: u32;
  /** 1 while `receiveRequest` holds one. */
  receiveHeld: u32;
  /** Index of the next receive request in the ring. */
  receiveNext: u32;
  minRnrTimer: u32;
  /** READs and atomics that the peer may have in flight (`max_dest_rd_atomic`). */
  destRdAtomicMax: u32;
  resourceHead: u32;
  jobHead: u32;
  jobTail: u32;
  /** Jobs that cannot be answered yet (JobState). */
  heldJobs: u32;
  /** FLUSHes of jobs before this one were handed to the host. */
  flushFrom: u32;
  /** Charge of arrivals behind a held job since the last report of arrivals. */
  chargeHeld: u32;
  /** 1: the peer asks again for what is still being worked on. */
  busyPending: u8;
  /** ACKs to send: two if the peer has repeated the packet more than once. */
  ackPending: u8;
  /** 1: packets that arrived ahead are to be reported. */
  sackPending: u8;
  /** Bits of Aside: packets to send that are neither requests nor responses. */
  asidePending: u8;
  /** 1: a message without AckReq arrived, and no acknowledgement was sent since. */
  ackDelayed: u8;
  /** 1: the current receive request completes when the fence of its invalidation has passed. */
  receiveFenced: u8;
  /** 1: a packet has arrived twice, and no acknowledgement said so since. */
  hadDuplicate: u8;
  /** 1: it has no packets in flight and waits for the window of the path (path-control.ts). */
  waits: u8;
  /** Syndrome of a NAK that waits to be sent; 0: none. */
  nakPending: u32;
  nakPsn: u32;
  /** 1 from a NAK of the sequence or an RNR NAK until the expected packet comes. */
  nakSent: u8;
  communicationEstablished: u8;
  lastTaken: u8; // 1 once LAST_WQE_REACHED was reported.
  /** 1: it may send although the window of the path is full (path-control.ts). */
  begins: u8;
  /** PSN + 1 of the last packet that the peer retransmitted; 0: no packet. */
  duplicatePsn: u32;
  /** An SgeCursor: where in the receive request `messageOffset` lies. */
  receiveSgeIndex: u32;
  receiveSgeOffset: u32;
  /** UD: queue pair number and UDP port of the sender of the current datagram. */
  sourceQp: u32;
  sourcePort: u32;
  /** When the last congestion notification was sent; 0: never. */
  notifiedMicros: u32;
  /** When the system first refused the oldest packet for its length; 0: never (path-mtu.ts). */
  refusedMicros: u32;
  /** Requester: trials of the path MTU since its round began, and how many were answered. */
  mtuTrials: u16;
  mtuAnswers: u16;
}
