/**
 * Members of an id besides its connection: a queue pair and the short verbs on it
 * (rdma/rdma_verbs.h: messages without work requests to fill in), multicast groups, names that it
 * resolves.
 */
import { mustBe, shown } from '../errors/check-whole.js';
import { AccessFlag, QpType, SendFlag, WrOpcode } from '#build/abi.js';
import { checkKeys } from '../base/options.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Gid } from '../link/endpoint.js';
import { parseGid } from '../verbs/queues/address-attributes.js';
import type { AddressHandle } from '../verbs/queues/address-handle.js';
import type { CompletionQueue } from '../verbs/queues/completion-queue.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { Context } from '../verbs/context.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { checkMulticast } from '../verbs/refuse.js';
import { checkInit } from '../verbs/queues/queue-pair-attributes.js';
import type { QpInitAttributes, QueuePair } from '../verbs/queues/queue-pair.js';
import { asWorkRequest, type AnyWorkRequest } from '../verbs/queues/work-request.js';
import type { Sge } from '../verbs/queues/sge.js';
import { checkOptions, multicastParam, type CmOptions } from './agreement.js';
import { checkAuth, type AuthRule } from './auth-option.js';
import {
  getaddrinfo,
  lookupErrno,
  numericInfo,
  type AddressHints,
  type AddressInfo,
} from './address-info.js';
import { checkFamily } from './group-datagrams.js';
import { CmEventType, McJoinFlag, PortSpace, RDMA_UDP_QKEY } from './enums.js';
import type { CmEventDetails } from './event-details.js';
import { Manager, type ManagedId } from './manager.js';
import { initialize } from './queue-pair-states.js';
import { checkBytes } from '../errors/check-bytes.js';
import { checkObject } from '../base/options.js';

/** Options of a queue pair; absent completion queues are created. */
export interface EpInitAttributes extends Partial<QpInitAttributes> {
  /** Entries of the completion queues that are made. Default: as many as requests. */
  readonly cqe?: number;
}

/** Queue pair options of a listener's requests. */
export interface RequestTemplate {
  readonly pd: ProtectionDomain | undefined;
  readonly attributes: EpInitAttributes | undefined;
}

/** `rdma_cm_join_mc_attr_ex`. */
export interface JoinMcAttributes {
  /** The group, or its IPv4 or IPv6 address. */
  readonly addr: Gid | string;
  /** A McJoinFlag. Default FULLMEMBER. */
  readonly joinFlags?: number;
  /** The join context: `arg` of the event. */
  readonly context?: bigint;
}

/** A group that an id has joined. */
interface Joined {
  readonly gid: Gid;
  readonly receives: boolean;
  readonly event: object;
}

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = AccessFlag;
const WORK_REQUESTS_DEFAULT = 128;
/** Of a connection: losses on a path of 80 Mbit/s and 100 ms do not empty it. Tables of 9 KiB. */
const REORDER_PACKETS = 1024;

/** Base of an id: a queue pair, the short verbs of `rdma/rdma_verbs.h`, groups. */
export abstract class EndPoint implements ManagedId {
  /** The queue pair that `createQp` made. */
  qp: QueuePair | undefined;
  readonly #manager: Manager;
  /** Completion queues created for this end point. */
  #queues: readonly CompletionQueue[] = [];
  #info: AddressInfo | 'RESOLVING' | undefined;
  /** In the order of the calls. */
  #joined: Joined[] = [];
  /** Options that `setOption` set. */
  protected options: CmOptions = {};
  /** @internal `options.auth`, checked. */
  authRule: AuthRule | undefined;

  protected constructor(
    readonly context: Context,
    /** A PortSpace. */
    readonly portSpace: number,
  ) {
    if (!Object.values<number>(PortSpace).includes(portSpace)) {
      throw mustBe('portSpace', 'a PortSpace', portSpace);
    }
    this.#manager = Manager.of(context);
  }

  /** The protection domain of its queue pair; before there is one, the device's own. */
  get pd(): ProtectionDomain {
    return this.qp?.pd ?? this.#manager.pdOf(this.context);
  }

  /**
   * `rdma_set_option`. To be called before `connect`, `listen` or `accept`; a listener's `auth`
   * holds for the requests that come from then on. Throws MisuseError; RefusalError EOPNOTSUPP for
   * `auth` of datagrams, and in a browser.
   */
  setOption(options: CmOptions): void {
    checkOptions(options);
    if (options.auth !== undefined) {
      if (this.isDatagram) {
        throw new RefusalError(
          'EOPNOTSUPP',
          'auth: is not available for datagram services; use PortSpace.TCP',
        );
      }
      this.authRule = checkAuth(options.auth);
    }
    this.options = { ...this.options, ...options };
  }

