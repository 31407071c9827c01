/**
 * Any number of calls over one queue pair: cut, staged, posted together, completed in order.
 *
 *     submit ─> waiting ─(once a turn)─> pieces in flight ─> completions ─> promises
 *
 * A reliable queue pair completes in the order of its requests. So one completion of a list stands
 * for all before it, and staging memory is a ring.
 */
import { AccessFlag, SendFlag, WcStatus } from '#build/abi.js';
import { Fifo } from '../base/fifo.js';
import { MisuseError } from '../errors/errors.js';
import { copyBytes } from '../link/copy-bytes.js';
import { lostAddress } from '../link/interface.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import type { AnyWorkRequest, SendWorkRequest } from '../verbs/queues/work-request.js';
import type { Sge } from '../verbs/queues/sge.js';
import type { LocalMemory } from './local-regions.js';
import {
  ATOMIC_CMP_AND_SWP,
  ATOMIC_FETCH_AND_ADD,
  FLUSH,
  RDMA_READ,
  RDMA_WRITE,
  SEND_WITH_IMM,
  failAll,
  type Operation,
} from './operation.js';
import { After, completionError, endedError, type RemoteError } from './remote-error.js';

/** Requests of a queue pair; a power of two. */
export const SEND_REQUESTS = 512;
/** A READ of this length has one piece, whose copy is made when it has arrived. */
export const COPIED_BYTES = 4096;
/** Sent within the work request, without staging. */
export const INLINE_BYTES = 256;
/** A longer call becomes several requests: of memory used in place, and of staged copies. */
const PIECE_BYTES = 1024 * 1024;
const STAGED_PIECE_BYTES = 256 * 1024;
/** A piece does not wrap: the ring has room for several. */
const STAGING_BYTES = 1024 * 1024;
/** Requests that are posted together; the last one is signaled. */
const LIST = 64;
/** A longer request is signaled, so that its staging memory is free early. */
const SIGNALED_BYTES = 64 * 1024;
const COMPLETIONS = 64;
const WORD = 8;
const NO_SGES: readonly Sge[] = [];

/** A work request that is filled again for each piece: the ring copies it. */
class Draft implements AnyWorkRequest {
  wrId = 0;
  opcode = 0;
  sendFlags = 0;
  immData = 0;
  inline: Uint8Array | undefined = undefined;
  sgList: readonly Sge[] = NO_SGES;
  rdma: AnyWorkRequest['rdma'] = undefined;
  atomic: AnyWorkRequest['atomic'] = undefined;
  flush: AnyWorkRequest['flush'] = undefined;
  readonly #target = { remoteAddr: 0 as number | bigint, rkey: 0 };
  readonly #sge = { addr: 0, length: 0, lkey: 0 };
  readonly #list = [this.#sge];

  /** RDMA_WRITE or RDMA_READ. */
  aim(remoteAddr: number | bigint, rkey: number): void {
    this.#target.remoteAddr = remoteAddr;
    this.#target.rkey = rkey;
    this.rdma = this.#target;
  }

  lie(addr: number, length: number, lkey: number): void {
    const sge = this.#sge;
    sge.addr = addr;
    sge.length = length;
    sge.lkey = lkey;
    this.sgList = this.#list;
  }

  clear(opcode: number, wrId: number): void {
    this.opcode = opcode;
    this.wrId = wrId;
    this.sendFlags = 0;
    this.inline = this.rdma = this.atomic = this.flush = undefined;
    this.sgList = NO_SGES;
  }
}

/** Receives the reason why nothing completes any more. */
export type ReportEnd = (error: RemoteError) => void;

/** The calls of one side of a connection. */
export class RequestQueue {
  readonly #pd: ProtectionDomain;
  readonly #local: LocalMemory;
  readonly #memory: Uint8Array;
  readonly #waiting = new Fifo<Operation>();
  /** Frames of the protocol itself; they need not wait for calls. */
  readonly #control = new Fifo<Operation>();
  readonly #drafts: Draft[] = Array.from({ length: LIST }, () => new Draft());
  readonly #list: Draft[] = [];
  /** In flight, by the low bits of their number. */
  readonly #operations = new Array<Operation | undefined>(SEND_REQUESTS).fill(undefined);
  /** Of each: where its piece begins in the operation's bytes, where it is staged (-1: it is not). */
  readonly #pieceAt = new Float64Array(SEND_REQUESTS);
  readonly #pieceLength = new Uint32Array(SEND_REQUESTS);
  readonly #stagedAt = new Int32Array(SEND_REQUESTS).fill(-1);
  readonly #stagedEnd = new Float64Array(SEND_REQUESTS);
  #posted = 0;
  #completed = 0;
  /** Bytes of the staging ring, counted on and on. */
  #stagedHead = 0;
  #stagedTail = 0;
  #staging: { readonly bytes: Uint8Array; readonly mr: MemoryRegion } | undefined;
  #qp: QueuePair | undefined;
  #report: ReportEnd = () => {};
  #ended: RemoteError | undefined;
  #stopped: RemoteError | undefined;
  #takeCompletions: (completions: WorkCompletion[]) => void = () => {};
  #isScheduled = false;
  #isStarted = false;
  #isRunning = false;
  #idle: (() => void)[] = [];

