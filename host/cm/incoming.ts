/** Effect of each message from a peer. Every field is hostile until it has been matched. */
import { Mtu } from '#build/abi.js';
import { Endpoint } from '../link/endpoint.js';
import { answerPort } from '../verbs/queues/address-attributes.js';
import {
  isAuthentic,
  receiveAuthReply,
  receiveAuthRequest,
  rejectionOf,
  sessionOf,
} from './auth-messages.js';
import { IP_CM_BYTES, isDatagramService, parseIpCm, traitsOf } from './address.js';
import { judge } from './admission.js';
import { HALF_OPEN, idsOf, type Connection, type Listener } from './connection.js';
import { receiveCookie } from './cookie-answer.js';
import { challenge, isProven, splitRequest } from './cookies.js';
import type { CmProtocol } from './protocol.js';
import { timeoutMicros } from './deadlines.js';
import { AboutMessage, ApStatus, RejectReason, SidrStatus, TransportService } from './enums.js';
import { doubt } from './keep-alive.js';
import { buildMad, refusedService, type Message } from './mad.js';
import { isRxe } from './rdma-rxe.js';

/**
 * Service timeout in our MRA: 4.096 us * 2^19, 2.1 s. Not more: the peer repeats its REQ only after
 * this time, and the repeated REQ triggers our REP again if the first one was lost.
 */
const MRA_SERVICE_TIMEOUT = 19;
/** A SIDR_REQ does not state its timeout, so this one is assumed. */
const SIDR_TIME_WAIT_MICROS = 20e6;
const TIMEOUT_MICROS_MAX = 60e6;
/** Least time that our application has to accept, even if the REQ names a shorter one. */
const TIMEOUT_MICROS_MIN = 5e6;
/** Total that MRAs can add to the time between REP and RTU. */
const MRA_MICROS_MAX = 20e6;
/** Total that MRAs can add to the time between REQ and REP. */
const MRA_REQUEST_MICROS_MAX = 120e6;
/** Bounds of the retransmission interval, whatever response time the peer names. */
const ANSWER_MICROS_MIN = 67e3;
const ANSWER_MICROS_MAX = 4.3e6;

export function receiveMessage(
  core: CmProtocol,
  now: number,
  message: Message,
  source: Endpoint,
  datagram: Uint8Array,
): void {
  if (message.name === 'REQ') return receiveRequest(core, now, message, source, datagram);
  if (!isAuthentic(core, aboutWhich(core, message, source), message.name, datagram)) return;
  switch (message.name) {
    case 'AUTH_REQ':
      return receiveAuthRequest(core, now, message, source);
    case 'AUTH_REP':
      return receiveAuthReply(core, now, message, source);
    case 'COOKIE':
      return receiveCookie(core, message, source);
    case 'SIDR_REQ':
      return receiveServiceRequest(core, now, message, source);
    case 'SIDR_REP':
      return receiveServiceReply(core, message, source);
    case 'REJ':
      return receiveReject(core, now, message, source);
    case 'DREQ':
      return receiveDisconnect(core, now, message, source);
    case 'REP':
      return receiveReply(core, now, message, source);
    default:
  }
  const connection = find(core, message.remoteCommId, source, message.localCommId);
  switch (message.name) {
    case 'RTU':
      return receiveReady(core, message, connection, source);
    case 'DREP':
      if (connection?.state !== 'DREQ_SENT') {
        core.counters.unmatched++;
        return;
      }
      core.enterTimeWait(now, connection);
      core.tell(connection, { kind: 'disconnected', privateData: message.privateData });
      return;
    case 'MRA':
      return receiveMra(core, now, message, connection, source);
    case 'LAP': {
      const status = connection ? ApStatus.UNSUPPORTED : ApStatus.INVALID_COMM_ID;
      return answerAlone(core, 'APR', message, source, { status });
    }
    case 'APR':
      // Verbena loads no alternate path, so it sent no request for one.
      core.counters.unmatched++;
  }
}

/** The connection that a message refers to, independent of its sender. */
function aboutWhich(
  core: CmProtocol,
  message: Exclude<Message, { readonly name: 'REQ' }>,
  source: Endpoint,
): Connection | undefined {
  switch (message.name) {
    case 'SIDR_REQ':
    case 'SIDR_REP':
    case 'AUTH_REQ':
    case 'AUTH_REP':
      return undefined;
    case 'REJ':
      return findRejected(core, message, source) ?? core.connections.get(message.remoteCommId);
    default:
      return core.connections.get(message.remoteCommId);
  }
}

