/**
 * A remote namespace, as its host uses it: reads and writes blocks between the device's memory and
 * the target, each command with a region of a pool (seed 002). One I/O queue a volume.
 */
import { checkArray, checkKeys, checkObject } from '../base/options.js';
import { checkBytes } from '../errors/check-bytes.js';
import { checkFlag, mustBe } from '../errors/check-whole.js';
import { followAddress } from '../cm/follow-address.js';
import type { CancelTimer, Clock } from '../device/clock.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { lostAddress } from '../link/interface.js';
import type { FmrDesc } from '../pool/fmr-desc.js';
import type { FmrPool } from '../pool/fmr-pool.js';
import type { FmrPoolUser, FmrPoolUserStats } from '../pool/fmr-pool.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { Completions } from './completions.js';
import type { CommandName, Completion } from './command.js';
import { DO_NOT_RETRY, NvmeStatus } from './constants.js';
import { Association, type AssociationOptions } from './host-association.js';
import { HostQueue, type HostQueueCounters, type Io } from './host-queue.js';
import { NvmeError } from './nvme-error.js';
import { invalidateAll } from './reclaim.js';
import { writeNumber, writeWide } from './structure.js';

/** Event of a volume. */
export interface NvmeVolumeEvent {
  /**
   * `lost`: the target no longer answers. `reconnected`. `failed`: reconnecting was abandoned.
   * `reported`: the target reports an event, by type and information (Base 1.4 section 5.2).
   */
  readonly kind: 'lost' | 'reconnected' | 'failed' | 'reported';
  readonly reason: string;
}

/** @internal Checked, and with defaults. */
export interface VolumeOptions {
  readonly association: Omit<AssociationOptions, 'onEnd' | 'onEvent'>;
  readonly queueDepth: number;
  readonly nsid: number | undefined;
  readonly ioTimeoutMillis: number;
  readonly ctrlLossMillis: number;
  readonly reconnectDelayMillis: number;
  readonly onEvent: ((event: NvmeVolumeEvent) => void) | undefined;
  /** The device was opened for the volume, and is closed with it. */
  readonly ownContext: boolean;
  /** Nor was its address chosen: it goes to another one with this machine. */
  readonly follows: boolean;
}

/** @internal What a volume has of its pool: its own, its weight, and what of its own it lends. */
export interface RegionShare {
  readonly numMr: number;
  readonly weight: number;
  readonly lendMrs: number;
}

/** Counters of a volume since it was connected. */
export interface NvmeVolumeStats extends HostQueueCounters {
  /** Commands under way, and in line. */
  readonly busy: number;
  readonly queued: number;
  readonly reconnects: number;
  /** Commands that were submitted again after a reconnect. */
  readonly resubmitted: number;
  readonly regions: FmrPoolUserStats;
}

const MDTS_PAGE = 4096;
const WATCH_MICROS = 500_000;
/** Commands that change blocks. */
const CHANGING: ReadonlySet<CommandName> = new Set(['WRITE', 'WRITE_ZEROES', 'DATASET_MANAGEMENT']);
/** Blocks of a command, at most. */
const LBA_END = 1n << 64n;
/** Commands of `writeZeroes` under way. */
const ZERO_PARTS = 16;
const NLB_MAX = 65536;
/** Of one Dataset Management: ranges, and bytes of each. */
const RANGES_MAX = 256;
const RANGE_BYTES = 16;
const BLOCKS_MAX = 2 ** 32 - 1;

