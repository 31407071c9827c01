/**
 * The agreement of two sides: converts `rdma_conn_param` to fields of messages, and these to
 * attributes of a queue pair.
 */
import { MULTICAST_QPN, Mtu, QpType } from '#build/abi.js';
import { checkKeys } from '../base/options.js';
import { checkFlag, checkWhole, mustBe } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import type { Endpoint, Gid } from '../link/endpoint.js';
import { keepsBytes } from '../link/integrity.js';
import type { Context } from '../verbs/context.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import { IP_CM_BYTES, buildIpCm, caGuidOf, traitsOf, type IpCmHeader } from './address.js';
import type { AuthOptions } from './auth-option.js';
import { RDMA_UDP_QKEY, TransportService } from './enums.js';
import type { ConnParam, UdParam } from './event-details.js';
import { KEEP_ALIVE_MILLIS, KEEP_ALIVE_MILLIS_MAX, KEEP_ALIVE_MILLIS_MIN } from './keep-alive.js';
import {
  privateDataMax,
  type FieldsOf,
  type Message,
  type MessageName,
  type RequestFields,
} from './mad.js';
import type { Agreement } from './queue-pair-states.js';
import { checkBytes } from '../errors/check-bytes.js';

/** How patient this side is; librdmacm has these as options of an id (`rdma_set_option`). */
export interface CmOptions {
  /** Until a message is sent again: 4.096 us * 2^it, 0 to 31. Default 18, a second. */
  readonly cmResponseTimeout?: number;
  /** How often it is, 0 to 15. Default 15. */
  readonly maxCmRetries?: number;
  /** Until a queue pair sends a packet again: 4.096 us * 2^it, 0 to 31. Default: the link's, 17. */
  readonly ackTimeout?: number;
  /**
   * A Mtu: the active side requests no larger packets. Default: the link's, or less for ten minutes
   * after a queue pair to this peer has ended because of its path MTU.
   */
  readonly pathMtu?: number;
  /**
   * Payload of a full packet beside the path MTU, a multiple of 8 and less than twice that, if both
   * sides have the same value here and packets that long fit the link; for queue pairs of ids.
   * 1344 fills a frame of Ethernet beside path MTU 1024, on paths that carry it in both directions
   * (host/guide/LINKS.md). Default 0: the path MTU.
   */
  readonly payloadBytes?: number;
  /**
   * FLUSH requests to this peer get the ICRC that Linux rxe computes, which covers their headers
   * twice (`ahAttr.doubledFlushIcrc`). Default: true if the peer is rxe (`isRxe`).
   */
  readonly doubledFlushIcrc?: boolean;
  /**
   * Milliseconds without a sign of life of the peer's transport after which a connection ends (100
   * to 86,400,000; detection takes up to a quarter longer); 0: no keep-alive. Applies to reliable
   * connections with a queue pair of their own. Default 20,000.
   */
  readonly keepAliveMillis?: number;
  /**
   * Authenticates the connection, or those of a listener: required then, without a fallback. Both
   * sides have it, or none. Default: none.
   */
  readonly auth?: AuthOptions;
}

type NoDefault = 'ackTimeout' | 'payloadBytes' | 'doubledFlushIcrc' | 'auth';
type OptionDefaults = Required<Omit<CmOptions, NoDefault>>;
export const DEFAULT_OPTIONS: OptionDefaults = {
  cmResponseTimeout: 18,
  maxCmRetries: 15,
  pathMtu: Mtu.MTU_4096,
  keepAliveMillis: KEEP_ALIVE_MILLIS,
};

const OPTION_RANGES: Readonly<
  Record<Exclude<keyof CmOptions, 'doubledFlushIcrc' | 'auth'>, readonly [number, number]>
> = {
  cmResponseTimeout: [0, 31],
  maxCmRetries: [0, 15],
  ackTimeout: [0, 31],
  pathMtu: [Mtu.MTU_256, Mtu.MTU_4096],
  payloadBytes: [0, 4096],
  keepAliveMillis: [0, KEEP_ALIVE_MILLIS_MAX],
};

