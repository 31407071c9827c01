/**
 * The connection manager's state machine (IBA 12.9), sans-IO: messages and time come in, messages
 * and events go out, chance comes through a door. What messages do is in incoming.ts.
 */
import { Mtu } from '#build/abi.js';
import type { ConnectionTable } from '../device/sharing/connection-table.js';
import { RefusalError } from '../errors/errors.js';
import type { Endpoint, Gid } from '../link/endpoint.js';
import { HalfOpen, type Sender } from './half-open.js';
import { SourceCounts } from './source-counts.js';
import { askForNonce } from './auth-messages.js';
import type { AuthRule } from './auth-option.js';
import { Connection, HALF_OPEN, checkState, idsOf, type CmState } from './connection.js';
import type { ConnectionEvent, ConnectionOwner, Listener, ListenerOwner } from './connection.js';
import type { PathMtus } from './path-mtus.js';
import type { CmProtocol, CookieSecrets } from './protocol.js';
import { Deadlines, timeoutMicros } from './deadlines.js';
import { AboutMessage, RejectReason } from './enums.js';
import { endUnready } from './endings.js';
import {
  CM_LIMITS,
  DREQ_INTERVAL_MICROS,
  DREQ_RETRIES,
  UNHEARD_RETRIES,
  noCounts,
  type CmLimits,
} from './limits.js';
import { receiveMessage } from './incoming.js';
import { lookAfter, stopWatch } from './keep-alive.js';
import {
  MAD_BYTES,
  MESSAGE_BYTES_MAX,
  buildMad,
  parseMad,
  refusedService,
  timeoutFields,
} from './mad.js';
import type { FieldsOf, MessageName, RequestFields } from './mad.js';

export interface CoreOptions {
  /** Index of the device's socket slot: the upper byte of all ids. */
  readonly slot: number;
  /** Identity of this device in messages to peers (address.ts). */
  readonly caGuid: bigint;
  readonly gid: Gid;
  /** An Mtu: the largest that the link carries. Default MTU_4096. */
  readonly pathMtuMax?: number;
  /** Of the device's address. */
  readonly pathMtus: PathMtus;
  /** 32 unpredictable bits. */
  readonly random: () => number;
  /** The bytes are read before it returns. */
  readonly send: (mad: Uint8Array, to: Endpoint) => void;
  /** Takes a service id, and gives it back, where other processes answer at our address as well. */
  readonly claim?: (serviceId: bigint) => void;
  readonly disclaim?: (serviceId: bigint) => void;
  /** Table of connections that other processes of the device can read. */
  readonly table?: Pick<ConnectionTable, 'keep' | 'forget'>;
  readonly limits?: Partial<CmLimits>;
}

const ID_DRAWS = 64;
const WAITING: ReadonlySet<CmState> = new Set(['REQ_RCVD', 'SIDR_REQ_RCVD']);
/** States in which the peer's queue pair belongs to this connection. */
const ENDED: ReadonlySet<CmState> = new Set(['TIMEWAIT', 'CLOSED']);
/** States in which the peer may consider itself connected. */
const REPLIED_STATES: ReadonlySet<CmState> = new Set(['REP_SENT', 'REP_RCVD', 'ESTABLISHED']);
const NO_BYTES: Uint8Array = new Uint8Array(0);

export class CmCore implements CmProtocol {
  readonly limits: CmLimits;
  caGuid: bigint;
  /** The device's address. */
  gid: Gid;
  /** Of nonces that are computed (auth-messages.ts); undefined until one is. */
  authSecret: Uint8Array | undefined;
  /** Of cookies; undefined until one is computed. */
  cookieSecrets: CookieSecrets | undefined;
  pathMtuMax: number;
  readonly pathMtus: PathMtus;
  readonly counters = noCounts();
  /** By our communication id. */
  readonly connections = new Map<number, Connection>();
  /** By the peer's address and communication id. */
  readonly byRemote = new Map<string, Connection>();
  /** By the peer's address and queue pair. */
  readonly byQueuePair = new Map<string, Connection>();
  readonly listeners = new Map<bigint, Listener>();
  /** Established connections with a keep-alive (keep-alive.ts). */
  readonly watched = new Set<Connection>();
  readonly #options: CoreOptions;
  readonly deadlines = new Deadlines<Connection>();
  readonly #timeWait = new Set<Connection>();
  readonly halfOpen = new HalfOpen();

