/** The protocol's connections as queue pairs, established by the connection manager. */
import { QpState, WcFlag, WcStatus } from '#build/abi.js';
import { RefusalError } from '../../errors/errors.js';
import { Endpoint } from '../../link/endpoint.js';
import { isOurs } from '../../link/interface.js';
import type { AuthOptions } from '../../cm/auth-option.js';
import { authReason } from '../../cm/auth-reasons.js';
import type { CmId } from '../../cm/cm-id.js';
import { CmEventType, RejectReason } from '../../cm/enums.js';
import { createEventChannel, type CmEvent, type EventChannel } from '../../cm/event-channel.js';
import { Manager } from '../../cm/manager.js';
import type { CompletionQueue } from '../../verbs/queues/completion-queue.js';
import type { WorkCompletion } from '../../verbs/queues/work-completion.js';
import type { Context } from '../../verbs/context.js';
import type { ProtectionDomain } from '../../verbs/domains/protection-domain.js';
import {
  RECEIVES_MAX,
  ReceivePool,
  SEND_BYTES_MAX,
  SendPool,
  type ReceiveBudget,
} from './buffers.js';
import type { TransportConnection, TransportOwner } from '../protocol/transport.js';
import {
  FRAGMENT_BYTES,
  HEADER_BYTES,
  LARGE_FRAGMENT_BYTES,
  MEDIUM_BYTES,
  RDS_CM_PORT,
  RDS_PORT,
  SMALL_BYTES,
} from '../wire/constants.js';
import type { RdsCore } from '../protocol/core.js';
import { Denials } from './denials.js';
import { LocalRegions } from './local-regions.js';
import { DebugLevel } from '../protocol/trace.js';
import { SEND_WR_IDS, VerbsConnection } from './verbs-connection.js';

const COMPLETIONS = 32768;
const POLL = 64;
/** Receives of a connection by what it is for: bytes of a message's part, and how many at a time. */
const POOLS = {
  base: [FRAGMENT_BYTES, 256],
  small: [SMALL_BYTES, 512],
  medium: [MEDIUM_BYTES, 32],
  large: [LARGE_FRAGMENT_BYTES, 32],
} as const;
type PoolName = keyof typeof POOLS;
const CONNECTION_POOLS: readonly PoolName[] = ['base', 'medium', 'large'];
/** 0.27 s, 7 times: a peer that does not answer within 2 s counts as absent. */
const CONNECT_TIMEOUT = { cmResponseTimeout: 16, maxCmRetries: 7 };
const FOR_EVER = 7;
const RDATOMIC = 16;

/** The transport of one device. */
export class VerbsTransport {
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly byQueuePair = new Map<number, VerbsConnection>();
  readonly sends: SendPool;
  /** Registered application memory. */
  readonly regions: LocalRegions;
  readonly denials = new Denials();
  /** Set before the first event. */
  core!: RdsCore;
  /** Called when a connection has ended: the machine may have lost the address of the device. */
  onBroken: (peer: Endpoint) => void = () => {};
  /** Called after each event: the core's next deadline may have changed. */
  onInput: () => void = () => {};
  readonly #channel: EventChannel;
  readonly #byId = new Map<CmId, VerbsConnection>();
  readonly #pools = new Map<PoolName, ReceivePool>();
  readonly #budget: ReceiveBudget;
  readonly #poolList: ReceivePool[] = [];
  /** Completions that were polled early: older than those in the queue. */
  #swept: WorkCompletion[] = [];
  #auth: AuthOptions | undefined;
  readonly #listeners: CmId[] = [];
  #isClosed = false;

