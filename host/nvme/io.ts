/** Handlers of an I/O queue: read, write, flush, write zeroes (Base 1.4 section 6). */
import { RefusalError } from '../errors/errors.js';
import type { Clock } from '../device/clock.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { Sge } from '../verbs/queues/sge.js';
import { NSID } from './admin.js';
import type { Command, CommandOf } from './command.js';
import { DO_NOT_RETRY, NSID_ALL, NvmeStatus } from './constants.js';
import { Slices, mergeExtents } from './slices.js';
import { readNumber, readWide } from './structure.js';
import type { Lease, Staging } from './staging.js';
import type { NvmeStore, StoreRequest } from './store.js';
import type { NvmeRequest } from './target-queue.js';

/** Counters of the I/O of a target. */
export interface IoCounters {
  reads: number;
  writes: number;
  flushes: number;
  /** Deallocated ranges. */
  deallocated: number;
  blocksRead: number;
  blocksWritten: number;
  /** Writes whose data came in the capsule. */
  inCapsule: number;
  mediaErrors: number;
}

/** Attributes, length in blocks, first block (Base 1.4 figure 366). */
const RANGE_BYTES = 16;
/** Bytes that become zeros in one turn of the event loop: some 0.2 ms of memory. */
const SLICE_BYTES = 2 ** 20;

/** A status that a command is to be answered with. */
class StatusError extends Error {
  constructor(readonly status: number) {
    super(`status ${status}`);
  }
}

export interface IoCommandsOptions {
  readonly store: NvmeStore;
  readonly blockShift: number;
  readonly maxTransferBytes: number;
  /** Of the store's memory, if it has any. */
  readonly mr: MemoryRegion | undefined;
  /** Buffers for data of a store without memory. */
  readonly staging: Staging | undefined;
  /** Buffers for lists of ranges. */
  readonly lists: Staging;
  readonly clock: Clock;
  readonly delayMicros: ((request: StoreRequest) => number) | undefined;
  /** The store has failed. */
  readonly onFailure: (error: Error) => void;
}

export class IoCommands {
  readonly counters: IoCounters = {
    reads: 0,
    writes: 0,
    flushes: 0,
    deallocated: 0,
    blocksRead: 0,
    blocksWritten: 0,
    inCapsule: 0,
    mediaErrors: 0,
  };
  readonly #options: IoCommandsOptions;
  readonly #blocks: bigint;
  readonly #slices = new Slices();
  /** The failed flush, after which all writes are refused: the lost blocks are unknown. */
  #failure: Error | undefined;

  constructor(options: IoCommandsOptions) {
    this.#options = options;
    this.#blocks = BigInt(Math.floor(options.store.length / 2 ** options.blockShift));
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  serve(request: NvmeRequest): void {
    void this.#serve(request).catch((error: unknown) => this.#fail(request, error));
  }

  #fail(request: NvmeRequest, error: unknown): void {
    const { queue } = request;
    if (error instanceof StatusError) queue.answer(request, { status: error.status });
    // The queue is gone: no host waits for the answer.
    else if (error instanceof RefusalError && error.code === 'ECONNRESET') return;
    else {
      this.counters.mediaErrors++;
      const isRead = (request.command as Command).name === 'READ';
      const status = isRead ? NvmeStatus.UNRECOVERED_READ_ERROR : NvmeStatus.WRITE_FAULT;
      queue.answer(request, { status: status | DO_NOT_RETRY });
    }
  }

