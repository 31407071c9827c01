/** The way of a queue pair through its states, as a connection is made (man rdma_create_qp). */
import { AccessFlag, QpState, QpType } from '#build/abi.js';
import type { AddressAttributes } from '../verbs/address-handle.js';
import type { QueuePair } from '../verbs/queue-pair.js';
import { RDMA_UDP_QKEY } from './enums.js';

/** What both sides have agreed upon, as this side's queue pair needs it. */
export interface Agreement {
  readonly ahAttr: AddressAttributes;
  readonly pathMtu: number;
  readonly destQpNum: number;
  readonly rqPsn: number;
  readonly sqPsn: number;
  readonly maxDestRdAtomic: number;
  readonly maxRdAtomic: number;
  readonly timeout: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
}

/** 0.64 ms: what a peer waits when no receive is posted. */
const MIN_RNR_TIMER = 12;
/** Regions say for themselves what peers may do with them. */
const ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC |
  AccessFlag.FLUSH_GLOBAL |
  AccessFlag.FLUSH_PERSISTENT;

/** Datagram queue pairs are ready at once, others in INIT: receives may be posted. */
export function initialize(qp: QueuePair): void {
  const common = { qpState: QpState.INIT, pkeyIndex: 0, portNum: 1 };
  if (qp.qpType !== QpType.UD) {
    qp.modify({ ...common, qpAccessFlags: ACCESS });
    return;
  }
  qp.modify({ ...common, qkey: RDMA_UDP_QKEY });
  qp.modify({ qpState: QpState.RTR });
  qp.modify({ qpState: QpState.RTS, sqPsn: 0 });
}

/** To RTR: the peer's packets are served, ours wait. Throws RefusalError. */
export function makeReadyToReceive(qp: QueuePair, agreement: Agreement): void {
  const { ahAttr, pathMtu, destQpNum, rqPsn, maxDestRdAtomic } = agreement;
  qp.modify({
    qpState: QpState.RTR,
    ahAttr,
    pathMtu,
    destQpNum,
    rqPsn,
    ...(qp.qpType === QpType.RC ? { maxDestRdAtomic, minRnrTimer: MIN_RNR_TIMER } : {}),
  });
}

/** From RTR to RTS. Throws RefusalError. */
export function makeReadyToSend(qp: QueuePair, agreement: Agreement): void {
  const { sqPsn, maxRdAtomic, timeout, retryCnt, rnrRetry } = agreement;
  const isReliable = qp.qpType === QpType.RC;
  qp.modify({
    qpState: QpState.RTS,
    sqPsn,
    ...(isReliable ? { maxRdAtomic, timeout, retryCnt, rnrRetry } : {}),
  });
}

/** Everything posted is flushed; safe for a queue pair in any state. */
export function bringDown(qp: QueuePair): void {
  if (qp.state !== QpState.RESET) qp.modify({ qpState: QpState.ERR });
}