/** The connection that a message is for, when it comes from the peer that it is with. */
function find(
  core: CmProtocol,
  localId: number,
  source: Endpoint,
  remoteId: number,
): Connection | undefined {
  const connection = core.connections.get(localId);
  if (!connection?.peer.gid.equals(source.gid)) return undefined;
  return connection.remoteId === remoteId ? connection : undefined;
}

function receiveRequest(
  core: CmProtocol,
  now: number,
  message: Message<'REQ'>,
  source: Endpoint,
  received: Uint8Array,
): void {
  const { datagram, cookie } = splitRequest(received);
  const { isOwnKind, udpPort } = traitsOf(message.localCaGuid);
  // A Verbena peer sends from the port that it names: no answer goes to any other port.
  const port = isOwnKind && udpPort === source.port ? udpPort : answerPort(source.port);
  const peer = new Endpoint(source.gid, port);
  const key = remoteKey(source, message.localCaGuid, message.localCommId);
  const known = core.byRemote.get(key);
  if (known) {
    if (isAuthentic(core, known, message.name, datagram)) receiveAgain(core, now, known);
    return;
  }
  const found = sessionOf(core, now, message, source, datagram);
  const session = typeof found === 'number' ? undefined : found;
  // Only our own kind asks for less; to others a limit might be worse than what it is for.
  const pathMtuMost = isOwnKind
    ? core.pathMtus.most(now, peer.gid, core.pathMtuMax)
    : core.pathMtuMax;
  const refuse = (reason: number): void => {
    core.counters.refused++;
    core.sendMad(rejectionOf(message, reason, session, pathMtuMost), peer);
  };
  const reason = whyNot(core, message, pathMtuMost) || (typeof found === 'number' ? found : 0);
  if (reason !== 0) {
    refuse(reason);
    return;
  }
  const queuePairKey = remoteKey(source, message.localCaGuid, message.localQpn, 'qp');
  const stale = core.byQueuePair.get(queuePairKey);
  if (stale) {
    // Did the peer restart with that queue pair (IBA 12.9.8.3.1)? The REQ may be forged: the old
    // connection is probed, and ends only without an answer. Then the peer's next REQ succeeds.
    refuse(RejectReason.STALE_CONN);
    doubt(core, now, stale);
    return;
  }
  const listener = core.listeners.get(message.serviceId)!;
  const sender = {
    source: source.gid.toString(),
    // A session has the nonce that was sent to this address.
    isProven: session !== undefined || isProven(core, now, message, peer, cookie),
    isOwnKind,
  };
  const verdict = judge(core, now, listener, sender);
  if (verdict === 'challenge') return challenge(core, now, message, peer);
  if (verdict === 'refuse') return refuse(RejectReason.NO_RESOURCES);
  const isAdmitted = verdict === 'admit';
  const { transactionId } = message;
  const connection = isAdmitted && core.beginPassive(peer, listener, transactionId, sender);
  if (!connection) {
    core.counters.dropped++;
    return;
  }
  connection.auth = session;
  noteRequester(connection, message, source);
  connection.remoteKey = key;
  connection.queuePairKey = queuePairKey;
  core.byRemote.set(key, connection);
  core.byQueuePair.set(queuePairKey, connection);
  core.enter(connection, 'REQ_RCVD');
  core.extend(connection, now + connection.timeWaitMicros);
  tellListener(listener, connection, message);
}

/** The requester's names, and how long it may repeat its REQ. */
function noteRequester(connection: Connection, message: Message<'REQ'>, source: Endpoint): void {
  connection.remoteId = message.localCommId;
  connection.remoteGuid = message.localCaGuid;
  connection.isRemoteRxe = isRxe(message.localCaGuid, source.port);
  connection.remoteQpn = message.localQpn;
  connection.intervalMicros = answerInterval(message.localCmResponseTimeout);
  connection.retryMax = message.maxCmRetries;
  const interval = answerInterval(message.remoteCmResponseTimeout);
  const repeats = interval * (message.maxCmRetries + 1);
  const acknowledged = 2 * timeoutMicros(message.primaryLocalAckTimeout);
  // A repeated REQ is answered as before; afterwards only packets in flight can still arrive.
  connection.timeWaitMicros = Math.min(Math.max(repeats, TIMEOUT_MICROS_MIN), TIMEOUT_MICROS_MAX);
  connection.lateMicros = Math.min(Math.max(acknowledged, 4 * interval), TIMEOUT_MICROS_MAX);
}

