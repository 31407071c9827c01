/** `rdma_cm_id`: one end of a connection, or a listener. */
import { QpState, QpType } from '#build/abi.js';
import { checkKeys } from '../base/options.js';
import { checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Endpoint } from '../link/endpoint.js';
import { parseGid } from '../verbs/queues/address-attributes.js';
import type { PacketKeys } from '../verbs/queues/packet-keys.js';
import type { QpAttributes } from '../verbs/queues/queue-pair-attributes.js';
import { checkTarget, serviceIdOf, traitsOf, type CmAddress } from './address.js';
import type { Connection, ConnectionEvent, ConnectionOwner, Listener } from './connection.js';
import type { ListenerOwner, Request } from './connection.js';
import { refusedService } from './mad.js';
import { EndPoint, type RequestTemplate } from './end-point.js';
import { CmEventType, RDMA_UDP_QKEY, SidrStatus, TransportService } from './enums.js';
import type { CmEvent, EventChannel } from './event-channel.js';
import type { CmEventDetails, ConnParam } from './event-details.js';
import {
  CONN_PARAM,
  agreementOfReply,
  agreementOfRequest,
  DEFAULT_OPTIONS,
  checkPrivateData,
  connParamOf,
  introduce,
  queuePairNumber,
  replyFields,
  requestFields,
  type Remote,
} from './agreement.js';
import { keepWatch, lookFor, makeWatch } from './keep-alive.js';
import { Manager } from './manager.js';
import type { Message, RequestFields } from './mad.js';
import { asksForLess } from './path-mtus.js';
import {
  attributesOf,
  bringDown,
  makeReadyToReceive,
  makeReadyToSend,
  makeReadyUnlessEnded,
  type Agreement,
} from './queue-pair-states.js';
import { checkMember } from '../errors/check-member.js';
import { checkObject } from '../base/options.js';

/** Errnos of events, as Linux has them. */
const [EINVAL, ETIMEDOUT] = [22, 110];

type IdState =
  'IDLE' | 'ADDR_BOUND' | 'ADDR_RESOLVED' | 'ROUTE_RESOLVED' | 'CONNECT' | 'LISTEN' | 'DESTROYED';

const DEFAULT_PKEY = 0xffff;
const PSN_MASK = 0xffffff;
/** `RDMA_MAX_RESP_RES`, `backlog` 0. */
const BACKLOG_DEFAULT = 1024;

/**
 * `struct rdma_cm_id`: one side of a connection, or a listener (`channel.createId`, `createEp`).
 */
export class CmId extends EndPoint implements ConnectionOwner, ListenerOwner {
  /** @internal Queue pair options of a listener's requests (`createEp`). */
  template: RequestTemplate | undefined;
  /** Where its events go. */
  channel: EventChannel;
  #state: IdState = 'IDLE';
  readonly #manager: Manager;
  readonly #startingPsn: number;
  #port = 0;
  /** The port is another id's: the listener's. */
  #isPortShared = false;
  #peer: Endpoint | undefined;
  #peerPort = 0;
  #connection: Connection | undefined;
  #listener: Listener | undefined;
  #agreement: Agreement | undefined;
  #request: Message<'REQ'> | Message<'SIDR_REQ'> | undefined;
  /** Fields of the REQ that this id sent. */
  #asked: RequestFields | undefined;

  private constructor(channel: EventChannel, manager: Manager, portSpace: number) {
    super(channel.context, portSpace);
    this.channel = channel;
    this.#manager = manager;
    this.#startingPsn = manager.random() & PSN_MASK;
  }

  /** @internal Use `channel.createId()`. */
  static create(channel: EventChannel, portSpace: number): CmId {
    const id = new CmId(channel, Manager.of(channel.context), portSpace);
    channel.add(id);
    id.#manager.ids.add(id);
    return id;
  }

