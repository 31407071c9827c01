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
    'if (!connection?.peer.gid.equals(source.gid)) return undefined;\n  const isKnown',
    'if (!connection) return undefined;\n  const isKnown',
  ],
  [
    'a rejection is believed whatever the peer’s id',
    INCOMING,
    'return isKnown || connection.remoteId === localCommId ? connection : undefined;',
    'return isKnown || connection ? connection : undefined;',
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
    'const known = core.byRemote.get(key);\n  if (known) {\n    receiveAgain',
    'const known = core.byRemote.get(key);\n  if (known && !key) {\n    receiveAgain',
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
  [
    'a stale connection stays',
    INCOMING,
    "if (stale.state === 'ESTABLISHED') core.disconnect(now, stale);",
    '',
  ],
  [
    'a queue pair may have two connections',
    INCOMING,
    'const stale = core.byQueuePair.get(queuePairKey);',
    "const stale = core.byQueuePair.get('');",
  ],
  [
    'the backlog has no end',
    INCOMING,
    'if (listener.waiting >= listener.backlog) {',
    'if (false) {',
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
    'one address may have all half open connections',
    CORE,
    'ofSource >= halfOpenPerSourceMax ||',
    '',
  ],
  ['half open connections have no limit', CORE, 'this.#halfOpen >= halfOpenMax ||', ''],
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
  ['nothing is sent again', CORE, 'if (message && connection.retriesLeft > 0) {', 'if (false) {'],
  [
    'a peer may ask for years of patience',
    CORE,
    'return Math.min(4.096 * 2 ** exponent, INTERVAL_MICROS_MAX);',
    'return 4.096 * 2 ** exponent;',
  ],
  [
    'who gives up does not say so',
    CORE,
    "if (state === 'REQ_SENT') this.#giveUp(connection, AboutMessage.REQ);\n    if (state",
    'if (state',
  ],
  [
    'a peer that was accepted and left asks in vain',
    CORE,
    "connection.answer = buildMad('REJ', connection.transactionId, refusal);",
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
    'queueMicrotask(() => this.#drain())',
    'this.#drain()',
  ],
];
