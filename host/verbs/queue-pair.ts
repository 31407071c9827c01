/** `ibv_qp`: posting work, and the way through its states. */
import {
  QUEUE_PAIR_PATH,
  QpAttribute,
  QpAttributeName,
  QpState,
  QpStateName,
  QpType,
  QueuePairAttributesLayout,
  QueuePairLayout,
  QueuePairParametersLayout,
  RANDOM_QPNS,
  RECEIVE_REQUEST_SIZE,
  RING_HEADER_SIZE,
  SGE_SIZE,
  SendFlag,
  WORK_REQUEST_SIZE,
  WorkRequestLayout,
  Errno,
} from '#build/abi.js';
import { structAt, type Struct } from '../engine/struct.js';
import { checkOpen } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { Endpoint, Gid } from '../link/endpoint.js';
import { ROCE_PORT } from '../link/link.js';
import type { CompletionQueue } from './completion-queue.js';
import { MAX_INLINE_DATA, MAX_QP_WR, MAX_SGE } from './context.js';
import type { ProtectionDomain } from './protection-domain.js';
import { fillRandom, refuse } from './refuse.js';

/** `ibv_sge`: bytes of registered memory. */
export interface Sge {
  /** By the region's addressing: `mr.addr` is its first byte. */
  readonly addr: number | bigint;
  /** Bytes; 0 names none. */
  readonly length: number;
  readonly lkey: number;
}

/** `ibv_send_wr`. */
export interface SendWorkRequest {
  /** Comes back in the completion. */
  readonly wrId?: number | bigint;
  readonly sgList?: readonly Sge[];
  /** SendFlag.INLINE: these bytes, copied now, in place of `sgList`. */
  readonly inline?: Uint8Array;
  /** A WrOpcode. */
  readonly opcode: number;
  /** Made of SendFlag. */
  readonly sendFlags?: number;
  /** …_WITH_IMM: four bytes as a big-endian number. */
  readonly immData?: number;
  /** RDMA operations: where at the peer. */
  readonly rdma?: { readonly remoteAddr: number | bigint; readonly rkey: number };
}

/** `ibv_recv_wr`. */
export interface ReceiveWorkRequest {
  readonly wrId?: number | bigint;
  readonly sgList?: readonly Sge[];
}

/** `ibv_qp_cap`. Granted values may be larger: `qp.cap`. */
export interface QpCapabilities {
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  readonly maxInlineData: number;
}

/** `ibv_qp_init_attr`. */
export interface QpInitAttributes {
  /** A QpType. Default RC. */
  readonly qpType?: number;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  /** Defaults: 128 requests each way, 4 SGEs, no inline data. */
  readonly cap?: Partial<QpCapabilities>;
  /** Every send completes, whatever its flags. Default false. */
  readonly sqSigAll?: boolean;
}

/** `ibv_ah_attr`, for links that route by GID. */
export interface AddressAttributes {
  /** The peer's GID, or its IPv4 or IPv6 address. */
  readonly dgid: Gid | string;
  /** The peer's UDP port. Default 4791. */
  readonly port?: number;
  /** The peer's receive buffer in bytes, where it told; it bounds what is under way. */
  readonly receiveBufferBytes?: number;
}

/** `ibv_qp_attr`. What is present is what the mask names. */
export interface QpAttributes {
  readonly qpState?: number;
  readonly curQpState?: number;
  readonly qpAccessFlags?: number;
  readonly pkeyIndex?: number;
  readonly portNum?: number;
  readonly qkey?: number;
  readonly ahAttr?: AddressAttributes;
  /** An Mtu. */
  readonly pathMtu?: number;
  /** Acknowledgement timeout 4.096 us * 2^timeout; 0: none. */
  readonly timeout?: number;
  readonly retryCnt?: number;
  readonly rnrRetry?: number;
  readonly rqPsn?: number;
  readonly maxRdAtomic?: number;
  readonly minRnrTimer?: number;
  readonly sqPsn?: number;
  readonly maxDestRdAtomic?: number;
  readonly destQpNum?: number;
}