  /** `rdma_migrate_id`: its events, those that wait as well, go to another channel. */
  migrate(channel: EventChannel): void {
    this.checkAlive();
    checkMember('channel', channel, 'take', 'an event channel (createEventChannel)');
    if (channel.context !== this.context)
      throw new MisuseError('channel', 'must be of the same device');
    channel.take(this, this.channel);
    this.channel = channel;
  }

  /** @internal `migrate`, of a request that is accepted. Throws RefusalError EINVAL: it has ended. */
  takeRequest(channel: EventChannel): void {
    this.#awaiting('accept');
    this.migrate(channel);
  }

  /** `rdma_get_src_port`: 0 until it is bound. */
  getSrcPort(): number {
    return this.#port;
  }

  /** `rdma_get_dst_port`: 0 until it is resolved. */
  getDstPort(): number {
    return this.#peerPort;
  }

  /** `rdma_get_local_addr`. */
  getLocalAddr(): Required<CmAddress> {
    const { gid, port } = this.context.local;
    return { address: gid.toString(), port: this.#port, udpPort: port };
  }

  /** `rdma_get_peer_addr`; undefined until there is a peer. */
  getPeerAddr(): Required<CmAddress> | undefined {
    if (!this.#peer) return undefined;
    const { gid, port } = this.#peer;
    return { address: gid.toString(), port: this.#peerPort, udpPort: port };
  }

  /** Is the peer a device of our kind? False until its REQ or REP was heard. */
  get isPeerOwnKind(): boolean {
    return traitsOf(this.#connection?.remoteGuid ?? 0n).isOwnKind;
  }

  /**
   * Is the peer Linux's software adapter, rdma_rxe? Derived from the UDP port and the CA GUID of
   * its REQ or REP; false until one of these arrives.
   */
  get isPeerRxe(): boolean {
    return this.#connection?.isRemoteRxe ?? false;
  }

  /** `rdma_bind_addr`; port 0 takes a free one. Throws MisuseError; RefusalError EADDRINUSE. */
  bindAddr(own: { readonly port: number; readonly address?: string }): void {
    checkObject('bindAddr', own, 'address');
    const { port, address } = own;
    this.#check('bindAddr', ['IDLE']);
    if (address !== undefined && !parseGid('address', address).equals(this.context.local.gid)) {
      const { gid } = this.context.local;
      throw new RefusalError(
        'EADDRNOTAVAIL',
        `bindAddr: address must be ${gid}, got ${shown(address)}`,
      );
    }
    this.#port = this.#manager.takePort(this.portSpace, port);
    this.#state = 'ADDR_BOUND';
  }

  /**
   * `rdma_resolve_addr`: event ADDR_RESOLVED. An address of RoCE is its GID, so no packet is sent.
   * Throws MisuseError; RefusalError EADDRNOTAVAIL (the other address family).
   */
  resolveAddr(target: CmAddress): void {
    this.#check('resolveAddr', ['IDLE', 'ADDR_BOUND']);
    const peer = checkTarget(target);
    const { gid } = peer;
    if (gid.isIpv4 !== this.context.local.gid.isIpv4) {
      const own = this.context.local.gid;
      throw new RefusalError(
        'EADDRNOTAVAIL',
        `resolveAddr: the peer must have the family of ${own}, got ${shown(gid)}`,
      );
    }
    if (this.#state === 'IDLE') this.#port = this.#manager.takePort(this.portSpace, 0);
    this.#peer = peer;
    this.#peerPort = target.port;
    this.#state = 'ADDR_RESOLVED';
    this.push(CmEventType.ADDR_RESOLVED);
  }

  /** `rdma_resolve_route`: event ROUTE_RESOLVED. IP finds its way by itself. */
  resolveRoute(): void {
    this.#check('resolveRoute', ['ADDR_RESOLVED']);
    this.#state = 'ROUTE_RESOLVED';
    this.push(CmEventType.ROUTE_RESOLVED);
  }

  /**
   * `rdma_init_qp_attr`: what a queue pair that is not the id's own is options, for `qp.modify`, on
   * its way to INIT, RTR or RTS. Throws MisuseError; RefusalError EINVAL before the peer was heard.
   */
  initQpAttr(qpState: number): QpAttributes {
    this.checkAlive();
    const request = this.#request;
    const peer = this.#connection?.peer;
    if (!this.#agreement && request?.name === 'REQ' && peer) {
      // As if it was accepted with what the device has.
      const fields = replyFields(this, request, { qpNum: 0 }, peer);
      const startingPsn = this.#startingPsn;
      this.#agreement = this.#agree(request, { ...fields, startingPsn }, peer);
    }
    const isUnreliable =
      request?.name === 'REQ' && request.transportService === TransportService.UC;
    const qpType = this.isDatagram ? QpType.UD : isUnreliable ? QpType.UC : QpType.RC;
    return attributesOf(qpType, qpState, this.#agreement);
  }

  /**
   * `rdma_connect`: events ESTABLISHED, REJECTED, UNREACHABLE or CONNECT_ERROR; without a queue
   * pair of the id's own CONNECT_RESPONSE, and `establish` comes next. Throws MisuseError;
   * RefusalError ENOMEM.
   */
  connect(param: ConnParam = {}): void {
    checkKeys('connect', param, CONN_PARAM);
    this.#check('connect', ['ROUTE_RESOLVED']);
    const peer = this.#peer!;
    const serviceId = serviceIdOf(this.portSpace, this.#peerPort);
    const between = { source: this.context.local.gid, target: peer.gid, sourcePort: this.#port };
    const message = this.isDatagram ? 'SIDR_REQ' : 'REQ';
    const privateData = introduce(message, between, param.privateData);
    const { core, now } = this.#manager;
    if (this.isDatagram) {
      const fields = { pkey: DEFAULT_PKEY, serviceId, privateData };
      this.#connection = core.resolveService(now, peer, this, fields, {
        ...DEFAULT_OPTIONS,
        ...this.options,
      });
    } else {
      const options = { ...DEFAULT_OPTIONS, ...this.options };
      const pathMtu = core.pathMtus.most(now, peer.gid, options.pathMtu);
      const fields: RequestFields = {
        ...requestFields(this, param, peer, { ...options, pathMtu }),
        localEecn: core.pathMtus.longPayload(now, peer, this, this.options),
        serviceId,
        privateData,
        startingPsn: this.#startingPsn,
      };
      this.#ask(fields);
    }
    this.#state = 'CONNECT';
    this.#manager.arm();
  }

  /**
   * `rdma_listen`: every request becomes an event CONNECT_REQUEST. `backlog`: requests that may
   * wait to be accepted or rejected; others are refused. Throws MisuseError; RefusalError
   * EADDRINUSE.
   */
  listen(backlog = 0): void {
    this.#check('listen', ['IDLE', 'ADDR_BOUND']);
    checkWhole('backlog', backlog);
    if (this.#state === 'IDLE') this.bindAddr({ port: 0 });
    const serviceId = serviceIdOf(this.portSpace, this.#port);
    this.#listener = this.#manager.core.listen(serviceId, backlog || BACKLOG_DEFAULT, this);
    this.#state = 'LISTEN';
  }

  /** `rdma_get_request`: an id with a channel of its own (`createEp`); undefined: all is closed. */
  async getRequest(): Promise<CmId | undefined> {
    const { template, channel } = this;
    if (!template)
      throw new RefusalError(
        'EINVAL',
        'getRequest: the id is no listener of createEp; use its channel',
      );
    for (;;) {
      const event = await channel.getEvent();
      if (!event || event.event === CmEventType.DEVICE_REMOVAL) return undefined;
      const { id } = event;
      if (event.event !== CmEventType.CONNECT_REQUEST) {
        // It ended before it was answered.
        if (id !== this) id.destroy();
        continue;
      }
      try {
        id.migrate(channel.createAnother());
        if (template.attributes) id.createQp(template.attributes, template.pd);
        return id;
      } catch (error) {
        // The peer receives a REJ.
        id.destroy();
        throw error;
      }
    }
  }

  /**
   * `rdma_accept`: event ESTABLISHED when the peer is ready (datagrams: none). Throws MisuseError;
   * RefusalError EINVAL when there is no request (any more), or the queue pair refuses.
   */
  accept(param: ConnParam = {}): void {
    checkKeys('accept', param, CONN_PARAM);
    this.#check('accept', ['CONNECT']);
    const { core, now } = this.#manager;
    const connection = this.#awaiting('accept');
    const request = this.#request!;
    const qpn = queuePairNumber(this, param);
    checkPrivateData(request.name === 'REQ' ? 'REP' : 'SIDR_REP', param.privateData);
    const privateData = param.privateData ?? new Uint8Array(0);
    if (request.name === 'SIDR_REQ') {
      core.answerService(now, connection, {
        status: SidrStatus.SUCCESS,
        qpn,
        qkey: RDMA_UDP_QKEY,
        serviceId: request.serviceId,
        privateData,
      });
    } else {
      const own = replyFields(this, request, param, connection.peer);
      const localEecn = core.pathMtus.longPayload(now, connection.peer, this, this.options);
      const fields = { ...own, localEecn, privateData };
      const startingPsn = this.#startingPsn;
      const agreement = this.#agree(request, { ...fields, startingPsn }, connection.peer);
      // To RTS when the peer is ready (IBA 12.9.7.2): its first packet may say so.
      this.#giveKeys();
      if (this.qp) makeReadyToReceive(this.qp, agreement);
      this.#agreement = agreement;
      core.accept(now, connection, { ...fields, startingPsn });
    }
    this.#manager.arm();
  }

  /** `rdma_reject`: at most 148 bytes (datagrams: 136); a RejectReason. Throws as `accept`. */
  reject(privateData: Uint8Array = new Uint8Array(0), reason?: number): void {
    const { core, now } = this.#manager;
    const connection = this.#awaiting('reject');
    const request = this.#request;
    checkPrivateData(request?.name === 'SIDR_REQ' ? 'SIDR_REP' : 'REJ', privateData);
    if (request?.name === 'SIDR_REQ') {
      const { serviceId } = request;
      core.answerService(now, connection, { ...refusedService(), serviceId, privateData });
    } else core.reject(now, connection, reason, privateData);
    this.#manager.arm();
  }

  /** With `auth`: for `setPacketKeys` of a queue pair that is not the id's own, before RTR. */
  packetKeys(qpNum: number): PacketKeys | undefined {
    const { auth, remoteQpn = 0 } = this.#connection ?? {};
    return remoteQpn === 0 ? undefined : auth?.packetKeys(qpNum, remoteQpn);
  }

  #giveKeys(): void {
    const keys = this.qp && this.packetKeys(this.qp.qpNum);
    if (keys) this.qp!.setPacketKeys(keys);
  }

  /**
   * `rdma_establish`: after CONNECT_RESPONSE, the queue pair that is not the id's own is ready.
   * Throws RefusalError EINVAL.
   */
  establish(): void {
    if (this.#connection?.state !== 'REP_RCVD') {
      throw new RefusalError(
        'EINVAL',
        'establish: the id has no reply of its peer; await CONNECT_RESPONSE',
      );
    }
    this.#manager.core.ready(this.#connection);
  }

  /** `rdma_notify` of COMM_EST: a packet came to a queue pair that is not the id's own. */
  notify(): void {
    this.communicationEstablished();
  }

  /**
   * `rdma_disconnect`: the queue pair goes to ERR (what was posted is flushed) and the peer gets
   * a DREQ; event DISCONNECTED on both sides. At most 220 bytes of private data. Throws
   * MisuseError; RefusalError EINVAL when nothing is connected.
   */
  disconnect(privateData: Uint8Array = new Uint8Array(0)): void {
    checkPrivateData('DREQ', privateData);
    const connection = this.#connection;
    const { core, now } = this.#manager;
    switch (connection?.state) {
      case 'ESTABLISHED':
      case 'REP_SENT':
      case 'REP_RCVD':
        if (this.qp) bringDown(this.qp);
        core.disconnect(now, connection, privateData);
        this.#manager.arm();
        return;
      case 'DREQ_SENT':
      case 'TIMEWAIT':
        // The peer was quicker, or it is the second time.
        return;
      default:
        throw new RefusalError('EINVAL', 'disconnect: the id has no connection; connect it first');
    }
  }

  /**
   * `rdma_destroy_id`: ends what there is (a listener, a request, a connection) and the queue pair
   * with it. Requests that were not taken from the channel are refused. Nothing more is heard.
   */
  destroy(): void {
    if (this.#state === 'DESTROYED') return;
    this.#state = 'DESTROYED';
    const { core, now } = this.#manager;
    if (this.#listener) core.unlisten(this.#listener);
    const isOpen = !this.context.device.closed;
    if (this.#connection && isOpen) core.destroy(now, this.#connection);
    if (this.qp && isOpen) this.destroyQp();
    if (this.#port !== 0 && !this.#isPortShared) {
      this.#manager.releasePort(this.portSpace, this.#port);
    }
    this.#manager.ids.delete(this);
    this.channel.remove(this);
    this.#manager.arm();
  }

  [Symbol.dispose](): void {
    this.destroy();
  }

  /** @internal */
  request(request: Request): void {
    const { connection, message, header } = request;
    const id = CmId.create(this.channel, this.portSpace);
    connection.owner = id;
    id.#connection = connection;
    id.#request = message;
    id.#port = this.#port;
    id.#isPortShared = true;
    id.#peer = connection.peer;
    id.#peerPort = header.sourcePort;
    id.#state = 'CONNECT';
    const { privateData } = request;
    const conn = message.name === 'REQ' ? connParamOf(message, privateData) : { privateData };
    this.channel.push({ event: CmEventType.CONNECT_REQUEST, id, listenId: this, conn });
  }

  /** @internal */
  connectionEvent(event: ConnectionEvent): void {
    switch (event.kind) {
      case 'reply':
        return this.#replied(event.reply);
      case 'ready':
        if (this.qp) makeReadyUnlessEnded(this.qp, this.#agreement!);
        this.#seedRoundTrip();
        this.#keepAlive();
        return void this.push(CmEventType.ESTABLISHED);
      case 'resolved':
        return this.#resolved(event.reply);
      case 'rejected':
        if (
          asksForLess(this.#manager, this.#connection!, this.#asked, event, (less) =>
            this.#ask(less),
          )
        )
          return;
        return this.#end(CmEventType.REJECTED, event.reason, event.privateData);
      case 'unreachable':
        return this.#end(CmEventType.UNREACHABLE, -ETIMEDOUT);
      case 'disconnected':
        return this.#end(CmEventType.DISCONNECTED, 0, event.privateData);
      case 'timewaitExit':
        this.push(CmEventType.TIMEWAIT_EXIT);
    }
  }

  /** @internal */
  communicationEstablished(): void {
    if (this.#connection) this.#manager.core.establish(this.#connection);
  }

  /** @internal */
  deviceRemoval(): void {
    this.push(CmEventType.DEVICE_REMOVAL);
  }

  /** The peer has answered our REQ or REP: its first timers have a measure. */
  #seedRoundTrip(): void {
    const { askedMicros } = this.#connection!;
    if (askedMicros !== 0) this.qp?.seedRoundTrip(this.#manager.now - askedMicros);
  }

  #ask(fields: RequestFields): void {
    const { core, now } = this.#manager;
    this.#connection = core.connect(now, this.#peer!, this, fields, this.authRule);
    this.#asked = fields;
  }

  /** The peer accepts. */
  #replied(reply: Message<'REP'>): void {
    const conn = connParamOf(reply, reply.privateData);
    const agreement = agreementOfReply(this.#asked!, reply, this.#remote(this.#peer!));
    if (!this.qp) {
      this.#agreement = agreement;
      this.push(CmEventType.CONNECT_RESPONSE, { conn });
      return;
    }
    const { core, now } = this.#manager;
    try {
      this.#giveKeys();
      makeReadyToReceive(this.qp, agreement);
      makeReadyToSend(this.qp, agreement);
      this.#seedRoundTrip();
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      core.reject(now, this.#connection!);
      this.push(CmEventType.CONNECT_ERROR, { status: -EINVAL });
      return;
    }
    core.ready(this.#connection!);
    this.#keepAlive();
    this.push(CmEventType.ESTABLISHED, { conn });
  }

  /** Starts the keep-alive of the connection, if the queue pair supports it. */
  #keepAlive(): void {
    if (this.qp?.qpType !== QpType.RC) return;
    const { keepAliveMillis } = { ...DEFAULT_OPTIONS, ...this.options };
    const watch = makeWatch(keepAliveMillis, () => lookFor(this.qp));
    keepWatch(this.#manager.core, this.#manager.now, this.#connection!, watch);
    this.#manager.arm();
  }

  /** The peer's datagram queue pair, or the cause of its absence. */
  #resolved(reply: Message<'SIDR_REP'>): void {
    this.#connection = undefined;
    const { status, qpn, qkey, privateData } = reply;
    const { gid, port } = this.#peer!;
    if (status === SidrStatus.SUCCESS) {
      const ud = { privateData, ahAttr: { dgid: gid, port }, qpNum: qpn, qkey };
      this.push(CmEventType.ESTABLISHED, { ud });
    } else this.push(CmEventType.UNREACHABLE, { status, conn: { privateData } });
  }

  #end(event: CmEventType, status = 0, privateData: Uint8Array = new Uint8Array(0)): void {
    if (this.qp && this.qp.state !== QpState.ERR) bringDown(this.qp);
    this.push(event, { status, conn: { privateData } });
  }

  /** Applies the agreement; an application's own timeout option stays. */
  #agree(
    request: Message<'REQ'>,
    reply: Parameters<typeof agreementOfRequest>[1],
    peer: Endpoint,
  ): Agreement {
    const agreement = agreementOfRequest(request, reply, this.#remote(peer));
    const { ackTimeout } = this.options;
    return ackTimeout === undefined ? agreement : { ...agreement, timeout: ackTimeout };
  }

  #remote(peer: Endpoint): Remote {
    return { peer, doubledFlushIcrc: this.options.doubledFlushIcrc ?? this.isPeerRxe };
  }

  #awaiting(verb: string): Connection {
    const connection = this.#connection;
    const { state } = connection ?? {};
    const canAnswer = state === 'REQ_RCVD' || state === 'SIDR_REQ_RCVD';
    if (connection && (canAnswer || (verb === 'reject' && state === 'REP_RCVD'))) return connection;
    throw new RefusalError(
      'EINVAL',
      `${verb}: the request is answered already, or has ended; await another`,
    );
  }

  protected push(event: CmEventType, more: CmEventDetails = {}): CmEvent | undefined {
    if (this.#state === 'DESTROYED') return undefined;
    return this.channel.push({ ...more, event, id: this });
  }

  protected checkAlive(): void {
    if (this.#state === 'DESTROYED') throw new MisuseError('id', 'is destroyed');
  }

  #check(verb: string, states: readonly IdState[]): void {
    this.checkAlive();
    if (states.includes(this.#state)) return;
    throw new RefusalError(
      'EINVAL',
      `${verb}: the id must be in ${states.join(' or ')}, and is in ${this.#state}`,
    );
  }
}