  /** Datagrams, resolved by SIDR, or a connection? */
  get isDatagram(): boolean {
    return this.portSpace === PortSpace.UDP;
  }

  /**
   * `rdma_create_qp`: the id's queue pair, in INIT (datagrams: RTS). Without a protection domain
   * it belongs to the device's own; completion queues that are not given go with the queue pair.
   * `cap.reorderPackets` of a connection: by default 1024.
   * Throws as `pd.createQp`, `context.createCq`.
   */
  createQp(attributes: EpInitAttributes = {}, pd: ProtectionDomain = this.pd): QueuePair {
    this.checkAlive();
    if (this.qp) throw new MisuseError('id', 'has a queue pair already');
    if (pd.context !== this.context) throw new MisuseError('pd', 'must be of the same device');
    checkInit('createQp', attributes, 'cqe');
    const qpType = attributes.qpType ?? (this.isDatagram ? QpType.UD : QpType.RC);
    if ((qpType === QpType.UD) !== this.isDatagram) {
      throw mustBe('qpType', 'UD in PortSpace.UDP, and only there', qpType);
    }
    const { cqe, ...given } = attributes;
    const made: CompletionQueue[] = [];
    const queue = (entries: number = WORK_REQUESTS_DEFAULT): CompletionQueue => {
      const cq = this.context.createCq(cqe ?? entries);
      made.push(cq);
      return cq;
    };
    try {
      const sendCq = given.sendCq ?? queue(given.cap?.maxSendWr);
      const recvCq = given.recvCq ?? queue(given.cap?.maxRecvWr);
      const cap =
        qpType === QpType.RC ? { reorderPackets: REORDER_PACKETS, ...given.cap } : given.cap;
      const qp = pd.createQp({ ...given, ...(cap && { cap }), qpType, sendCq, recvCq });
      initialize(qp);
      this.qp = qp;
      this.#queues = made;
      this.#manager.byQueuePair.set(qp, this);
      return qp;
    } catch (error) {
      for (const cq of made) cq.destroy();
      throw error;
    }
  }