/** Both kinds of requests; their header was looked at before. */
function tellListener(
  listener: Listener,
  connection: Connection,
  message: Message<'REQ'> | Message<'SIDR_REQ'>,
): void {
  const privateData = message.privateData.subarray(IP_CM_BYTES);
  const header = parseIpCm(message.privateData)!;
  listener.owner.request({ connection, message, header, privateData });
}

/** A RejectReason, or 0. */
function whyNot(core: CmProtocol, message: Message<'REQ'>, pathMtuMost: number): number {
  const service = message.transportService;
  if (service !== TransportService.RC && service !== TransportService.UC) {
    return RejectReason.INVALID_TRANSPORT_TYPE;
  }
  const { serviceId } = message;
  if (isDatagramService(serviceId) || !core.listeners.has(serviceId)) {
    return RejectReason.INVALID_SERVICE_ID;
  }
  if (message.pathMtu < Mtu.MTU_256 || message.pathMtu > pathMtuMost)
    return RejectReason.INVALID_MTU;
  // rdma_cm is the consumer that its header's faults are defined by.
  if (!parseIpCm(message.privateData)) return RejectReason.CONSUMER_DEFINED;
  return 0;
}

/** A request that came before: its answer was lost, or is not ready yet. */
function receiveAgain(core: CmProtocol, now: number, connection: Connection): void {
  core.counters.duplicates++;
  if (connection.state === 'REQ_RCVD') {
    core.transmit(connection, 'MRA', {
      ...idsOf(connection),
      messageMraed: AboutMessage.REQ,
      serviceTimeout: MRA_SERVICE_TIMEOUT,
    });
    const asked = now + timeoutMicros(MRA_SERVICE_TIMEOUT) + connection.intervalMicros;
    core.extend(connection, Math.max(connection.dueMicros, asked));
    return;
  }
  const answer = connection.state === 'REP_SENT' ? connection.message : connection.answer;
  if (answer) core.sendMad(answer, connection.peer);
}

function receiveReply(
  core: CmProtocol,
  now: number,
  message: Message<'REP'>,
  source: Endpoint,
): void {
  const connection = core.connections.get(message.remoteCommId);
  if (!connection?.peer.gid.equals(source.gid)) {
    // The caller has gone: the peer need not wait.
    core.counters.unmatched++;
    const about = { messageRejected: AboutMessage.REP, reason: RejectReason.INVALID_COMM_ID };
    answerAlone(core, 'REJ', message, source, about);
    return;
  }
  if (connection.state !== 'REQ_SENT') {
    receiveReplyAgain(core, connection, message);
    return;
  }
  const queuePairKey = remoteKey(source, message.localCaGuid, message.localQpn, 'qp');
  connection.remoteId = message.localCommId;
  connection.remoteGuid = message.localCaGuid;
  connection.isRemoteRxe = isRxe(message.localCaGuid, source.port);
  connection.remoteQpn = message.localQpn;
  connection.message = undefined;
  core.rest(connection);
  core.enter(connection, 'REP_RCVD');
  const other = core.byQueuePair.get(queuePairKey);
  if (other) {
    doubt(core, now, other);
    core.reject(now, connection, RejectReason.STALE_CONN);
    core.tell(connection, {
      kind: 'rejected',
      reason: RejectReason.STALE_CONN,
      privateData: new Uint8Array(0),
    });
    return;
  }
  connection.queuePairKey = queuePairKey;
  core.byQueuePair.set(queuePairKey, connection);
  core.tell(connection, { kind: 'reply', reply: message });
}

function receiveReplyAgain(
  core: CmProtocol,
  connection: Connection,
  message: Message<'REP'>,
): void {
  if (connection.remoteId !== message.localCommId) {
    core.counters.unmatched++;
    return;
  }
  core.counters.duplicates++;
  if (connection.state === 'REP_RCVD') {
    core.transmit(connection, 'MRA', {
      ...idsOf(connection),
      messageMraed: AboutMessage.REP,
      serviceTimeout: MRA_SERVICE_TIMEOUT,
    });
  } else if (connection.answer) core.sendMad(connection.answer, connection.peer);
}

