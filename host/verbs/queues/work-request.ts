/** `ibv_send_wr`, `ibv_recv_wr`, `ibv_sge`, and how they are written into rings. */
import { checkBits, mustBe } from '../../errors/check-whole.js';
import { wholeU32, wholeU64 } from '../../errors/whole-number.js';
import {
  BindRequestLayout,
  PlacementType,
  RECEIVE_REQUEST_SIZE,
  RING_HEADER_SIZE,
  SGE_SIZE,
  SelectivityLevel,
  SendFlag,
  WORK_REQUEST_SIZE,
  WorkRequestLayout,
  WrOpcode,
  WrOpcodeName,
} from '#build/abi.js';
import type { PlacementTypes, SendFlags } from '../enums.js';
import type { EngineMemory } from '../../engine/memory.js';
import { checkArray, checkKeys, checkObject } from '../../base/options.js';
import { checkBytes } from '../../errors/check-bytes.js';
import { checkMember } from '../../errors/check-member.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { AddressHandle } from './address-handle.js';
import type { RegMr } from '../regions/fast-memory-region.js';
import type { MrSetLayout } from '../layouts/layout-memory-region.js';
import type { BindMw } from '../regions/memory-window.js';
import type { Sge } from './sge.js';

/** Fields of every request. */
interface Posted {
  /** Comes back in the completion, as a bigint. */
  readonly wrId?: number | bigint;
  /** Made of SendFlag by `|`. */
  readonly sendFlags?: SendFlags;
}

/** Bytes of this side: of a list of regions, or copied at once. */
interface WithData extends Posted {
  readonly sgList?: readonly Sge[];
  /** SendFlag.INLINE: these bytes, copied now, in place of `sgList`. */
  readonly inline?: Uint8Array;
  /** UD: the destination. A Q_Key with its top bit set stands for the queue pair's own. */
  readonly ud?: {
    readonly ah: AddressHandle;
    readonly remoteQpn: number;
    readonly remoteQkey: number;
  };
}

/** Bytes of the peer's memory. */
export interface RemoteMemory {
  /** By the addressing of the peer's region: its `mr.addr` is the first byte. */
  readonly remoteAddr: number | bigint;
  readonly rkey: number;
}

interface WithImmediate {
  /** Four bytes as a big-endian number. Default 0. */
  readonly immData?: number;
}

/** The type of one opcode: `Opcode<'SEND'>` is that of WrOpcode.SEND. */
export type Opcode<Name extends keyof typeof WrOpcode> = (typeof WrOpcode)[Name];

/** A message. */
export interface SendRequest extends WithData {
  readonly opcode: Opcode<'SEND'>;
}

/** A message with four bytes beside it. */
export interface SendWithImmRequest extends WithData, WithImmediate {
  readonly opcode: Opcode<'SEND_WITH_IMM'>;
}

/** A message that invalidates a key of the peer. */
export interface SendWithInvRequest extends WithData {
  readonly opcode: Opcode<'SEND_WITH_INV'>;
  /** The key of the peer that is invalidated. */
  readonly invalidateRkey: number;
}

/** Bytes of this side to the memory of the peer. */
export interface WriteRequest extends WithData {
  readonly opcode: Opcode<'RDMA_WRITE'>;
  readonly rdma: RemoteMemory;
}

/** The same; it consumes a receive of the peer, and completes it. */
export interface WriteWithImmRequest extends WithData, WithImmediate {
  readonly opcode: Opcode<'RDMA_WRITE_WITH_IMM'>;
  readonly rdma: RemoteMemory;
}

/** Bytes of the peer to the memory of this side. */
export interface ReadRequest extends Posted {
  readonly opcode: Opcode<'RDMA_READ'>;
  readonly rdma: RemoteMemory;
  /** Where the bytes of the peer are placed. */
  readonly sgList?: readonly Sge[];
}

/** Eight bytes, stored at once. */
export interface AtomicWriteRequest extends Posted {
  readonly opcode: Opcode<'ATOMIC_WRITE'>;
  readonly rdma: RemoteMemory;
  readonly sgList?: readonly Sge[];
  readonly inline?: Uint8Array;
}