  /** `rdma_destroy_qp`, with the completion queues that were made for it. */
  destroyQp(): void {
    const qp = this.#ready();
    this.#manager.byQueuePair.delete(qp);
    this.qp = undefined;
    qp.destroy();
    for (const cq of this.#queues) cq.destroy();
    this.#queues = [];
  }

  /**
   * `rdma_join_multicast`: event MULTICAST_JOIN, with where datagrams to the group go. They arrive
   * at the queue pair of the id; an id without one joins as well, and the application attaches a
   * queue pair (`qp.attachMcast`). Throws MisuseError; RefusalError EOPNOTSUPP when the link has no
   * multicast, EAFNOSUPPORT, and as `qp.attachMcast`.
   */
  joinMulticast(group: Gid | string): void {
    this.joinMulticastEx({ addr: group });
  }

  /** `rdma_join_multicast_ex`: with SENDONLY_FULLMEMBER nothing is received. Throws as above. */
  joinMulticastEx(attributes: JoinMcAttributes): void {
    checkKeys('joinMulticastEx', attributes, 'addr joinFlags context');
    const { addr, joinFlags = McJoinFlag.FULLMEMBER, context: arg } = attributes;
    this.checkAlive();
    const gid = parseGid('group', addr);
    if (!this.isDatagram)
      throw new MisuseError('id', `must be of PortSpace.UDP, got ${this.portSpace}`);
    if (!gid.isMulticast) throw mustBe('group', 'a multicast address', addr);
    const receives = joinFlags === McJoinFlag.FULLMEMBER;
    if (!receives && joinFlags !== McJoinFlag.SENDONLY_FULLMEMBER)
      throw mustBe('joinFlags', 'a McJoinFlag', joinFlags);
    const { info } = this.context.device;
    checkMulticast('joinMulticastEx', info);
    checkFamily(gid, info);
    if (receives) this.qp?.attachMcast(gid);
    const { port } = info.local;
    const ud = multicastParam(gid, port);
    const event = this.push(CmEventType.MULTICAST_JOIN, { ud, arg })!;
    this.#joined.push({ gid, receives, event });
  }

  /**
   * `rdma_leave_multicast`: the last join of the group ends, and its event does not come if it was
   * not taken. The id's queue pair is detached. Throws RefusalError EADDRNOTAVAIL (not joined).
   */
  leaveMulticast(group: Gid | string): void {
    this.checkAlive();
    const gid = parseGid('group', group);
    const last = this.#joined.filter((one) => one.gid.equals(gid)).pop();
    if (!last) {
      const sentence = `the id has not joined ${gid}; leave a group once for each join`;
      throw new RefusalError('EADDRNOTAVAIL', `leaveMulticast: ${sentence}`);
    }
    if (last.receives && this.qp?.groups.has(`${gid}`)) this.qp.detachMcast(gid);
    this.#joined = this.#joined.filter((one) => one !== last);
    this.channel.withdraw(last.event);
  }

  /**
   * `rdma_resolve_addrinfo`: event ADDRINFO_RESOLVED; or ADDRINFO_ERROR, with the status -2
   * (ENOENT: no such host), -11 (EAGAIN: the resolver does not answer now) or -5
   * (EIO). Throws MisuseError; RefusalError EBUSY until the answer before was taken.
   */
  resolveAddrinfo(node: string, service: number | string, hints: AddressHints = {}): void {
    this.checkAlive();
    if (this.#info !== undefined)
      throw new RefusalError(
        'EBUSY',
        'resolveAddrinfo: another call of the id is pending; await it',
      );
    const portSpace = hints.portSpace ?? this.portSpace;
    const found = numericInfo(node, service, { ...hints, portSpace });
    this.#info = found ?? 'RESOLVING';
    if (found) return void this.push(CmEventType.ADDRINFO_RESOLVED);
    getaddrinfo(node, service, { ...hints, portSpace }).then(
      (info) => {
        this.#info = info;
        this.push(CmEventType.ADDRINFO_RESOLVED);
      },
      (error: RefusalError) => {
        this.#info = undefined;
        this.push(CmEventType.ADDRINFO_ERROR, { status: -lookupErrno(error) });
      },
    );
  }

  /** `rdma_query_addrinfo`: once. Throws RefusalError ENOENT before ADDRINFO_RESOLVED. */
  queryAddrinfo(): AddressInfo {
    const info = this.#info;
    if (info === undefined || info === 'RESOLVING') {
      throw new RefusalError(
        'ENOENT',
        'queryAddrinfo: the id has no address info; call resolveAddrinfo first',
      );
    }
    this.#info = undefined;
    return info;
  }

  /** `rdma_write_cm_event`: an event of the application’s own, USER. Throws RefusalError EINVAL. */
  writeCmEvent(event: number, status: number, arg: number | bigint): void {
    this.checkAlive();
    if (event !== CmEventType.USER) {
      throw new RefusalError('EINVAL', `writeCmEvent: event must be USER, got ${shown(event)}`);
    }
    this.push(event, { status, arg: BigInt(arg) });
  }

  /** `rdma_reg_msgs`: memory to send from and to receive into. Throws as `pd.regMr`. */
  regMsgs(buffer: Uint8Array): MemoryRegion {
    return this.pd.regMr(buffer, LOCAL_WRITE);
  }

  /** `rdma_reg_read`: memory that the peer may read. Throws as `pd.regMr`. */
  regRead(buffer: Uint8Array): MemoryRegion {
    return this.pd.regMr(buffer, LOCAL_WRITE | REMOTE_READ);
  }

  /** `rdma_reg_write`: memory that the peer may write. Throws as `pd.regMr`. */
  regWrite(buffer: Uint8Array): MemoryRegion {
    return this.pd.regMr(buffer, LOCAL_WRITE | REMOTE_WRITE);
  }

  /** `rdma_post_recv`. `buffer` lies in what `mr` registered. Throws as `qp.postRecv`. */
  postRecv(wrId: number | bigint, buffer: Uint8Array, mr: MemoryRegion): void {
    this.postRecvv(wrId, [sgeOf(buffer, mr)]);
  }

  /** `rdma_post_recvv`. Throws as `qp.postRecv`. */
  postRecvv(wrId: number | bigint, sgList: readonly Sge[]): void {
    this.#ready().postRecv({ wrId, sgList });
  }

  /** `rdma_post_send`. Without a region the bytes are copied now. Throws as `qp.postSend`. */
  postSend(wrId: number | bigint, buffer: Uint8Array, mr?: MemoryRegion, flags = 0): void {
    this.#post(WrOpcode.SEND, wrId, flags, bytesOf(buffer, mr));
  }

  /** `rdma_post_sendv`. Throws as `qp.postSend`. */
  postSendv(wrId: number | bigint, sgList: readonly Sge[], flags = 0): void {
    this.#post(WrOpcode.SEND, wrId, flags, { sgList });
  }

  /** `rdma_post_read`: into `buffer`. Throws as `qp.postSend`. */
  postRead(
    wrId: number | bigint,
    buffer: Uint8Array,
    mr: MemoryRegion,
    flags: number,
    remoteAddr: number | bigint,
    rkey: number,
  ): void {
    this.postReadv(wrId, [sgeOf(buffer, mr)], flags, remoteAddr, rkey);
  }

  /** `rdma_post_readv`. Throws as `qp.postSend`. */
  postReadv(
    wrId: number | bigint,
    sgList: readonly Sge[],
    flags: number,
    remoteAddr: number | bigint,
    rkey: number,
  ): void {
    this.#post(WrOpcode.RDMA_READ, wrId, flags, { sgList, rdma: { remoteAddr, rkey } });
  }

  /** `rdma_post_write`. Without a region the bytes are copied now. Throws as `qp.postSend`. */
  postWrite(
    wrId: number | bigint,
    buffer: Uint8Array,
    mr: MemoryRegion | undefined,
    flags: number,
    remoteAddr: number | bigint,
    rkey: number,
  ): void {
    const rdma = { remoteAddr, rkey };
    this.#post(WrOpcode.RDMA_WRITE, wrId, flags, { ...bytesOf(buffer, mr), rdma });
  }

  /** `rdma_post_writev`. Throws as `qp.postSend`. */
  postWritev(
    wrId: number | bigint,
    sgList: readonly Sge[],
    flags: number,
    remoteAddr: number | bigint,
    rkey: number,
  ): void {
    this.#post(WrOpcode.RDMA_WRITE, wrId, flags, { sgList, rdma: { remoteAddr, rkey } });
  }

  /** `rdma_post_ud_send`, with the Q_Key of PortSpace.UDP. Throws as `qp.postSend`. */
  postUdSend(
    wrId: number | bigint,
    buffer: Uint8Array,
    mr: MemoryRegion | undefined,
    flags: number,
    ah: AddressHandle,
    remoteQpn: number,
  ): void {
    const ud = { ah, remoteQpn, remoteQkey: RDMA_UDP_QKEY };
    this.#post(WrOpcode.SEND, wrId, flags, { ...bytesOf(buffer, mr), ud });
  }

  /** `rdma_get_send_comp`: waits for one completion; undefined when the device is closed. */
  async getSendComp(): Promise<WorkCompletion | undefined> {
    return (await this.#ready().sendCq.wait(1))[0];
  }

  /** `rdma_get_recv_comp`: waits for one completion; undefined when the device is closed. */
  async getRecvComp(): Promise<WorkCompletion | undefined> {
    return (await this.#ready().recvCq.wait(1))[0];
  }

  /** @internal */
  abstract communicationEstablished(): void;

  /** @internal */
  abstract deviceRemoval(): void;

  /** Throws MisuseError when it is destroyed. */
  protected abstract checkAlive(): void;

  /** To its channel. */
  protected abstract push(event: CmEventType, more?: CmEventDetails): object | undefined;

  /** Where its events go. */
  abstract channel: { withdraw(event: object): void };

  #post(
    opcode: number,
    wrId: number | bigint,
    sendFlags: number,
    what: Partial<AnyWorkRequest>,
  ): void {
    const inline = what.inline ? SendFlag.INLINE : 0;
    this.#ready().postSend(asWorkRequest({ ...what, opcode, wrId, sendFlags: sendFlags | inline }));
  }

  #ready(): QueuePair {
    if (!this.qp) throw new MisuseError('id', 'has no queue pair');
    return this.qp;
  }
}

/** Where the bytes are by the region's addressing. Throws MisuseError. */
function sgeOf(buffer: Uint8Array, mr: MemoryRegion): Sge {
  checkBytes('buffer', buffer);
  checkObject('a request', mr, 'mr');
  const whole = mr.buffer;
  const offset = buffer.byteOffset - whole.byteOffset;
  const isWithin =
    buffer.buffer === whole.buffer && offset >= 0 && offset + buffer.length <= whole.length;
  if (!isWithin)
    throw new MisuseError(
      'buffer',
      `must lie in the region, got ${buffer.length} bytes at ${buffer.byteOffset}`,
    );
  return { addr: mr.addr + BigInt(offset), length: buffer.length, lkey: mr.lkey };
}

function bytesOf(buffer: Uint8Array, mr: MemoryRegion | undefined): Partial<AnyWorkRequest> {
  return mr ? { sgList: [sgeOf(buffer, mr)] } : { inline: buffer };
}