function receiveReady(
  core: CmProtocol,
  message: Message<'RTU'>,
  connection: Connection | undefined,
  source: Endpoint,
): void {
  if (connection && core.establish(connection)) return;
  if (connection?.state === 'ESTABLISHED') {
    core.counters.duplicates++;
    return;
  }
  core.counters.unmatched++;
  // The peer considers itself connected, and receives no other message about it.
  if (connection && connection.state !== 'TIMEWAIT') return;
  const about = { messageRejected: AboutMessage.OTHER, reason: RejectReason.INVALID_COMM_ID };
  answerAlone(core, 'REJ', message, source, about);
}

function answerInterval(exponent: number): number {
  return Math.min(Math.max(timeoutMicros(exponent), ANSWER_MICROS_MIN), ANSWER_MICROS_MAX);
}

function receiveReject(
  core: CmProtocol,
  now: number,
  message: Message<'REJ'>,
  source: Endpoint,
): void {
  const connection = findRejected(core, message, source);
  switch (connection?.state) {
    case 'REQ_SENT':
    case 'REQ_RCVD':
    case 'REP_SENT':
    case 'REP_RCVD':
      core.enterTimeWait(now, connection);
      core.tell(connection, { ...message, kind: 'rejected' });
      return;
    case 'ESTABLISHED':
    case 'DREQ_SENT':
      core.enterTimeWait(now, connection);
      core.tell(connection, { kind: 'disconnected', privateData: message.privateData });
      return;
    default:
      core.counters.unmatched++;
  }
}

/** A REJ may lack the local id, and an id of its sender. */
function findRejected(
  core: CmProtocol,
  message: Message<'REJ'>,
  source: Endpoint,
): Connection | undefined {
  const { localCommId, remoteCommId, reason, rejectInfo, rejectInfoLength } = message;
  if (remoteCommId === 0) {
    // Its request was not answered in time: it is found by what it was known by.
    if (reason !== RejectReason.TIMEOUT || rejectInfoLength < 8) return undefined;
    const view = new DataView(rejectInfo.buffer, rejectInfo.byteOffset);
    const asked = core.byRemote.get(remoteKey(source, view.getBigUint64(0), localCommId));
    return asked && HALF_OPEN.has(asked.state) ? asked : undefined;
  }
  const connection = core.connections.get(remoteCommId);
  if (!connection?.peer.gid.equals(source.gid)) return undefined;
  // After its first answer we know the peer's id; a REJ must carry it, and a forger cannot know it.
  if (connection.state === 'REQ_SENT') return connection;
  return connection.remoteId === localCommId ? connection : undefined;
}

function receiveDisconnect(
  core: CmProtocol,
  now: number,
  message: Message<'DREQ'>,
  source: Endpoint,
): void {
  const connection = find(core, message.remoteCommId, source, message.localCommId);
  if (!connection) {
    // It is over here already, and the peer is to know (as Linux does).
    core.counters.unmatched++;
    answerAlone(core, 'DREP', message, source, {});
    return;
  }
  if (message.remoteQpn !== connection.localQpn) {
    core.counters.unmatched++;
    return;
  }
  switch (connection.state) {
    case 'ESTABLISHED':
    case 'REP_SENT':
    case 'REP_RCVD':
    case 'DREQ_SENT':
      core.transmit(connection, 'DREP', idsOf(connection));
      core.enterTimeWait(now, connection);
      core.tell(connection, { kind: 'disconnected', privateData: message.privateData });
      return;
    case 'TIMEWAIT':
      core.counters.duplicates++;
      core.transmit(connection, 'DREP', idsOf(connection));
      return;
    default:
      core.counters.unmatched++;
  }
}

