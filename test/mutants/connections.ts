/** Checks of the connection manager, and of queue pair 1 in the engine. */
import type { Row } from './mutants.js';

const INCOMING = 'host/cm/incoming.ts';
const CORE = 'host/cm/core.ts';
const MAD = 'host/cm/mad.ts';
const ADDRESS = 'host/cm/address.ts';
const SERVICES = 'host/cm/general-services.ts';
const ID = 'host/cm/cm-id.ts';
const END = 'host/cm/end-point.ts';
const CREATE = 'host/cm/create-ep.ts';
const AGREEMENT = 'host/cm/agreement.ts';
const CONTROL = 'assembly/transport/control.ts';
const DATAGRAM = 'assembly/transport/datagram.ts';

export const CONNECTIONS: readonly Row[] = [
  [
    "a peer's ack timeout of 0 turns off this side's timer as well",
    'host/cm/agreement.ts',
    'if (exponent === 0) return ACK_TIMEOUT_MAX;',
    '',
  ],
  [
    "a peer's ack timeout of hours is this side's as well",
    'host/cm/agreement.ts',
    'return Math.max(ACK_TIMEOUT_MIN, Math.min(exponent, ACK_TIMEOUT_MAX));',
    'return Math.max(ACK_TIMEOUT_MIN, exponent);',
  ],
  [
    "a peer's ack timeout of microseconds is this side's as well",
    'host/cm/agreement.ts',
    'return Math.max(ACK_TIMEOUT_MIN, Math.min(exponent, ACK_TIMEOUT_MAX));',
    'return Math.min(exponent, ACK_TIMEOUT_MAX);',
  ],
  [
    'MRAs keep a REQ waiting for ever',
    INCOMING,
    'connection.halfOpenMicros = now + MRA_REQUEST_MICROS_MAX;',
    'connection.halfOpenMicros = Infinity;',
  ],
  [
    'a loop over a destroyed completion queue throws',
    'host/verbs/completion-queue.ts',
    'if (!this.#destroyed) throw error;',
    'throw error;',
  ],
  [
    'a loop over events waits for ever after the context is closed',
    'host/cm/event-channel.ts',
    'context.endings.add(this.#end);',
    '',
  ],
  [
    'queue pair 1 is made twice',
    CONTROL,
    'changetype<QueuePair>(context.generalServices).qpn == 0',
    'true',
  ],
  [
    'an application is given the place of queue pair 1',
    CONTROL,
    'if (qpn == 0 || at == indexAt(context, GENERAL_SERVICES_QPN)) continue;',
    'if (qpn <= 1) continue;',
  ],
  [
    'queue pair 1 goes to the list that applications take from',
    CONTROL,
    '  if (changetype<usize>(qp) == context.generalServices) return Errno.OK;\n',
    '',
  ],
  [
    'a datagram does not tell the port that it came from',
    DATAGRAM,
    '  qp.sourcePort = descriptor.sourcePort;\n',
    '',
  ],
  [
    'a datagram of another length is parsed',
    MAD,
    "if (view.byteLength !== MAD_BYTES) return 'LENGTH';",
    "if (view.byteLength < 24) return 'LENGTH';",
  ],
  ['another class is parsed', MAD, 'if (view.getUint8(1) !== CM_CLASS)', 'if (false)'],
  [
    'another class version is parsed',
    MAD,
    'if (view.getUint8(2) !== CM_CLASS_VERSION)',
    'if (false)',
  ],
  ['another method is parsed', MAD, 'if (view.getUint8(3) !== METHOD_SEND)', 'if (false)'],
  [
    'other queue pairs speak for queue pair 1',
    SERVICES,
    'if (wc.srcQp !== GENERAL_SERVICES_QPN) return;',
    '',
  ],
  [
    'a message is for a connection whatever address it comes from',
    INCOMING,
    'if (!connection?.peer.gid.equals(source.gid)) return undefined;\n  return connection.remoteId === remoteId',
    'if (!connection) return undefined;\n  return connection.remoteId === remoteId',
  ],
  [
    'the peer’s id is not looked at',
    INCOMING,
    'return connection.remoteId === remoteId ? connection : undefined;',
    'return connection;',
  ],
  [
    'a rejection is believed whatever address it comes from',
    INCOMING,
    'if (!connection?.peer.gid.equals(source.gid)) return undefined;\n  // After its',
    'if (!connection) return undefined;\n  // After its',
  ],
  [
    'a rejection is believed whatever the peer’s id',
    INCOMING,
    "  if (connection.state === 'REQ_SENT') return connection;\n  return connection.remoteId === localCommId ? connection : undefined;",
    '  return connection;',
  ],
  [
    'a disconnect request need not know the queue pair',
    INCOMING,
    'if (message.remoteQpn !== connection.localQpn) {',
    'if (false) {',
  ],
  [
    'a request that comes twice is two requests',
    INCOMING,
    'const known = core.byRemote.get(key);\n  if (known) {\n    if (isAuth',
    'const known = core.byRemote.get(key);\n  if (known && !key) {\n    if (isAuth',
  ],
  [
    'a reply that comes twice is not answered again',
    INCOMING,
    '} else if (connection.answer) core.sendMad(connection.answer, connection.peer);',
    '}',
  ],
  [
    'a request while the application thinks is not answered with an MRA',
    INCOMING,
    "if (connection.state === 'REQ_RCVD') {\n    core.transmit",
    "if (connection.state === 'CLOSED') {\n    core.transmit",
  ],
  [
    'a lost reply is not sent again when the request is',
    INCOMING,
    "connection.state === 'REP_SENT' ? connection.message : connection.answer;",
    'connection.answer;',
  ],
  ['a connection with a restarted peer never ends', INCOMING, 'doubt(core, now, stale);', ''],
  [
    'a REQ ends a live connection',
    INCOMING,
    'doubt(core, now, stale);',
    "if (stale.state === 'ESTABLISHED') core.disconnect(now, stale);",
  ],
  [
    'a queue pair may have two connections',
    INCOMING,
    'const stale = core.byQueuePair.get(queuePairKey);',
    "const stale = core.byQueuePair.get('');",
  ],
  ['any path MTU is taken', INCOMING, 'message.pathMtu > core.pathMtuMax', 'false'],
  [
    'any transport service is taken',
    INCOMING,
    'if (service !== TransportService.RC && service !== TransportService.UC) {',
    'if (false) {',
  ],
  [
    'a disconnect request for nobody is not answered',
    INCOMING,
    "answerAlone(core, 'DREP', message, source, {});",
    '',
  ],
  [
    'an RTU for nobody is not answered',
    INCOMING,
    "answerAlone(core, 'REJ', message, source, about);\n}\n\nfunction rejected",
    '}\n\nfunction rejected',
  ],
  [
    'half open connections are counted for ever',
    CORE,
    'if (!HALF_OPEN.has(state) && connection.isHalfOpen)',
    'if (false)',
  ],
  [
    'ended connections are remembered without limit',
    CORE,
    'if (this.#timeWait.size <= this.limits.timeWaitMax) return;',
    'return;',
  ],
  [
    'no message is retransmitted',
    CORE,
    'if (message && connection.retriesLeft > 0 && now < limit) {',
    'if (false) {',
  ],
  [
    'an MRA may delay a deadline by years',
    'host/cm/deadlines.ts',
    'return Math.min(4.096 * 2 ** exponent, INTERVAL_MICROS_MAX);',
    'return 4.096 * 2 ** exponent;',
  ],
  [
    'who gives up does not say so',
    CORE,
    "if (state === 'REQ_SENT') this.#giveUp(connection, AboutMessage.REQ);",
    '',
  ],
  [
    'a peer that was accepted and left asks in vain',
    CORE,
    "connection.answer = this.build(connection, 'REJ', refusal);",
    '',
  ],
  [
    'a private header of another version is taken',
    ADDRESS,
    'if (privateData.length < IP_CM_BYTES || privateData[0] !== 0) return undefined;',
    '',
  ],
  [
    'a private header of no family is taken',
    ADDRESS,
    'if (family !== 4 && family !== 6) return undefined;',
    '',
  ],
  [
    'what tells of a kind like ours need not be possible',
    ADDRESS,
    'if (udpPort === 0 || buffer < 1 || buffer > 31 || kept > 8) return LINUX;',
    '',
  ],
  [
    'the first packet does not count for an RTU',
    ID,
    'if (this.#connection) this.#manager.core.establish(this.#connection);',
    '',
  ],
  [
    'a queue pair stays as it is when its connection ends',
    ID,
    'if (this.qp && this.qp.state !== QpState.ERR) bringDown(this.qp);',
    '',
  ],
  [
    'who is told a timeout of its own takes the peer’s',
    ID,
    'return ackTimeout === undefined ? agreement : { ...agreement, timeout: ackTimeout };',
    'return agreement;',
  ],
  [
    'a queue pair of another is told a packet number that the peer is not',
    ID,
    'const startingPsn = this.#startingPsn;\n      const agreement',
    'const startingPsn = this.#startingPsn ^ 1;\n      const agreement',
  ],
  [
    'a buffer need not lie in its region',
    END,
    "if (!isWithin) throw new MisuseError('buffer', 'does not lie in the region');",
    '',
  ],
  [
    'a buffer may end behind its region',
    END,
    'offset >= 0 && offset + buffer.length <= whole.length',
    'offset >= 0',
  ],
  [
    'completion queues of an id outlive its queue pair',
    END,
    'for (const cq of this.#queues) cq.destroy();',
    '',
  ],
  [
    'completion queues of a queue pair that is refused stay',
    END,
    'for (const cq of made) cq.destroy();',
    '',
  ],
  ['who only sends to a group receives', END, '#sendTo(gid);', 'qp.attachMcast(gid);'],
  ['any link has groups to send to', END, 'if (!multicast) {', 'if (multicast === null) {'],
  [
    'an answer is there before it has come',
    END,
    "if (info === undefined || info === 'RESOLVING') {",
    'if (info === undefined) {',
  ],
  [
    'an application says what only the connection manager may',
    END,
    'if (event !== CmEventType.USER) {',
    'if (event < 0) {',
  ],
  [
    'any id gives requests, whoever else has its channel',
    CREATE,
    "if (!template) throw new RefusalError('EINVAL', 'getRequest: not a listener that createEp made');\n",
    'if (!template) return undefined;\n',
  ],
  [
    'who asked for a queue pair that cannot be does not hear of it',
    CREATE,
    '      id.destroy();\n      throw error;',
    '      throw error;',
  ],
  ['an end point that failed keeps its port', CREATE, '    channel.destroy();\n', ''],
  [
    'the active side begins with its own PSN',
    AGREEMENT,
    'rqPsn: request.startingPsn,\n    sqPsn: reply.startingPsn,',
    'rqPsn: reply.startingPsn,\n    sqPsn: request.startingPsn, ',
  ],
  [
    'the passive side begins with its own PSN',
    AGREEMENT,
    'rqPsn: reply.startingPsn,\n    sqPsn: request.startingPsn,',
    'rqPsn: request.startingPsn,\n    sqPsn: reply.startingPsn, ',
  ],
  [
    'a message is heard while another one is being sent',
    SERVICES,
    'this.#cq.onEvent = () => queueMicrotask(() => this.#drain());',
    'this.#cq.onEvent = () => this.#drain();',
  ],
  [
    'a REJ without an id ends an established connection',
    INCOMING,
    'return connection.remoteId === localCommId ? connection : undefined;',
    'return localCommId === 0 || connection.remoteId === localCommId ? connection : undefined;',
  ],
  [
    'a REJ with reason TIMEOUT ends an established connection',
    INCOMING,
    'return asked && HALF_OPEN.has(asked.state) ? asked : undefined;',
    'return asked;',
  ],
  [
    'a peer selects the port of our answers',
    INCOMING,
    'isOwnKind && udpPort === source.port ? udpPort : answerPort(source.port);',
    'isOwnKind ? udpPort : answerPort(source.port);',
  ],
  [
    'a REP is retransmitted as often as the peer demands',
    CORE,
    'connection.retriesLeft = Math.min(connection.retryMax, UNHEARD_RETRIES);',
    'connection.retriesLeft = connection.retryMax;',
  ],
  [
    'a half-open connection lasts until the last REP, not for 10 s',
    CORE,
    "if (state === 'REP_SENT' && now < limit) {",
    "if (state === 'REP_SENT' && now === limit) {",
  ],
  [
    'a half-open connection lasts longer if the peer names long timeouts',
    CORE,
    "const limit = state === 'REP_SENT' ? connection.halfOpenMicros : Infinity;",
    "const limit = state === 'REQ_SENT' ? connection.halfOpenMicros : Infinity;",
  ],
  [
    'MRAs extend a half-open connection without limit',
    INCOMING,
    'core.extend(connection, Math.min(asked, connection.halfOpenMicros));',
    'core.extend(connection, asked);',
  ],
  [
    'a REQ with a short response timeout leaves the application no time',
    INCOMING,
    'Math.min(Math.max(asked, PATIENCE_MICROS_MIN), PATIENCE_MICROS_MAX);',
    'Math.min(asked, PATIENCE_MICROS_MAX);',
  ],
  [
    'messages are handled during the construction of a manager',
    SERVICES,
    '    queueMicrotask(() => this.#drain());\n  }',
    '    this.#drain();\n  }',
  ],
  [
    'a flood at queue pair 1 blocks the event loop',
    SERVICES,
    'if (heard >= TURN_BUDGET) return this.#pause();',
    '',
  ],
  [
    'one address takes the queue pairs of a device',
    'host/cm/limits.ts',
    'halfOpenPerSourceMax: 128,',
    'halfOpenPerSourceMax: 2048,',
  ],
  [
    'a device without a queue pair does not say so',
    'host/cm/connect.ts',
    'if (isFull) this.id.reject(undefined, RejectReason.NO_QP);',
    '',
  ],
];