/** Eight bytes of the peer are replaced if they have a value. */
export interface CompareAndSwapRequest extends Posted {
  readonly opcode: Opcode<'ATOMIC_CMP_AND_SWP'>;
  /** `swap` is stored if the eight bytes of the peer equal `compareAdd`. */
  readonly atomic: RemoteMemory & {
    readonly compareAdd: number | bigint;
    readonly swap?: number | bigint;
  };
  /** Eight bytes: the value before. */
  readonly sgList?: readonly Sge[];
}

/** A number is added to eight bytes of the peer. */
export interface FetchAndAddRequest extends Posted {
  readonly opcode: Opcode<'ATOMIC_FETCH_AND_ADD'>;
  /** `compareAdd` is added. */
  readonly atomic: RemoteMemory & { readonly compareAdd: number | bigint };
  /** Eight bytes: the value before. */
  readonly sgList?: readonly Sge[];
}

/**
 * Makes bytes of the peer globally visible or persistent. Needs AccessFlag.FLUSH_GLOBAL,
 * FLUSH_PERSISTENT of key and queue pair.
 */
export interface FlushRequest extends Posted {
  readonly opcode: Opcode<'FLUSH'>;
  readonly flush: RemoteMemory & {
    /** Bytes; 0: none, only the order matters. */
    readonly length: number | bigint;
    /** Made of PlacementType by `|`. */
    readonly type: PlacementTypes;
    /** These bytes or the whole region. Default SelectivityLevel.RANGE. */
    readonly level?: SelectivityLevel;
  };
}

/** A key of this side is invalidated. */
export interface LocalInvRequest extends Posted {
  readonly opcode: Opcode<'LOCAL_INV'>;
  /** The key of this side that is invalidated. */
  readonly invalidateRkey: number;
}

/** A memory window of type 2 is bound. */
export interface BindMwRequest extends Posted {
  readonly opcode: Opcode<'BIND_MW'>;
  /** Which window to which memory. Type 2; for type 1 there is `qp.bindMw()`. */
  readonly bindMw: BindMw;
}

/** A region gets its memory: fast registration. */
export interface RegMrRequest extends Posted {
  readonly opcode: Opcode<'REG_MR'>;
  /** Which region to which memory. */
  readonly regMr: RegMr;
}

/** A region gets the layout that was recorded. */
export interface BindMrRequest extends Posted {
  readonly opcode: Opcode<'BIND_MR'>;
  /** The region whose layout was recorded. */
  readonly mrSetLayout: MrSetLayout;
}

/** `ibv_send_wr`: the opcode selects the fields. */
export type SendWorkRequest =
  | SendRequest
  | SendWithImmRequest
  | SendWithInvRequest
  | WriteRequest
  | WriteWithImmRequest
  | ReadRequest
  | AtomicWriteRequest
  | CompareAndSwapRequest
  | FetchAndAddRequest
  | FlushRequest
  | LocalInvRequest
  | BindMwRequest
  | RegMrRequest
  | BindMrRequest;

type Fields = WithData &
  WithImmediate &
  Pick<WriteRequest, 'rdma'> &
  Pick<CompareAndSwapRequest, 'atomic'> &
  Pick<FlushRequest, 'flush'> &
  Pick<LocalInvRequest, 'invalidateRkey'> &
  Pick<BindMwRequest, 'bindMw'> &
  Pick<RegMrRequest, 'regMr'> &
  Pick<BindMrRequest, 'mrSetLayout'>;

/** @internal The fields of all opcodes: what the rings read, as JavaScript may post anything. */
export interface AnyWorkRequest extends Partial<Fields> {
  readonly opcode: number;
}

/** @internal A request whose opcode is known at run time only: the one place that casts it. */
export function asWorkRequest(request: AnyWorkRequest): SendWorkRequest {
  return request as SendWorkRequest;
}

/** Entry that BIND_MW, REG_MR and BIND_MR write into the ring (the engine's BindRequest). */
export interface Binding {
  readonly target: number;
  readonly key: number;
  readonly base: number;
  readonly address: number | bigint;
  /** Where the first byte lies in linear memory; 0 for windows. */
  readonly memory: number;
  /** Bytes. */
  readonly length: number;
  readonly access: number;
}