function receiveMra(
  core: CmProtocol,
  now: number,
  message: Message<'MRA'>,
  found: Connection | undefined,
  source: Endpoint,
): void {
  // The first message of the peer has its id; only a REP makes it count.
  const asker = core.connections.get(message.remoteCommId);
  const isFirst = asker?.state === 'REQ_SENT' && asker.peer.gid.equals(source.gid);
  const connection = isFirst ? asker : found;
  const about = connection?.state === 'REP_SENT' ? AboutMessage.REP : AboutMessage.REQ;
  const waits = connection?.state === 'REQ_SENT' || connection?.state === 'REP_SENT';
  if (!connection || !waits || message.messageMraed !== about) {
    core.counters.unmatched++;
    return;
  }
  connection.askedMicros = 0;
  const asked = now + timeoutMicros(message.serviceTimeout) + connection.intervalMicros;
  const isPassive = connection.state === 'REP_SENT';
  if (isPassive && !connection.isHeard) {
    connection.isHeard = true;
    core.halfOpen.prove(connection);
    connection.halfOpenMicros += MRA_MICROS_MAX;
    connection.retriesLeft = connection.retryMax;
  }
  if (!isPassive && connection.halfOpenMicros === 0) {
    connection.halfOpenMicros = now + MRA_REQUEST_MICROS_MAX;
  }
  // After the limit an MRA no longer extends the timeout: the REQ is retransmitted, then fails.
  if (connection.halfOpenMicros <= now) return;
  core.extend(connection, Math.min(asked, connection.halfOpenMicros));
}

function receiveServiceRequest(
  core: CmProtocol,
  now: number,
  message: Message<'SIDR_REQ'>,
  source: Endpoint,
): void {
  const peer = new Endpoint(source.gid, answerPort(source.port));
  const key = `${peer}/sidr/${message.requestId}`;
  const known = core.byRemote.get(key);
  if (known) {
    core.counters.duplicates++;
    if (known.answer) core.sendMad(known.answer, known.peer);
    return;
  }
  // Auth, cookies and half-open requests, which protect listeners for connections, are of REQs.
  const isService = isDatagramService(message.serviceId);
  const listener = isService ? core.listeners.get(message.serviceId) : undefined;
  const header = parseIpCm(message.privateData);
  const sender = { source: source.gid.toString(), isProven: false, isOwnKind: false };
  const verdict = listener && header ? judge(core, now, listener, sender) : 'refuse';
  if (!listener || verdict === 'refuse') {
    core.counters.refused++;
    const status = listener ? SidrStatus.REJECT : SidrStatus.UNSUPPORTED;
    const { requestId, serviceId } = message;
    const fields = { ...refusedService(status), requestId, serviceId };
    core.sendMad(buildMad('SIDR_REP', message.transactionId, fields), peer);
    return;
  }
  const { transactionId } = message;
  const isAdmitted = verdict === 'admit';
  const connection = isAdmitted && core.beginPassive(peer, listener, transactionId, sender);
  if (!connection) {
    core.counters.dropped++;
    return;
  }
  connection.remoteId = message.requestId;
  connection.timeWaitMicros = SIDR_TIME_WAIT_MICROS;
  connection.remoteKey = key;
  core.byRemote.set(key, connection);
  core.enter(connection, 'SIDR_REQ_RCVD');
  core.extend(connection, now + TIMEOUT_MICROS_MAX);
  tellListener(listener, connection, message);
}

function receiveServiceReply(
  core: CmProtocol,
  message: Message<'SIDR_REP'>,
  source: Endpoint,
): void {
  const connection = core.connections.get(message.requestId);
  if (connection?.state !== 'SIDR_REQ_SENT' || !connection.peer.gid.equals(source.gid)) {
    core.counters.unmatched++;
    return;
  }
  const { owner } = connection;
  core.free(connection);
  owner?.connectionEvent({ kind: 'resolved', reply: message });
}

/** Answers a message about a connection that is not here, with its ids turned round. */
function answerAlone(
  core: CmProtocol,
  name: 'APR' | 'DREP' | 'REJ',
  message: Message<'LAP'> | Message<'DREQ'> | Message<'REP'> | Message<'RTU'>,
  source: Endpoint,
  fields: Readonly<Record<string, number>>,
): void {
  const ids = { localCommId: message.remoteCommId, remoteCommId: message.localCommId };
  const mad = buildMad(name, message.transactionId, { ...ids, ...fields });
  core.sendMad(mad, new Endpoint(source.gid, answerPort(source.port)));
}

function remoteKey(source: Endpoint, guid: bigint, id: number, kind = 'id'): string {
  return `${source.gid}/${guid.toString(16)}/${kind}/${id}`;
}
