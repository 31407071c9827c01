/** `rpma_conn`: a connection, and the operations on the other side's memory. */
import { checkMember } from '../errors/check-member.js';
import { mustBe, shown } from '../errors/check-whole.js';
import { WrOpcode } from '#build/abi.js';
import type { CmId } from '../cm/cm-id.js';
import { connectErrorOf, type ConnectError } from '../cm/connect-error.js';
import { CmEventType } from '../cm/enums.js';
import type { EventChannel } from '../cm/event-channel.js';
import { MisuseError } from '../errors/errors.js';
import { asWorkRequest, type AnyWorkRequest } from '../verbs/queues/work-request.js';
import type { Sge } from '../verbs/queues/sge.js';
import { deleteQueues, type ConnQueues, type PeerResources } from './conn-queues.js';
import {
  ATOMIC_WRITE_ALIGNMENT,
  ConnEvent,
  Flag,
  FlushType,
  MrUsage,
  utilsConnEvent2str,
} from './constants.js';
import type { Cq } from './cq.js';
import { RpmaError } from './errors.js';
import {
  RawBuffer,
  atomicWrite,
  nativeFlush,
  planFlush,
  signalled,
  type FlushMethod,
} from './flush.js';
import { LogLevel, log } from './log.js';
import type { MrLocal, MrRemote } from './mr.js';
import type { PeerCfg } from './peer-cfg.js';

const EVENTS: Readonly<Record<number, number>> = {
  [CmEventType.ESTABLISHED]: ConnEvent.ESTABLISHED,
  [CmEventType.CONNECT_ERROR]: ConnEvent.LOST,
  [CmEventType.DEVICE_REMOVAL]: ConnEvent.LOST,
  [CmEventType.DISCONNECTED]: ConnEvent.CLOSED,
  [CmEventType.TIMEWAIT_EXIT]: ConnEvent.CLOSED,
  [CmEventType.REJECTED]: ConnEvent.REJECTED,
  [CmEventType.UNREACHABLE]: ConnEvent.UNREACHABLE,
};

/** `struct rpma_conn`: a connection and its operations. */
export class Conn {
  readonly #peer: PeerResources;
  readonly #id: CmId;
  readonly #channel: EventChannel;
  readonly #queues: ConnQueues;
  #privateData: Uint8Array | undefined;
  #method: FlushMethod | undefined;
  #isDirectWriteToPmem = false;
  #raw: RawBuffer | undefined;
  #isDeleted = false;
  #refusal: ConnectError | undefined;

  /** @internal Use `connReq.connect()`. */
  constructor(
    peer: PeerResources,
    id: CmId,
    queues: ConnQueues,
    privateData: Uint8Array | undefined,
  ) {
    this.#peer = peer;
    this.#id = id;
    this.#channel = id.channel;
    this.#queues = queues;
    this.#privateData = privateData;
  }

  /**
   * `rpma_conn_next_event`: waits for a ConnEvent. Rejects with RpmaError E_NO_EVENT (the connection
   * is deleted).
   */
  async nextEvent(): Promise<number> {
    for (;;) {
      const cmEvent = await this.#channel.getEvent();
      if (!cmEvent) throw new RpmaError('E_NO_EVENT', 'nextEvent: the connection is deleted');
      const event = EVENTS[cmEvent.event];
      if (event === undefined) continue;
      if (event === ConnEvent.ESTABLISHED) this.#privateData ??= cmEvent.conn?.privateData;
      if (event === ConnEvent.REJECTED || event === ConnEvent.UNREACHABLE) {
        this.#refusal = connectErrorOf('connect', cmEvent);
      }
      log(LogLevel.NOTICE, 'conn.nextEvent', utilsConnEvent2str(event));
      return event;
    }
  }

  /**
   * Reason and remedy after ConnEvent.REJECTED or UNREACHABLE. EACCES: `auth` differs.
   * Undefined before. No counterpart in librpma.
   */
  getRefusal(): ConnectError | undefined {
    return this.#refusal;
  }