  /** `auth`: required for all connections. Throws RefusalError ENOMEM. */
  constructor(
    readonly context: Context,
    /** Index of the device's address in the node. */
    readonly index: number,
    /** Limit of receive bytes; lower if the device has no more memory. */
    public receiveBytesMax: number,
    auth?: AuthOptions,
  ) {
    this.#auth = auth;
    this.#budget = {
      bytesLeft: receiveBytesMax,
      exhausted: () => {
        this.receiveBytesMax = this.receiveBytes;
        this.#budget.bytesLeft = 0;
        const what = `the device has no memory for receives beyond ${this.receiveBytesMax} bytes`;
        this.say(DebugLevel.SERIOUS_ERRORS, () => what);
      },
      missed: () => this.core.statistics.rxCacheMiss++,
    };
    this.pd = context.allocPd();
    this.cq = context.createCq(COMPLETIONS);
    this.regions = new LocalRegions(this.pd);
    this.sends = new SendPool(context, this.pd, SEND_BYTES_MAX);
    this.#channel = createEventChannel(context);
  }

  /** Bytes of memory for receives. */
  get receiveBytes(): number {
    return this.receiveBytesMax - this.#budget.bytesLeft;
  }

  /** Posted receives. */
  get receivesPosted(): number {
    return this.#poolList.reduce((sum, pool) => sum + pool.posted, 0);
  }

  /** Receives that hold unread messages. */
  get receivesTaken(): number {
    return this.#poolList.reduce((sum, pool) => sum + pool.taken, 0);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Open, at an address that this machine has. */
  get isHere(): boolean {
    return !this.#isClosed && (!this.#isUdp || isOurs(this.context.local.gid));
  }

  get #isUdp(): boolean {
    return this.context.device.info.pseudoHeader === 'ip';
  }

  get now(): number {
    return this.context.device.clock.now();
  }

  /** Accepts requests of peers. Throws RefusalError EADDRINUSE. */
  listen(): void {
    const ports = this.context.local.gid.isIpv4 ? [RDS_PORT] : [RDS_PORT, RDS_CM_PORT];
    for (const port of ports) {
      const id = this.#channel.createId();
      if (this.#auth) id.setOption({ auth: this.#auth });
      id.bindAddr({ port });
      id.listen();
      this.#listeners.push(id);
    }
    void this.#hearEvents();
    void this.#hearCompletions();
  }

  /** Keys of future connections. Throws MisuseError. */
  setAuth(auth: AuthOptions): void {
    for (const id of this.#listeners) id.setOption({ auth });
    this.#auth = auth;
  }

  connect(
    peer: Endpoint,
    connectionIndex: number,
    privateData: Uint8Array,
    owner: TransportOwner,
  ): TransportConnection {
    this.say(DebugLevel.CM, () => `requesting a connection to ${peer}`);
    const id = this.#channel.createId();
    const pool = CONNECTION_POOLS[connectionIndex]!;
    const connection = new VerbsConnection(this, id, owner, POOLS[pool][0], () => this.#pool(pool));
    connection.isAsked = true;
    this.#byId.set(id, connection);
    try {
      id.setOption(this.#auth ? { ...CONNECT_TIMEOUT, auth: this.#auth } : CONNECT_TIMEOUT);
      const { gid, port: udpPort } = peer;
      const port = gid.isIpv4 ? RDS_PORT : RDS_CM_PORT;
      id.resolveAddr({ address: gid.toString(), port, udpPort });
      id.resolveRoute();
      connection.createQp();
      id.connect({
        privateData,
        responderResources: RDATOMIC,
        initiatorDepth: RDATOMIC,
        retryCount: 7,
        rnrRetryCount: FOR_EVER,
      });
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      this.broken(connection);
    }
    return connection;
  }

  random(): number {
    return Manager.of(this.context).random();
  }

  say(level: number, text: () => string): void {
    // The core does not exist yet while the node is constructed.
    (this.core as RdsCore | undefined)?.trace.log(this.now, level, text);
  }

  /** Reports the end of a connection to its owner, in a microtask. */
  broken(connection: VerbsConnection, isAbsent = false): void {
    queueMicrotask(() => {
      if (connection.isClosed) return;
      const peer = connection.id.getPeerAddr();
      connection.owner.down(this.now, connection, isAbsent);
      connection.close();
      if (peer) this.onBroken(Endpoint.parse(peer.address, peer.udpPort));
      this.onInput();
    });
  }

  /** Destroying a queue pair removes its completions, including those of filled receives. */
  end(connection: VerbsConnection): void {
    this.#byId.delete(connection.id);
    this.byQueuePair.delete(connection.qpNum);
    if (connection.qpNum !== 0) {
      this.say(DebugLevel.QP, () => `queue pair ${connection.qpNum} is gone`);
    }
    const { qp } = connection.id;
    if (!qp || this.#isClosed || this.context.device.closed) return;
    qp.modify({ qpState: QpState.ERR });
    const isFirst = this.#swept.length === 0;
    this.#poll();
    if (!isFirst || this.#swept.length === 0) return;
    queueMicrotask(() => {
      if (this.#isClosed) return;
      this.#completions([]);
      this.onInput();
    });
  }

  /** Call it after the core has closed its connections. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#channel.destroy();
    for (const connection of [...this.byQueuePair.values()]) connection.close();
    if (this.context.device.closed) return;
    for (const pool of this.#pools.values()) pool.close();
    this.sends.close();
    this.regions.close();
    this.cq.destroy();
    this.pd.dealloc();
  }

  #pool(name: PoolName): ReceivePool {
    let pool = this.#pools.get(name);
    if (!pool) {
      const [bytes, step] = POOLS[name];
      const wrIds = this.#poolList.length * RECEIVES_MAX;
      const kind = { size: HEADER_BYTES + bytes, step, wrIds };
      pool = new ReceivePool(this.context, this.pd, kind, this.#budget);
      this.#pools.set(name, pool);
      this.#poolList.push(pool);
    }
    return pool;
  }

  async #hearEvents(): Promise<void> {
    for await (const event of this.#channel) {
      if (this.#isClosed) return;
      if (event.event === CmEventType.CONNECT_REQUEST) this.#request(event);
      else this.#event(event);
      this.onInput();
    }
  }

  #event(event: CmEvent): void {
    const connection = this.#byId.get(event.id);
    if (!connection) return;
    const { address, udpPort } = event.id.getPeerAddr()!;
    const reason = event.event === CmEventType.REJECTED ? event.status : 0;
    this.denials.note(Endpoint.parse(address, udpPort), reason);
    switch (event.event) {
      case CmEventType.ESTABLISHED: {
        connection.established(this.core.parameters.MinRnrTimer);
        const answer = connection.isAsked ? event.privateData : undefined;
        return connection.owner.up(this.now, connection, answer);
      }
      case CmEventType.REJECTED:
        return this.broken(connection, isHopeless(event.status));
      case CmEventType.UNREACHABLE:
        return this.broken(connection, true);
      case CmEventType.DISCONNECTED:
        // Messages that arrived before the peer's disconnect request, maybe its last ones.
        this.sweep();
        return this.broken(connection);
      case CmEventType.CONNECT_ERROR:
      case CmEventType.DEVICE_REMOVAL:
      case CmEventType.TIMEWAIT_EXIT:
        return this.broken(connection);
      default:
    }
  }

  #request({ id, privateData }: CmEvent): void {
    // The peer's former process may have ended: its last messages come first.
    this.sweep();
    const { address, udpPort } = id.getPeerAddr()!;
    const asking = Endpoint.parse(address, udpPort);
    const acceptance = this.core.request(this.now, asking, privateData, this.index);
    if (!acceptance) {
      this.#refuse(id);
      return;
    }
    const { connection: accepting, privateData: answer, isOwnKind } = acceptance;
    const isSmall = accepting.index === 0 && isOwnKind;
    const pool = isSmall ? 'small' : CONNECTION_POOLS[accepting.index]!;
    const { fragmentBytes } = accepting;
    const connection = new VerbsConnection(this, id, accepting, fragmentBytes, () =>
      this.#pool(pool),
    );
    this.#byId.set(id, connection);
    try {
      connection.createQp();
      this.core.accepted(this.now, acceptance, connection, privateData);
      id.accept({
        privateData: answer,
        responderResources: RDATOMIC,
        initiatorDepth: RDATOMIC,
        rnrRetryCount: FOR_EVER,
      });
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      this.broken(connection);
    }
  }

  #refuse(id: CmId): void {
    try {
      id.reject();
    } catch (error) {
      // The peer gave up meanwhile.
      if (!(error instanceof RefusalError)) throw error;
    }
    id.destroy();
  }

  async #hearCompletions(): Promise<void> {
    let isOver = false;
    const take = (completions: readonly WorkCompletion[]): void => {
      isOver = this.#isClosed || completions.length === 0;
      if (isOver) return;
      this.#completions(completions);
      this.onInput();
    };
    while (!isOver) {
      try {
        await this.cq.waitInto(POLL, take);
      } catch (error) {
        // It was waited for until it was destroyed.
        if (!this.#isClosed) throw error;
        return;
      }
    }
  }

  #poll(): void {
    for (let some = this.cq.poll(POLL); some.length > 0; some = this.cq.poll(POLL)) {
      this.#swept.push(...some);
    }
  }

  /** Handles the completions that are there, without a turn of the event loop. */
  sweep(): void {
    if (this.#isClosed || this.context.device.closed) return;
    this.#poll();
    this.#completions([]);
  }

  #completions(completions: readonly WorkCompletion[]): void {
    const { now } = this;
    const withRoom: VerbsConnection[] = [];
    const swept = this.#swept;
    if (swept.length > 0) this.#swept = [];
    for (const completion of swept) this.#completion(now, completion, withRoom);
    for (const completion of completions) this.#completion(now, completion, withRoom);
    for (const connection of withRoom) {
      if (!connection.isClosed) connection.owner.sent(now, connection);
    }
  }

  #completion(now: number, completion: WorkCompletion, withRoom: VerbsConnection[]): void {
    const { qpNum, status, byteLen, wcFlags, immData } = completion;
    const wrId = Number(completion.wrId);
    const connection = this.byQueuePair.get(qpNum);
    const isGood = status === WcStatus.SUCCESS;
    if (!isGood && connection) {
      if (wrId >= SEND_WR_IDS) connection.failed(wrId, status);
      this.broken(connection);
    }
    if (wrId < SEND_WR_IDS) {
      const pool = this.#poolList[Math.floor(wrId / RECEIVES_MAX)]!;
      const beside = isGood && wcFlags & WcFlag.WITH_IMM ? immData : undefined;
      const packet = pool.packet(wrId, isGood ? byteLen : 0, beside);
      if (isGood && connection) connection.owner.received(now, connection, packet);
      else packet.release();
    } else if (isGood && connection) {
      connection.completed(wrId);
      if (withRoom.at(-1) !== connection) withRoom.push(connection);
    }
  }
}

/** The peer has no listener, or another key: an immediate retry would fail as well. */
function isHopeless(reason: number): boolean {
  return reason === RejectReason.INVALID_SERVICE_ID || authReason(reason) !== undefined;
}
