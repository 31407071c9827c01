/**
 * One end of a conversation, and conversations: SEND and receive, WRITE and READ, atomics, each
 * iteration both ways, with every byte looked at.
 */
import type { AnyRequest } from '../../support/any-request.js';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  Mtu,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcStatus,
  WrOpcode,
  type AddressHandle,
  type CompletionQueue,
  type Context,
  type MemoryRegion,
  type OpenOptions,
  type ProtectionDomain,
  type QpCapabilities,
  type QueuePair,
  type QueuePairEx,
  type Sge,
  type SharedReceiveQueue,
} from '../../../host/index.js';
import type { World } from './world.js';

export const GRH_BYTES = 40;
export const QKEY = 0x11111111;
const IMMEDIATE = 0xfeedbeef;
/** One in twenty gets lost; ten in a row do not. */
const DATAGRAM_ATTEMPTS = 10;
const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
export const ALL_ACCESS = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

/** Options of a player; all have a default. */
export interface PlayerOptions {
  readonly qpType?: number;
  readonly msgSize?: number;
  readonly qpCount?: number;
  readonly mrAccess?: number;
  readonly qpAccess?: number;
  readonly maxRdAtomic?: number;
  readonly cap?: Partial<QpCapabilities>;
  readonly srq?: boolean;
  /** Extended queue pairs for these operations (QpExWith). */
  readonly sendOpsFlags?: number;
  readonly device?: Partial<OpenOptions>;
  readonly makePd?: (context: Context) => ProtectionDomain;
  readonly makeCq?: (context: Context, pd: ProtectionDomain) => CompletionQueue;
  readonly makeRecvCq?: (context: Context, pd: ProtectionDomain) => CompletionQueue;
  readonly makeMr?: (pd: ProtectionDomain, bytes: number, access: number) => MemoryRegion;
}

/** Fields of a completion, by either way of polling. */
export interface Told {
  readonly wrId: bigint;
  readonly status: number;
  readonly byteLen: number;
  readonly wcFlags: number;
  readonly immData: number;
  readonly invalidatedRkey: number;
  readonly timestamp: bigint | undefined;
}

export class Player {
  readonly world: World;
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly srq: SharedReceiveQueue | undefined;
  readonly qps: readonly QueuePair[];
  readonly mr: MemoryRegion;
  readonly options: PlayerOptions;
  msgSize: number;
  /** Address that the peer offers to WRITE, READ and atomics. */
  raddr = 0n;
  rkey = 0;
  peer!: Player;
  #ah: AddressHandle | undefined;

  constructor(world: World, context: Context, options: PlayerOptions) {
    this.world = world;
    this.context = context;
    this.options = options;
    this.msgSize = options.msgSize ?? 1024;
    this.pd = options.makePd?.(context) ?? context.allocPd();
    this.cq = options.makeCq?.(context, this.pd) ?? context.createCq(256);
    this.recvCq = options.makeRecvCq?.(context, this.pd) ?? this.cq;
    this.srq = options.srq ? this.pd.createSrq({ maxWr: 32, maxSge: 4 }) : undefined;
    this.qps = Array.from({ length: options.qpCount ?? 1 }, () => this.#createQp());
    const access = options.mrAccess ?? ALL_ACCESS;
    const bytes = Math.max(this.msgSize, 8) + (this.isDatagram ? GRH_BYTES : 0);
    const make = options.makeMr ?? ((pd, size, flags) => pd.regMr(pd.context.alloc(size), flags));
    this.mr = make(this.pd, bytes, access);
  }

  get qp(): QueuePair {
    return this.qps[0]!;
  }

  get qpEx(): QueuePairEx {
    return this.qp as QueuePairEx;
  }

  get isDatagram(): boolean {
    return this.options.qpType === QpType.UD;
  }

  /** Where messages lie in the region. */
  get message(): Uint8Array {
    const from = this.isDatagram ? GRH_BYTES : 0;
    return this.mr.buffer.subarray(from, from + this.msgSize);
  }

  /** The message as what is sent, or the 8 bytes an atomic brings. */
  sge(length = this.msgSize): Sge {
    const from = this.isDatagram ? GRH_BYTES : 0;
    return { addr: this.mr.addr + BigInt(from), length, lkey: this.mr.lkey };
  }

  #createQp(): QueuePair {
    const { qpType = QpType.RC, cap, sendOpsFlags } = this.options;
    const attributes = {
      qpType,
      sendCq: this.cq,
      recvCq: this.recvCq,
      ...(this.srq ? { srq: this.srq } : {}),
      cap: { maxSendWr: 16, maxRecvWr: 16, ...cap },
    };
    if (sendOpsFlags === undefined) return this.pd.createQp(attributes);
    return this.context.createQpEx({ ...attributes, pd: this.pd, sendOpsFlags });
  }