const MASKS: { readonly [Name in keyof Required<QpAttributes>]: number } = {
  qpState: QpAttribute.STATE,
  curQpState: QpAttribute.CUR_STATE,
  qpAccessFlags: QpAttribute.ACCESS_FLAGS,
  pkeyIndex: QpAttribute.PKEY_INDEX,
  portNum: QpAttribute.PORT,
  qkey: QpAttribute.QKEY,
  ahAttr: QpAttribute.AV,
  pathMtu: QpAttribute.PATH_MTU,
  timeout: QpAttribute.TIMEOUT,
  retryCnt: QpAttribute.RETRY_CNT,
  rnrRetry: QpAttribute.RNR_RETRY,
  rqPsn: QpAttribute.RQ_PSN,
  maxRdAtomic: QpAttribute.MAX_QP_RD_ATOMIC,
  minRnrTimer: QpAttribute.MIN_RNR_TIMER,
  sqPsn: QpAttribute.SQ_PSN,
  maxDestRdAtomic: QpAttribute.MAX_DEST_RD_ATOMIC,
  destQpNum: QpAttribute.DEST_QPN,
};

const WR = WorkRequestLayout.fields;
const WORD = (field: keyof typeof WR): number => WR[field][0] >> 2;
const W_WR_ID = WORD('wrId');
const W_REMOTE = WORD('remoteAddress');
const W_OPCODE = WORD('opcode');
const W_FLAGS = WORD('sendFlags');
const W_KEY = WORD('key');
const W_IMMEDIATE = WORD('immediate');
const W_SGE_COUNT = WORD('sgeCount');
const W_INLINE_LENGTH = WORD('inlineLength');
const RING_TAIL = 64;
const NO_SGES: readonly Sge[] = [];
/** How many times fresh numbers are drawn before the index is called full. */
const DRAWS = 64;

export class QueuePair {
  readonly pd: ProtectionDomain;
  /** Address of the engine's struct. */
  readonly handle: number;
  /** Queue pair number, 24 bits. */
  readonly qpNum: number;
  readonly qpType: number;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  /** What was granted. */
  readonly cap: QpCapabilities;
  readonly #memory: number;
  readonly #struct: Struct<typeof QueuePairLayout>;
  readonly #words: Uint32Array;
  readonly #sendRing: number;
  readonly #sendStride: number;
  readonly #receiveRing: number;
  readonly #receiveStride: number;
  #destroyed = false;

  private constructor(
    pd: ProtectionDomain,
    attributes: QpInitAttributes,
    cap: QpCapabilities,
    memory: number,
    made: Struct<typeof QueuePairParametersLayout>,
  ) {
    this.pd = pd;
    this.handle = made.queuePair;
    this.qpNum = made.qpn;
    this.qpType = made.type;
    this.sendCq = attributes.sendCq;
    this.recvCq = attributes.recvCq;
    this.cap = cap;
    this.#memory = memory;
    const engineMemory = pd.context.device.arena.memory;
    this.#struct = structAt(engineMemory, QueuePairLayout, this.handle);
    this.#words = engineMemory.words;
    this.#sendRing = made.sendRing;
    this.#sendStride = made.sendStride;
    this.#receiveRing = made.receiveRing;
    this.#receiveStride = RECEIVE_REQUEST_SIZE + cap.maxRecvSge * SGE_SIZE;
  }

  /** @internal Use `pd.createQp()`. */
  static create(pd: ProtectionDomain, attributes: QpInitAttributes): QueuePair {
    const { context } = pd;
    const { arena, engine, limits } = context.device;
    for (const name of ['sendCq', 'recvCq'] as const) {
      if (attributes[name]?.context !== context) {
        throw new MisuseError(name, 'must be a completion queue of the same context');
      }
    }
    const cap = grant(attributes.cap ?? {});
    const size = QueuePairParametersLayout.size + RANDOM_QPNS * 4;
    const address = arena.heap.alloc(size);
    let memory = 0;
    try {
      const parameters = structAt(arena.memory, QueuePairParametersLayout, address);
      parameters.type = attributes.qpType ?? QpType.RC;
      parameters.pd = pd.handle;
      parameters.sendCq = attributes.sendCq.handle;
      parameters.receiveCq = attributes.recvCq.handle;
      parameters.sendEntries = cap.maxSendWr;
      parameters.receiveEntries = cap.maxRecvWr;
      parameters.sendSgeMax = cap.maxSendSge;
      parameters.receiveSgeMax = cap.maxRecvSge;
      parameters.inlineMax = cap.maxInlineData;
      parameters.signalAll = attributes.sqSigAll ? 1 : 0;
      memory = arena.heap.alloc(arena.exports.qpBytes(engine.context, address));
      parameters.memory = memory;
      let errno: number = Errno.EAGAIN;
      const random = address + QueuePairParametersLayout.fields.random[0];
      for (let draw = 0; draw < DRAWS && errno === Errno.EAGAIN; draw++) {
        fillRandom(arena.memory.bytes, random, RANDOM_QPNS);
        errno = arena.exports.createQp(engine.context, address);
      }
      refuse(errno, 'createQp', {
        ENOMEM: `all ${limits.queuePairsMax} queue pairs are taken`,
        EINVAL: 'the protection domain is gone',
        EOPNOTSUPP: `type ${parameters.type} is not one that this device has (QpType.RC)`,
        EAGAIN: 'no free queue pair number was found',
      });
      const qp = new QueuePair(pd, attributes, cap, memory, parameters);
      context.addQueuePair(qp);
      memory = 0;
      return qp;
    } finally {
      if (memory !== 0) arena.heap.free(memory);
      arena.heap.free(address);
    }
  }

