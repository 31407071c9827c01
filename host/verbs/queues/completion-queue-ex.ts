/**
 * `ibv_cq_ex`: completions are read in place, field by field, limited to the fields that were
 * requested at creation (man ibv_create_cq_ex).
 */
import { WorkCompletionLayout } from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { CompletionChannel } from './completion-channel.js';
import { CompletionQueue } from './completion-queue.js';
import type { WorkCompletion } from './work-completion.js';
import { CreateCqAttrFlag, WC_STANDARD_FLAGS, WcExWith } from '../constants.js';
import type { Context } from '../context.js';
import type { ParentDomain } from '../domains/parent-domain.js';

/** `ibv_cq_init_attr_ex`. */
export interface CqInitAttributesEx {
  /** Requested capacity in completions. */
  readonly cqe: number;
  readonly channel?: CompletionChannel;
  readonly compVector?: number;
  /** Made of WcExWith. Default WC_STANDARD_FLAGS. */
  readonly wcFlags?: number;
  /** Made of CreateCqAttrFlag. */
  readonly flags?: number;
  /** The queue's memory comes from its allocators. */
  readonly parentDomain?: ParentDomain;
}

const WC_FLAGS =
  WC_STANDARD_FLAGS | WcExWith.COMPLETION_TIMESTAMP | WcExWith.COMPLETION_TIMESTAMP_WALLCLOCK;
const CQ_FLAGS = CreateCqAttrFlag.SINGLE_THREADED | CreateCqAttrFlag.IGNORE_OVERRUN;

const FIELD = WorkCompletionLayout.fields;
const WORD = (field: keyof typeof FIELD): number => FIELD[field][0] >>> 2;
const WR_ID = WORD('wrId');
const TIMESTAMP = WORD('timestamp');
const STATUS = WORD('status');
const OPCODE = WORD('opcode');
const BYTE_LENGTH = WORD('byteLength');
const QPN = WORD('qpn');
const SOURCE_QP = WORD('sourceQp');
const FLAGS = WORD('flags');
const IMMEDIATE = WORD('immediate');
const VENDOR_ERROR = WORD('vendorError');
const NANOS_PER_MICRO = 1000n;

/**
 * `struct ibv_cq_ex`: a completion queue that is read field by field, with timestamps
 * (`context.createCqEx`).
 */
export class CompletionQueueEx extends CompletionQueue {
  /** Fields of its completions: bits of WcExWith. */
  wcFlags = 0;
  readonly #words: Uint32Array = this.context.device.arena.memory.words;
  /** The completion that is read; -1: none. */
  #current = -1;
  #polling = false;

  /** @internal Use `context.createCqEx()`. */
  static createEx(context: Context, attributes: CqInitAttributesEx): CompletionQueueEx {
    checkKeys('createCqEx', attributes, 'cqe channel compVector wcFlags flags parentDomain');
    const { cqe, channel, compVector, parentDomain, flags = 0 } = attributes;
    const { wcFlags = WC_STANDARD_FLAGS } = attributes;
    if (wcFlags & ~WC_FLAGS) {
      throw new RefusalError(
        'EOPNOTSUPP',
        `createCqEx: wcFlags 0x${wcFlags.toString(16)} has an unknown bit; leave it out`,
      );
    }
    if (flags & ~CQ_FLAGS) {
      throw new RefusalError(
        'EOPNOTSUPP',
        `createCqEx: flags ${flags} has an unknown bit; leave it out`,
      );
    }
    if (parentDomain && parentDomain.context !== context) {
      throw new MisuseError('parentDomain', 'must be of the same context');
    }
    const memory = parentDomain?.queueMemory;
    const queue = this.create(context, cqe, channel, compVector, memory) as CompletionQueueEx;
    queue.wcFlags = wcFlags;
    if (flags & CreateCqAttrFlag.IGNORE_OVERRUN) {
      context.device.arena.exports.setCqIgnoreOverrun(queue.handle, 1);
    }
    return queue;
  }