  /** 32 unpredictable bits. */
  random(): number {
    return this.#options.random();
  }

  constructor(options: CoreOptions) {
    this.#options = options;
    this.caGuid = options.caGuid;
    this.gid = options.gid;
    this.pathMtus = options.pathMtus;
    this.pathMtuMax = options.pathMtuMax ?? Mtu.MTU_4096;
    this.limits = { ...CM_LIMITS, ...options.limits };
  }

  /** The device is at another address. */
  moved({ caGuid, gid, pathMtuMax }: Pick<CoreOptions, 'caGuid' | 'gid' | 'pathMtuMax'>): void {
    this.caGuid = caGuid;
    this.gid = gid;
    this.pathMtuMax = pathMtuMax ?? Mtu.MTU_4096;
  }

  /** Sizes of the tables; all zero while no exchange is in progress. */
  get books(): Readonly<Record<string, number>> {
    return {
      connections: this.connections.size,
      byRemote: this.byRemote.size,
      byQueuePair: this.byQueuePair.size,
      deadlines: this.deadlines.size,
      timeWait: this.#timeWait.size,
      watched: this.watched.size,
      halfOpen: this.halfOpen.size,
      unproven: this.halfOpen.unproven,
      sources: this.halfOpen.sources.size,
      waiting: [...this.listeners.values()].reduce((sum, { waiting }) => sum + waiting, 0),
    };
  }

  /** Connections that have not ended. */
  get liveConnections(): number {
    return this.connections.size - this.#timeWait.size;
  }

  /** When `advance` is to be called; 0: not before the next input. */
  get nextMicros(): number {
    return this.deadlines.nextMicros;
  }

  /** Takes requests for a service. Throws RefusalError EADDRINUSE. */
  listen(serviceId: bigint, backlog: number, owner: ListenerOwner): Listener {
    if (this.listeners.has(serviceId)) {
      throw new RefusalError(
        'EADDRINUSE',
        `listen: another listener has service id 0x${serviceId.toString(16)}; choose another port`,
      );
    }
    this.#options.claim?.(serviceId);
    const listener: Listener = {
      serviceId,
      owner,
      backlog,
      waiting: 0,
      waitingOf: new SourceCounts(),
    };
    this.listeners.set(serviceId, listener);
    return listener;
  }

  /** Takes no more of them; those that came are their owners' to answer. */
  unlisten(listener: Listener): void {
    if (this.listeners.get(listener.serviceId) === listener) {
      this.listeners.delete(listener.serviceId);
      this.#options.disclaim?.(listener.serviceId);
    }
  }

  /** Active: sends a REQ, with `auth` an AUTH_REQ before it. Throws RefusalError ENOMEM. */
  connect(
    now: number,
    peer: Endpoint,
    owner: ConnectionOwner,
    fields: RequestFields,
    auth?: AuthRule,
  ): Connection {
    const connection = this.#begin(peer, owner);
    connection.localQpn = fields.localQpn;
    connection.localGuid = fields.localCaGuid;
    connection.lateMicros = 2 * timeoutMicros(fields.primaryLocalAckTimeout);
    connection.timeWaitMicros = connection.lateMicros;
    this.#expectAnswer(connection, fields.remoteCmResponseTimeout, fields.maxCmRetries);
    const localCommId = connection.localId;
    if (auth) askForNonce(this, now, connection, fields, auth);
    else this.request(now, connection, 'REQ_SENT', 'REQ', { ...fields, localCommId });
    return connection;
  }

  /** Active, datagrams: sends a SIDR_REQ. Throws RefusalError ENOMEM. */
  resolveService(
    now: number,
    peer: Endpoint,
    owner: ConnectionOwner,
    fields: Omit<FieldsOf<'SIDR_REQ'>, 'requestId'>,
    timeouts: { readonly cmResponseTimeout: number; readonly maxCmRetries: number },
  ): Connection {
    const connection = this.#begin(peer, owner);
    this.#expectAnswer(connection, timeouts.cmResponseTimeout, timeouts.maxCmRetries);
    const requestId = connection.localId;
    this.request(now, connection, 'SIDR_REQ_SENT', 'SIDR_REQ', { ...fields, requestId });
    return connection;
  }

