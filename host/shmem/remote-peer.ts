/**
 * A PE of another machine: one queue pair of RC, whose requests arrive in order. Writes are posted
 * and complete later (`quiet`); reads and atomics are waited for. The calling thread polls: the
 * device's own thread moves the packets.
 */
import { AccessFlag, Mtu, QpState, SendFlag, WcStatusName, WrOpcode } from '#build/abi.js';
import { RefusalError } from '../errors/errors.js';
import { copyBytes } from '../link/copy-bytes.js';
import { Gid } from '../link/endpoint.js';
import type { CompletionQueue } from '../verbs/queues/completion-queue.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import type { SendWorkRequest } from '../verbs/queues/work-request.js';
import { PROBE_OFFSET } from './offsets.js';
import { Atomic, type Peer, type Word } from './peer.js';
import type { AtomicArray } from './symmetric.js';

const DEPTH = 128;
/** Memory for bytes on their way: a put that finds no place waits for those before. */
const SCRATCH_BYTES = 2 ** 20;
/** In front of them: the answer of an atomic operation, and the source of `mark`. */
const MARK_AT = 8;
const SCRATCH_START = 64;
/** 537 ms: a PE that does not answer for 4 s has failed. */
const TIMEOUT = 17;
/** A PE that this one does not write to is probed so often, at a word that is for that. */
const PROBE_MILLIS = 1000;
/** Of probes and marks: their loss is no loss of the program. */
const PROBE_ID = 1n;
const ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_ATOMIC;

/** Address of a PE, sent to the others. */
export interface RemoteAddress {
  readonly gid: string;
  readonly port: number;
  readonly qpNum: number;
  /** Address of its symmetric memory, and the key. */
  readonly base: number;
  readonly key: number;
}

export interface RemotePeerEvents {
  /** Called once, when the PE does not answer any more. */
  failed(rank: number): void;
  /** Called in each turn of a loop that waits for answers. */
  waits(): void;
}

export class RemotePeer implements Peer {
  readonly base = undefined;
  readonly #rank: number;
  readonly #qp: QueuePair;
  readonly #cq: CompletionQueue;
  readonly #scratch: MemoryRegion;
  readonly #events: RemotePeerEvents;
  #address: RemoteAddress | undefined;
  #used = SCRATCH_START;
  #pending = 0;
  /** Of those, requests of the program. */
  #written = 0;
  #sentMillis = 0;
  #why: string | undefined;
  /** It is this PE that has failed for the others. */
  #own: RefusalError | undefined;
  /** Requests have failed; `quiet` has thrown for them. */
  #hasLost = false;
  #isReported = false;

  constructor(context: Context, pd: ProtectionDomain, rank: number, events: RemotePeerEvents) {
    this.#rank = rank;
    this.#events = events;
    this.#cq = context.createCq(DEPTH);
    const cap = { maxSendWr: DEPTH, maxRecvWr: 1 };
    this.#qp = pd.createQp({ sendCq: this.#cq, recvCq: this.#cq, cap });
    this.#scratch = pd.regMr(context.alloc(SCRATCH_BYTES), AccessFlag.LOCAL_WRITE);
    this.#scratch.buffer[MARK_AT] = 1;
    this.#qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: ACCESS });
  }

  get qpNum(): number {
    return this.#qp.qpNum;
  }

