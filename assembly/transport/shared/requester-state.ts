/** The requester's part of a queue pair. Ring indices count up and wrap at 2^32. */
import { QueuePairBase } from './queue-pair-base';

@unmanaged
export class RequesterState extends QueuePairBase {
  /** First index that was not copied from the ring. */
  sendFetched: u32;
  /** Until then a short answer may be one to an earlier silence (path-mtu.ts). */
  shortLate: u64;
  /** The request whose packets are sent now. */
  sendNext: u32;
  /** The oldest request that is not complete. */
  sendTail: u32;
  /** Bytes of request `sendNext` that were sent. */
  sendOffset: u32;
  psnNext: u32;
  /** The oldest PSN that is not acknowledged. */
  psnUnacked: u32;
  /** The oldest PSN that has not arrived, as far as the peer has reported; acknowledged or not. */
  psnArrived: u32;
  /** The peer has executed all before it. Behind `psnUnacked` while a response is missing. */
  psnExecuted: u32;
  /** One past the highest PSN that was ever sent. */
  psnMax: u32;
  /** Packets since the last AckReq. */
  packetsSinceAckRequest: u32;
  /** `chargeSent` at that time. */
  chargeAsked: u32;
  /** Charge that may be under way: half of the peer's receive buffer. */
  windowCharge: u32;
  chargeSent: u32;
  chargeAcked: u32;
  /** As `chargeAcked`, of what has arrived. */
  chargeArrived: u32;
  /** Charge of a packet of one full path MTU. */
  chargeFull: u32;
  timeoutExponent: u32;
  retryLimit: u32;
  retryLeft: u32;
  rnrRetryLimit: u32;
  rnrRetryLeft: u32;
  /** Reads and atomics that may be in flight (`max_rd_atomic`). */
  rdAtomicMax: u32;
  /** Ring of READ requests in flight: chunkHead - chunkTail of them. */
  chunkHead: u32;
  chunkTail: u32;
  /** 1 while an RNR NAK's time has not passed. */
  rnrWaiting: u8;
  drainNotify: u8;
  /** 1: the last packet of a signaled request was sent, and no AckReq since. */
  awaited: u8;
  heardOldNews: u8; // 1: a duplicate, or an ACK of one, since the last check (keep-alive.ts).
  /** Packets that the peer keeps when they come ahead; 0: it keeps none. */
  reorderPeer: u32;
  /** Packets behind `psnArrived` that have arrived; and those that are lost and not sent again. */
  arrivedCount: u32;
  lostCount: u32;
  /** The last packet that is known to have arrived, as PSN. */
  arrivedLast: u32;
  /** When the latest of the packets that have arrived was sent, and its round trip. */
  arrivedMicros: u32;
  arrivedRoundTrip: u32;
  /** When the latest of the packets that are lost was sent. */
  lostMicros: u32;
  /** When the timer last fired after a silence; 1: no round trip across it was measured yet. */
  silentMicros: u32;
  silent: u8;
  /** 1: losses were detected, and no needless retransmission was reported since. */
  lossReported: u8;
  /** Bits of Sign (path-mtu.ts). */
  mtuSigns: u8;
  /** 1: modify chose the local path for the requests of this queue pair (LOCAL-PATH.md). */
  localPath: u8;
  /** Begin of the silence in which a short packet was sent to be answered. */
  shortMicros: u32;
  /** A packet to be sent again although it may have arrived, as PSN + 1; 0: none. */
  repairPsn: u32;
  /** The oldest packet that was retransmitted after a timeout, as PSN + 1; 0: no packet. */
  oldestRepeated: u32;
  /** The packet whose round trip is measured, and when it was sent; 0: none. */
  probePsn: u32;
  probeMicros: u32;
  roundTripMicros: u32;
  /** Of the list of queue pairs that wait for their path (path-control.ts). */
  heldLink: usize;
  /** Time of the last new ACK, or of the first packet after an idle time; psnUnacked then. */
  progressMicros: u32;
  progressPsn: u32;
  /** Early repetitions since then. */
  earlyRepeats: u8;
  /**
   * Not 0: something was lost on this way; acknowledgements without a loss until it counts as sound
   * (congestion-window.ts). Silence is taken for a loss sooner.
   */
  lossy: u8;
  /** 1: only the oldest packet is sent, twice (congestion-window.ts). */
  isAlone: u8;
  /** 1: the SQ_DRAINED event of this stay in SQD was pushed. */
  drained: u8;
  /** The last packet that was repeated early, as PSN + 1; 0: none. */
  repeatedEarly: u32;
  /** 1 when nothing new may be sent: a request failed locally and waits to be the oldest. */
  sendStopped: u32;
  /** The NAK sequence error that was already acted upon, as PSN + 1; 0: none. */
  nakHandled: u32;
  /** An SgeCursor: where in the request's SGE list `sendOffset` lies. */
  sendSgeIndex: u32;
  sendSgeOffset: u32;
}