  /** To RTS, with the queue pairs of `peer` at the other ends. */
  connect(peer: Player): void {
    this.peer = peer;
    this.raddr = peer.mr.addr;
    this.rkey = peer.mr.rkey;
    this.qps.forEach((qp, index) => connect(qp, peer, peer.qps[index]!, this.options));
  }

  /** The handle of the peer's address. */
  get ah(): AddressHandle {
    const { gid, port } = this.peer.context.local;
    this.#ah ??= this.pd.createAh({ dgid: gid, port });
    return this.#ah;
  }

  postRecv(index = 0): void {
    const { addr, lkey } = this.mr;
    const length = this.msgSize + (this.isDatagram ? GRH_BYTES : 0);
    const request = { wrId: 1000 + index, sgList: [{ addr, length, lkey }] };
    (this.srq ?? this.qps[index]!).postRecv(request);
  }

  /** Posts, by `post_send` or by `wr_*`, as the queue pair was made. */
  send(opcode: number, request: Partial<AnyRequest> = {}, index = 0): void {
    const whole = this.#complete(opcode, request, index);
    if (this.options.sendOpsFlags === undefined) this.qps[index]!.postSend(whole);
    else postEx(this.qps[index] as QueuePairEx, whole);
  }

  #complete(opcode: number, request: Partial<AnyRequest>, index: number): AnyRequest {
    const remote = { remoteAddr: this.raddr, rkey: this.rkey };
    const writes = opcode === WrOpcode.RDMA_WRITE || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
    const isRemote = writes || opcode === WrOpcode.RDMA_READ;
    const immediate = opcode === WrOpcode.SEND_WITH_IMM || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
    const { qpNum } = this.peer.qps[index]!;
    return {
      wrId: 500 + index,
      opcode,
      sendFlags: SendFlag.SIGNALED,
      sgList: [this.sge()],
      ...(isRemote ? { rdma: remote } : {}),
      ...(immediate ? { immData: IMMEDIATE } : {}),
      ...(this.isDatagram ? { ud: { ah: this.ah, remoteQpn: qpNum, remoteQkey: QKEY } } : {}),
      ...request,
    };
  }

  /** The next completion, when it has come. */
  async completion(cq = this.cq): Promise<Told> {
    let told: Told | undefined;
    await this.world.until(() => (told = pollOnce(cq)) !== undefined, 'a completion');
    return told!;
  }

  /** The next completion, which is a success. */
  async success(cq = this.cq): Promise<Told> {
    const told = await this.completion(cq);
    assert.is(told.status, WcStatus.SUCCESS, `status ${told.status}`);
    return told;
  }
}

/** Polls one completion, by `ibv_poll_cq` or by `ibv_start_poll`. */
export function pollOnce(cq: CompletionQueue): Told | undefined {
  if (!isEx(cq)) {
    const [wc] = cq.poll(1);
    return wc && { ...wc, timestamp: undefined };
  }
  if (!cq.startPoll()) return undefined;
  const told = {
    wrId: cq.wrId,
    status: cq.status,
    byteLen: cq.wcReadByteLen(),
    wcFlags: cq.wcReadWcFlags(),
    immData: cq.wcReadImmData(),
    invalidatedRkey: cq.wcReadInvalidatedRkey(),
    timestamp: undefined,
  };
  cq.endPoll();
  return told;
}

function isEx(cq: CompletionQueue): cq is import('../../../host/index.js').CompletionQueueEx {
  return 'startPoll' in cq;
}