  /** `after`: what to do after the end of the connection, in errors. */
  constructor(
    pd: ProtectionDomain,
    local: LocalMemory,
    public after: After,
  ) {
    this.#pd = pd;
    this.#local = local;
    this.#memory = pd.context.device.arena.memory.bytes;
  }

  /** Frames of the protocol go to this connected queue pair; calls after `start`. */
  attach(qp: QueuePair, report: ReportEnd): void {
    this.#qp = qp;
    this.#report = report;
    this.#isStarted = false;
    this.#takeCompletions = (completions) => this.#complete(qp, completions);
  }

  /** The peer has described its regions. */
  start(): void {
    this.#isStarted = true;
    for (let count = this.#waiting.length; count > 0; count--) {
      const one = this.#waiting.shift()!;
      // The peer may have restarted since the call.
      const refusal = one.region?.refusal(one.verb, one.opcode);
      if (refusal) one.fail(refusal);
      else this.#waiting.push(one);
    }
    this.#schedule();
  }

  /**
   * The queue pair has ended. Calls in flight fail: the peer executed each at most once. `goesOn`:
   * calls that no request was made of wait for the next queue pair; otherwise they fail as well.
   */
  detach(error: RemoteError, goesOn: boolean): void {
    this.#qp = undefined;
    while (this.#completed < this.#posted) this.#take().fail(error);
    this.#stagedHead = this.#stagedTail = 0;
    if (!goesOn) this.#ended = error;
    failAll(this.#control, error);
    for (let count = this.#waiting.length; count > 0; count--) {
      const one = this.#waiting.shift()!;
      // A frame belongs to a message that the peer has a part of.
      const isBegun = one.cut > 0 || one.opcode === SEND_WITH_IMM;
      if (!goesOn || isBegun) one.fail(error);
      else this.#waiting.push(one);
    }
    this.#noteIdle();
  }

  /** A frame of the protocol. */
  submitControl(operation: Operation): void {
    if (this.#ended) return;
    this.#control.push(operation);
    if (!this.#isScheduled) this.#schedule();
  }

  /** Starts a call. Its promise is that of `operation.promise()`. */
  submit(operation: Operation): void {
    // A frame is part of a message that was sent before the stop.
    const refusal = this.#ended ?? (operation.opcode === SEND_WITH_IMM ? undefined : this.#stopped);
    if (refusal) return operation.fail(refusal);
    this.#waiting.push(operation);
    if (this.#isScheduled) return;
    // The first one leaves at once; those that follow in this turn leave together.
    if (this.#posted === this.#completed) this.#pump();
    else this.#schedule();
  }

  /** Handles what has completed already. */
  drain(): void {
    const qp = this.#qp;
    if (!qp || qp.sendCq.destroyed || qp.pd.context.device.closed) return;
    const completions = qp.sendCq.poll(SEND_REQUESTS);
    if (completions.length > 0) this.#complete(qp, completions);
  }

  /** Calls that were made go on; further ones fail. */
  stop(error: RemoteError): void {
    this.#stopped = error;
  }

  /** Resolves when no call waits or is in flight. */
  async idle(): Promise<void> {
    while (this.#posted !== this.#completed || this.#waitCount > 0) {
      await new Promise<void>((resolve) => this.#idle.push(resolve));
    }
  }

  /** Gives the staging memory back. No queue pair may be attached. */
  close(): void {
    if (!this.#staging || this.#pd.context.device.closed) return;
    this.#staging.mr.dereg();
    this.#pd.context.free(this.#staging.bytes);
    this.#staging = undefined;
  }

  get #waitCount(): number {
    return this.#waiting.length + this.#control.length;
  }

  /** Calls of one turn of the event loop are posted together. */
  #schedule(): void {
    this.#isScheduled = true;
    queueMicrotask(this.#pump);
  }

  readonly #pump = (): void => {
    this.#isScheduled = false;
    const qp = this.#qp;
    if (!qp) return;
    const list = this.#list;
    try {
      while (this.#posted - this.#completed < SEND_REQUESTS) {
        const fifo = this.#control.length > 0 || !this.#isStarted ? this.#control : this.#waiting;
        const operation = fifo.peek();
        if (!operation) break;
        // Its limit was reached.
        if (!operation.isSettled && !this.#tryDraft(operation)) break;
        if (operation.cut === operation.length || operation.isSettled) fifo.shift();
        if (list.length === LIST) this.#post(qp);
      }
      if (list.length > 0) this.#post(qp);
    } catch (error) {
      list.length = 0;
      return this.#refused(error as Error);
    }
    if (this.#posted === this.#completed) this.#noteIdle();
    else if (!this.#isRunning) void this.#run(qp);
  };

  /** False: the rest waits for staging memory. */
  #tryDraft(operation: Operation): boolean {
    try {
      return this.#draft(this.#drafts[this.#list.length]!, operation);
    } catch (error) {
      // No memory for staging, or the caller's memory has gone: only this call fails.
      operation.fail(error);
      return true;
    }
  }

  #post(qp: QueuePair): void {
    const list = this.#list;
    list[list.length - 1]!.sendFlags |= SendFlag.SIGNALED;
    qp.postSend(list as readonly AnyWorkRequest[] as readonly SendWorkRequest[]);
    list.length = 0;
  }

  /** The queue pair takes no requests, or there is no memory. */
  #refused(error: Error): void {
    const rule = `the device refuses the request: ${error.message}`;
    this.#report(endedError('postSend', rule, this.after));
  }

  /** Makes the next request of a call; false: its staging memory is not free yet. */
  #draft(draft: Draft, operation: Operation): boolean {
    const { opcode, region, cut, bytes } = operation;
    if (bytes && bytes.length < operation.length) throw shrunkError(operation);
    const number = this.#posted;
    const index = number & (SEND_REQUESTS - 1);
    let length = operation.length - cut;
    if (length > STAGED_PIECE_BYTES) length = Math.min(length, this.#pieceBytes(bytes));
    draft.clear(opcode, number);
    this.#stagedAt[index] = -1;
    if (opcode === RDMA_WRITE || opcode === SEND_WITH_IMM) {
      if (operation.length <= INLINE_BYTES) draft.inline = bytes;
      else if (!this.#place(draft, index, bytes!, cut, length, true)) return false;
      if (opcode === SEND_WITH_IMM) draft.immData = operation.operand as number;
    } else if (opcode === RDMA_READ) {
      const isPlaced = bytes
        ? this.#place(draft, index, bytes, cut, length, false)
        : this.#stage(draft, index, length);
      if (!isPlaced) return false;
    } else if (opcode === FLUSH) length = operation.length;
    else if (!this.#stage(draft, index, WORD)) return false;
    if (region) this.#aim(draft, operation, region);
    if (length >= SIGNALED_BYTES) draft.sendFlags = SendFlag.SIGNALED;
    this.#operations[index] = operation;
    this.#pieceAt[index] = cut;
    this.#pieceLength[index] = length;
    this.#stagedEnd[index] = this.#stagedHead;
    operation.cut = cut + length;
    this.#posted = number + 1;
    this.#list.push(draft);
    return true;
  }

  #pieceBytes(bytes: Uint8Array | undefined): number {
    if (bytes?.buffer !== this.#memory.buffer) return STAGED_PIECE_BYTES;
    const lkey = this.#local.keyOf(bytes.byteOffset, bytes.length);
    return lkey === undefined ? STAGED_PIECE_BYTES : PIECE_BYTES;
  }

  #aim(draft: Draft, operation: Operation, { base, rkey }: NonNullable<Operation['region']>): void {
    const { opcode, length } = operation;
    const at = operation.offset + operation.cut;
    const remoteAddr = typeof base === 'number' ? base + at : base + BigInt(at);
    if (opcode === RDMA_WRITE || opcode === RDMA_READ) return draft.aim(remoteAddr, rkey);
    if (opcode === FLUSH) {
      draft.flush = { remoteAddr, rkey, length, type: operation.operand as number };
      return;
    }
    const [compareAdd, swap] = [operation.operand as bigint, operation.swap];
    draft.atomic = { remoteAddr, rkey, compareAdd, swap };
  }

  /** Points at registered memory of the caller, or at a staged copy. */
  #place(
    draft: Draft,
    index: number,
    bytes: Uint8Array,
    cut: number,
    length: number,
    isSource: boolean,
  ): boolean {
    if (bytes.buffer === this.#memory.buffer) {
      const at = bytes.byteOffset + cut;
      const lkey = this.#local.keyOf(at, length);
      if (lkey !== undefined) {
        draft.lie(at, length, lkey);
        return true;
      }
    }
    if (!this.#stage(draft, index, length)) return false;
    if (isSource) {
      const piece = length === bytes.length ? bytes : bytes.subarray(cut, cut + length);
      copyBytes(this.#memory, piece, this.#stagedAt[index]! >>> 0);
    }
    return true;
  }

  /** Takes bytes of the staging ring. Throws RefusalError ENOMEM. */
  #stage(draft: Draft, index: number, length: number): boolean {
    const { bytes, mr } = (this.#staging ??= this.#makeStaging());
    const taken = (length + WORD - 1) & -WORD;
    let at = this.#stagedHead % STAGING_BYTES;
    let head = this.#stagedHead + taken;
    if (at + taken > STAGING_BYTES) {
      // A piece does not wrap: the rest of the ring stays unused.
      head += STAGING_BYTES - at;
      at = 0;
    }
    if (head - this.#stagedTail > STAGING_BYTES) return false;
    this.#stagedHead = head;
    const address = bytes.byteOffset + at;
    this.#stagedAt[index] = address;
    draft.lie(address, length, mr.lkey);
    return true;
  }

  #makeStaging() {
    const bytes = this.#pd.context.alloc(STAGING_BYTES);
    return { bytes, mr: this.#pd.regMr(bytes, AccessFlag.LOCAL_WRITE) };
  }

  /** Runs while requests are in flight. */
  async #run(qp: QueuePair): Promise<void> {
    this.#isRunning = true;
    const { sendCq } = qp;
    try {
      while (this.#qp === qp && this.#posted !== this.#completed) {
        await sendCq.waitInto(COMPLETIONS, this.#takeCompletions);
      }
    } catch (error) {
      // The queue is destroyed with the connection.
      if (!sendCq.destroyed) throw error;
    } finally {
      this.#isRunning = false;
      // Another queue pair was attached, or a call was made, since the last completion.
      const isDue = this.#posted !== this.#completed || this.#waitCount > 0;
      if (this.#qp && isDue && !this.#isScheduled) this.#schedule();
    }
  }

  #complete(qp: QueuePair, completions: readonly WorkCompletion[]): void {
    if (this.#qp !== qp) return;
    if (completions.length === 0) {
      // Its queue returns nothing, at once and for ever.
      this.#qp = undefined;
      return this.#report(
        endedError('wait', 'the device was closed, or its link failed', After.CLOSED),
      );
    }
    for (const completion of completions) {
      const number = Number(completion.wrId);
      if (completion.status !== WcStatus.SUCCESS) return this.#fail(number, completion);
      this.#succeed(number);
    }
    if (this.#waitCount > 0) this.#pump();
    else if (this.#posted === this.#completed) this.#noteIdle();
  }

  /** All requests up to this one are done. */
  #succeed(number: number): void {
    while (this.#completed <= number) {
      const index = this.#completed & (SEND_REQUESTS - 1);
      // Above 2 GiB an address is negative here; all are multiples of 8. A Float64Array is slow.
      const isStaged = this.#stagedAt[index] !== -1;
      const staged = this.#stagedAt[index]! >>> 0;
      const at = this.#pieceAt[index]!;
      const length = this.#pieceLength[index]!;
      const operation = this.#take();
      const { opcode } = operation;
      if (operation.isSettled) continue;
      if (opcode === ATOMIC_CMP_AND_SWP || opcode === ATOMIC_FETCH_AND_ADD) {
        operation.done(this.#wordAt(staged));
        continue;
      }
      if (opcode === RDMA_READ && isStaged) {
        if (!operation.bytes) operation.answer = this.#memory.slice(staged, staged + length);
        else if (operation.bytes.length < at + length) operation.fail(shrunkError(operation));
        else copyBytes(operation.bytes, this.#memory.subarray(staged, staged + length), at);
      }
      if (at + length >= operation.length) operation.done(operation.answer);
    }
  }

  /** The oldest request in flight, which is so no more. */
  #take(): Operation {
    const index = this.#completed++ & (SEND_REQUESTS - 1);
    const operation = this.#operations[index]!;
    this.#operations[index] = undefined;
    this.#stagedTail = this.#stagedEnd[index]!;
    return operation;
  }

  #wordAt(address: number): bigint {
    return new DataView(this.#memory.buffer, address, WORD).getBigUint64(0, true);
  }

  /** Those before it are done; it failed, and nothing behind it is executed. */
  #fail(number: number, completion: WorkCompletion): void {
    this.#succeed(number - 1);
    this.#qp = undefined;
    const operation = this.#operations[number & (SEND_REQUESTS - 1)];
    const lost = lostAddress(this.#pd.context.device.info);
    const error = completionError(operation?.name ?? 'connection', completion, this.after, lost);
    if (completion.status !== WcStatus.WR_FLUSH_ERR) operation?.fail(error);
    this.#report(error);
  }

  #noteIdle(): void {
    for (const resolve of this.#idle.splice(0)) resolve();
  }
}

/** @internal The memory of a call has gone. */
export function shrunkError({ name }: Pick<Operation, 'name'>): MisuseError {
  const rule = 'must not be transferred or made smaller before its promise settles';
  return new MisuseError('memory', `${name}: ${rule}; pass a copy`);
}