/** Names of ConnParam. */
export const CONN_PARAM =
  'privateData responderResources initiatorDepth flowControl retryCount rnrRetryCount srq qpNum';

/** Names of CmOptions that the accepting side has, too: all but `auth`, which its listener has. */
export const CM_OPTIONS =
  'cmResponseTimeout maxCmRetries ackTimeout pathMtu payloadBytes doubledFlushIcrc keepAliveMillis';

/** Throws MisuseError. */
export function checkOptions(options: CmOptions): void {
  checkKeys('setOption', options, `auth ${CM_OPTIONS}` as const);
  const { doubledFlushIcrc, auth: _auth, ...numbers } = options;
  if (doubledFlushIcrc !== undefined) checkFlag('doubledFlushIcrc', doubledFlushIcrc);
  for (const [name, value] of Object.entries(numbers) as [keyof typeof OPTION_RANGES, number][]) {
    checkWhole(name, value, ...OPTION_RANGES[name]);
  }
  if (options.keepAliveMillis !== undefined) checkKeepAlive(options.keepAliveMillis);
}

/** Throws MisuseError. */
export function checkKeepAlive(millis: number): void {
  checkWhole('keepAliveMillis', millis, ...OPTION_RANGES.keepAliveMillis);
  if (millis === 0 || millis >= KEEP_ALIVE_MILLIS_MIN) return;
  throw mustBe('keepAliveMillis', `0 (off) or at least ${KEEP_ALIVE_MILLIS_MIN}`, millis);
}

const NOTHING = new Uint8Array(0);
const NO_LID = 0xffff;
const HOP_LIMIT = 64;
/** 4.096 us * 2^15, 134 ms, as Linux says. */
const TARGET_ACK_DELAY = 15;

/** Fields of a REQ whose value is constant. Those of features that Verbena lacks are 0. */
const REQUEST_CONSTANTS = {
  localEecn: 0,
  pkey: 0xffff,
  primaryLocalLid: NO_LID,
  primaryRemoteLid: NO_LID,
  primaryHopLimit: HOP_LIMIT,
} satisfies Partial<FieldsOf<'REQ'>>;

const MOST: Readonly<Record<string, number>> = {
  responderResources: 255,
  initiatorDepth: 255,
  flowControl: 1,
  retryCount: 7,
  rnrRetryCount: 7,
  qpNum: 0xffffff,
};

/** Throws MisuseError for a number out of range. */
function checkConnParam(param: ConnParam): void {
  for (const [name, most] of Object.entries(MOST)) {
    const value = param[name as keyof ConnParam] as number | undefined;
    if (value !== undefined) checkWhole(name, value, 0, most);
  }
}

/**
 * Connection parameters that the peer offers, seen from this side: `responderResources` and
 * `initiatorDepth` are exchanged.
 */
export function connParamOf(
  message: Message<'REQ'> | Message<'REP'>,
  privateData: Uint8Array,
): ConnParam & { readonly responderResources: number; readonly initiatorDepth: number } {
  return {
    privateData,
    responderResources: message.initiatorDepth,
    initiatorDepth: message.responderResources,
    flowControl: message.flowControl,
    ...(message.name === 'REQ' ? { retryCount: message.retryCount } : {}),
    rnrRetryCount: message.rnrRetryCount,
    srq: message.srq === 1,
    qpNum: message.localQpn,
  };
}

/** Throws MisuseError: private data is never truncated. `header`: bytes of the protocol's own. */
export function checkPrivateData(
  name: MessageName,
  privateData: Uint8Array = NOTHING,
  header = 0,
): void {
  checkBytes('privateData', privateData);
  const most = privateDataMax(name) - header;
  if (privateData.length > most) {
    const rule = `has at most ${most} bytes in this message, got ${privateData.length}`;
    throw new MisuseError('privateData', rule);
  }
}

/** Where datagrams to a group go. `port`: of the device, since its link joins groups of that port. */
export function multicastParam(group: Gid, port: number): UdParam {
  const ahAttr = { dgid: group, port };
  return { privateData: NOTHING, ahAttr, qpNum: MULTICAST_QPN, qkey: RDMA_UDP_QKEY };
}