/** `ibv_recv_wr`. */
export interface ReceiveWorkRequest {
  readonly wrId?: number | bigint;
  readonly sgList?: readonly Sge[];
}

/** Where the fields of a struct are, in words. */
function wordsOf<Name extends string>(
  fields: Readonly<Record<Name, readonly [number, ...unknown[]]>>,
): Readonly<Record<Name, number>> {
  const entries = Object.entries<readonly [number, ...unknown[]]>(fields);
  return Object.fromEntries(entries.map(([name, [at]]) => [name, at >>> 2])) as never;
}

const WR = wordsOf(WorkRequestLayout.fields);
const { wrId: WR_ID, remoteAddress: REMOTE, compareAdd: COMPARE_ADD, swap: SWAP } = WR;
const { opcode: OPCODE, sendFlags: FLAGS, key: KEY, immediate: IMMEDIATE } = WR;
const { sgeCount: SGE_COUNT, inlineLength: INLINE_LENGTH, flush: FLUSH } = WR;
const { addressHandle: ADDRESS_HANDLE, remoteQpn: REMOTE_QPN, remoteQkey: REMOTE_QKEY } = WR;
const BIND = wordsOf(BindRequestLayout.fields);
const EVERY_PLACEMENT = PlacementType.GLOBAL | PlacementType.PERSISTENT;
const RING_TAIL = 64;
const NO_SGES: readonly Sge[] = [];
const EVERY_SEND_FLAG = Object.values(SendFlag).reduce((all, flag) => all | flag, 0);

const RECEIVE_KEYS = ['wrId', 'sgList'];
const OPERANDS = 'opcode sendFlags immData inline ud rdma atomic flush invalidateRkey';
const SEND_KEYS = [...RECEIVE_KEYS, ...OPERANDS.split(' ')];

/** A request without data may have a misspelt key: with `sglist` it would post 0 bytes. */
function noSges(verb: string, request: object, known: readonly string[]): readonly Sge[] {
  // Without a list of the keys, which would cost more than the rest of the request.
  for (const key in request) {
    if (!known.includes(key)) checkKeys(verb, request, known.join(' '));
  }
  return NO_SGES;
}

/** Short: V8 copies functions of at most 27 bytecodes to wherever they are called. */
function isU32(value: unknown): value is number {
  return typeof value === 'number' && value >>> 0 === value;
}

/** Writes a u64 as two little-endian words. Numbers must be whole and below 2^53. */
function storeU64(words: Uint32Array, at: number, value: number | bigint, name: string): void {
  // Nearly all are below 2^32.
  if (isU32(value)) {
    words[at] = value;
    words[at + 1] = 0;
  } else storeWide(words, at, value, name);
}

function storeWide(words: Uint32Array, at: number, value: number | bigint, name: string): void {
  if (typeof value === 'number' && value >= 0 && Number.isSafeInteger(value)) {
    // An eighth of the time of bigints.
    words[at] = value;
    words[at + 1] = value / 2 ** 32;
    return;
  }
  const whole = wholeU64(name, value);
  words[at] = Number(whole & 0xffffffffn);
  words[at + 1] = Number(whole >> 32n);
}

function putRemote(words: Uint32Array, at: number, { remoteAddr, rkey }: RemoteMemory): void {
  storeU64(words, at + REMOTE, remoteAddr, 'remoteAddr');
  words[at + KEY] = isU32(rkey) ? rkey : wholeU32('rkey', rkey);
}

function bytesOf(name: string, length: number | bigint): number {
  const bytes = typeof length === 'bigint' ? Number(length) : length;
  if (isU32(bytes)) return bytes;
  throw mustBe(name, 'a 32-bit number', length);
}

function putSges(words: Uint32Array, at: number, list: readonly Sge[]): void {
  for (let index = 0; index < list.length; index++) {
    const sge = list[index]!;
    const to = at + ((index * SGE_SIZE) >>> 2);
    if (!sge) checkObject('sgList', sge, 'sgList');
    const { length, lkey } = sge;
    words[to + 2] = isU32(length) ? length : bytesOf('sgList.length', length);
    storeU64(words, to, sge.addr, 'sgList.addr');
    words[to + 3] = isU32(lkey) ? lkey : wholeU32('sgList.lkey', lkey);
  }
}

