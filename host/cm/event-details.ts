/** Parameters of connection manager events besides their ids. */
import type { AddressAttributes } from '../verbs/queues/address-attributes.js';

/** `rdma_conn_param`: what both sides agree upon. What is left out, the device decides. */
export interface ConnParam {
  /**
   * For the other application: at most 56 bytes in a request, 196 in an answer. Received: as many
   * bytes as were sent; from an adapter or Linux, which send no length, the field of 56 or 196
   * bytes with zeros behind the data.
   */
  readonly privateData?: Uint8Array;
  /** READs and atomics of the peer that this side serves at a time. */
  readonly responderResources?: number;
  /** READs and atomics that this side has in flight. */
  readonly initiatorDepth?: number;
  readonly flowControl?: number;
  /** Retransmissions by both sides before the connection fails, 0 to 7. Only `connect` sets it. */
  readonly retryCount?: number;
  /**
   * The peer's retries after RNR NAKs of this side, 0 to 6; 7: without end. It does not limit this
   * side's own requests: for those the peer sets it, in its `connect` or `accept`.
   */
  readonly rnrRetryCount?: number;
  /** Only where the queue pair is not the id's own: does it take from a shared receive queue? */
  readonly srq?: boolean;
  /** Only where the queue pair is not the id's own: its number. */
  readonly qpNum?: number;
}

/** `rdma_ud_param`: where datagrams go. */
export interface UdParam {
  readonly privateData: Uint8Array;
  readonly ahAttr: AddressAttributes;
  readonly qpNum: number;
  readonly qkey: number;
}

/** `rdma_cm_event`, without event and ids. */
export interface CmEventDetails {
  /**
   * 0, or why: a RejectReason with REJECTED, a SidrStatus with UNREACHABLE of datagrams that the
   * peer refused, a negative errno otherwise (-110, ETIMEDOUT: no answer).
   */
  readonly status?: number;
  readonly conn?: ConnParam;
  readonly ud?: UdParam;
  /** USER: the argument of `writeCmEvent`; MULTICAST_JOIN: the join context. */
  readonly arg?: bigint;
}