  /** A QpState. */
  get state(): number {
    return this.#struct.state;
  }

  /**
   * `ibv_modify_qp`. The mask is what `attributes` has, unless it is given. Throws RefusalError
   * EINVAL when the change does not exist, an attribute is missing or one too many, or a value is
   * out of range; nothing has changed then.
   */
  modify(attributes: QpAttributes, mask = maskOf(attributes)): void {
    this.#check();
    const { device } = this.pd.context;
    const { arena, engine } = device;
    const address = arena.heap.alloc(QueuePairAttributesLayout.size);
    try {
      const struct = structAt(arena.memory, QueuePairAttributesLayout, address);
      struct.mask = mask;
      const destination = fill(struct, attributes);
      const now = device.clock.now();
      const errno = arena.exports.modifyQp(engine.context, this.handle, address, now);
      if (errno !== Errno.OK)
        refuse(errno, 'modify', { EINVAL: this.#whyInvalid(attributes, mask) });
      if (destination) engine.paths.set(this.handle + QUEUE_PAIR_PATH, destination);
    } finally {
      arena.heap.free(address);
    }
    engine.drain();
  }

  /** `ibv_query_qp`: where the queue pair stands. */
  query(): QpAttributes & { readonly qpState: number } {
    this.#check();
    const struct = this.#struct;
    return {
      qpState: struct.state,
      qpAccessFlags: struct.access,
      pkeyIndex: struct.pkeyIndex,
      portNum: struct.portNumber,
      qkey: struct.qkey,
      ...(struct.mtu === 0 ? {} : { pathMtu: Math.log2(struct.mtu) - 7 }),
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
   * `ibv_post_send`: one request, or several in order. Throws MisuseError for a request that breaks
   * a rule, RefusalError EINVAL (not in a state to send), ENOMEM (queue full). The error's `badWr`
   * is the index of the request it is about; those before it are posted.
   */
  postSend(requests: SendWorkRequest | readonly SendWorkRequest[]): void {
    this.#check();
    const state = this.#struct.state;
    if (state < QpState.RTS) {
      throw new RefusalError(
        'EINVAL',
        `postSend: a queue pair in ${QpStateName[state]} sends nothing`,
      );
    }
    const list = Array.isArray(requests) ? (requests as readonly SendWorkRequest[]) : undefined;
    const count = list ? list.length : 1;
    let posted = 0;
    try {
      for (; posted < count; posted++) {
        this.#putSend(list ? list[posted]! : (requests as SendWorkRequest));
      }
    } catch (error) {
      throw Object.assign(error as Error, { badWr: posted });
    } finally {
      if (posted > 0) {
        const { device } = this.pd.context;
        device.arena.exports.postSend(device.engine.context, this.handle, device.clock.now());
        device.engine.drain();
      }
    }
  }

  /** `ibv_post_recv`: as postSend; receives may be posted from INIT on. */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): void {
    this.#check();
    const state = this.#struct.state;
    if (state === QpState.RESET) {
      throw new RefusalError('EINVAL', 'postRecv: a queue pair in RESET takes no receives');
    }
    const list = Array.isArray(requests) ? (requests as readonly ReceiveWorkRequest[]) : undefined;
    const count = list ? list.length : 1;
    let posted = 0;
    try {
      for (; posted < count; posted++) {
        this.#putReceive(list ? list[posted]! : (requests as ReceiveWorkRequest));
      }
    } catch (error) {
      throw Object.assign(error as Error, { badWr: posted });
    } finally {
      if (posted > 0) {
        const { device } = this.pd.context;
        device.arena.exports.postRecv(device.engine.context, this.handle, device.clock.now());
        device.engine.drain();
      }
    }
  }

  /** `ibv_destroy_qp`: its completions that were not polled are gone, too. */
  destroy(): void {
    this.#check();
    const { device } = this.pd.context;
    device.arena.exports.destroyQp(device.engine.context, this.handle);
    this.#destroyed = true;
    device.engine.paths.delete(this.handle + QUEUE_PAIR_PATH);
    this.pd.context.removeQueuePair(this);
    device.arena.heap.free(this.#memory);
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  #check(): void {
    if (this.#destroyed) throw new MisuseError('queue pair', 'is destroyed');
    checkOpen(this.pd.context.device);
  }

  #whyInvalid(attributes: QpAttributes, mask: number): string {
    const from = this.#struct.state;
    const to = attributes.qpState ?? from;
    const change = `${QpStateName[from]} to ${QpStateName[to] ?? to}`;
    const { arena } = this.pd.context.device;
    const missing = arena.exports.qpAttributesMissing(this.handle, to, mask) >>> 0;
    if (missing === 0xffffffff) return `a queue pair of this type does not go from ${change}`;
    if (missing !== 0) return `${change} needs ${attributeNames(missing)} as well`;
    return `${change}: ${attributeNames(mask)} has an attribute too many, or a value out of range`;
  }

  #putSend(request: SendWorkRequest): void {
    const words = this.#words;
    const head = words[this.#sendRing >> 2]!;
    const tail = words[(this.#sendRing + RING_TAIL) >> 2]!;
    const entries = this.cap.maxSendWr;
    if ((head - tail) >>> 0 >= entries) {
      throw new RefusalError('ENOMEM', `postSend: ${entries} requests are posted and not complete`);
    }
    const base = this.#sendRing + RING_HEADER_SIZE + (head & (entries - 1)) * this.#sendStride;
    const at = base >> 2;
    const { rdma, inline } = request;
    storeU64(words, at + W_WR_ID, request.wrId ?? 0);
    storeU64(words, at + W_REMOTE, rdma ? rdma.remoteAddr : 0);
    words[at + W_OPCODE] = request.opcode;
    words[at + W_KEY] = rdma ? rdma.rkey : 0;
    words[at + W_IMMEDIATE] = request.immData ?? 0;
    words[at + W_FLAGS] = request.sendFlags ?? 0;
    if (inline) this.#putInline(base, inline);
    else {
      const list = request.sgList ?? NO_SGES;
      if (list.length > this.cap.maxSendSge) tooMany('sgList', list.length, this.cap.maxSendSge);
      words[at + W_SGE_COUNT] = list.length;
      words[at + W_INLINE_LENGTH] = 0;
      putSges(words, (base + WORK_REQUEST_SIZE) >> 2, list);
    }
    words[this.#sendRing >> 2] = head + 1;
  }

  #putInline(base: number, inline: Uint8Array): void {
    if (inline.length > this.cap.maxInlineData) {
      throw new MisuseError(
        'inline',
        `has ${inline.length} bytes, this queue pair was made for ${this.cap.maxInlineData}`,
      );
    }
    const words = this.#words;
    words[(base >> 2) + W_SGE_COUNT] = 0;
    words[(base >> 2) + W_INLINE_LENGTH] = inline.length;
    words[(base >> 2) + W_FLAGS]! |= SendFlag.INLINE;
    this.pd.context.device.arena.memory.bytes.set(inline, base + WORK_REQUEST_SIZE);
  }

  #putReceive(request: ReceiveWorkRequest): void {
    const words = this.#words;
    const head = words[this.#receiveRing >> 2]!;
    const tail = words[(this.#receiveRing + RING_TAIL) >> 2]!;
    const entries = this.cap.maxRecvWr;
    if ((head - tail) >>> 0 >= entries) {
      throw new RefusalError('ENOMEM', `postRecv: ${entries} requests are posted and not taken`);
    }
    const list = request.sgList ?? NO_SGES;
    if (list.length > this.cap.maxRecvSge) tooMany('sgList', list.length, this.cap.maxRecvSge);
    const offset = RING_HEADER_SIZE + (head & (entries - 1)) * this.#receiveStride;
    const at = (this.#receiveRing + offset) >> 2;
    storeU64(words, at, request.wrId ?? 0);
    words[at + 2] = list.length;
    words[at + 3] = 0;
    putSges(words, at + (RECEIVE_REQUEST_SIZE >> 2), list);
    words[this.#receiveRing >> 2] = head + 1;
  }
}

function tooMany(argument: string, given: number, granted: number): never {
  throw new MisuseError(argument, `has ${given} entries, this queue pair was made for ${granted}`);
}

/** Writes a u64 of two little-endian words. Numbers must be whole and below 2^53. */
function storeU64(words: Uint32Array, at: number, value: number | bigint): void {
  if (typeof value === 'number') {
    words[at] = value;
    words[at + 1] = value / 4294967296;
  } else {
    words[at] = Number(value & 0xffffffffn);
    words[at + 1] = Number((value >> 32n) & 0xffffffffn);
  }
}

function putSges(words: Uint32Array, at: number, list: readonly Sge[]): void {
  for (let index = 0; index < list.length; index++) {
    const sge = list[index]!;
    const to = at + ((index * SGE_SIZE) >> 2);
    storeU64(words, to, sge.addr);
    words[to + 2] = sge.length;
    words[to + 3] = sge.lkey;
  }
}

function maskOf(attributes: QpAttributes): number {
  let mask = 0;
  for (const [name, bit] of Object.entries(MASKS)) {
    if (attributes[name as keyof QpAttributes] !== undefined) mask |= bit;
  }
  return mask;
}

function attributeNames(mask: number): string {
  const names = Object.entries(QpAttributeName)
    .filter(([bit]) => mask & Number(bit))
    .map(([, name]) => name);
  return names.join(', ');
}

/** Copies what is there; returns where packets will go, when that is among it. */
function fill(
  struct: Struct<typeof QueuePairAttributesLayout>,
  attributes: QpAttributes,
): Endpoint | undefined {
  struct.state = attributes.qpState ?? 0;
  struct.currentState = attributes.curQpState ?? 0;
  struct.pathMtu = attributes.pathMtu ?? 0;
  struct.qkey = attributes.qkey ?? 0;
  struct.receivePsn = attributes.rqPsn ?? 0;
  struct.sendPsn = attributes.sqPsn ?? 0;
  struct.targetQp = attributes.destQpNum ?? 0;
  struct.accessFlags = attributes.qpAccessFlags ?? 0;
  struct.pkeyIndex = attributes.pkeyIndex ?? 0;
  struct.portNumber = attributes.portNum ?? 0;
  struct.maxRdAtomic = attributes.maxRdAtomic ?? 0;
  struct.maxDestRdAtomic = attributes.maxDestRdAtomic ?? 0;
  struct.minRnrTimer = attributes.minRnrTimer ?? 0;
  struct.timeout = attributes.timeout ?? 0;
  struct.retryCount = attributes.retryCnt ?? 0;
  struct.rnrRetry = attributes.rnrRetry ?? 0;
  const address = attributes.ahAttr;
  if (!address) return undefined;
  const gid = typeof address.dgid === 'string' ? Gid.parse(address.dgid) : address.dgid;
  const view = new DataView(gid.bytes.buffer);
  struct.remoteGid0 = view.getBigUint64(0, true);
  struct.remoteGid1 = view.getBigUint64(8, true);
  struct.remotePort = address.port ?? ROCE_PORT;
  struct.receiveBufferBytes = address.receiveBufferBytes ?? 0;
  return new Endpoint(gid, address.port ?? ROCE_PORT);
}

function grant(wanted: Partial<QpCapabilities>): QpCapabilities {
  const within = (name: keyof QpCapabilities, preset: number, least: number, most: number) => {
    const value = wanted[name] ?? preset;
    if (!Number.isInteger(value) || value < least || value > most) {
      throw new MisuseError(
        `cap.${name}`,
        `must be a whole number from ${least} to ${most}, got ${value}`,
      );
    }
    return value;
  };
  const entries = (value: number): number => 2 ** Math.ceil(Math.log2(value));
  return {
    maxSendWr: entries(within('maxSendWr', 128, 1, MAX_QP_WR)),
    maxRecvWr: entries(within('maxRecvWr', 128, 1, MAX_QP_WR)),
    maxSendSge: within('maxSendSge', 4, 1, MAX_SGE),
    maxRecvSge: within('maxRecvSge', 4, 1, MAX_SGE),
    maxInlineData: within('maxInlineData', 0, 0, MAX_INLINE_DATA),
  };
}