/** Not in the path without an error, so that V8 can copy all of that to where it is called. */
function refuseSges(list: readonly Sge[], most: number): void {
  checkArray('sgList', list, 'SGEs');
  const rule = `has ${list.length} entries, more than cap.maxSendSge or cap.maxRecvSge, ${most}`;
  throw new MisuseError('sgList', rule);
}

function required(field: string, opcode: number): MisuseError {
  return new MisuseError(field, `is required for opcode ${WrOpcodeName[opcode]}`);
}

/** The ring would cut them to 32 bits, and take a missing opcode for the first one. */
function checkWords(opcode: number, sendFlags: number, immData: number): void {
  // Of each request: a comparison of small numbers for what nearly all have. Eight opcodes follow
  // each other. A bigint has no `&` with a number.
  const isFirst = typeof opcode === 'number' && (opcode & 7) === opcode;
  if (!isFirst && WrOpcodeName[opcode] === undefined) throw mustBe('opcode', 'a WrOpcode', opcode);
  if (typeof sendFlags !== 'number' || (sendFlags & EVERY_SEND_FLAG) !== sendFlags) {
    checkBits('sendFlags', sendFlags, 'SendFlag', EVERY_SEND_FLAG);
  }
  if (immData !== 0) wholeU32('immData', immData);
}

/** Checks the operands of the opcode: the ring's entry still holds those of an earlier request. */
function checkOperands(opcode: number, request: AnyWorkRequest): void {
  const { rdma, atomic } = request;
  const isAtomic =
    opcode === WrOpcode.ATOMIC_CMP_AND_SWP || opcode === WrOpcode.ATOMIC_FETCH_AND_ADD;
  if (isAtomic && !atomic) throw required('atomic', opcode);
  if (opcode === WrOpcode.FLUSH) checkFlush(request.flush);
  const remote =
    opcode <= WrOpcode.RDMA_WRITE_WITH_IMM ||
    opcode === WrOpcode.RDMA_READ ||
    opcode === WrOpcode.ATOMIC_WRITE;
  if (remote && !rdma) throw required('rdma', opcode);
}

function checkFlush(flush: AnyWorkRequest['flush']): void {
  if (!flush) throw required('flush', WrOpcode.FLUSH);
  const { type, level = SelectivityLevel.RANGE } = flush;
  if (!Number.isInteger(type) || type < 1 || type > EVERY_PLACEMENT) {
    throw mustBe('flush.type', 'made of PlacementType', type);
  }
  if (level !== SelectivityLevel.RANGE && level !== SelectivityLevel.MR) {
    throw mustBe('flush.level', 'a SelectivityLevel', level);
  }
  bytesOf('flush.length', flush.length);
}

const BINDING_FIELDS: Readonly<Record<number, 'bindMw' | 'regMr' | 'mrSetLayout' | undefined>> = {
  [WrOpcode.BIND_MW]: 'bindMw',
  [WrOpcode.REG_MR]: 'regMr',
  [WrOpcode.BIND_MR]: 'mrSetLayout',
};

/** Undefined: the opcode binds nothing. */
function bindingOf(request: AnyWorkRequest): Binding | undefined {
  const field = BINDING_FIELDS[request.opcode];
  if (!field) return undefined;
  const operand = request[field];
  if (!operand) throw required(field, request.opcode);
  const target = 'mw' in operand ? operand.mw : operand.mr;
  checkMember(field, target, 'binding', 'of a region or window');
  return (target as { binding(of: object): Binding }).binding(operand);
}

function checkBinding({ key, access }: Binding): void {
  wholeU32('key', key);
  checkBits('access', access, 'AccessFlag');
}

/** A ring that the application fills and the engine empties. */
abstract class Ring<Request extends ReceiveWorkRequest> {
  readonly #head: number;
  readonly #tail: number;
  protected readonly words: Uint32Array;
  /** Where the engine was when it was last asked: it has gone on since, or begun anew. */
  #seenTail = 0;
  /** Filled entries that were not handed over yet. */
  #held = 0;

  constructor(
    memory: EngineMemory,
    protected readonly ring: number,
    protected readonly entries: number,
    protected readonly stride: number,
  ) {
    this.words = memory.words;
    this.#head = ring >>> 2;
    this.#tail = (ring + RING_TAIL) >>> 2;
  }

