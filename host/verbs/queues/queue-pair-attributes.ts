/** `ibv_qp_attr`: what `qp.modify` changes, and how it reaches the engine. */
import { checkFlag, checkWhole, mustBe } from '../../errors/check-whole.js';
import type { QpState, Mtu } from '#build/abi.js';
import type { AccessFlags } from '../enums.js';
import { QpAttribute, QpAttributeName, type QueuePairAttributesLayout } from '#build/abi.js';
import { checkKeys, checkObject } from '../../base/options.js';
import type { Struct } from '../../engine/struct.js';
import { grantCapabilities, type QpCapabilities } from './queue-pair-capabilities.js';
import { fillAddress, type AddressAttributes } from './address-attributes.js';

/** `ibv_qp_attr`. What is present is what the mask names. */
export interface QpAttributes {
  readonly qpState?: QpState;
  readonly curQpState?: QpState;
  readonly qpAccessFlags?: AccessFlags;
  readonly pkeyIndex?: number;
  readonly portNum?: number;
  readonly qkey?: number;
  readonly ahAttr?: AddressAttributes;
  /** An Mtu. */
  readonly pathMtu?: Mtu;
  /** Acknowledgement timeout 4.096 us * 2^timeout; 0: none. */
  readonly timeout?: number;
  readonly retryCnt?: number;
  readonly rnrRetry?: number;
  readonly rqPsn?: number;
  readonly maxRdAtomic?: number;
  readonly minRnrTimer?: number;
  readonly sqPsn?: number;
  readonly maxDestRdAtomic?: number;
  readonly destQpNum?: number;
  /** To SQD: an SQ_DRAINED event when nothing is in flight any more. */
  readonly enSqdAsyncNotify?: boolean;
}

const MASKS: { readonly [Name in keyof Required<QpAttributes>]: number } = {
  qpState: QpAttribute.STATE,
  curQpState: QpAttribute.CUR_STATE,
  qpAccessFlags: QpAttribute.ACCESS_FLAGS,
  pkeyIndex: QpAttribute.PKEY_INDEX,
  portNum: QpAttribute.PORT,
  qkey: QpAttribute.QKEY,
  ahAttr: QpAttribute.AV,
  pathMtu: QpAttribute.PATH_MTU,
  timeout: QpAttribute.TIMEOUT,
  retryCnt: QpAttribute.RETRY_CNT,
  rnrRetry: QpAttribute.RNR_RETRY,
  rqPsn: QpAttribute.RQ_PSN,
  maxRdAtomic: QpAttribute.MAX_QP_RD_ATOMIC,
  minRnrTimer: QpAttribute.MIN_RNR_TIMER,
  sqPsn: QpAttribute.SQ_PSN,
  maxDestRdAtomic: QpAttribute.MAX_DEST_RD_ATOMIC,
  destQpNum: QpAttribute.DEST_QPN,
  enSqdAsyncNotify: QpAttribute.EN_SQD_ASYNC_NOTIFY,
};

const CAPABILITIES = 'maxSendWr maxRecvWr maxSendSge maxRecvSge maxInlineData reorderPackets';

/** Checks the attributes of a new queue pair; `more`: names of further attributes of the call. */
export function checkInit(
  verb: string,
  attributes: {
    readonly cap?: Partial<QpCapabilities>;
    readonly qpType?: number;
    readonly sqSigAll?: boolean;
  },
  more = '',
): void {
  checkKeys(verb, attributes, `qpType sendCq recvCq srq cap sqSigAll ${more}`.trim());
  const { qpType, sqSigAll } = attributes;
  if (qpType !== undefined && typeof qpType !== 'number')
    throw mustBe('qpType', 'a QpType', qpType);
  if (sqSigAll !== undefined) checkFlag('sqSigAll', sqSigAll);
  if (attributes.cap === undefined) return;
  checkKeys(`${verb} (cap)`, attributes.cap, CAPABILITIES);
  // Before the connection manager makes queues of these sizes.
  grantCapabilities(attributes.cap, 0);
}

/** Numbers are stored as 32 bits: what does not fit is refused, not cut. */
export function checkNumbers(attributes: QpAttributes): void {
  checkKeys('modify', attributes, Object.keys(MASKS).join(' '));
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || name === 'ahAttr' || name === 'enSqdAsyncNotify') continue;
    checkWhole(name, value as number);
  }
}

export function maskOf(attributes: QpAttributes): number {
  checkObject('modify', attributes, 'attributes');
  let mask = 0;
  for (const [name, bit] of Object.entries(MASKS)) {
    if (attributes[name as keyof QpAttributes] !== undefined) mask |= bit;
  }
  return mask;
}

export function attributeNames(mask: number): string {
  const names = Object.entries(QpAttributeName)
    .filter(([bit]) => mask & Number(bit))
    .map(([, name]) => name);
  return names.join(', ');
}

/** Copies what is there. */
export function fillAttributes(
  struct: Struct<typeof QueuePairAttributesLayout>,
  attributes: QpAttributes,
): void {
  struct.state = attributes.qpState ?? 0;
  struct.currentState = attributes.curQpState ?? 0;
  struct.pathMtu = attributes.pathMtu ?? 0;
  struct.qkey = attributes.qkey ?? 0;
  struct.receivePsn = attributes.rqPsn ?? 0;
  struct.sendPsn = attributes.sqPsn ?? 0;
  struct.targetQp = attributes.destQpNum ?? 0;
  struct.accessFlags = attributes.qpAccessFlags ?? 0;
  struct.pkeyIndex = attributes.pkeyIndex ?? 0;
  struct.portNumber = attributes.portNum ?? 0;
  struct.maxRdAtomic = attributes.maxRdAtomic ?? 0;
  struct.maxDestRdAtomic = attributes.maxDestRdAtomic ?? 0;
  struct.minRnrTimer = attributes.minRnrTimer ?? 0;
  struct.timeout = attributes.timeout ?? 0;
  struct.retryCount = attributes.retryCnt ?? 0;
  struct.rnrRetry = attributes.rnrRetry ?? 0;
  struct.drainNotify = attributes.enSqdAsyncNotify ? 1 : 0;
  if (attributes.ahAttr) fillAddress(struct, attributes.ahAttr);
}