/** A work request, put together by `wr_*`. */
function postEx(qp: QueuePairEx, request: AnyRequest): void {
  const { rdma, atomic, ud, immData = 0, sgList = [] } = request;
  qp.wrStart();
  qp.wrId = request.wrId ?? 0;
  qp.wrFlags = request.sendFlags ?? 0;
  switch (request.opcode) {
    case WrOpcode.SEND:
      qp.wrSend();
      break;
    case WrOpcode.SEND_WITH_IMM:
      qp.wrSendImm(immData);
      break;
    case WrOpcode.RDMA_WRITE:
      qp.wrRdmaWrite(rdma!.rkey, rdma!.remoteAddr);
      break;
    case WrOpcode.RDMA_WRITE_WITH_IMM:
      qp.wrRdmaWriteImm(rdma!.rkey, rdma!.remoteAddr, immData);
      break;
    case WrOpcode.RDMA_READ:
      qp.wrRdmaRead(rdma!.rkey, rdma!.remoteAddr);
      break;
    case WrOpcode.ATOMIC_CMP_AND_SWP:
      qp.wrAtomicCmpSwp(atomic!.rkey, atomic!.remoteAddr, atomic!.compareAdd, atomic!.swap ?? 0n);
      break;
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
      qp.wrAtomicFetchAdd(atomic!.rkey, atomic!.remoteAddr, atomic!.compareAdd);
      break;
    default:
      throw new Error(`opcode ${request.opcode}`);
  }
  if (ud) qp.wrSetUdAddr(ud.ah, ud.remoteQpn, ud.remoteQkey);
  if (sgList.length === 1) qp.wrSetSge(sgList[0]!.lkey, sgList[0]!.addr, sgList[0]!.length);
  else if (sgList.length > 1) qp.wrSetSgeList(sgList);
  qp.wrComplete();
}

export function toInit(qp: QueuePair, qpAccess = ALL_ACCESS): void {
  const common = { qpState: QpState.INIT, pkeyIndex: 0, portNum: 1 };
  if (qp.qpType === QpType.UD) qp.modify({ ...common, qkey: QKEY });
  else qp.modify({ ...common, qpAccessFlags: qpAccess });
}

/** From RESET to RTS. */
export function connect(
  qp: QueuePair,
  peer: Player,
  peerQp: QueuePair,
  { qpAccess, maxRdAtomic = 16 }: PlayerOptions = {},
): void {
  toInit(qp, qpAccess);
  if (qp.qpType === QpType.UD) {
    qp.modify({ qpState: QpState.RTR });
    qp.modify({ qpState: QpState.RTS, sqPsn: 0x45 });
    return;
  }
  const reliable = qp.qpType === QpType.RC;
  const { gid, port } = peer.context.local;
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: { dgid: gid, port },
    pathMtu: Mtu.MTU_1024,
    destQpNum: peerQp.qpNum,
    rqPsn: peerQp.qpNum & 0xffffff,
    ...(reliable ? { maxDestRdAtomic: maxRdAtomic, minRnrTimer: 1 } : {}),
  });
  qp.modify({
    qpState: QpState.RTS,
    sqPsn: qp.qpNum & 0xffffff,
    ...(reliable ? { timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic } : {}),
  });
}

/** Two connected players. */
export async function createPlayers(
  world: World,
  options: PlayerOptions = {},
  serverOptions: PlayerOptions = options,
): Promise<{ client: Player; server: Player }> {
  const client = new Player(world, await world.open(options.device), options);
  const server = new Player(world, await world.open(serverOptions.device), serverOptions);
  client.connect(server);
  server.connect(client);
  return { client, server };
}

/** Posts what completes with `status` at its sender. */
export async function refused(
  player: Player,
  opcode: number,
  status: number,
  request: Partial<AnyRequest> = {},
): Promise<void> {
  player.send(opcode, request);
  const told = await player.completion();
  assert.is(told.status, status, `status ${told.status}`);
}

/** From ERR through RESET to RTS; what was flushed, or failed, is polled. */
export async function restate(client: Player, server: Player): Promise<void> {
  for (const { world, qp, cq } of [client, server]) {
    assert.ok(await world.soon(() => qp.state === QpState.ERR), 'the queue pair has failed');
    while (pollOnce(cq));
  }
  for (const { qp } of [client, server]) qp.modify({ qpState: QpState.RESET });
  client.connect(server);
  server.connect(client);
}

