/**
 * Path of a side of `verbena perf`: queue pairs and their buffers, and how they find those of the
 * peer: by the connection manager, or by hand.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  AddressAttributes,
  AddressHandle,
  CompletionQueue,
  Context,
  EventChannel,
  MemoryRegion,
  QueuePair,
  ProtectionDomain,
  RdmaConnection,
  RdmaListener,
  ReceiveWorkRequest,
  SendWorkRequest,
} from '../../index.js';
import {
  AccessFlag,
  Mtu,
  PlacementType,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
} from '../../verbs/enums.js';
import { CmEventType, PortSpace, RejectReason } from '../../cm/enums.js';
import { ConnectError } from '../../cm/connect-error.js';
import { RefusalError } from '../../errors/errors.js';
import { connect } from '../../remote/connect.js';
import { createEp } from '../../cm/create-ep.js';
import { createEventChannel } from '../../cm/event-channel.js';
import type { PerfDestination } from './exchange.js';
import { QP_TYPES, isAnswered, opcodeOf, type PerfPlan, type PerfServer } from './options.js';
import type { ExchangeSession } from '../base/exchange-key.js';
import { authOption } from '../base/psk-file.js';
import { within } from './control.js';
import { PerfQueue } from './pace.js';

/** Headers before the payload of a received datagram (GRH). */
const GRH_BYTES = 40;
const LINE_BYTES = 64;
/** Small messages walk over so much, as perftest's do (its cycle buffer). */
const CYCLE_BYTES = 4096;
/** perftest's, if the peer sends none. */
const QKEY = 0x11111111;
/** 4.096 us * 2^17: half a second, before the round trip is known. It may be 300 ms. */
const TIMEOUT = 17;
const RETRY_COUNT = 7;
/** 0.64 ms. */
const MIN_RNR_TIMER = 12;
/** perftest's server begins to listen when the client may have asked already. */
const REFUSALS_MAX = 100;
const REFUSED_AGAIN_MILLIS = 100;
const GOODBYE_MILLIS = 3000;
/** Of queue pairs that few have: 4 KiB each. */
const REORDER_PACKETS = 64;
const REORDERING_QPS_MAX = 16;
const ALL_ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC |
  AccessFlag.FLUSH_GLOBAL;

export interface PerfConnection {
  readonly index: number;
  readonly qp: QueuePair;
  readonly psn: number;
  /** Where its buffers begin in the memory. */
  readonly sendAt: number;
  readonly receiveAt: number;
  /** Receives that are posted and have not completed: what is lost leaves some. */
  receivesPosted: number;
  remote: { readonly vaddr: bigint; readonly rkey: number };
  ud: { readonly ah: AddressHandle; readonly remoteQpn: number; readonly remoteQkey: number };
}

/** How the other side's device is reached where no connection manager says it. */
export interface PerfPeer {
  readonly port: number;
  readonly receiveBufferBytes?: number;
  readonly reorderPackets?: number;
  readonly ownKind?: boolean;
}

const UNKNOWN = { vaddr: 0n, rkey: 0 };

function areaBytes(sizeMax: number): number {
  return Math.ceil(Math.max(sizeMax, CYCLE_BYTES) / LINE_BYTES) * LINE_BYTES;
}

/** Packets that a queue pair keeps when they come ahead. */
function reorderOf({ qps, connection }: PerfPlan): number {
  return connection === 'RC' && qps <= REORDERING_QPS_MAX ? REORDER_PACKETS : 0;
}

/** Memory of the device that the plan takes, queues and all. */
export function memoryOf(plan: PerfPlan): number {
  const buffers = 2 * areaBytes(Math.max(...plan.sizes)) + LINE_BYTES;
  const queues = 2 * plan.txDepth * (128 + plan.inlineBytes) + 2 * plan.rxDepth * 64;
  const kept = reorderOf(plan) * 4352;
  const completions = 4 * 64 * (plan.txDepth + plan.rxDepth);
  return 24 * 2 ** 20 + plan.qps * (buffers + queues + kept + completions + 65536);
}