/** Prefixes private data with the addresses of both sides. Throws MisuseError. */
export function introduce(
  name: 'REQ' | 'SIDR_REQ',
  between: IpCmHeader,
  own: Uint8Array = NOTHING,
): Uint8Array {
  checkPrivateData(name, own, IP_CM_BYTES);
  const joined = new Uint8Array(IP_CM_BYTES + own.length);
  joined.set(buildIpCm(between));
  joined.set(own, IP_CM_BYTES);
  return joined;
}

/** Whose messages these are. */
interface Side {
  readonly context: Context;
  readonly qp: QueuePair | undefined;
}

/** The number of the id's queue pair, or of `param`. Throws MisuseError. */
export function queuePairNumber({ qp }: Side, param: ConnParam): number {
  checkConnParam(param);
  const qpNum = qp?.qpNum ?? param.qpNum;
  if (qpNum === undefined) throw new MisuseError('qpNum', 'is required: the id has no queue pair');
  return qpNum;
}

function ownGuid({ context, qp }: Side, peer: Endpoint): bigint {
  const { info, icrc } = context.device;
  const skipsIcrc = icrc !== 'always' && keepsBytes(info, peer);
  return caGuidOf(info, qp?.cap.reorderPackets ?? 0, skipsIcrc);
}

/** Throws MisuseError. */
export function requestFields(
  side: Side,
  param: ConnParam,
  peer: Endpoint,
  { cmResponseTimeout, maxCmRetries, ackTimeout, pathMtu }: CmOptions & OptionDefaults,
): Omit<RequestFields, 'serviceId' | 'privateData' | 'startingPsn'> {
  const { context, qp } = side;
  const localQpn = queuePairNumber(side, param);
  const depth = context.device.limits.rdAtomicMax;
  return {
    ...REQUEST_CONSTANTS,
    localCaGuid: ownGuid(side, peer),
    localQpn,
    responderResources: Math.min(param.responderResources ?? depth, depth),
    initiatorDepth: Math.min(param.initiatorDepth ?? depth, depth),
    remoteCmResponseTimeout: cmResponseTimeout,
    localCmResponseTimeout: cmResponseTimeout,
    transportService: qp?.qpType === QpType.UC ? TransportService.UC : TransportService.RC,
    flowControl: param.flowControl ?? 0,
    retryCount: param.retryCount ?? 7,
    rnrRetryCount: param.rnrRetryCount ?? 7,
    maxCmRetries,
    pathMtu: Math.min(context.queryPort().activeMtu, pathMtu),
    srq: (qp ? qp.srq : param.srq) ? 1 : 0,
    primaryLocalGid: context.local.gid.bytes,
    primaryRemoteGid: peer.gid.bytes,
    // The last one where the link does not say how long.
    primaryLocalAckTimeout: ackTimeout ?? context.device.info.ackTimeout ?? 17,
  };
}

/** The values of a reply, at most those of the request and of the device. Throws MisuseError. */
export function replyFields(
  side: Side,
  request: Message<'REQ'>,
  param: ConnParam,
  peer: Endpoint,
): Omit<FieldsOf<'REP'>, 'localCommId' | 'remoteCommId' | 'startingPsn' | 'privateData'> {
  const localQpn = queuePairNumber(side, param);
  const depth = side.context.device.limits.rdAtomicMax;
  const within = (wanted: number | undefined, most: number): number =>
    Math.min(wanted ?? most, most, depth);
  return {
    localQkey: 0,
    localQpn,
    localEecn: 0,
    responderResources: within(param.responderResources, request.initiatorDepth),
    initiatorDepth: within(param.initiatorDepth, request.responderResources),
    targetAckDelay: TARGET_ACK_DELAY,
    failoverAccepted: 0,
    flowControl: param.flowControl ?? request.flowControl,
    rnrRetryCount: param.rnrRetryCount ?? 7,
    srq: (side.qp ? side.qp.srq : param.srq) ? 1 : 0,
    localCaGuid: ownGuid(side, peer),
  };
}