  connect(address: RemoteAddress): void {
    this.#address = address;
    const ahAttr = { dgid: Gid.parse(address.gid), port: address.port };
    this.#qp.modify({
      qpState: QpState.RTR,
      ahAttr,
      pathMtu: Mtu.MTU_1024,
      destQpNum: address.qpNum,
      rqPsn: 0,
      maxDestRdAtomic: 16,
      minRnrTimer: 12,
    });
    const retries = { timeout: TIMEOUT, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 16 };
    this.#qp.modify({ qpState: QpState.RTS, sqPsn: 0, ...retries });
  }

  put(offset: number, source: Uint8Array): void {
    for (let start = 0; start < source.length;) {
      const length = Math.min(source.length - start, SCRATCH_BYTES / 4);
      const at = this.#place(length);
      copyBytes(this.#scratch.buffer, source.subarray(start, start + length), at);
      this.#post(WrOpcode.RDMA_WRITE, offset + start, at, length);
      start += length;
    }
  }

  get(offset: number, target: Uint8Array): void {
    for (let start = 0; start < target.length;) {
      const length = Math.min(target.length - start, SCRATCH_BYTES / 4);
      const at = this.#place(length);
      this.#post(WrOpcode.RDMA_READ, offset + start, at, length);
      this.quiet();
      copyBytes(target, this.#scratch.buffer.subarray(at, at + length), start);
      start += length;
    }
  }

  atomic(like: AtomicArray, offset: number, operation: Atomic, value: Word): Word {
    const is64 = like.BYTES_PER_ELEMENT === 8;
    if (operation === Atomic.ADD && is64) {
      return signed(like, this.#fetchAdd(offset, BigInt.asUintN(64, value as bigint)));
    }
    if (operation === Atomic.FETCH) return signed(like, this.#word(like, offset));
    return this.#change(like, offset, (before) => combine(operation, before, BigInt(value)));
  }

  compareSwap(like: AtomicArray, offset: number, condition: Word, value: Word): Word {
    const wanted = unsigned(like, BigInt(condition));
    return this.#change(like, offset, (before) => (before === wanted ? BigInt(value) : undefined));
  }

  look(): void {
    this.#poll();
    // A probe of a PE that has failed would throw, in a timer of the program.
    if (this.#why !== undefined) return;
    const now = performance.now();
    if (this.#pending > 0 || now - this.#sentMillis < PROBE_MILLIS) return;
    this.#post(WrOpcode.RDMA_WRITE, PROBE_OFFSET, 0, 4, PROBE_ID);
  }

  mark(offset: number): void {
    this.#poll();
    if (this.#why !== undefined) return;
    this.#post(WrOpcode.RDMA_WRITE, offset, MARK_AT, 1, PROBE_ID);
  }

  lose(own?: RefusalError): void {
    this.#own ??= own;
    if (this.#why !== undefined) return;
    this.#why = 'as another PE has found';
    this.#hasLost = this.#written > 0;
  }

  quiet(): void {
    // Requests under way to a PE that has failed get no answer for seconds.
    while (this.#pending > 0 && this.#why === undefined) this.#wait();
    this.#used = SCRATCH_START;
    if (!this.#hasLost || this.#isReported) return;
    // Once: a program that goes on without that PE writes to others.
    this.#isReported = true;
    this.#check();
  }

  /** RDMA has 64-bit words: those of 32 bits are half of one. */
  #change(like: AtomicArray, offset: number, next: (before: bigint) => bigint | undefined): Word {
    const is64 = like.BYTES_PER_ELEMENT === 8;
    const at = is64 ? offset : offset - (offset % 8);
    const shift = BigInt((offset - at) * 8);
    const mask = is64 ? 2n ** 64n - 1n : 0xffffffffn;
    let word = this.#fetchAdd(at, 0n);
    for (;;) {
      const before = (word >> shift) & mask;
      const wanted = next(before);
      if (wanted === undefined) return signed(like, before);
      const rest = word & ~(mask << shift);
      const found = this.#compareSwap(at, word, rest | ((wanted & mask) << shift));
      if (found === word) return signed(like, before);
      word = found;
    }
  }

  #word(like: AtomicArray, offset: number): bigint {
    const bytes = new Uint8Array(like.BYTES_PER_ELEMENT);
    this.get(offset, bytes);
    const view = new DataView(bytes.buffer);
    return like.BYTES_PER_ELEMENT === 8
      ? view.getBigUint64(0, true)
      : BigInt(view.getUint32(0, true));
  }

  #fetchAdd(offset: number, compareAdd: bigint): bigint {
    return this.#atomic(offset, WrOpcode.ATOMIC_FETCH_AND_ADD, { compareAdd });
  }

  #compareSwap(offset: number, compareAdd: bigint, swap: bigint): bigint {
    return this.#atomic(offset, WrOpcode.ATOMIC_CMP_AND_SWP, { compareAdd, swap });
  }

  #atomic(
    offset: number,
    opcode: number,
    words: { readonly compareAdd: bigint; readonly swap?: bigint },
  ): bigint {
    const { base, key } = this.#address!;
    this.#send({
      opcode,
      sgList: [{ addr: this.#scratch.addr, length: 8, lkey: this.#scratch.lkey }],
      atomic: { remoteAddr: base + offset, rkey: key, ...words },
      sendFlags: SendFlag.SIGNALED,
    } as SendWorkRequest);
    this.quiet();
    const { buffer, byteOffset } = this.#scratch.buffer;
    return new DataView(buffer, byteOffset, 8).getBigUint64(0, true);
  }

  #post(opcode: number, offset: number, at: number, length: number, wrId = 0n): void {
    const { base, key } = this.#address!;
    this.#send({
      wrId,
      opcode,
      sgList: [{ addr: this.#scratch.addr + BigInt(at), length, lkey: this.#scratch.lkey }],
      rdma: { remoteAddr: base + offset, rkey: key },
      sendFlags: SendFlag.SIGNALED,
    } as SendWorkRequest);
  }

  #send(request: SendWorkRequest): void {
    this.#check();
    while (this.#pending >= DEPTH) this.#wait();
    this.#qp.postSend(request);
    this.#sentMillis = performance.now();
    this.#pending++;
    if (request.wrId !== PROBE_ID) this.#written++;
  }

  /** A range of the scratch memory that no request uses. */
  #place(length: number): number {
    const whole = Math.ceil(length / 8) * 8;
    if (this.#used + whole > SCRATCH_BYTES) this.quiet();
    const at = this.#used;
    this.#used += whole;
    return at;
  }

  #wait(): void {
    this.#events.waits();
    this.#poll();
  }

  #poll(): void {
    for (const { status, wrId } of this.#cq.poll(DEPTH)) {
      this.#pending--;
      const isOfProgram = wrId !== PROBE_ID;
      if (isOfProgram) this.#written--;
      if (status === 0) continue;
      this.#hasLost ||= isOfProgram;
      if (this.#why !== undefined) continue;
      this.#why = WcStatusName[status] ?? `status ${status}`;
      this.#events.failed(this.#rank);
    }
  }

  #check(): void {
    if (this.#own !== undefined) throw this.#own;
    if (this.#why === undefined) return;
    const text = `PE ${this.#rank} does not answer any more (${this.#why})`;
    throw new RefusalError('ECONNRESET', `shmem: ${text}; continue with a team without it`);
  }
}

function combine(operation: Atomic, before: bigint, value: bigint): bigint {
  if (operation === Atomic.SET) return value;
  if (operation === Atomic.ADD) return before + value;
  if (operation === Atomic.AND) return before & value;
  return operation === Atomic.OR ? before | value : before ^ value;
}

function unsigned({ BYTES_PER_ELEMENT }: AtomicArray, value: bigint): bigint {
  return BigInt.asUintN(BYTES_PER_ELEMENT * 8, value);
}

/** The word as an element of `like`. */
function signed(like: AtomicArray, word: bigint): Word {
  if (like instanceof BigInt64Array) return BigInt.asIntN(64, word);
  if (like instanceof BigUint64Array) return word;
  return like instanceof Int32Array ? Number(BigInt.asIntN(32, word)) : Number(word);
}
