/**
 * A queue of a controller, on the target's side: a queue pair, receives for command capsules, data
 * by RDMA READ and WRITE, and answers (RDMA transport 1.0 section 2).
 */
import { AccessFlag, SendFlag, WcStatus, WrOpcode } from '#build/abi.js';
import type { RdmaConnection } from '../cm/connect.js';
import { RefusalError } from '../errors/errors.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import type { SendWorkRequest } from '../verbs/queues/work-request.js';
import type { Sge } from '../verbs/queues/sge.js';
import { CQE_BYTES, DO_NOT_RETRY, NvmeStatus, SQE_BYTES } from './constants.js';
import {
  buildCompletion,
  cidOf,
  parseCommand,
  type BadCommand,
  type Command,
  type Sgl,
} from './command.js';
import { Work, failureOf, workId, workOf, type Completions } from './completions.js';
import { giveBack } from './give-back.js';

/** A command that came, until it is answered. */
export interface NvmeRequest {
  readonly queue: TargetQueue;
  readonly cid: number;
  readonly command: Command | BadCommand;
  readonly sgl: Sgl;
  /** In-capsule data after the entry. Valid until the request is answered. */
  readonly inCapsule: Uint8Array;
  readonly slot: number;
  isAnswered: boolean;
}

export interface Answer {
  /** An NvmeStatus; default SUCCESS. */
  readonly status?: number;
  readonly result?: bigint;
  /** Goes to the host's memory before the answer: as many bytes as `length` says. */
  readonly data?: Sge;
  /** Called when `data` may change. */
  readonly sent?: () => void;
}

export interface TargetQueueOwner {
  /** An exception ends the queue. */
  request(request: NvmeRequest): void;
  /** The queue has ended, for any reason. */
  ended(queue: TargetQueue, reason: string): void;
}

/** READ, WRITE, answer; and answers that the host has, but whose ACK is on its way. */
const SENDS_EACH = 4;

interface Posted {
  /** Entries of the send queue that end with this one. */
  readonly entries: number;
  readonly sent: (() => void) | undefined;
}

export class TargetQueue {
  /** In the Connect command. */
  sqsize = 0;
  readonly #completions: Completions;
  readonly #capsuleBytes: number;
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;
  readonly #requests: (NvmeRequest | undefined)[];
  readonly #reads = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  readonly #posted: Posted[] = [];
  readonly #backlog: { readonly requests: SendWorkRequest[]; readonly posted: Posted }[] = [];
  /** Came before the connection was. */
  #early: WorkCompletion[] | undefined = [];
  #sendFree: number;
  #qp: QueuePair | undefined;
  #connection: RdmaConnection | undefined;
  #sqhd = 0;
  #reason: string | undefined;

  /** `capsuleBytes`: of the longest capsule. Throws RefusalError ENOMEM. */
  constructor(
    pd: ProtectionDomain,
    completions: Completions,
    readonly qid: number,

    /** Commands under way at most. */
    readonly entries: number,
    capsuleBytes: number,
    public owner: TargetQueueOwner,
  ) {
    this.#completions = completions;
    this.#capsuleBytes = capsuleBytes;
    this.#sendFree = entries * SENDS_EACH;
    completions.reserve(this.#completionsMax);
    this.#memory = pd.context.alloc(entries * capsuleBytes);
    this.#mr = pd.regMr(this.#memory, AccessFlag.LOCAL_WRITE);
    this.#requests = Array.from({ length: entries }, () => undefined);
  }

  /** Capabilities for its queue pair. */
  get cap(): { maxSendWr: number; maxRecvWr: number; maxSendSge: number; maxRecvSge: number } & {
    maxInlineData: number;
  } {
    const { entries } = this;
    const sges = { maxSendSge: 1, maxRecvSge: 1, maxInlineData: CQE_BYTES };
    return { maxSendWr: entries * SENDS_EACH, maxRecvWr: entries, ...sges };
  }

  get #completionsMax(): number {
    return this.entries * (SENDS_EACH + 1);
  }

  /** Why it is over; undefined while it is not. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** Commands that were not answered yet. */
  get busy(): number {
    return this.#requests.reduce((sum, request) => sum + (request ? 1 : 0), 0);
  }