/** The peer's address, and the kind of ICRC for FLUSH requests to it. */
export interface Remote {
  readonly peer: Endpoint;
  readonly doubledFlushIcrc: boolean;
}

/**
 * Of a REQ or REP. RC has no end-to-end context: of our own kind `localEecn` is the payload of full
 * packets that this side is for (`PathMtus.longPayload`), others send 0.
 */
type Adapter = Pick<FieldsOf<'REP'>, 'localCaGuid' | 'localEecn'>;

/** Where the peer's queue pair is, as far as it says. */
function addressOf(
  theirs: Adapter,
  ours: Adapter,
  pathMtu: number,
  { peer, doubledFlushIcrc }: Remote,
): Agreement['ahAttr'] {
  const { gid, port } = peer;
  const traits = traitsOf(theirs.localCaGuid);
  const { isOwnKind, udpPort, receiveBufferBytes, reorderPackets, skipsIcrc } = traits;
  if (!isOwnKind) return { dgid: gid, port, receiveBufferBytes, doubledFlushIcrc };
  const own = { dgid: gid, port: udpPort, ownKind: true, receiveBufferBytes, reorderPackets };
  const bytes = ours.localEecn;
  const isLong = theirs.localEecn === bytes && (bytes >> 7) >> pathMtu === 1;
  return {
    ...{ ...own, doubledFlushIcrc, payloadBytes: isLong ? bytes : 0 },
    skipIcrc: skipsIcrc && traitsOf(ours.localCaGuid).skipsIcrc,
  };
}

/** 8.6 s: eight transmissions with this timeout take at most 90 s. */
const ACK_TIMEOUT_MAX = 21;
/** 1 ms: a shorter one has a window repeated before the peer's event loop can have answered. */
const ACK_TIMEOUT_MIN = 8;

/** 0 means no timer (IBA 9.9.2.1.2): a connection to a dead peer would never end. */
function boundedAckTimeout(exponent: number): number {
  if (exponent === 0) return ACK_TIMEOUT_MAX;
  return Math.max(ACK_TIMEOUT_MIN, Math.min(exponent, ACK_TIMEOUT_MAX));
}

type ReplyAgreed = 'startingPsn' | 'responderResources' | 'initiatorDepth' | keyof Adapter;

/**
 * Passive: of a request and our reply. A message's starting PSN is the one that its receiver is to
 * begin with (IBA 12.7, Starting PSN): what we say is what we expect.
 */
export function agreementOfRequest(
  request: Message<'REQ'>,
  reply: Pick<FieldsOf<'REP'>, ReplyAgreed>,
  remote: Remote,
): Agreement {
  return {
    ahAttr: addressOf(request, reply, request.pathMtu, remote),
    pathMtu: request.pathMtu,
    destQpNum: request.localQpn,
    rqPsn: reply.startingPsn,
    sqPsn: request.startingPsn,
    maxDestRdAtomic: reply.responderResources,
    maxRdAtomic: reply.initiatorDepth,
    timeout: boundedAckTimeout(request.primaryLocalAckTimeout),
    retryCnt: request.retryCount,
    rnrRetry: request.rnrRetryCount,
  };
}

/** Active: of our request and the reply. */
export function agreementOfReply(
  request: RequestFields,
  reply: Message<'REP'>,
  remote: Remote,
): Agreement {
  return {
    ahAttr: addressOf(reply, request, request.pathMtu, remote),
    pathMtu: request.pathMtu,
    destQpNum: reply.localQpn,
    rqPsn: request.startingPsn,
    sqPsn: reply.startingPsn,
    maxDestRdAtomic: Math.min(request.responderResources, reply.initiatorDepth),
    maxRdAtomic: Math.min(request.initiatorDepth, reply.responderResources),
    timeout: request.primaryLocalAckTimeout,
    retryCnt: request.retryCount,
    rnrRetry: reply.rnrRetryCount,
  };
}