let turn = 0;

/** Bytes that no other turn had. */
function fresh(length: number): Uint8Array {
  turn++;
  return Uint8Array.from({ length }, (_, index) => (turn * 37 + index * 11 + (index >> 8)) & 255);
}

export interface TrafficOptions {
  readonly opcode?: number;
  readonly iterations?: number;
}

/** Messages that a receive takes, both ways in turn, on every queue pair. */
export async function traffic(
  client: Player,
  server: Player,
  { opcode = WrOpcode.SEND, iterations = 4 }: TrafficOptions = {},
): Promise<void> {
  for (let index = 0; index < client.qps.length; index++) {
    client.postRecv(index);
    server.postRecv(index);
  }
  for (let iteration = 0; iteration < iterations; iteration++) {
    for (let index = 0; index < client.qps.length; index++) {
      await message(client, server, opcode, index);
      await message(server, client, opcode, index);
    }
  }
}

/** One message and its receive; a datagram that got lost is sent again. */
async function message(from: Player, to: Player, opcode: number, index: number): Promise<void> {
  const content = fresh(from.msgSize);
  const imm = opcode === WrOpcode.SEND_WITH_IMM || opcode === WrOpcode.RDMA_WRITE_WITH_IMM;
  let received: Told | undefined;
  for (let attempt = 0; !received; attempt++) {
    assert.ok(attempt < DATAGRAM_ATTEMPTS, `${attempt} datagrams in a row did not arrive`);
    from.message.set(content);
    from.send(opcode, {}, index);
    await from.success();
    if (from.isDatagram) {
      await from.world.soon(() => (received = pollOnce(to.recvCq)) !== undefined);
    } else received = await to.success(to.recvCq);
  }
  assert.is(received.status, WcStatus.SUCCESS);
  const header = to.isDatagram ? GRH_BYTES : 0;
  assert.is(received.byteLen, content.length + header, 'bytes received');
  assert.is(received.wcFlags & WcFlag.WITH_IMM, imm ? WcFlag.WITH_IMM : 0);
  if (imm) assert.is(received.immData, IMMEDIATE);
  assert.equal(to.message.slice(), content, 'what was sent has arrived');
  to.postRecv(index);
}

/** WRITEs or READs, both ways in turn. */
export async function rdmaTraffic(
  client: Player,
  server: Player,
  { opcode = WrOpcode.RDMA_WRITE, iterations = 4 }: TrafficOptions = {},
): Promise<void> {
  for (let iteration = 0; iteration < iterations; iteration++) {
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      const [source, target] = opcode === WrOpcode.RDMA_READ ? [to, from] : [from, to];
      const content = fresh(from.msgSize);
      source.message.set(content);
      target.message.fill(0);
      from.send(opcode);
      await from.success();
      assert.equal(target.message.slice(), content, 'the bytes are where they belong');
    }
  }
}

/** Atomics in both directions: the old value returns, the new value is in memory. */
export async function atomicTraffic(
  client: Player,
  server: Player,
  opcode: number,
  { receiverValue = 0x01n, senderValue = 0x02n, swap = 0x5152n, iterations = 4 } = {},
): Promise<void> {
  for (let iteration = 0; iteration < iterations; iteration++) {
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      const theirs = new DataView(to.mr.buffer.buffer, to.mr.buffer.byteOffset);
      const ours = new DataView(from.mr.buffer.buffer, from.mr.buffer.byteOffset);
      theirs.setBigUint64(0, receiverValue, true);
      ours.setBigUint64(0, 0xaaaan, true);
      from.send(opcode, {
        sgList: [from.sge(8)],
        atomic: { remoteAddr: from.raddr, rkey: from.rkey, compareAdd: senderValue, swap },
      });
      await from.success();
      assert.is(ours.getBigUint64(0, true), receiverValue, 'the value before comes back');
      const swapped = receiverValue === senderValue ? swap : receiverValue;
      const expected =
        opcode === WrOpcode.ATOMIC_FETCH_AND_ADD ? receiverValue + senderValue : swapped;
      assert.is(theirs.getBigUint64(0, true), expected, 'the value after');
    }
  }
}