  async #serve(request: NvmeRequest): Promise<void> {
    const command = request.command as Command;
    const { nsid, name } = command;
    const isForAll = nsid === NSID_ALL && name === 'FLUSH';
    if (nsid !== NSID && !isForAll) {
      throw new StatusError(NvmeStatus.INVALID_NAMESPACE | DO_NOT_RETRY);
    }
    switch (name) {
      case 'READ':
        return this.#read(request, command);
      case 'WRITE':
        return this.#write(request, command);
      case 'FLUSH':
        this.counters.flushes++;
        await this.#flush();
        await this.#delay({ kind: 'flush', offset: 0, length: 0 });
        return request.queue.answer(request, {});
      case 'WRITE_ZEROES':
        return this.#writeZeroes(request, command);
      case 'DATASET_MANAGEMENT':
        return this.#manage(request, command);
      default:
        throw new StatusError(NvmeStatus.INVALID_OPCODE | DO_NOT_RETRY);
    }
  }

  async #read(request: NvmeRequest, command: CommandOf<'READ'>): Promise<void> {
    const { store, staging } = this.#options;
    const [offset, length] = this.#range(command, request);
    if (request.sgl.kind !== 'keyed') {
      throw new StatusError(NvmeStatus.SGL_DESCRIPTOR_TYPE_INVALID | DO_NOT_RETRY);
    }
    this.counters.reads++;
    this.counters.blocksRead += command.nlb + 1;
    if (!staging) {
      await this.#delay({ kind: 'read', offset, length });
      return request.queue.answer(request, { data: this.#sgeAt(offset, length) });
    }
    const lease = await staging.take();
    try {
      await store.read(offset, lease.bytes.subarray(0, length));
      await this.#delay({ kind: 'read', offset, length });
    } catch (error) {
      lease.release();
      throw error;
    }
    request.queue.answer(request, { data: lease.sge(length), sent: lease.release });
  }

  async #write(request: NvmeRequest, command: CommandOf<'WRITE'>): Promise<void> {
    const { store, staging } = this.#options;
    const [offset, length] = this.#range(command, request);
    this.#checkWritable();
    const { sgl, inCapsule, queue } = request;
    this.counters.writes++;
    this.counters.blocksWritten += command.nlb + 1;
    if (sgl.kind === 'capsule') {
      this.counters.inCapsule++;
      if (sgl.offset !== 0 || length > inCapsule.length) {
        throw new StatusError(NvmeStatus.SGL_OFFSET_INVALID | DO_NOT_RETRY);
      }
      await store.write(offset, inCapsule.subarray(0, length));
    } else if (sgl.kind !== 'keyed') {
      throw new StatusError(NvmeStatus.SGL_DESCRIPTOR_TYPE_INVALID | DO_NOT_RETRY);
    } else if (!staging) {
      await queue.read(request, this.#sgeAt(offset, length));
      store.written?.(offset, length);
    } else {
      const lease: Lease = await staging.take();
      try {
        await queue.read(request, lease.sge(length));
        await store.write(offset, lease.bytes.subarray(0, length));
      } finally {
        lease.release();
      }
    }
    if (command.fua === 1) await this.#flush(offset, length);
    await this.#delay({ kind: 'write', offset, length });
    queue.answer(request, {});
  }

  async #writeZeroes(request: NvmeRequest, command: CommandOf<'WRITE_ZEROES'>): Promise<void> {
    const [offset, length] = this.#extent(command);
    this.#checkWritable();
    this.counters.writes++;
    this.counters.blocksWritten += command.nlb + 1;
    const { store } = this.#options;
    await this.#inSlices(request, offset, length, (at, count) => store.writeZeroes(at, count));
    if (command.fua === 1) await this.#flush(offset, length);
    request.queue.answer(request, {});
  }

  /** Of what a host says of ranges only one thing matters: that it needs them no more. */
  async #manage(request: NvmeRequest, command: CommandOf<'DATASET_MANAGEMENT'>): Promise<void> {
    const list = await this.#rangeList(request, (command.nr + 1) * RANGE_BYTES);
    this.#checkWritable();
    const extents: [number, number][] = [];
    for (let at = 0; at < list.length; at += RANGE_BYTES) {
      const blocks = readNumber(list, at + 4, 4);
      if (blocks > 0) extents.push(this.#extent({ slba: readWide(list, at + 8), nlb: blocks - 1 }));
    }
    const { store } = this.#options;
    const give = (at: number, count: number): Promise<void> =>
      store.deallocate?.(at, count) ?? store.writeZeroes(at, count);
    if (command.ad === 1) this.counters.deallocated += extents.length;
    for (const [offset, length] of command.ad === 1 ? mergeExtents(extents) : []) {
      await this.#inSlices(request, offset, length, give);
    }
    request.queue.answer(request, {});
  }

  /** Queues take turns. Rejects with RefusalError ECONNRESET when the queue ends meanwhile. */
  async #inSlices(
    { queue }: NvmeRequest,
    offset: number,
    length: number,
    work: (offset: number, length: number) => Promise<void>,
  ): Promise<void> {
    for (let done = 0; done < length; done += SLICE_BYTES) {
      await this.#slices.run(queue, () => {
        if (queue.reason !== undefined)
          throw new RefusalError('ECONNRESET', `execute: the queue is gone: ${queue.reason}`);
        return work(offset + done, Math.min(SLICE_BYTES, length - done));
      });
    }
  }

  /** A copy: what is in the host's memory, or in a capsule, may change. */
  async #rangeList(request: NvmeRequest, bytes: number): Promise<Uint8Array> {
    const { sgl, inCapsule, queue } = request;
    if (sgl.kind === 'none' || sgl.length < bytes) {
      throw new StatusError(NvmeStatus.DATA_SGL_LENGTH_INVALID | DO_NOT_RETRY);
    }
    if (sgl.kind === 'capsule') {
      if (sgl.offset !== 0 || bytes > inCapsule.length) {
        throw new StatusError(NvmeStatus.SGL_OFFSET_INVALID | DO_NOT_RETRY);
      }
      return inCapsule.slice(0, bytes);
    }
    const lease = await this.#options.lists.take();
    try {
      await queue.read(request, lease.sge(bytes));
      return lease.bytes.slice(0, bytes);
    } finally {
      lease.release();
    }
  }

  async #flush(offset?: number, length?: number): Promise<void> {
    this.#checkWritable();
    const { store } = this.#options;
    if (!store.isVolatile) return;
    try {
      await store.flush(offset, length);
    } catch (error) {
      this.#failure ??= error as Error;
      this.#options.onFailure(this.#failure);
      throw error;
    }
  }

  async #delay(request: StoreRequest): Promise<void> {
    const { delayMicros, clock } = this.#options;
    const micros = delayMicros?.(request) ?? 0;
    if (micros > 0) await new Promise<void>((done) => clock.at(clock.now() + micros, done));
  }

  #checkWritable(): void {
    if (this.#failure) throw new StatusError(NvmeStatus.NAMESPACE_WRITE_PROTECTED | DO_NOT_RETRY);
  }

  /** Blocks as bytes. Throws the status that says that they are not there. */
  #extent({ slba, nlb }: { readonly slba: bigint; readonly nlb: number }): [number, number] {
    const count = nlb + 1;
    // As 2^64 - 1 may be named, nothing is added to it.
    if (BigInt(count) > this.#blocks || slba > this.#blocks - BigInt(count)) {
      throw new StatusError(NvmeStatus.LBA_OUT_OF_RANGE | DO_NOT_RETRY);
    }
    const bytes = 2 ** this.#options.blockShift;
    return [Number(slba) * bytes, count * bytes];
  }

  /** The same of data that travel. */
  #range(
    command: { readonly slba: bigint; readonly nlb: number },
    { sgl }: NvmeRequest,
  ): [number, number] {
    const [offset, length] = this.#extent(command);
    if (length > this.#options.maxTransferBytes) {
      throw new StatusError(NvmeStatus.INVALID_FIELD | DO_NOT_RETRY);
    }
    if (sgl.kind === 'none' || sgl.length !== length) {
      throw new StatusError(NvmeStatus.DATA_SGL_LENGTH_INVALID | DO_NOT_RETRY);
    }
    return [offset, length];
  }

  #sgeAt(offset: number, length: number): Sge {
    const { lkey, addr } = this.#options.mr!;
    return { addr: addr + BigInt(offset), length, lkey };
  }
}
