/** The way of a queue pair through its states, as a connection is made (man rdma_create_qp). */
import { mustBe } from '../errors/check-whole.js';
import { AccessFlag, QpState, QpType } from '#build/abi.js';
import { RefusalError } from '../errors/errors.js';
import type { AddressAttributes } from '../verbs/queues/address-attributes.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import type { QpAttributes } from '../verbs/queues/queue-pair-attributes.js';
import { RDMA_UDP_QKEY } from './enums.js';

/** Parameters that both sides have agreed upon, as this side's queue pair needs them. */
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
const DATAGRAM_STATES = [QpState.INIT, QpState.RTR, QpState.RTS];
/** Regions say for themselves what peers may do with them. */
const ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC |
  AccessFlag.FLUSH_GLOBAL |
  AccessFlag.FLUSH_PERSISTENT |
  AccessFlag.FLUSH_GLOBAL |
  AccessFlag.FLUSH_PERSISTENT;

/** The attributes of a queue pair of this type for its transition into a state. */
export function attributesOf(
  qpType: number,
  qpState: number,
  agreement: Agreement | undefined,
): QpAttributes {
  const isDatagram = qpType === QpType.UD;
  if (qpState === QpState.INIT) {
    const common = { qpState, pkeyIndex: 0, portNum: 1 };
    return { ...common, ...(isDatagram ? { qkey: RDMA_UDP_QKEY } : { qpAccessFlags: ACCESS }) };
  }
  if (qpState !== QpState.RTR && qpState !== QpState.RTS) {
    throw mustBe('qpState', 'INIT, RTR or RTS', qpState);
  }
  if (isDatagram) return qpState === QpState.RTR ? { qpState } : { qpState, sqPsn: 0 };
  if (!agreement) {
    throw new RefusalError(
      'EINVAL',
      'initQpAttr: the id has no agreement with a peer yet; connect it first',
    );
  }
  const isReliable = qpType === QpType.RC;
  if (qpState === QpState.RTR) {
    const { ahAttr, pathMtu, destQpNum, rqPsn, maxDestRdAtomic } = agreement;
    const reliable = isReliable ? { maxDestRdAtomic, minRnrTimer: MIN_RNR_TIMER } : {};
    return { qpState, ahAttr, pathMtu, destQpNum, rqPsn, ...reliable };
  }
  const { sqPsn, maxRdAtomic, timeout, retryCnt, rnrRetry } = agreement;
  return { qpState, sqPsn, ...(isReliable ? { maxRdAtomic, timeout, retryCnt, rnrRetry } : {}) };
}

/** Datagram queue pairs are ready at once, others in INIT: receives may be posted. */
export function initialize(qp: QueuePair): void {
  const states = qp.qpType === QpType.UD ? DATAGRAM_STATES : [QpState.INIT];
  for (const qpState of states) qp.modify(attributesOf(qp.qpType, qpState, undefined));
}

/** To RTR: the peer's packets are served, ours wait. Throws RefusalError. */
export function makeReadyToReceive(qp: QueuePair, agreement: Agreement): void {
  qp.modify(attributesOf(qp.qpType, QpState.RTR, agreement));
}

/** From RTR to RTS. Throws RefusalError. */
export function makeReadyToSend(qp: QueuePair, agreement: Agreement): void {
  qp.modify(attributesOf(qp.qpType, QpState.RTS, agreement));
}

/**
 * The same, after the peer may have sent: its first packet may have ended the queue pair, or ends
 * it now, in the thread that runs the engine. The transition may have been made already.
 */
export function makeReadyUnlessEnded(qp: QueuePair, agreement: Agreement): void {
  if (qp.state !== QpState.RTR) return;
  try {
    makeReadyToSend(qp, agreement);
  } catch (error) {
    if (qp.query().qpState !== QpState.ERR) throw error;
  }
}

/** Everything posted is flushed; safe for a queue pair in any state. */
export function bringDown(qp: QueuePair): void {
  if (qp.state !== QpState.RESET) qp.modify({ qpState: QpState.ERR });
}