  /** `rpma_conn_get_private_data`: what the other side's application said. */
  getPrivateData(): Uint8Array {
    return this.#privateData ?? new Uint8Array(0);
  }

  /** `rpma_conn_apply_remote_peer_cfg`: applies the configuration that the peer declared. */
  applyRemotePeerCfg(pcfg: PeerCfg): void {
    checkMember('pcfg', pcfg, 'getDirectWriteToPmem', 'a PeerCfg');
    this.#isDirectWriteToPmem = pcfg.getDirectWriteToPmem();
  }

  /** `rpma_conn_get_event_fd`: readable while `nextEvent` has one. As `getFd` of an event channel. */
  getEventFd(): Promise<number> {
    return this.#channel.getFd();
  }

  /**
   * `rpma_conn_get_compl_fd`: readable while `wait` would resolve at once. As `getFd` of a completion
   * channel; RpmaError E_NOT_SHARED_CHNL (`cq.getFd` is meant).
   */
  async getComplFd(): Promise<number> {
    const { channel } = this.#queues;
    if (channel) return channel.getFd();
    throw new RpmaError('E_NOT_SHARED_CHNL', 'getComplFd: each queue has its own: use cq.getFd');
  }

  /** `rpma_conn_get_qp_num`. */
  getQpNum(): number {
    return this.#id.qp!.qpNum;
  }

  /** `rpma_conn_get_cq`: for all completions, or those that are no receives (`getRcq`). */
  getCq(): Cq {
    return this.#queues.cq;
  }

  /** `rpma_conn_get_rcq`: undefined, where receives complete in the same queue. */
  getRcq(): Cq | undefined {
    return this.#queues.rcq;
  }

  /**
   * `rpma_conn_wait`: until one of the two completion queues has something, and which. Rejects with
   * RpmaError E_NOT_SHARED_CHNL (`cq.wait` is meant), E_NO_COMPLETION (the connection is deleted).
   */
  async wait(): Promise<{ readonly cq: Cq; readonly isRcq: boolean }> {
    const { cq, rcq, channel } = this.#queues;
    if (!channel) throw new RpmaError('E_NOT_SHARED_CHNL', 'wait: each queue has its own channel');
    const queue = await channel.getCqEvent();
    if (!queue) throw new RpmaError('E_NO_COMPLETION', 'wait: the connection is deleted');
    queue.reqNotify();
    const isRcq = queue === rcq?.queue;
    return { cq: isRcq ? rcq! : cq, isRcq };
  }

  /**
   * How flushes and atomic writes travel. Default: `native` to a peer of our kind, `appliance` to
   * others; for Linux rxe it depends on the region's descriptor and the type of the flush (table in
   * `host/guide/PERSISTENCE.md`). A method that is set applies to every region. No counterpart in
   * librpma, which selects by its own adapter.
   */
  get flushMethod(): FlushMethod {
    return this.#method ?? (this.#id.isPeerOwnKind ? 'native' : 'appliance');
  }

  set flushMethod(method: FlushMethod) {
    if (method !== 'native' && method !== 'appliance') {
      throw new MisuseError('flushMethod', `must be 'native' or 'appliance', got ${shown(method)}`);
    }
    this.#method = method;
  }

  /**
   * `rpma_read`: reads `length` bytes of the peer into a local region. Null for both regions, and
   * zeros, make an empty READ. Throws MisuseError; and as `qp.postSend`.
   */
  read(
    dst: MrLocal | null,
    dstOffset: number,
    src: MrRemote | null,
    srcOffset: number,
    length: number,
    flags: number,
    opContext: number | bigint = 0,
  ): void {
    const target = { mr: src, offset: srcOffset };
    const own = { mr: dst, offset: dstOffset };
    this.#move(WrOpcode.RDMA_READ, target, own, length, flags, opContext);
  }

