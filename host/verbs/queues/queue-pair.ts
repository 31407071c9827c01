/** `ibv_qp`: posting work, and the way through its states. */
import {
  Errno,
  GENERAL_SERVICES_QPN,
  QpState,
  QpStateName,
  QpType,
  QueuePairAttributesLayout,
  QueuePairLayout,
  QueuePairParametersLayout,
  RANDOM_QPNS,
  WrOpcode,
} from '#build/abi.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { checkOpen, type Device } from '../../device/device.js';
import { checkObject } from '../../base/options.js';
import { checkMember } from '../../errors/check-member.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Gid } from '../../link/endpoint.js';
import { AttachedCounters, type CompletionCounter } from './completion-counter.js';
import { parseGid, type AddressAttributes } from './address-attributes.js';
import type { CompletionQueue } from './completion-queue.js';
import { flowLabelOf, flowPort } from './flow.js';
import type { MemoryWindow, MwBind } from '../regions/memory-window.js';
import { PacketKeyMemory, type PacketKeys } from './packet-keys.js';
import { readPathState, type PathState } from './path-state.js';
import { checkPooled } from './pooled-regions.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import { queryDataInOrder } from '../queries/query-port.js';
import {
  attributeNames,
  checkNumbers,
  fillAttributes,
  maskOf,
  type QpAttributes,
} from './queue-pair-attributes.js';
import { grantCapabilities, type QpCapabilities } from './queue-pair-capabilities.js';
import { checkMulticast, fillRandom, refuse, taken } from '../refuse.js';
import type { SharedReceiveQueue } from './shared-receive-queue.js';
import {
  ReceiveRing,
  SendRing,
  type ReceiveWorkRequest,
  type AnyWorkRequest,
  type SendWorkRequest,
} from './work-request.js';

/** `ibv_qp_init_attr`. */
export interface QpInitAttributes {
  /** A QpType. Default RC. */
  readonly qpType?: QpType;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  /** Receive requests come from here instead of a queue of its own. */
  readonly srq?: SharedReceiveQueue;
  /** Defaults: 128 requests each way, 4 SGEs, no inline data. */
  readonly cap?: Partial<QpCapabilities>;
  /** Every send completes, whatever its flags. Default false. */
  readonly sqSigAll?: boolean;
}

/** How many times fresh numbers are drawn before the index is called full. */
const DRAWS = 64;

/** `struct ibv_qp`: a send queue and a receive queue (`pd.createQp`). IBA 10.2.4. */
export class QueuePair {
  /** Address of the engine's struct. */
  readonly handle: number;
  /** Queue pair number, 24 bits. */
  readonly qpNum: number;
  readonly qpType: QpType;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly srq: SharedReceiveQueue | undefined;
  readonly #device: Device;
  readonly #memory: number;
  readonly #struct: Struct<typeof QueuePairLayout>;
  readonly #sends: SendRing;
  readonly #receives: ReceiveRing;
  readonly #ringSend: () => void;
  readonly #ringSoftly: () => void;
  readonly #ringReceive: () => void;
  /** @internal Groups that it is attached to. */
  readonly groups = new Map<string, Gid>();
  /** The peer of a connected queue pair. */
  #peer: Gid | undefined;
  #counters: AttachedCounters | undefined;
  #keys: PacketKeyMemory | undefined;
  #destroyed = false;