  /** Passive: answers a request with a REP. */
  accept(
    now: number,
    connection: Connection,
    fields: Omit<FieldsOf<'REP'>, 'localCommId' | 'remoteCommId'>,
  ): void {
    checkState(connection, 'accept', ['REQ_RCVD']);
    connection.localQpn = fields.localQpn;
    connection.retriesLeft = Math.min(connection.retryMax, UNHEARD_RETRIES);
    connection.halfOpenMicros = now + this.limits.halfOpenMicros;
    this.halfOpen.accepted(connection);
    connection.localGuid = fields.localCaGuid;
    this.request(now, connection, 'REP_SENT', 'REP', { ...fields, ...idsOf(connection) });
  }

  /** Passive, datagrams: answers a request, with a queue pair or with a status. */
  answerService(
    now: number,
    connection: Connection,
    fields: Omit<FieldsOf<'SIDR_REP'>, 'requestId' | 'infoLength' | 'info'>,
  ): void {
    checkState(connection, 'answerService', ['SIDR_REQ_RCVD']);
    const message = { ...fields, requestId: connection.remoteId };
    connection.answer = this.transmit(connection, 'SIDR_REP', message);
    this.enterTimeWait(now, connection);
  }

  /** Active, after a reply: the queue pair is ready. Sends an RTU. */
  ready(connection: Connection, privateData = NO_BYTES): void {
    checkState(connection, 'ready', ['REP_RCVD']);
    const message = { ...idsOf(connection), privateData };
    connection.answer = this.transmit(connection, 'RTU', message);
    this.enter(connection, 'ESTABLISHED');
  }

  /** Passive: the peer's first packet came, whatever became of its RTU. */
  establish(connection: Connection): boolean {
    if (connection.state !== 'REP_SENT') return false;
    this.deadlines.clear(connection);
    connection.message = undefined;
    this.enter(connection, 'ESTABLISHED');
    this.tell(connection, { kind: 'ready' });
    return true;
  }

  /** Refuses a request, or a reply. */
  reject(
    now: number,
    connection: Connection,
    reason: number = RejectReason.CONSUMER_DEFINED,
    privateData = NO_BYTES,
  ): void {
    checkState(connection, 'reject', ['REQ_RCVD', 'REP_RCVD', 'REP_SENT']);
    const messageRejected =
      connection.state === 'REP_RCVD'
        ? AboutMessage.REP
        : connection.state === 'REQ_RCVD'
          ? AboutMessage.REQ
          : AboutMessage.OTHER;
    const message = { ...idsOf(connection), messageRejected, reason, privateData };
    connection.answer = this.transmit(connection, 'REJ', message);
    this.enterTimeWait(now, connection);
  }

  /** Sends a DREQ; the owner gets an event of the end. */
  disconnect(now: number, connection: Connection, privateData = NO_BYTES): void {
    checkState(connection, 'disconnect', ['ESTABLISHED', 'REP_SENT', 'REP_RCVD']);
    if (connection.state === 'REP_SENT') {
      // The peer may not have heard that it was accepted: what it asks again is answered so.
      const reason = RejectReason.CONSUMER_DEFINED;
      const refusal = { ...idsOf(connection), messageRejected: AboutMessage.REQ, reason };
      connection.answer = this.build(connection, 'REJ', refusal);
    }
    const retries = connection.state === 'REP_SENT' ? UNHEARD_RETRIES : DREQ_RETRIES;
    connection.retriesLeft = Math.min(connection.retryMax, retries);
    connection.intervalMicros = Math.min(connection.intervalMicros, DREQ_INTERVAL_MICROS);
    const remoteQpn = connection.remoteQpn;
    const message = { ...idsOf(connection), remoteQpn, privateData };
    this.request(now, connection, 'DREQ_SENT', 'DREQ', message);
  }