  /** Fills the next entry, and calls `filled`. */
  protected abstract put(request: Request): void;

  /** Address of the next free entry. Throws RefusalError ENOMEM, which names `limit`. */
  protected free(verb: string, limit: string): number {
    const { entries } = this;
    const head = (this.words[this.#head]! + this.#held) >>> 0;
    if ((head - this.#seenTail) >>> 0 >= entries) {
      this.#seenTail = Atomics.load(this.words, this.#tail);
      if ((head - this.#seenTail) >>> 0 >= entries) {
        const remedy = `wait for completions, or raise ${limit}`;
        throw new RefusalError('ENOMEM', `${verb}: all ${entries} requests are in use; ${remedy}`);
      }
    }
    return this.ring + RING_HEADER_SIZE + (head & (entries - 1)) * this.stride;
  }

  protected filled(): void {
    this.#held++;
  }

  /** Another thread may read the ring: first the entries, then the head. */
  protected handOver(): void {
    const count = this.#held;
    this.#held = 0;
    Atomics.store(this.words, this.#head, (this.words[this.#head]! + count) >>> 0);
  }

  /**
   * Posts one request, or several in order, which are handed over in one go. What throws gets
   * `badWr`, the index of the request it is about; those before it are posted, unless it is to be
   * all of them or none (`together`). `doorbell` is called when any was.
   */
  post(requests: Request | readonly Request[], doorbell: () => void, together = false): void {
    const list = (Array.isArray(requests) ? requests : [requests]) as readonly Request[];
    let index = 0;
    try {
      for (; index < list.length; index++) {
        const request = list[index];
        // A request with SGEs is an object: a whole check of each would take longer than the rest.
        if (!request?.sgList) checkObject('post', request, 'request');
        this.put(request!);
      }
    } catch (error) {
      if (together) this.#held = 0;
      throw Object.assign(error as Error, { badWr: index });
    } finally {
      if (this.#held > 0) {
        this.handOver();
        doorbell();
      }
    }
  }
}

/** The send ring of a queue pair. */
export class SendRing extends Ring<AnyWorkRequest> {
  readonly #bytes: Uint8Array;
  readonly #sgeMax: number;
  readonly #inlineMax: number;

  constructor(
    memory: EngineMemory,
    ring: number,
    entries: number,
    stride: number,
    limits: { readonly maxSendSge: number; readonly maxInlineData: number },
  ) {
    super(memory, ring, entries, stride);
    this.#bytes = memory.bytes;
    this.#sgeMax = limits.maxSendSge;
    this.#inlineMax = limits.maxInlineData;
  }

  protected put(request: AnyWorkRequest): void {
    const base = this.free('postSend', 'cap.maxSendWr');
    const { words } = this;
    const at = base >>> 2;
    const { opcode, rdma, atomic, flush, inline, ud } = request;
    const { wrId = 0, sendFlags = 0, immData = 0, sgList } = request;
    checkWords(opcode, sendFlags, immData);
    if (!rdma || opcode > WrOpcode.RDMA_WRITE_WITH_IMM) {
      checkOperands(opcode, request);
      const binding = bindingOf(request);
      if (binding) return this.#putBinding(request, binding);
    }
    if (sendFlags & SendFlag.INLINE && !inline) {
      throw new MisuseError('inline', 'is required with SendFlag.INLINE');
    }
    storeU64(words, at + WR_ID, wrId, 'wrId');
    words[at + OPCODE] = opcode;
    words[at + FLAGS] = sendFlags;
    words[at + IMMEDIATE] = immData;
    if (rdma) putRemote(words, at, rdma);
    else if (atomic) {
      putRemote(words, at, atomic);
      storeU64(words, at + COMPARE_ADD, atomic.compareAdd, 'compareAdd');
      storeU64(words, at + SWAP, atomic.swap ?? 0, 'swap');
    } else if (flush) {
      putRemote(words, at, flush);
      storeU64(words, at + COMPARE_ADD, flush.length, 'flush.length');
      words[at + FLUSH] = flush.type | ((flush.level ?? SelectivityLevel.RANGE) << 4);
    } else {
      words[at + KEY] = wholeU32('invalidateRkey', request.invalidateRkey ?? 0);
    }
    words[at + ADDRESS_HANDLE] = 0;
    if (ud) {
      const { ah } = ud;
      if (ah?.destroyed !== false) {
        throw new MisuseError('ud.ah', 'must be an address handle that is not destroyed');
      }
      words[at + ADDRESS_HANDLE] = ah.handle;
      words[at + REMOTE_QPN] = wholeU32('ud.remoteQpn', ud.remoteQpn);
      words[at + REMOTE_QKEY] = wholeU32('ud.remoteQkey', ud.remoteQkey);
    }
    if (inline !== undefined) this.#putInline(base, inline);
    else {
      const list = sgList === undefined ? noSges('postSend', request, SEND_KEYS) : sgList;
      if (!Array.isArray(list) || list.length > this.#sgeMax) refuseSges(list, this.#sgeMax);
      words[at + SGE_COUNT] = list.length;
      words[at + INLINE_LENGTH] = 0;
      putSges(words, (base + WORK_REQUEST_SIZE) >>> 2, list);
    }
    this.filled();
  }

  /** Posts BIND_MW, REG_MR or BIND_MR, whose operands are `binding`. */
  postBinding(request: AnyWorkRequest, binding: Binding, doorbell: () => void): void {
    this.#putBinding(request, binding);
    this.handOver();
    doorbell();
  }

  #putBinding(request: AnyWorkRequest, binding: Binding): void {
    const { words } = this;
    const at = this.free('postSend', 'cap.maxSendWr') >>> 2;
    checkBinding(binding);
    storeU64(words, at + WR_ID, request.wrId ?? 0, 'wrId');
    storeU64(words, at + BIND.address, binding.address, 'addr');
    storeU64(words, at + BIND.length, binding.length, 'length');
    storeU64(words, at + BIND.memory, binding.memory, 'memory');
    words[at + OPCODE] = request.opcode;
    words[at + FLAGS] = (request.sendFlags ?? 0) & ~SendFlag.INLINE;
    words[at + SGE_COUNT] = 0;
    words[at + INLINE_LENGTH] = 0;
    words[at + BIND.key] = binding.key;
    words[at + BIND.target] = binding.target;
    words[at + BIND.base] = binding.base;
    words[at + BIND.access] = binding.access;
    this.filled();
  }

  #putInline(base: number, inline: Uint8Array): void {
    checkBytes('inline', inline);
    if (inline.length > this.#inlineMax) {
      const rule = `has ${inline.length} bytes, more than cap.maxInlineData, ${this.#inlineMax}`;
      throw new MisuseError('inline', rule);
    }
    const at = base >>> 2;
    this.words[at + SGE_COUNT] = 0;
    this.words[at + INLINE_LENGTH] = inline.length;
    this.words[at + FLAGS]! |= SendFlag.INLINE;
    this.#bytes.set(inline, base + WORK_REQUEST_SIZE);
  }
}

/** The receive ring of a queue pair, or a shared one. */
export class ReceiveRing extends Ring<ReceiveWorkRequest> {
  readonly #sgeMax: number;

  /** `limit`: the option with the number of entries. */
  constructor(
    memory: EngineMemory,
    ring: number,
    entries: number,
    sgeMax: number,
    private readonly limit: string,
  ) {
    super(memory, ring, entries, RECEIVE_REQUEST_SIZE + sgeMax * SGE_SIZE);
    this.#sgeMax = sgeMax;
  }

  protected put(request: ReceiveWorkRequest): void {
    const base = this.free('postRecv', this.limit);
    const { wrId = 0, sgList } = request;
    const list = sgList === undefined ? noSges('postRecv', request, RECEIVE_KEYS) : sgList;
    if (!Array.isArray(list) || list.length > this.#sgeMax) refuseSges(list, this.#sgeMax);
    const at = base >>> 2;
    storeU64(this.words, at, wrId, 'wrId');
    this.words[at + 2] = list.length;
    this.words[at + 3] = 0;
    putSges(this.words, (base + RECEIVE_REQUEST_SIZE) >>> 2, list);
    this.filled();
  }
}