  /**
   * `ibv_start_poll`: true if there is a completion, which `wrId`, `status` and the `wcRead…`
   * methods describe until `endPoll`. False (ENOENT): the queue is empty, and no `endPoll` follows.
   */
  startPoll(): boolean {
    if (this.#polling)
      throw new MisuseError('startPoll', 'is not valid during a poll: call endPoll first');
    this.#current = this.oldest();
    this.#polling = this.#current >= 0;
    return this.#polling;
  }

  /**
   * `ibv_next_poll`: moves to the next one. False (ENOENT): the queue is empty; `endPoll` must
   * follow.
   */
  nextPoll(): boolean {
    this.#checkPolling('nextPoll');
    if (this.#current >= 0) this.takeOldest();
    this.#current = this.oldest();
    return this.#current >= 0;
  }

  /** `ibv_end_poll`: what was read is taken. */
  endPoll(): void {
    this.#checkPolling('endPoll');
    if (this.#current >= 0) this.takeOldest();
    this.#current = -1;
    this.#polling = false;
  }

  override poll(count: number): WorkCompletion[] {
    this.#checkIdle('poll');
    return super.poll(count);
  }

  override resize(cqe: number): void {
    this.#checkIdle('resize');
    super.resize(cqe);
  }

  override destroy(): void {
    this.#checkIdle('destroy');
    super.destroy();
  }

  /** `ibv_cq_ex.wr_id`. */
  get wrId(): bigint {
    return this.#u64(WR_ID);
  }

  /** `ibv_cq_ex.status`: a WcStatus. On error only wrId, status, qpNum and vendorErr are valid. */
  get status(): number {
    return this.#word(STATUS);
  }

  /** A WcOpcode. */
  wcReadOpcode(): number {
    return this.#word(OPCODE);
  }

  /** On error: the syndrome of the NAK that caused it, or 0. */
  wcReadVendorErr(): number {
    return this.#word(VENDOR_ERROR);
  }

  /** Made of WcFlag. */
  wcReadWcFlags(): number {
    return this.#word(FLAGS);
  }

  /** Receives: bytes of the message. */
  wcReadByteLen(): number {
    return this.#asked(WcExWith.BYTE_LEN, 'BYTE_LEN', BYTE_LENGTH);
  }

  /** The four bytes of immediate data as a big-endian number. */
  wcReadImmData(): number {
    return this.#asked(WcExWith.IMM, 'IMM', IMMEDIATE);
  }

  /** The key that a SEND_WITH_INV invalidated. */
  wcReadInvalidatedRkey(): number {
    return this.#asked(WcExWith.IMM, 'IMM', IMMEDIATE);
  }

  wcReadQpNum(): number {
    return this.#asked(WcExWith.QP_NUM, 'QP_NUM', QPN);
  }

  wcReadSrcQp(): number {
    return this.#asked(WcExWith.SRC_QP, 'SRC_QP', SOURCE_QP);
  }

  /** Always 0: RoCE has no LIDs. */
  wcReadSlid(): number {
    return this.#absent(WcExWith.SLID, 'SLID');
  }

  /** Always 0: no service level arrives over UDP. */
  wcReadSl(): number {
    return this.#absent(WcExWith.SL, 'SL');
  }

  /** Always 0: RoCE has no LIDs. */
  wcReadDlidPathBits(): number {
    return this.#absent(WcExWith.DLID_PATH_BITS, 'DLID_PATH_BITS');
  }

  /** Nanoseconds of the device's clock (`queryRtValuesEx`), in steps of 1000. */
  wcReadCompletionTs(): bigint {
    this.#checkAsked(WcExWith.COMPLETION_TIMESTAMP, 'COMPLETION_TIMESTAMP');
    return this.#u64(TIMESTAMP) * NANOS_PER_MICRO;
  }

  /** Nanoseconds since 1970. */
  wcReadCompletionWallclockNs(): bigint {
    const flag = WcExWith.COMPLETION_TIMESTAMP_WALLCLOCK;
    this.#checkAsked(flag, 'COMPLETION_TIMESTAMP_WALLCLOCK');
    return this.context.device.wallclockNanos(Number(this.#u64(TIMESTAMP)));
  }

  #word(field: number): number {
    if (this.#current < 0)
      throw new MisuseError('completion', 'is not available: call startPoll first');
    return this.#words[this.#current + field]!;
  }

  #u64(field: number): bigint {
    return BigInt(this.#word(field)) | (BigInt(this.#word(field + 1)) << 32n);
  }

  #asked(flag: number, name: string, field: number): number {
    this.#checkAsked(flag, name);
    return this.#word(field);
  }

  #absent(flag: number, name: string): number {
    this.#checkAsked(flag, name);
    this.#word(STATUS);
    return 0;
  }

  #checkAsked(flag: number, name: string): void {
    if (this.wcFlags & flag) return;
    throw new MisuseError('wcFlags', `must include WcExWith.${name} at creation of the queue`);
  }

  #checkPolling(verb: string): void {
    if (!this.#polling)
      throw new MisuseError(verb, 'is only valid during a poll: call startPoll first');
  }

  #checkIdle(verb: string): void {
    if (this.#polling)
      throw new MisuseError(verb, 'is not valid during a poll: call endPoll first');
  }
}