  /** `rpma_write`. As `read`. */
  write(
    dst: MrRemote | null,
    dstOffset: number,
    src: MrLocal | null,
    srcOffset: number,
    length: number,
    flags: number,
    opContext: number | bigint = 0,
  ): void {
    const target = { mr: dst, offset: dstOffset };
    const own = { mr: src, offset: srcOffset };
    this.#move(WrOpcode.RDMA_WRITE, target, own, length, flags, opContext);
  }

  /** `rpma_write_with_imm`: takes a receive there, which gets `imm`. As `write`. */
  writeWithImm(
    dst: MrRemote | null,
    dstOffset: number,
    src: MrLocal | null,
    srcOffset: number,
    length: number,
    flags: number,
    imm: number,
    opContext: number | bigint = 0,
  ): void {
    const target = { mr: dst, offset: dstOffset };
    const own = { mr: src, offset: srcOffset };
    this.#move(WrOpcode.RDMA_WRITE_WITH_IMM, target, own, length, flags, opContext, imm);
  }

  /**
   * `rpma_atomic_write`: the eight bytes `src` are there whole or not at all, after all flushes that
   * were posted before. Throws MisuseError (not 8 bytes, or no multiple of 8); as `qp.postSend`.
   */
  atomicWrite(
    dst: MrRemote,
    dstOffset: number,
    src: Uint8Array,
    flags: number,
    opContext: number | bigint = 0,
  ): void {
    checkFlags(flags);
    if (src.length !== 8) throw new MisuseError('src', `must be 8 bytes, got ${src.length}`);
    if (dstOffset % ATOMIC_WRITE_ALIGNMENT !== 0) {
      throw mustBe('dstOffset', 'a multiple of 8', dstOffset);
    }
    const isNative = this.flushMethod === 'native';
    this.#post(atomicWrite(isNative, dst, dstOffset, src, flags, opContext));
  }