  /**
   * The owner has gone: sends the message that the peer waits for, and reports no further event.
   */
  destroy(now: number, connection: Connection): void {
    connection.owner = undefined;
    switch (connection.state) {
      case 'REQ_SENT':
        this.#giveUp(connection, AboutMessage.REQ);
        this.free(connection);
        return;
      case 'AUTH_SENT':
      case 'SIDR_REQ_SENT':
        this.free(connection);
        return;
      case 'SIDR_REQ_RCVD':
        this.answerService(now, connection, refusedService());
        return;
      case 'REQ_RCVD':
      case 'REP_RCVD':
        this.reject(now, connection);
        return;
      case 'REP_SENT':
      case 'ESTABLISHED':
        this.disconnect(now, connection);
        return;
      default:
    }
  }

  /** A datagram to queue pair 1: 256 bytes, and a trailer of authenticated ones; or anything. */
  receive(now: number, datagram: Uint8Array, source: Endpoint): void {
    this.counters.received++;
    const isTooLong = datagram.length > MESSAGE_BYTES_MAX;
    const message = parseMad(isTooLong ? datagram : datagram.subarray(0, MAD_BYTES));
    if (typeof message === 'string') this.counters.malformed++;
    else receiveMessage(this, now, message, source, datagram);
  }

  /** Time has passed. */
  advance(now: number): void {
    for (let due = this.deadlines.take(now); due; due = this.deadlines.take(now)) {
      this.#expired(now, due);
    }
  }

  // The members below serve incoming.ts as well.

  /** Builds a message and sends it, once. */
  transmit<Name extends MessageName>(
    connection: Connection,
    name: Name,
    fields: Partial<FieldsOf<Name>>,
  ): Uint8Array {
    const mad = this.build(connection, name, fields);
    this.sendMad(mad, connection.peer);
    return mad;
  }

  /** The datagram of a message, with a tag where the connection is authenticated. */
  build<Name extends MessageName>(
    connection: Connection,
    name: Name,
    fields: Partial<FieldsOf<Name>>,
  ): Uint8Array {
    const mad = buildMad(name, connection.transactionId, fields);
    return connection.auth?.seal(name, mad) ?? mad;
  }

  sendMad(mad: Uint8Array, to: Endpoint): void {
    this.counters.sent++;
    this.#options.send(mad, to);
  }

  /** Creates the connection of an admitted request; undefined if no id is free. */
  beginPassive(
    peer: Endpoint,
    listener: Listener,
    transactionId: bigint,
    sender: Sender,
  ): Connection | undefined {
    const localId = this.#drawId();
    if (localId === 0) return undefined;
    const connection = new Connection(localId, peer, transactionId);
    connection.listener = listener;
    this.halfOpen.add(connection, sender);
    listener.waiting++;
    listener.waitingOf.add(sender.source);
    this.connections.set(localId, connection);
    return connection;
  }

  enter(connection: Connection, state: CmState): void {
    connection.state = state;
    if (state !== 'ESTABLISHED') stopWatch(this, connection);
    if (state === 'ESTABLISHED') connection.timeWaitMicros = connection.lateMicros;
    if (!WAITING.has(state) && connection.listener) {
      connection.listener.waiting--;
      connection.listener.waitingOf.remove(connection.peer.gid.toString());
      connection.listener = undefined;
    }
    if (!HALF_OPEN.has(state) && connection.isHalfOpen) this.halfOpen.remove(connection);
    const { table } = this.#options;
    if (table && connection.place < 0 && REPLIED_STATES.has(state))
      connection.place = table.keep(connection);
    if (connection.place >= 0 && ENDED.has(state)) {
      table?.forget(connection.place);
      connection.place = -1;
    }
    if (ENDED.has(state) && connection.queuePairKey !== '') {
      this.byQueuePair.delete(connection.queuePairKey);
      connection.queuePairKey = '';
    }
  }