export class PerfPath {
  readonly context: Context;
  readonly plan: PerfPlan;
  readonly connections: readonly PerfConnection[];
  readonly sendQueue: PerfQueue;
  readonly recvQueue: PerfQueue;
  readonly memory: Uint8Array;
  readonly mr: MemoryRegion;
  readonly #ends: readonly RdmaConnection[];
  readonly #channels: readonly EventChannel[];

  private constructor(base: PathBase, ends: readonly ConnectionEnd[]) {
    this.context = base.context;
    this.plan = base.plan;
    this.sendQueue = new PerfQueue(base.sendCq);
    this.recvQueue = new PerfQueue(base.recvCq);
    this.memory = base.memory;
    this.mr = base.mr;
    this.#ends = ends.flatMap(({ connection }) => connection ?? []);
    this.#channels = ends.flatMap(({ channel }) => channel ?? []);
    this.connections = ends.map(({ qp, ud }, index) => ({
      index,
      qp,
      psn: randomInt(2 ** 24),
      sendAt: index * base.stride,
      receiveAt: base.receiveAt(index),
      receivesPosted: 0,
      remote: UNKNOWN,
      ud: ud!,
    }));
  }

  /** Unconnected queue pairs: `connect` is next. */
  static unconnected(context: Context, plan: PerfPlan): PerfPath {
    const base = new PathBase(context, plan);
    const access = plan.connection === 'UD' ? { qkey: QKEY } : { qpAccessFlags: ALL_ACCESS };
    const ends = Array.from({ length: plan.qps }, () => {
      const qp = base.pd.createQp(base.attributes);
      qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, ...access });
      return { qp };
    });
    return new PerfPath(base, ends);
  }

  /** Asks a server that listens, or will soon. Rejects as `connect` of the connection manager. */
  static async connected(
    context: Context,
    plan: PerfPlan,
    server: PerfServer,
    mtu: number,
  ): Promise<PerfPath> {
    const base = new PathBase(context, plan);
    const ends: ConnectionEnd[] = [];
    for (let index = 0; index < plan.qps; index++) {
      ends.push(await askRepeatedly(() => base.ask(server, mtu, index)));
    }
    return new PerfPath(base, ends);
  }

  /** Takes connections of `peer`, and refuses all others. Rejects with RefusalError. */
  static async accepted(
    context: Context,
    plan: PerfPlan,
    listener: RdmaListener,
    datagrams: EventChannel | undefined,
    peer: string,
  ): Promise<PerfPath> {
    const base = new PathBase(context, plan);
    const ends: ConnectionEnd[] = [];
    while (ends.length < plan.qps) {
      const index = ends.length;
      ends.push(
        datagrams
          ? await base.answerDatagram(datagrams, index)
          : await base.answer(listener, peer, index),
      );
    }
    return new PerfPath(base, ends);
  }

  /** The destinations that are sent to the peer. */
  get destinations(): PerfDestination[] {
    const { outs } = this.plan;
    const gid = this.context.queryGid();
    return this.connections.map(({ qp, psn, receiveAt }) => ({
      outs,
      qpn: qp.qpNum,
      psn,
      rkey: this.mr.rkey,
      vaddr: this.mr.addr + BigInt(receiveAt),
      gid,
    }));
  }

  /** Where the other side's buffers are. */
  aim(theirs: readonly PerfDestination[]): void {
    for (const connection of this.connections) connection.remote = theirs[connection.index]!;
  }

  /** Connects what `unconnected` made. Throws RefusalError EPROTO. */
  connect(
    theirs: readonly PerfDestination[],
    peer: PerfPeer,
    mtu: number,
    session?: ExchangeSession,
  ): void {
    const local = this.context.queryGid();
    for (const connection of this.connections) {
      const there = theirs[connection.index]!;
      if (there.gid.words.every((word) => word === 0)) {
        throw new RefusalError('EPROTO', 'the peer has no GID: start it with -x');
      }
      const keys = session?.packetKeys(connection.qp.qpNum, there.qpn, {
        local,
        remote: there.gid,
      });
      if (keys) connection.qp.setPacketKeys(keys);
      this.#connectOne(connection, there, { dgid: there.gid, ...peer }, mtu);
    }
  }

  /** A send request of `bytes`, at the `slot`-th place of the buffers. */
  request(
    connection: PerfConnection,
    bytes: number,
    slot: number,
    isSignalled: boolean,
  ): SendWorkRequest {
    const { plan, mr, memory } = this;
    const offset = slot * slotBytes(bytes);
    const isInline = bytes <= plan.inlineBytes && (plan.verb === 'write' || plan.verb === 'send');
    const at = connection.sendAt + offset;
    const data = isInline
      ? { inline: memory.subarray(at, at + bytes) }
      : { sgList: [{ addr: plain(mr.addr + BigInt(at)), length: bytes, lkey: mr.lkey }] };
    const flags = (isSignalled ? SendFlag.SIGNALED : 0) | (isInline ? SendFlag.INLINE : 0);
    const common = { wrId: connection.index, opcode: opcodeOf(plan), sendFlags: flags, ...data };
    const { vaddr, rkey } = connection.remote;
    const remoteAddr = plain(BigInt.asUintN(64, vaddr + BigInt(offset)));
    if (plan.verb === 'send')
      return plan.connection === 'UD' ? { ...common, ud: connection.ud } : common;
    if (plan.verb === 'flush') {
      const flush = { remoteAddr, rkey, length: bytes, type: PlacementType.GLOBAL };
      return { ...common, flush };
    }
    if (plan.verb !== 'atomic') return { ...common, rdma: { remoteAddr, rkey } };
    return { ...common, atomic: { remoteAddr, rkey, compareAdd: 1n, swap: 0n } };
  }

  /** Of the largest message: where smaller ones were lost it stays for those to come. */
  receive(connection: PerfConnection): ReceiveWorkRequest {
    const { mr, plan } = this;
    const grh = plan.connection === 'UD' ? GRH_BYTES : 0;
    const addr = plain(mr.addr + BigInt(connection.receiveAt - grh));
    const length = Math.max(...plan.sizes) + grh;
    return { wrId: connection.index, sgList: [{ addr, length, lkey: mr.lkey }] };
  }

  /** The client ends what it began; the server waits for that. */
  async close(isClient: boolean): Promise<void> {
    const over = this.#ends.map((one) => (isClient ? one.close() : one.disconnected));
    await within(GOODBYE_MILLIS, Promise.all(over));
    for (const channel of this.#channels) channel.destroy();
  }

  #connectOne(
    connection: PerfConnection,
    there: PerfDestination,
    ahAttr: AddressAttributes,
    pathMtu: number,
  ): void {
    const { qp, psn: sqPsn } = connection;
    if (this.plan.connection === 'UD') {
      const ah = qp.pd.createAh(ahAttr);
      connection.ud = { ah, remoteQpn: there.qpn, remoteQkey: QKEY };
      qp.modify({ qpState: QpState.RTR });
      qp.modify({ qpState: QpState.RTS, sqPsn });
      return;
    }
    const most = this.context.device.limits.rdAtomicMax;
    const isReliable = this.plan.connection === 'RC';
    const served = { maxDestRdAtomic: this.plan.outs, minRnrTimer: MIN_RNR_TIMER };
    qp.modify({
      qpState: QpState.RTR,
      ahAttr,
      pathMtu,
      destQpNum: there.qpn,
      rqPsn: there.psn,
      ...(isReliable ? served : {}),
    });
    const timeouts = { timeout: TIMEOUT, retryCnt: RETRY_COUNT, rnrRetry: 7 };
    const asked = { ...timeouts, maxRdAtomic: Math.min(this.plan.outs, there.outs, most) };
    qp.modify({ qpState: QpState.RTS, sqPsn, ...(isReliable ? asked : {}) });
  }
}

