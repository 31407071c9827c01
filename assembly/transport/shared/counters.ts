/**
 * Counters of a context. Names that Linux rxe has are rxe's (`rdma statistic`); the others say why
 * a packet was dropped, or which rule let its ICRC pass. The host reads them in place.
 */
@unmanaged
export class Counters {
  sentPkts: u64;
  rcvdPkts: u64;
  sentBytes: u64;
  rcvdBytes: u64;
  duplicateRequest: u64;
  outOfSeqRequest: u64;
  rcvdRnrErr: u64;
  sendRnrErr: u64;
  rcvdSeqErr: u64;
  ackDeferred: u64;
  retryExceededErr: u64;
  retryRnrExceededErr: u64;
  /** Queue pairs that ended because their path MTU is too large (path-mtu.ts). */
  pathMtuErr: u64;
  /** Times that the requester went back to an earlier packet. */
  completerRetryErr: u64;
  sendErr: u64;
  rdmaSends: u64;
  rdmaRecvs: u64;
  /** Packets sent again. */
  retransmittedPkts: u64;
  /** Retransmit timers that fired. */
  timeouts: u64;
  dropMalformed: u64;
  dropUnknownOpcode: u64;
  /** No such queue pair, or not in a state to take the packet. */
  dropQueuePair: u64;
  /** The opcode's service is not the queue pair's. */
  dropService: u64;
  /** Not from the address that the queue pair is connected to. */
  dropSource: u64;
  dropIcrc: u64;
  /** Authenticated queue pairs: no tag, or a wrong one. */
  dropTag: u64;
  /** Authenticated queue pairs: a number that came before, or that is too old to know. */
  dropReplay: u64;
  dropPkey: u64;
  /** UD: wrong Q_Key. */
  dropQkey: u64;
  /** UD: no receive request, or one that is too small. */
  dropReceive: u64;
  /** Responses to nothing that is outstanding. */
  dropGhost: u64;
  /** ICRCs accepted as they stand (IP identification 0). */
  icrcExact: u64;
  /** ICRCs accepted after solving for the IP identification. */
  icrcByIpId: u64;
  /** Packets without an ICRC, as both ends agreed for a link that keeps bytes whole. */
  icrcSkipped: u64;
  /** Congestion notifications sent and received. */
  cnpsSent: u64;
  cnpsReceived: u64;
  /** Requests that this engine executed on the local path, without packets; and their bytes. */
  localRequests: u64;
  localBytes: u64;
  /** Packets of UC and UD for queue pairs of this context, which did not leave it. */
  localPackets: u64;
  /** Events lost because the event ring was full. */
  eventsLost: u64;
}