  /** A command that was not answered yet. */
  find(cid: number): NvmeRequest | undefined {
    return this.#requests.find((request) => request?.cid === cid);
  }

  /** Called before the connection is accepted. */
  prepare(qp: QueuePair): void {
    this.#qp = qp;
    this.#completions.add(qp.qpNum, (completion) => this.#completed(completion));
    for (let slot = 0; slot < this.entries; slot++) this.#postReceive(slot);
  }

  /** The host is ready. */
  connected(connection: RdmaConnection): void {
    if (this.#reason !== undefined) {
      // It was ended while the host was on its way.
      connection.id.channel.destroy();
      return;
    }
    this.#connection = connection;
    void connection.disconnected.then(() => this.close('the host disconnected'));
    const early = this.#early ?? [];
    this.#early = undefined;
    for (const completion of early) this.#completed(completion);
  }

  /** Ends it, once. */
  close(reason: string): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    const { context } = this.#mr.pd;
    if (this.#qp) this.#completions.remove(this.#qp.qpNum);
    // Destroys the queue pair as well, so that no packet reaches the queue's memory.
    if (!context.device.closed) this.#connection?.id.channel.destroy();
    const gone = new RefusalError('ECONNRESET', `read: the queue is gone: ${reason}`);
    for (const { reject } of this.#reads.values()) reject(gone);
    this.#reads.clear();
    for (const { sent } of this.#posted.splice(0)) sent?.();
    for (const { posted } of this.#backlog.splice(0)) posted.sent?.();
    this.#completions.giveBack(this.#completionsMax);
    giveBack(this.#mr, this.#memory);
    this.owner.ended(this, reason);
  }

  /**
   * RDMA READ of the host's memory into ours. Rejects with RefusalError ECONNRESET when the queue
   * ends meanwhile.
   */
  read(request: NvmeRequest, into: Sge): Promise<void> {
    const { sgl, slot } = request;
    if (this.#reason !== undefined || sgl.kind !== 'keyed') {
      const why = this.#reason ? `the queue is gone: ${this.#reason}` : 'it has no keyed SGL';
      return Promise.reject(new RefusalError('ECONNRESET', `read: ${why}`));
    }
    return new Promise((resolve, reject) => {
      this.#reads.set(slot, { resolve, reject });
      const rdma = { remoteAddr: sgl.address, rkey: sgl.key };
      const wrId = workId(Work.READ, slot);
      const sendFlags = SendFlag.SIGNALED;
      const read = { wrId, opcode: WrOpcode.RDMA_READ, sendFlags, sgList: [into], rdma };
      this.#post([read], undefined);
    });
  }

  /** `length` bytes behind the entry of a command that has no answer yet. */
  memoryOf({ slot }: NvmeRequest, length: number): { readonly bytes: Uint8Array; sge: Sge } {
    const start = slot * this.#capsuleBytes + SQE_BYTES;
    const { addr, lkey } = this.#mr;
    const sge = { addr: addr + BigInt(start), length, lkey };
    return { bytes: this.#memory.subarray(start, start + length), sge };
  }

  /**
   * The data of a command, of exactly `length` bytes, in memory of the queue: a host that does not
   * answer a READ takes no buffer of other queues. A number is the status that refuses the SGL.
   * Rejects as `read`.
   */
  async fetch(request: NvmeRequest, length: number): Promise<Uint8Array | number> {
    const { sgl, inCapsule } = request;
    if (sgl.kind === 'none' || sgl.length !== length) return NvmeStatus.DATA_SGL_LENGTH_INVALID;
    if (sgl.kind === 'capsule') {
      const isInside = sgl.offset === 0 && inCapsule.length >= length;
      return isInside ? inCapsule.subarray(0, length) : NvmeStatus.SGL_OFFSET_INVALID;
    }
    const { bytes, sge } = this.memoryOf(request, length);
    await this.read(request, sge);
    return bytes;
  }

  /** The answer, with data before it, and the invalidation that the host has asked for. */
  answer(request: NvmeRequest, { status = NvmeStatus.SUCCESS, result, data, sent }: Answer): void {
    if (request.isAnswered || this.#reason !== undefined) {
      sent?.();
      return;
    }
    request.isAnswered = true;
    const { sgl, slot, cid } = request;
    this.#sqhd = (this.#sqhd + 1) % (this.sqsize + 1);
    const fields = { result: result ?? 0n, sqhd: this.#sqhd, sqid: this.qid, cid, status };
    const requests: SendWorkRequest[] = [];
    if (data && sgl.kind === 'keyed' && data.length > 0) {
      const rdma = { remoteAddr: sgl.address, rkey: sgl.key };
      requests.push({ opcode: WrOpcode.RDMA_WRITE, sgList: [data], rdma });
    }
    const invalidates = sgl.kind === 'keyed' && sgl.invalidate;
    const completion = {
      wrId: workId(Work.SEND, slot),
      sendFlags: SendFlag.SIGNALED | SendFlag.INLINE,
      inline: buildCompletion(fields),
    };
    if (invalidates) {
      const { key: invalidateRkey } = sgl;
      requests.push({ ...completion, opcode: WrOpcode.SEND_WITH_INV, invalidateRkey });
    } else requests.push({ ...completion, opcode: WrOpcode.SEND });
    // The host may send the next command as soon as it has the answer.
    this.#requests[slot] = undefined;
    this.#postReceive(slot);
    this.#post(requests, sent);
  }

  #postReceive(slot: number): void {
    const { addr, lkey } = this.#mr;
    const length = this.#capsuleBytes;
    const sge = { addr: addr + BigInt(slot * length), length, lkey };
    this.#guard(() => this.#qp!.postRecv({ wrId: workId(Work.RECEIVE, slot), sgList: [sge] }));
  }

  /** The last of `requests` completes. */
  #post(requests: SendWorkRequest[], sent: (() => void) | undefined): void {
    const posted = { entries: requests.length, sent };
    if (this.#backlog.length > 0 || requests.length > this.#sendFree) {
      this.#backlog.push({ requests, posted });
      return;
    }
    this.#sendFree -= requests.length;
    this.#posted.push(posted);
    this.#guard(() => this.#qp!.postSend(requests));
  }

  /** A queue pair that has failed refuses: then it is over. */
  #guard(post: () => void): void {
    try {
      post();
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      this.close(`its queue pair refuses: ${error.message}`);
    }
  }

  #completed(completion: WorkCompletion): void {
    if (this.#reason !== undefined) return;
    if (this.#early) {
      this.#early.push(completion);
      return;
    }
    if (completion.status !== WcStatus.SUCCESS) {
      this.close(failureOf(completion.status));
      return;
    }
    const { work, whose } = workOf(completion);
    if (work === Work.RECEIVE) return this.#received(whose, completion.byteLen);
    // Sends complete in order.
    const posted = this.#posted.shift();
    if (posted) {
      this.#sendFree += posted.entries;
      posted.sent?.();
    }
    if (work === Work.READ) {
      const read = this.#reads.get(whose);
      this.#reads.delete(whose);
      read?.resolve();
    }
    this.#proceed();
  }

  #proceed(): void {
    for (let next = this.#backlog[0]; next; next = this.#backlog[0]) {
      if (next.posted.entries > this.#sendFree) return;
      this.#backlog.shift();
      this.#sendFree -= next.posted.entries;
      this.#posted.push(next.posted);
      const { requests } = next;
      this.#guard(() => this.#qp!.postSend(requests));
    }
  }

  #received(slot: number, byteLen: number): void {
    if (byteLen < SQE_BYTES) {
      this.close(`a capsule of ${byteLen} bytes came: a command has 64`);
      return;
    }
    const start = slot * this.#capsuleBytes;
    const entry = this.#memory.subarray(start, start + SQE_BYTES);
    const inCapsule = this.#memory.subarray(start + SQE_BYTES, start + byteLen);
    const command = parseCommand(entry, this.qid === 0);
    const sgl: Sgl = command.name === undefined ? { kind: 'none' } : command.sgl;
    const cid = cidOf(entry);
    const request = { queue: this, cid, command, sgl, inCapsule, slot, isAnswered: false };
    this.#requests[slot] = request;
    if (command.name === undefined) {
      this.answer(request, { status: command.status | DO_NOT_RETRY });
      return;
    }
    try {
      this.owner.request(request);
    } catch (error) {
      this.close(`unexpected: ${(error as Error).message}`);
    }
  }
}