/** A namespace of a target, as an initiator has it (`connectNvme`). */
export class NvmeVolume {
  readonly context: Context;
  readonly pool: FmrPool;
  readonly nqn: string;
  /** Bytes of a block. */
  blockBytes = 0;
  blocks = 0n;
  nsid = 1;
  /** Of the target: does what was written need a flush to be durable? */
  isVolatile = false;
  /** Bytes that one command may move. */
  maxTransferBytes = 0;
  readonly #options: VolumeOptions;
  readonly #pd: ProtectionDomain;
  readonly #completions: Completions;
  readonly #user: FmrPoolUser;
  readonly #counters: HostQueueCounters = {
    ...{ submitted: 0, completed: 0, depthWaits: 0, regionWaits: 0, inCapsule: 0 },
    ...{ registrations: 0, remoteInvalidations: 0, localInvalidations: 0 },
  };
  #association: Association | undefined;
  #queue: HostQueue | undefined;
  /** While there is no queue: what waits for the next one. */
  #orphans: Io[] = [];
  #failure: Error | undefined;
  #closing: Promise<void> | undefined;
  /** `close` ends the attempt to reconnect that is under way. */
  readonly #ending = new AbortController();
  #reconnecting: Promise<void> = Promise.resolve();
  #reconnects = 0;
  #resubmitted = 0;
  /** Commands answered that changed blocks; those that a flush has made durable. */
  #changes = 0;
  #durableChanges = 0;
  /** The target went away, and may have lost some of them. */
  #isDoubtful = false;
  #reclaiming: Promise<void> = Promise.resolve();
  #idle: (() => void)[] = [];
  #inHand = 0;
  #cancelWatch: CancelTimer = () => {};

  private constructor(context: Context, user: FmrPoolUser, options: VolumeOptions) {
    const { pool } = user;
    this.context = context;
    this.pool = pool;
    this.nqn = options.association.nqn;
    this.#options = options;
    this.#pd = context.allocPd();
    this.#completions = new Completions(context);
    this.#user = user;
  }

  /** @internal Use `connectNvme()`. */
  static async open(
    context: Context,
    pool: FmrPool,
    { numMr, weight, lendMrs }: RegionShare,
    options: VolumeOptions,
    signal?: AbortSignal,
  ): Promise<NvmeVolume> {
    const user: FmrPoolUser = pool.createUser(numMr, {
      name: options.association.nqn,
      weight,
      reclaim: (wanted) => Math.min(wanted, lendMrs - user.stats.lent),
    });
    let volume: NvmeVolume;
    try {
      volume = new NvmeVolume(context, user, options);
    } catch (error) {
      user.destroy();
      throw error;
    }
    try {
      await volume.#establish(signal).catch((error: unknown) => {
        if (!wasCutOff(error)) throw error;
        return volume.#establish(signal);
      });
    } catch (error) {
      await volume.close();
      throw error;
    }
    volume.#watch();
    return volume;
  }

  get stats(): NvmeVolumeStats {
    return {
      ...this.#counters,
      busy: this.#queue?.busy ?? 0,
      queued: (this.#queue?.queued ?? 0) + this.#orphans.length,
      reconnects: this.#reconnects,
      resubmitted: this.#resubmitted,
      regions: this.#user.stats,
    };
  }

  /**
   * Reads blocks from `lba` on into `buffer`, memory of the device. Rejects with MisuseError (not
   * whole blocks, foreign memory), NvmeError (the target's status), RefusalError ECONNRESET (the
   * target is gone, and reconnecting was abandoned).
   */
  async read(lba: bigint | number, buffer: Uint8Array): Promise<void> {
    await this.#move('READ', 'read', lba, buffer, 0);
  }

  /** As `read`. `fua`: durable when it resolves. */
  async write(
    lba: bigint | number,
    buffer: Uint8Array,
    options: { readonly fua?: boolean } = {},
  ): Promise<void> {
    checkKeys('write', options, 'fua');
    const { fua = false } = options;
    checkFlag('fua', fua);
    await this.#move('WRITE', 'write', lba, buffer, Number(fua));
  }

  /** Zeros from `lba` on. Rejects as `read`; parts of more than 65,536 blocks may be zero then. */
  async writeZeroes(lba: bigint | number, blocks: number): Promise<void> {
    let first = this.#checkRange('WRITE_ZEROES', lba, blocks);
    const end = first + BigInt(blocks);
    while (first < end) {
      const parts: Promise<Completion>[] = [];
      // A target may refuse the first part of millions: the others are not sent.
      for (; first < end && parts.length < ZERO_PARTS; first += BigInt(NLB_MAX)) {
        const nlb = Math.min(NLB_MAX, Number(end - first)) - 1;
        parts.push(this.#submit('WRITE_ZEROES', { slba: first, nlb, fua: 0 }));
      }
      await Promise.all(parts);
    }
  }

  /**
   * Deallocates 1 to 256 ranges: their blocks become zeros, and release storage if the target
   * supports that. Rejects as `read`.
   */
  async deallocate(
    ranges: readonly { readonly lba: bigint | number; readonly blocks: number }[],
  ): Promise<void> {
    checkArray('ranges', ranges, 'objects with lba and blocks');
    if (ranges.length < 1 || ranges.length > RANGES_MAX) {
      throw new MisuseError('ranges', `must be 1 to ${RANGES_MAX}, got ${ranges.length}`);
    }
    for (const range of ranges) checkObject('deallocate', range, 'ranges');
    if (ranges.some(({ blocks }) => blocks > BLOCKS_MAX)) {
      throw new MisuseError('blocks', `must be at most ${BLOCKS_MAX} in a range`);
    }
    const checked = ranges.map(
      ({ lba, blocks }) => [this.#checkRange('DATASET_MANAGEMENT', lba, blocks), blocks] as const,
    );
    const list = this.context.alloc(ranges.length * RANGE_BYTES);
    for (const [index, [first, blocks]] of checked.entries()) {
      writeNumber(list, index * RANGE_BYTES, 4, 0);
      writeNumber(list, index * RANGE_BYTES + 4, 4, blocks);
      writeWide(list, index * RANGE_BYTES + 8, first);
    }
    try {
      const fields = { nr: ranges.length - 1, ad: 1 };
      await this.#submit('DATASET_MANAGEMENT', fields, list, 'write');
    } finally {
      if (!this.context.device.closed) this.context.free(list);
    }
  }

  /**
   * Resolves when earlier writes are durable. Rejects as `read`; and once with RefusalError EIO if
   * the target went away after unflushed writes, which it may have lost: write them again.
   */
  async flush(): Promise<void> {
    this.#tellDoubts();
    const changes = this.#changes;
    await this.#submit('FLUSH', {});
    // One that a target answers after its predecessor was lost says nothing of what that one had.
    this.#tellDoubts();
    this.#durableChanges = Math.max(this.#durableChanges, changes);
  }

  /** Waits for what is under way, says goodbye, and gives everything back. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  get #isClosing(): boolean {
    return this.#closing !== undefined;
  }

  async #close(): Promise<void> {
    // The field is set behind this call.
    await Promise.resolve();
    if (this.#inHand > 0 && this.#queue) {
      await new Promise<void>((resolve) => this.#idle.push(resolve));
    }
    this.#ending.abort(
      new RefusalError('ECONNRESET', 'volume: the volume is closed; connect again'),
    );
    await this.#reconnecting;
    this.#cancelWatch();
    await this.#association?.shutdown();
    this.#giveUp(new RefusalError('ECONNRESET', 'volume: the volume is closed; connect again'));
    await this.#reclaiming;
    if (!this.context.device.closed) {
      this.#user.destroy();
      this.#completions.close();
      this.#pd.dealloc();
    }
    if (this.#options.ownContext) await this.context.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #tellDoubts(): void {
    if (!this.#isDoubtful) return;
    this.#isDoubtful = false;
    const sentence = 'the target went away after writes that were not flushed';
    throw new RefusalError('EIO', `flush: ${sentence}; write them again`);
  }

  #checkRange(name: CommandName, lba: bigint | number, blocks: number): bigint {
    const isWhole = typeof lba === 'bigint' || Number.isSafeInteger(lba);
    const first = isWhole ? BigInt(lba) : -1n;
    if (first < 0n || first >= LBA_END) {
      throw mustBe('lba', 'a whole number from 0 to 2^64 - 1', lba);
    }
    if (!Number.isSafeInteger(blocks) || blocks < 1) {
      throw mustBe('blocks', 'a whole number from 1 to 2^53 - 1', blocks);
    }
    // Addresses of 64 bits would go on at block 0.
    if (first + BigInt(blocks) > LBA_END) {
      throw new NvmeError(name, NvmeStatus.LBA_OUT_OF_RANGE | DO_NOT_RETRY);
    }
    return first;
  }

  async #move(
    name: 'READ' | 'WRITE',
    direction: 'read' | 'write',
    lba: bigint | number,
    buffer: Uint8Array,
    fua: number,
  ): Promise<void> {
    const { blockBytes, maxTransferBytes } = this;
    checkBytes('buffer', buffer);
    if (buffer.length === 0 || buffer.length % blockBytes !== 0) {
      const rule = `must be whole blocks of ${blockBytes} bytes, got ${buffer.length}`;
      throw new MisuseError('buffer', rule);
    }
    if (buffer.buffer !== this.context.device.arena.memory.buffer) {
      throw new MisuseError('buffer', 'must be memory of the device (context.alloc)');
    }
    const first = this.#checkRange(name, lba, buffer.length / blockBytes);
    const command = (at: number): Promise<Completion> => {
      const part = buffer.subarray(at, at + maxTransferBytes);
      const slba = first + BigInt(at / blockBytes);
      const fields = { slba, nlb: part.length / blockBytes - 1, fua };
      return this.#submit(name, fields, part, direction);
    };
    if (buffer.length <= maxTransferBytes) {
      await command(0);
      return;
    }
    const parts: Promise<Completion>[] = [];
    for (let at = 0; at < buffer.length; at += maxTransferBytes) parts.push(command(at));
    // All of them, whatever the first says: the buffer is the caller's again afterwards.
    for (const part of await Promise.allSettled(parts)) {
      if (part.status === 'rejected') throw part.reason;
    }
  }

  #submit(
    name: CommandName,
    fields: Readonly<Record<string, number | bigint>>,
    buffer?: Uint8Array,
    direction?: 'read' | 'write',
  ): Promise<Completion> {
    if (this.#isClosing) return Promise.reject(new MisuseError('volume', 'is closed'));
    if (this.#failure) return Promise.reject(this.#failure);
    this.#inHand++;
    return new Promise<Completion>((resolve, reject) => {
      const io: Io = {
        name,
        fields: { ...fields, nsid: this.nsid },
        ...(buffer && { buffer }),
        ...(direction && { direction }),
        resolve: (completion) => {
          // At once: the queue may be lost in the same turn.
          if (CHANGING.has(name)) this.#changes++;
          this.#leave();
          if (completion.status === NvmeStatus.SUCCESS) resolve(completion);
          else reject(new NvmeError(name, completion.status));
        },
        reject: (error) => {
          this.#leave();
          reject(error);
        },
      };
      if (this.#queue) this.#queue.submit(io);
      else this.#orphans.push(io);
    });
  }

  #leave(): void {
    this.#inHand--;
    if (this.#inHand === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  async #establish(signal?: AbortSignal): Promise<void> {
    const { association: asked, queueDepth, nsid } = this.#options;
    let made: Association | undefined;
    const association = await Association.open(this.#pd, this.#completions, {
      ...{ ...asked, signal },
      // An association that was never established cannot be lost.
      onEnd: (reason) => made && this.#lost(made, reason),
      onEvent: (type, info) => this.#event('reported', `type ${type}, information ${info}`),
    });
    made = association;
    const connecting = association.connecting();
    try {
      await association.setQueueCount(1);
      const { identity } = association;
      const found = await association.activeNamespaces();
      const wanted = nsid ?? found[0];
      if (wanted === undefined || !found.includes(wanted)) {
        throw new RefusalError(
          'ENOENT',
          `connect: the target has no namespace ${wanted ?? ''}; choose another nsid`,
        );
      }
      const namespace = await association.identifyNamespace(wanted);
      this.nsid = wanted;
      if (namespace.ms !== 0 || namespace.lbads < 9 || namespace.lbads > 16) {
        throw new RefusalError(
          'EPROTO',
          `connect: the namespace has blocks of 2^${namespace.lbads} bytes with ` +
            `metadata of ${namespace.ms}; format it with 512 to 65536 bytes without ` +
            'metadata',
        );
      }
      this.blockBytes = 2 ** namespace.lbads;
      this.blocks = namespace.nsze;
      this.isVolatile = (identity.vwc & 1) !== 0;
      const limit = identity.mdts === 0 ? 2 ** 23 : MDTS_PAGE * 2 ** identity.mdts;
      this.maxTransferBytes = Math.min(limit, this.pool.params.maxLength, 2 ** 23);
      const depth = Math.min(queueDepth, identity.maxcmd === 0 ? queueDepth : identity.maxcmd - 1);
      const queue = await association.ioQueue({
        qid: 1,
        depth,
        user: this.#user,
        counters: this.#counters,
        ended: (_, unfinished, regions) => this.#unfinished(unfinished, regions),
      });
      if (queue.reason !== undefined) throw new RefusalError('ECONNRESET', queue.reason);
      this.#queue = queue;
      this.#association = association;
    } catch (error) {
      throw connecting.failed(error);
    } finally {
      connecting.over();
    }
  }

  /** The I/O queue is gone. */
  #unfinished(unfinished: readonly Io[], regions: readonly FmrDesc[]): void {
    this.#queue = undefined;
    this.#orphans.unshift(...unfinished);
    // Regions return to the pool after they are closed.
    this.#reclaiming = this.#reclaiming
      .then(() =>
        invalidateAll(
          this.#pd,
          regions.map(({ mr }) => mr),
        ),
      )
      .then(() => {
        if (this.context.device.closed) return;
        for (const desc of regions) this.#user.putMr(desc);
      });
  }

  #lost(association: Association, reason: string): void {
    if (this.#association !== association) return;
    this.#association = undefined;
    if (this.#isClosing) {
      this.#giveUp(new RefusalError('ECONNRESET', `volume: the target is gone: ${reason}`));
      return;
    }
    if (this.#changes > this.#durableChanges && this.isVolatile) this.#isDoubtful = true;
    this.#durableChanges = this.#changes;
    this.#event('lost', lostAddress(this.context.device.info) ?? reason);
    this.#reconnecting = this.#reconnect(reason);
  }

  async #reconnect(reason: string): Promise<void> {
    const { ctrlLossMillis, reconnectDelayMillis } = this.#options;
    const { clock } = this.context.device;
    const giveUpAt = clock.now() + ctrlLossMillis * 1000;
    let last: unknown = new RefusalError('ECONNRESET', `volume: the target is gone: ${reason}`);
    const late = new AbortController();
    const giveUp = (): void => late.abort(last);
    const cancelLate = giveUpAt < Infinity ? clock.at(giveUpAt, giveUp) : () => {};
    const signal = AbortSignal.any([this.#ending.signal, late.signal]);
    while (!this.#isClosing && !this.context.device.closed && clock.now() < giveUpAt) {
      await pause(clock, reconnectDelayMillis * 1000, signal);
      if (this.#isClosing || this.context.device.closed) break;
      try {
        await this.#reclaiming;
        const moved = this.#options.follows
          ? await followAddress(this.context, this.#options.association.address)
          : undefined;
        const { blocks, blockBytes } = this;
        await this.#establish(signal);
        if (this.blockBytes !== blockBytes || this.blocks < blocks) {
          const wrong = this.#association;
          this.#association = undefined;
          await wrong?.shutdown();
          throw new RefusalError('EIO', 'reconnect: another namespace came back; connect anew');
        }
        cancelLate();
        if (this.#isClosing) return;
        this.#reconnects++;
        this.#event('reconnected', moved === undefined ? '' : `this machine is at ${moved} now`);
        const again = this.#orphans.splice(0);
        this.#resubmitted += again.length;
        for (const io of again) {
          if (this.#queue) this.#queue.submit(io);
          else this.#orphans.push(io);
        }
        return;
      } catch (error) {
        last = error;
      }
    }
    cancelLate();
    const failure =
      last instanceof RefusalError
        ? last
        : new RefusalError('ECONNRESET', 'reconnect: the target is gone; connect anew');
    if (!this.#isClosing) this.#event('failed', failure.message);
    this.#giveUp(failure);
  }

  #giveUp(error: RefusalError): void {
    this.#failure ??= error;
    for (const io of this.#orphans.splice(0)) io.reject(error);
  }

  /** A command that takes too long means that its target is gone, whatever else it answers. */
  #watch(): void {
    const { clock } = this.context.device;
    this.#cancelWatch = clock.at(clock.now() + WATCH_MICROS, () => {
      if (this.#failure || this.context.device.closed) return;
      const oldest = this.#queue?.oldestMicros;
      const limit = this.#options.ioTimeoutMillis * 1000;
      if (oldest !== undefined && clock.now() - oldest > limit) {
        this.#queue!.close(`a command took more than ${this.#options.ioTimeoutMillis} ms`);
      }
      this.#watch();
    });
  }

  #event(kind: NvmeVolumeEvent['kind'], reason: string): void {
    try {
      this.#options.onEvent?.({ kind, reason });
    } catch {
      // Exceptions of onEvent are ignored.
    }
  }
}

/**
 * The target has ended a connection that it had accepted. Its packets may not arrive here: then its
 * answer to another request names a smaller path MTU (cm/path-mtus.ts).
 */
function wasCutOff(error: unknown): boolean {
  return error instanceof RefusalError && error.code === 'ECONNRESET';
}

/** Resolves after that time, or as `signal` is aborted. */
function pause(clock: Clock, micros: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = (): void => {
      cancel();
      signal.removeEventListener('abort', end);
      resolve();
    };
    const cancel = clock.at(clock.now() + micros, end);
    signal.addEventListener('abort', end);
  });
}