  /**
   * `rpma_flush`: what was written before to these bytes is persistent, or visible to all, when it
   * completes; `type` is a FlushType. Throws MisuseError; RpmaError E_NOSUPP: the region was not
   * registered for that, or the other side has not said that it writes to persistent memory
   * (`applyRemotePeerCfg`); as `qp.postSend`.
   */
  flush(
    dst: MrRemote,
    dstOffset: number,
    length: number,
    type: number,
    flags: number,
    opContext: number | bigint = 0,
  ): void {
    checkFlags(flags);
    const isPersistent = type === FlushType.PERSISTENT;
    if (!isPersistent && type !== FlushType.VISIBILITY) {
      throw new MisuseError('type', `must be a FlushType, got ${type}`);
    }
    if (isPersistent && !this.#isDirectWriteToPmem) {
      const remedy = 'it must call setDirectWriteToPmem(true)';
      throw new RpmaError('E_NOSUPP', `flush: the peer has not declared persistence; ${remedy}`);
    }
    const { FLUSH_TYPE_PERSISTENT, FLUSH_TYPE_VISIBILITY } = MrUsage;
    const need = isPersistent ? FLUSH_TYPE_PERSISTENT : FLUSH_TYPE_VISIBILITY;
    if ((dst.getFlushType() & need) === 0) {
      const what = isPersistent ? 'persistence' : 'visibility';
      throw new RpmaError(
        'E_NOSUPP',
        `flush: the peer must register the region for a flush to ${what}`,
      );
    }
    const { isPeerOwnKind: isOwnKind, isPeerRxe: isRxe } = this.#id;
    const plan = planFlush({ isOwnKind, isRxe }, dst.usage, type, this.#method);
    if (plan.method === 'native') {
      this.#post(nativeFlush(dst, dstOffset, length, type, flags, opContext));
      return;
    }
    this.#raw ??= new RawBuffer(this.#peer.pd);
    this.#post(this.#raw.request(dst, dstOffset, plan.length, flags, opContext));
  }

  /** `rpma_send`; without a region a message without bytes. Throws as `write`. */
  send(
    src: MrLocal | null,
    offset: number,
    length: number,
    flags: number,
    opContext: number | bigint = 0,
  ): void {
    this.#send({ opcode: WrOpcode.SEND }, src, offset, length, flags, opContext);
  }

  /** `rpma_send_with_imm`. As `send`. */
  sendWithImm(
    src: MrLocal | null,
    offset: number,
    length: number,
    flags: number,
    imm: number,
    opContext: number | bigint = 0,
  ): void {
    const what = { opcode: WrOpcode.SEND_WITH_IMM, immData: imm };
    this.#send(what, src, offset, length, flags, opContext);
  }

  /** `rpma_recv`: room for one message. Throws as `qp.postRecv`. */
  recv(dst: MrLocal | null, offset: number, length: number, opContext: number | bigint = 0): void {
    this.#id.qp!.postRecv({ wrId: opContext, sgList: sgesOf(dst, offset, length) });
  }

  /** `rpma_conn_disconnect`: event CLOSED on both sides. Nothing happens when it is over. */
  disconnect(): void {
    log(LogLevel.NOTICE, 'conn.disconnect', 'Requesting for disconnection');
    this.#id.disconnect();
  }

  /** `rpma_conn_delete`: ends it, and gives back all that was made for it. */
  delete(): void {
    if (this.#isDeleted) return;
    this.#isDeleted = true;
    if (this.#peer.context.device.closed) return;
    this.#id.destroy();
    this.#channel.destroy();
    deleteQueues(this.#queues);
    this.#raw?.delete();
  }

  [Symbol.dispose](): void {
    this.delete();
  }

  #move(
    opcode: number,
    target: { readonly mr: MrRemote | null; readonly offset: number },
    own: { readonly mr: MrLocal | null; readonly offset: number },
    length: number,
    flags: number,
    wrId: number | bigint,
    immData?: number,
  ): void {
    checkFlags(flags);
    const isNothing = target.mr === null && own.mr === null;
    const isBare = target.offset === 0 && own.offset === 0 && length === 0;
    if (isNothing ? !isBare : target.mr === null || own.mr === null) {
      throw new MisuseError('src', 'must be null with dst null and zeros, or neither');
    }
    const { mr, offset } = target;
    const request: AnyWorkRequest = {
      wrId,
      opcode,
      sendFlags: signalled(flags),
      sgList: sgesOf(own.mr, own.offset, length),
      rdma: mr ? { remoteAddr: mr.addressOf(offset), rkey: mr.rkey } : { remoteAddr: 0, rkey: 0 },
    };
    this.#post(immData === undefined ? request : { ...request, immData });
  }

  #send(
    what: Pick<AnyWorkRequest, 'opcode' | 'immData'>,
    src: MrLocal | null,
    offset: number,
    length: number,
    flags: number,
    wrId: number | bigint,
  ): void {
    checkFlags(flags);
    this.#post({
      ...what,
      wrId,
      sendFlags: signalled(flags),
      sgList: sgesOf(src, offset, length),
    });
  }

  #post(request: AnyWorkRequest): void {
    if (this.#isDeleted) throw new MisuseError('connection', 'is deleted');
    this.#id.qp!.postSend(asWorkRequest(request));
  }
}

function checkFlags(flags: number): void {
  if (flags !== Flag.COMPLETION_ON_ERROR && flags !== Flag.COMPLETION_ALWAYS) {
    throw mustBe('flags', 'a Flag', flags);
  }
}

/** Throws MisuseError for bytes without a region. */
function sgesOf(mr: MrLocal | null, offset: number, length: number): Sge[] {
  if (mr) return [mr.sge(offset, length)];
  if (offset !== 0 || length !== 0)
    throw new MisuseError('length', `must be 0 without a region, got ${length} at ${offset}`);
  return [];
}