  /** It is over; late messages are known for a while. */
  enterTimeWait(now: number, connection: Connection): void {
    connection.message = undefined;
    this.enter(connection, 'TIMEWAIT');
    this.deadlines.set(connection, now + connection.timeWaitMicros);
    this.#timeWait.add(connection);
    if (this.#timeWait.size <= this.limits.timeWaitMax) return;
    const [oldest] = this.#timeWait;
    this.#endTimeWait(oldest!);
  }

  /** Sets the deadline anew. */
  extend(connection: Connection, micros: number): void {
    this.deadlines.set(connection, micros);
  }

  /** The owner's turn: nothing is due before it has said something. */
  rest(connection: Connection): void {
    this.deadlines.clear(connection);
  }

  free(connection: Connection): void {
    this.deadlines.clear(connection);
    this.enter(connection, 'CLOSED');
    this.#timeWait.delete(connection);
    this.connections.delete(connection.localId);
    if (connection.remoteKey !== '') this.byRemote.delete(connection.remoteKey);
    connection.remoteKey = '';
    connection.message = undefined;
    connection.answer = undefined;
    connection.owner = undefined;
  }

  tell(connection: Connection, event: ConnectionEvent): void {
    connection.owner?.connectionEvent(event);
  }

  #begin(peer: Endpoint, owner: ConnectionOwner): Connection {
    const isFull = this.connections.size >= this.limits.connectionsMax;
    const localId = isFull ? 0 : this.#drawId();
    if (localId === 0) {
      const { connectionsMax } = this.limits;
      throw new RefusalError(
        'ENOMEM',
        `connect: all ${connectionsMax} connections of the device are in use; destroy one first`,
      );
    }
    const connection = new Connection(localId, peer, this.#transactionId(localId));
    connection.owner = owner;
    this.connections.set(localId, connection);
    return connection;
  }

  /** Slot, then 24 random bits; 0: no free one was found. */
  #drawId(): number {
    for (let draw = 0; draw < ID_DRAWS; draw++) {
      const id = ((this.#options.slot << 24) | (this.#options.random() & 0xffffff)) >>> 0;
      if (id !== 0 && !this.connections.has(id)) return id;
    }
    return 0;
  }

  /** The slot once more, then the number of the exchange: our id. */
  #transactionId(localId: number): bigint {
    return (BigInt(this.#options.slot) << 56n) | BigInt(localId);
  }

  #expectAnswer(connection: Connection, responseTimeout: number, retries: number): void {
    connection.intervalMicros = timeoutMicros(responseTimeout);
    connection.retryMax = retries;
    connection.retriesLeft = retries;
  }

  /** Sends what is sent again until it is answered. */
  request<Name extends MessageName>(
    now: number,
    connection: Connection,
    state: CmState,
    name: Name,
    fields: Partial<FieldsOf<Name>>,
  ): void {
    this.enter(connection, state);
    this.deadlines.set(connection, now + connection.intervalMicros);
    connection.askedMicros = now;
    connection.message = this.transmit(connection, name, fields);
  }

  #endTimeWait(connection: Connection): void {
    const { owner } = connection;
    this.free(connection);
    owner?.connectionEvent({ kind: 'timewaitExit' });
  }

  #expired(now: number, connection: Connection): void {
    const { state, message } = connection;
    if (state === 'TIMEWAIT') return this.#endTimeWait(connection);
    if (state === 'ESTABLISHED') return lookAfter(this, now, connection);
    const limit = state === 'REP_SENT' ? connection.halfOpenMicros : Infinity;
    if (message && connection.retriesLeft > 0 && now < limit) {
      connection.retriesLeft--;
      this.counters.retransmitted++;
      this.deadlines.set(connection, Math.min(now + connection.intervalMicros, limit));
      this.sendMad(message, connection.peer);
      return;
    }
    if (state === 'REP_SENT' && now < limit) {
      this.deadlines.set(connection, limit);
      return;
    }
    const { owner } = connection;
    if (state === 'DREQ_SENT') {
      this.enterTimeWait(now, connection);
      this.tell(connection, { kind: 'disconnected', privateData: NO_BYTES });
      return;
    }
    if (state === 'REQ_SENT') this.#giveUp(connection, AboutMessage.REQ);
    if (state === 'REP_SENT') return endUnready(this, now, connection);
    this.free(connection);
    owner?.connectionEvent({ kind: 'unreachable' });
  }

  /** The peer does not answer: sends a REJ (TIMEOUT), which a slow peer may still receive. */
  #giveUp(connection: Connection, messageRejected: number): void {
    const guid = connection.localGuid || this.caGuid;
    this.transmit(connection, 'REJ', timeoutFields(connection, messageRejected, guid));
  }
}