  protected constructor(
    readonly pd: ProtectionDomain,
    attributes: QpInitAttributes,

    /** Granted capabilities. */
    readonly cap: QpCapabilities,
    memory: number,
    made: Struct<typeof QueuePairParametersLayout>,
  ) {
    this.handle = made.queuePair;
    this.qpNum = made.qpn;
    this.qpType = made.type;
    this.sendCq = attributes.sendCq;
    this.recvCq = attributes.recvCq;
    this.srq = attributes.srq;
    this.#memory = memory;
    const engineMemory = pd.context.device.arena.memory;
    this.#struct = structAt(engineMemory, QueuePairLayout, this.handle);
    const { device } = pd.context;
    this.#device = device;
    const { exports } = device.arena;
    this.#sends = new SendRing(engineMemory, made.sendRing, cap.maxSendWr, made.sendStride, cap);
    const { maxRecvWr, maxRecvSge } = cap;
    const ring = made.receiveRing;
    this.#receives = new ReceiveRing(engineMemory, ring, maxRecvWr, maxRecvSge, 'cap.maxRecvWr');
    this.#ringSoftly = () => {
      exports.postSend(device.engine.context, this.handle, device.clock.now());
    };
    this.#ringSend = () => {
      this.#ringSoftly();
      device.engine.drain();
    };
    const { words } = engineMemory;
    const state = (this.handle + QueuePairLayout.fields.state[0]) >>> 2;
    this.#ringReceive = () => {
      // The engine looks into the ring when a message comes. Only what nothing will come for has
      // to be flushed.
      if (Atomics.load(words, state) !== QpState.ERR) return;
      exports.postRecv(device.engine.context, this.handle, device.clock.now());
      device.engine.drain();
    };
  }

  /** @internal Use `pd.createQp()`. */
  static create(pd: ProtectionDomain, attributes: QpInitAttributes): QueuePair {
    return this.make(pd, attributes, 0);
  }

  /** @internal The device's queue pair 1, for management datagrams; refused when there is one. */
  static createGeneralServices(pd: ProtectionDomain, attributes: QpInitAttributes): QueuePair {
    const ofKind = { ...attributes, qpType: QpType.UD };
    return this.make(pd, ofKind, GENERAL_SERVICES_QPN);
  }

  private static make(
    pd: ProtectionDomain,
    attributes: QpInitAttributes,
    number: number,
  ): QueuePair {
    const { context } = pd;
    const { arena, engine, limits, reorderMemory } = context.device;
    for (const name of ['sendCq', 'recvCq'] as const) {
      if (attributes[name]?.context !== context) {
        throw new MisuseError(name, 'must be a completion queue of the same context');
      }
      if (attributes[name].destroyed) throw new MisuseError(name, 'is destroyed');
    }
    if (attributes.srq !== undefined && attributes.srq?.pd?.context !== context) {
      throw new MisuseError('srq', 'must be a shared receive queue of the same context');
    }
    if (attributes.srq?.destroyed) throw new MisuseError('srq', 'is destroyed');
    const cap = grantCapabilities(attributes.cap ?? {}, reorderMemory.packetsMax);
    const size = QueuePairParametersLayout.size + RANDOM_QPNS * 4;
    const address = arena.heap.alloc(size);
    let memory = 0;
    try {
      const parameters = structAt(arena.memory, QueuePairParametersLayout, address);
      parameters.type = attributes.qpType ?? QpType.RC;
      parameters.pd = pd.handle;
      parameters.sendCq = attributes.sendCq.handle;
      parameters.receiveCq = attributes.recvCq.handle;
      parameters.srq = attributes.srq?.handle ?? 0;
      parameters.sendEntries = cap.maxSendWr;
      parameters.receiveEntries = cap.maxRecvWr;
      parameters.sendSgeMax = cap.maxSendSge;
      parameters.receiveSgeMax = cap.maxRecvSge;
      parameters.inlineMax = cap.maxInlineData;
      parameters.reorderPackets = cap.reorderPackets;
      parameters.signalAll = attributes.sqSigAll ? 1 : 0;
      parameters.number = number;
      reorderMemory.begin(cap.reorderPackets);
      memory = pd.queueMemory.take(arena.exports.qpBytes(engine.context, address), 'QP');
      parameters.memory = memory;
      let errno: number = Errno.EAGAIN;
      const random = address + QueuePairParametersLayout.fields.random[0];
      for (let draw = 0; draw < DRAWS && errno === Errno.EAGAIN; draw++) {
        fillRandom(arena.memory.bytes, random, RANDOM_QPNS);
        errno = arena.exports.createQp(engine.context, address);
      }
      refuse(errno, 'createQp', {
        ENOMEM: taken(`${limits.queuePairsMax} queue pairs`),
        EINVAL: number
          ? `queue pair ${number} exists; choose another`
          : 'the protection domain has ended; allocate another',
        EOPNOTSUPP: `type must be QpType.RC, UC or UD, got ${parameters.type}`,
        EAGAIN: 'no free queue pair number was found; try again',
      });
      const qp = new this(pd, attributes, cap, memory, parameters);
      context.addObject(qp.handle, qp);
      pd.resources.add(qp);
      memory = 0;
      return qp;
    } finally {
      if (memory !== 0) pd.queueMemory.giveBack(memory, 'QP');
      arena.heap.free(address);
    }
  }

  /** A QpState. */
  get state(): number {
    return this.#struct.state;
  }

  /**
   * `ibv_modify_qp`. Default mask: the fields of `attributes`. Throws RefusalError EINVAL for an
   * invalid transition, a missing or superfluous attribute, or a value out of range; nothing has
   * changed then.
   */
  modify(attributes: QpAttributes, mask = maskOf(attributes)): void {
    this.#check();
    checkNumbers(attributes);
    const { device } = this.pd.context;
    // Acknowledges received packets first: otherwise their requester would wait for a queue pair in
    // reset.
    device.settle();
    const { arena, engine } = device;
    const address = arena.heap.alloc(QueuePairAttributesLayout.size);
    try {
      const struct = structAt(arena.memory, QueuePairAttributesLayout, address);
      struct.mask = mask;
      fillAttributes(struct, attributes);
      if (attributes.ahAttr) struct.sourcePort = this.#sourcePort(attributes, attributes.ahAttr);
      const now = device.clock.now();
      const errno = arena.exports.modifyQp(engine.context, this.handle, address, now);
      if (errno !== Errno.OK)
        refuse(errno, 'modify', {
          EINVAL: this.#whyInvalid(attributes, mask),
          EOPNOTSUPP: 'this device has no alternate path; leave it out',
        });
    } finally {
      arena.heap.free(address);
    }
    if (attributes.ahAttr || this.#struct.state === QpState.RTR) device.notePeer();
    const dgid = attributes.ahAttr?.dgid;
    if (dgid !== undefined) this.#peer = parseGid('ahAttr.dgid', dgid);
    if (this.#struct.state === QpState.RESET) {
      this.#leaveGroups();
      this.#forgetKeys();
      this.#peer = undefined;
    }
    engine.drain();
  }

  /** Where the link can send from several ports: the one of this flow. */
  #sourcePort({ destQpNum }: QpAttributes, { flowLabel }: AddressAttributes): number {
    const { flowPorts } = this.pd.context.device.info;
    const label = flowLabel ?? flowLabelOf(this.qpNum, destQpNum ?? this.#struct.targetQp);
    return flowPort(flowPorts, label);
  }

  /** @internal `gid` undefined: to any peer. */
  isConnectedTo(gid: Gid | undefined): boolean {
    return this.#peer?.equals(gid ?? this.#peer) ?? false;
  }

  /**
   * @internal A handshake with the peer took this time: until a round trip is measured, the queue
   * pair retransmits early, and waits at least four times as long for an answer.
   */
  seedRoundTrip(micros: number): void {
    if (this.#destroyed || this.qpType !== QpType.RC) return;
    const { arena, engine } = this.pd.context.device;
    arena.exports.setQpRoundTrip(engine.context, this.handle, Math.ceil(micros));
  }

  /** @internal Of a full packet; 0: not known yet. */
  get payloadBytes(): number {
    return this.#struct.mtu;
  }

  /** @internal */
  get peerGid(): Gid | undefined {
    return this.#peer;
  }

  /** @internal The peer sent an RNR NAK; the request is retransmitted later. */
  get isPeerBusy(): boolean {
    return !this.#destroyed && this.#struct.rnrWaiting !== 0;
  }

  /** `ibv_query_qp`: where the queue pair stands. */
  query(): QpAttributes & { readonly qpState: QpState } {
    this.#check();
    const struct = this.#struct;
    return {
      qpState: struct.state,
      qpAccessFlags: struct.access,
      pkeyIndex: struct.pkeyIndex,
      portNum: struct.portNumber,
      qkey: struct.qkey,
      ...(struct.mtu === 0 ? {} : { pathMtu: Math.floor(Math.log2(struct.mtu)) - 7 }),
      timeout: struct.timeoutExponent,
      retryCnt: struct.retryLimit,
      rnrRetry: struct.rnrRetryLimit,
      rqPsn: struct.psnExpected,
      sqPsn: struct.psnNext,
      maxRdAtomic: struct.rdAtomicMax,
      maxDestRdAtomic: struct.destRdAtomicMax,
      minRnrTimer: struct.minRnrTimer,
      destQpNum: struct.targetQp,
    };
  }

  /**
   * Are requests executed without packets where that is possible? Yes for RC to a queue pair of the
   * same device, and for UC to one of the same context, unless `ahAttr.path` is `wire` or the link
   * captures packets or injects faults. Of UD it depends on the address handle: always false.
   */
  get usesLocalPath(): boolean {
    this.#check();
    return this.#struct.localPath !== 0;
  }

  /**
   * Congestion control state of the path to the peer; undefined: the queue pair has no path in its
   * state.
   */
  pathState(): PathState | undefined {
    this.#check();
    return readPathState(this.#device.arena.memory, this.handle);
  }

  /**
   * `ibv_post_send`: one request, or several in order. Throws MisuseError for a request that breaks
   * a rule, RefusalError EINVAL (not in a state to send), ENOMEM (queue full). The error's `badWr`
   * is the index of the request it is about; those before it are posted.
   */
  postSend(requests: SendWorkRequest | readonly SendWorkRequest[]): void {
    this.#checkSends('postSend');
    this.#post(requests, this.#ringSend);
  }

  /**
   * @internal As `postSend`, but the request leaves with the next one that is sent: the caller
   * calls `device.engine.drain()` before its turn of the event loop ends.
   */
  postSoftly(request: SendWorkRequest): void {
    this.#checkSends('postSend');
    this.#post(request, this.#ringSoftly);
  }

  /** @internal All of them, or none: what `wrComplete` posts. */
  protected postTogether(requests: readonly AnyWorkRequest[]): void {
    this.#checkSends('wrComplete');
    this.#post(requests, this.#ringSend, true);
  }

  /** @internal Member of Invalidator. */
  get incarnation(): number {
    if (this.#destroyed) return 0;
    const { state, binding } = this.#struct;
    return state === QpState.RTS || state === QpState.SQD ? binding : 0;
  }

  #post(
    requests: AnyWorkRequest | readonly AnyWorkRequest[],
    ring: () => void,
    together = false,
  ): void {
    const invalidated = checkPooled(this, this.pd.context.siblings.pooled, requests);
    this.#sends.post(requests, ring, together);
    for (const mr of invalidated) mr.noteInvalidator(this);
  }

  #checkSends(verb: string): void {
    this.#check();
    const state = this.#struct.state;
    if (state >= QpState.RTS) return;
    throw refuseFirst(`${verb}: a queue pair in ${QpStateName[state]} sends nothing`);
  }

  /**
   * `ibv_bind_mw`: posts the bind of a window of type 1, or with length 0 its end. Returns the key
   * that the window gets when the bind is executed: a SEND behind it on this queue pair may carry
   * it to the peer at once, other ways must wait for the completion (`bind.wrId`, BIND_MW). When it
   * fails, with MW_BIND_ERR, `mw.rkey` is what it was. Throws as `postSend`; RefusalError EINVAL
   * (a window of type 2, or a zero-based one), EPERM (another protection domain), EOPNOTSUPP (UD).
   */
  bindMw(mw: MemoryWindow, bind: MwBind): number {
    checkMember('mw', mw, 'nextBinding', 'a MemoryWindow');
    checkObject('bindMw', bind, 'bind');
    checkObject('bindMw', bind.bindInfo, 'bindInfo');
    this.#checkSends('bindMw');
    const binding = mw.nextBinding(this, bind.bindInfo);
    const { wrId = 0, sendFlags = 0 } = bind;
    this.#sends.postBinding({ wrId, sendFlags, opcode: WrOpcode.BIND_MW }, binding, () => {
      mw.asked(binding.key);
      this.#ringSend();
    });
    return binding.key;
  }

  /** `ibv_post_recv`: as postSend; receives may be posted from INIT on. */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): void {
    this.#check();
    if (this.srq)
      throw new MisuseError(
        'postRecv',
        'is not valid for a queue pair with an SRQ: post to the SRQ',
      );
    if (this.#struct.state === QpState.RESET) {
      throw refuseFirst('postRecv: a queue pair in RESET takes no receives');
    }
    this.#receives.post(requests, this.#ringReceive);
  }

  /** `ibv_query_qp_data_in_order`: 0, see query-port.ts. Throws MisuseError. */
  queryDataInOrder(op: number, flags = 0): number {
    this.#check();
    return queryDataInOrder(op, flags);
  }

  /**
   * `ibv_qp_attach_comp_cntr`: what completes of these operations (QpAttachCompCntrOp) is counted.
   * Throws RefusalError EINVAL (neither in RESET nor in INIT), EBUSY (one of them is counted).
   */
  attachCompCntr(counter: CompletionCounter, opMask: number): void {
    this.#check();
    this.#counters ??= new AttachedCounters(this);
    this.#counters.attach(counter, opMask);
  }

  /**
   * `ibv_attach_mcast`: datagrams to this group arrive here, too; no effect if it is attached
   * already. Throws RefusalError EOPNOTSUPP (the link has no multicast), EINVAL (no UD queue pair,
   * no multicast address), ENOMEM; LinkError EAFNOSUPPORT (a group of the other family), ENOBUFS,
   * EADDRINUSE, EADDRNOTAVAIL, EMFILE when the system refuses the membership.
   */
  attachMcast(group: Gid | string): void {
    this.#check();
    const gid = parseGid('group', group);
    if (this.groups.has(`${gid}`)) return;
    this.#multicast(gid, 'attachMcast');
    try {
      this.pd.context.siblings.countMember(gid, 1);
    } catch (error) {
      this.#multicast(gid, 'detachMcast');
      throw error;
    }
    this.groups.set(`${gid}`, gid);
  }

  /** `ibv_detach_mcast`. Throws RefusalError EINVAL when it is no member. */
  detachMcast(group: Gid | string): void {
    this.#check();
    const gid = parseGid('group', group);
    this.#multicast(gid, 'detachMcast');
    this.pd.context.siblings.countMember(gid, -1);
    this.groups.delete(`${gid}`);
  }

  /**
   * Authenticates every packet of a connected queue pair from here on; both sides must have the
   * same keys, crossed. RESET forgets them. No counterpart in libibverbs (host/cm: `auth`). Throws
   * MisuseError; RefusalError EINVAL (not RC or UC, not in RESET or INIT, or it has keys), ENOMEM.
   */
  setPacketKeys(keys: PacketKeys): void {
    this.#check();
    this.#keys = PacketKeyMemory.give(this.#device, this.handle, keys);
  }

  /** Must every packet be authentic? */
  get isAuthenticated(): boolean {
    return this.#keys !== undefined;
  }

  /**
   * Sends with the next generation of the key from now on; the peer follows, nothing pauses.
   * EAGAIN before its next packet (UC: perhaps none); EINVAL without keys, at 65,535 or in ERR.
   */
  rotateKey(): void {
    this.#check();
    const { arena, engine } = this.#device;
    refuse(arena.exports.qpRotateKey(engine.context, this.handle), 'rotateKey', {
      EINVAL: 'no packet keys, no generation is left, or the queue pair is in ERR: connect anew',
      EAGAIN: 'the peer has sent nothing with its next key since the last time: try again later',
    });
  }

  #forgetKeys(): void {
    this.#keys?.release();
    this.#keys = undefined;
  }

  /** `ibv_destroy_qp`: its completions that were not polled are gone, too. */
  destroy(): void {
    this.#check();
    const { device } = this.pd.context;
    device.settle();
    device.arena.exports.destroyQp(device.engine.context, this.handle);
    device.reorderMemory.shrink();
    this.#destroyed = true;
    this.#counters?.release();
    this.#leaveGroups();
    this.#forgetKeys();
    this.pd.context.removeObject(this.handle);
    this.pd.resources.delete(this);
    this.pd.queueMemory.giveBack(this.#memory, 'QP');
  }

  /** @internal */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  #multicast(gid: Gid, verb: 'attachMcast' | 'detachMcast'): void {
    const { device } = this.pd.context;
    checkMulticast(verb, device.info);
    const { arena, engine } = device;
    const address = arena.heap.alloc(16);
    arena.memory.bytes.set(gid.bytes, address);
    const errno = gid.isMulticast
      ? arena.exports[verb](engine.context, this.handle, address)
      : Errno.EINVAL;
    arena.heap.free(address);
    refuse(errno, verb, {
      EINVAL: `${gid}: ${this.#whyNoMember(gid)}`,
      ENOMEM: taken(`${device.limits.multicastMax} memberships`),
    });
  }

  #whyNoMember(gid: Gid): string {
    if (!gid.isMulticast) return 'no multicast group; use 224.0.0.0/4 or ff00::/8';
    return this.qpType === QpType.UD
      ? 'this queue pair is no member'
      : 'members are queue pairs of type UD';
  }

  /** The engine has forgotten its memberships: so does the link. */
  #leaveGroups(): void {
    for (const group of this.groups.values()) this.pd.context.siblings.countMember(group, -1);
    this.groups.clear();
  }

  #check(): void {
    if (this.#destroyed) throw new MisuseError('queue pair', 'is destroyed');
    // Its context ends with all its queue pairs destroyed.
    checkOpen(this.#device);
  }

  #whyInvalid(attributes: QpAttributes, mask: number): string {
    const from = this.#struct.state;
    const to = attributes.qpState ?? from;
    const change = `${QpStateName[from]} to ${QpStateName[to] ?? to}`;
    const { arena } = this.pd.context.device;
    const missing = arena.exports.qpAttributesMissing(this.handle, to, mask) >>> 0;
    if (missing === 0xffffffff) return `a queue pair of this type does not go from ${change}`;
    if (missing !== 0) return `${change} needs ${attributeNames(missing)}`;
    return `${change}: one of ${attributeNames(mask)} is superfluous or out of range`;
  }
}

function refuseFirst(sentence: string): RefusalError {
  return Object.assign(new RefusalError('EINVAL', sentence), { badWr: 0 });
}