/** Bytes from one message to the next where several have room. */
function slotBytes(bytes: number): number {
  return Math.ceil(bytes / LINE_BYTES) * LINE_BYTES;
}

/** How many messages have a place of their own. */
export function slotsOf(bytes: number): number {
  return bytes > CYCLE_BYTES / 2 ? 1 : Math.floor(CYCLE_BYTES / slotBytes(bytes));
}

/** Numbers are quicker than BigInts where they can say it. */
function plain(value: bigint): number | bigint {
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

interface ConnectionEnd {
  readonly qp: QueuePair;
  readonly connection?: RdmaConnection;
  readonly channel?: EventChannel;
  readonly ud?: PerfConnection['ud'];
}

/** Objects that all queue pairs share, and the creation of a queue pair. */
class PathBase {
  readonly pd: ProtectionDomain;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly memory: Uint8Array;
  readonly mr: MemoryRegion;
  readonly stride: number;
  readonly #area: number;

  constructor(
    readonly context: Context,
    readonly plan: PerfPlan,
  ) {
    this.#area = areaBytes(Math.max(...plan.sizes));
    this.stride = 2 * this.#area + LINE_BYTES;
    this.pd = context.allocPd();
    this.sendCq = context.createCq(plan.qps * plan.txDepth);
    this.recvCq = context.createCq(plan.qps * plan.rxDepth);
    this.memory = context.alloc(plan.qps * this.stride);
    this.mr = this.pd.regMr(this.memory, ALL_ACCESS);
  }

  get attributes() {
    const { plan, sendCq, recvCq } = this;
    const cap = {
      maxSendWr: plan.txDepth,
      maxRecvWr: plan.rxDepth,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: plan.inlineBytes,
      reorderPackets: reorderOf(plan),
    };
    return { qpType: QP_TYPES[plan.connection], sendCq, recvCq, cap };
  }

  /** Behind the bytes to send, and room for a GRH. */
  receiveAt(index: number): number {
    return index * this.stride + this.#area + LINE_BYTES;
  }

  async ask(server: PerfServer, pathMtu: number, index: number): Promise<ConnectionEnd> {
    if (this.plan.connection === 'UD') return this.#askDatagram(server, index);
    const { context, pd, attributes: qp } = this;
    const { udpPort, auth, ...target } = server;
    const options = { context, pd, qp, udpPort, pathMtu, ...authOption(auth), ...this.#param };
    const connection = await connect(target, options);
    return { qp: connection.qp, connection };
  }

  async answer(listener: RdmaListener, peer: string, index: number): Promise<ConnectionEnd> {
    for (;;) {
      const request = await listener.getRequest();
      if (!request)
        throw new RefusalError('ECONNRESET', 'the device was closed; see the first error');
      if (request.peer.address !== peer) {
        try {
          request.reject();
        } catch {
          // That peer gave up.
        }
        continue;
      }
      const { pd, attributes: qp } = this;
      const connection = await request.accept({ pd, qp, ...this.#param });
      if (connection.qp.qpType === qp.qpType) return { qp: connection.qp, connection };
      throw new RefusalError(
        'EPROTO',
        `the peer’s queue pair ${index} has another type; start both sides with the same -c`,
      );
    }
  }

  /** The peer's queue pair announces its number; only the passive side needs it. */
  async answerDatagram(channel: EventChannel, index: number): Promise<ConnectionEnd> {
    const event = await channel.getEvent();
    if (event?.event !== CmEventType.CONNECT_REQUEST) {
      throw new RefusalError('ECONNRESET', 'the device was closed; see the first error');
    }
    const { id } = event;
    const qp = id.createQp(this.attributes, this.pd);
    if (!answersDatagrams(this.plan)) {
      id.accept();
      return { qp };
    }
    const at = this.receiveAt(index) - GRH_BYTES;
    const sge = { addr: this.mr.addr + BigInt(at), length: GRH_BYTES + 4, lkey: this.mr.lkey };
    qp.postRecv({ sgList: [sge] });
    id.accept();
    const [completion] = await this.recvCq.wait(1);
    if (completion?.status !== WcStatus.SUCCESS) {
      throw new RefusalError(
        'ECONNRESET',
        'the peer did not send its queue pair number; see its error line',
      );
    }
    const address = this.context.initAhFromWc(1, completion, this.memory.subarray(at));
    const ah = this.pd.createAh(address);
    const { qkey: remoteQkey } = qp.query();
    return { qp, ud: { ah, remoteQpn: completion.immData, remoteQkey: remoteQkey! } };
  }

  async #askDatagram(
    { auth: _auth, ...dstAddr }: PerfServer,
    index: number,
  ): Promise<ConnectionEnd> {
    const info = { flags: 0, portSpace: PortSpace.UDP, dstAddr };
    const id = await createEp(this.context, info, this.pd, this.attributes);
    const { channel } = id;
    id.connect();
    const event = await channel.getEvent();
    if (event?.event !== CmEventType.ESTABLISHED || !event.ud) {
      channel.destroy();
      throw new ConnectError(
        'ECONNREFUSED',
        'the peer has no datagram queue pair; start both sides with the same -c',
        event,
      );
    }
    const { ahAttr, qpNum: remoteQpn, qkey: remoteQkey } = event.ud;
    const qp = id.qp!;
    const ud = { ah: this.pd.createAh(ahAttr), remoteQpn, remoteQkey };
    if (answersDatagrams(this.plan)) {
      const at = index * this.stride;
      const sgList = [{ addr: this.mr.addr + BigInt(at), length: 4, lkey: this.mr.lkey }];
      const sendFlags = SendFlag.SIGNALED;
      const opcode = WrOpcode.SEND_WITH_IMM;
      qp.postSend({ opcode, sendFlags, immData: qp.qpNum, sgList, ud });
      await this.sendCq.wait(1);
    }
    return { qp, channel, ud };
  }

  get #param() {
    const depth = isAnswered(this.plan.verb) ? this.plan.outs : 0;
    return {
      responderResources: depth,
      initiatorDepth: depth,
      retryCount: RETRY_COUNT,
      rnrRetryCount: 7,
    };
  }
}

/** perftest's client says its number where the server sends, too. */
function answersDatagrams(plan: PerfPlan): boolean {
  return plan.test === 'lat' || plan.bidirectional;
}

/** Retries while the peer does not listen yet. */
async function askRepeatedly(ask: () => Promise<ConnectionEnd>): Promise<ConnectionEnd> {
  for (let refusals = 1; ; refusals++) {
    try {
      return await ask();
    } catch (error) {
      const isEarly =
        error instanceof ConnectError &&
        error.code === 'ECONNREFUSED' &&
        (error.reason === RejectReason.INVALID_SERVICE_ID || error.reason === 0);
      if (!isEarly || refusals === REFUSALS_MAX) throw error;
      await sleep(REFUSED_AGAIN_MILLIS);
    }
  }
}

/** A listener for datagrams at the port that others connect to. */
export function listenForDatagrams(context: Context, address: string, port: number): EventChannel {
  const channel = createEventChannel(context);
  const id = channel.createId(PortSpace.UDP);
  id.bindAddr({ port, address });
  id.listen();
  return channel;
}

/** The Mtu of `bytes` bytes. */
export function mtuOf(bytes: number): number {
  return Mtu.MTU_256 + Math.log2(bytes / 256);
}
