/**
 * `ibv_comp_cntr`: how many operations completed, or their bytes, and how many failed, without an
 * entry in a queue for each (man ibv_create_comp_cntr).
 */
import { mustBe } from '../../errors/check-whole.js';
import {
  COMPLETION_COUNTER_SIZE,
  COUNTER_TABLE_SIZE,
  CompletionCounterLayout,
  QpState,
} from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { CompCntrType, QpAttachCompCntrOp } from '../constants.js';
import type { Context } from '../context.js';
import type { QueuePair } from './queue-pair.js';
import { checkMember } from '../../errors/check-member.js';

/** `ibv_comp_cntr_init_attr`. */
export interface CompCntrInitAttributes {
  /** A CompCntrType. Default WRS. */
  readonly type?: number;
}

/** `ibv_comp_cntr_caps`. */
export interface CompCntrCaps {
  readonly maxValue: bigint;
  readonly maxCounters: number;
  /** Bits of QpAttachCompCntrOp. */
  readonly supportedQpAttachOps: number;
}

const ALL_OPS = Object.values(QpAttachCompCntrOp).reduce((mask, bit) => mask | bit, 0);
const MAX_VALUE = (1n << 64n) - 1n;

export function queryCompCntrCaps(context: Context): CompCntrCaps {
  // Nothing limits them but the device's memory.
  const maxCounters = Math.floor(context.device.limits.memoryBytes / COMPLETION_COUNTER_SIZE);
  return { maxValue: MAX_VALUE, maxCounters, supportedQpAttachOps: ALL_OPS };
}

/**
 * `struct ibv_comp_cntr`: counts what completes, without an entry for each
 * (`context.createCompCntr`).
 */
export class CompletionCounter {
  readonly #struct: Struct<typeof CompletionCounterLayout>;
  #attached = 0;
  #destroyed = false;

  private constructor(
    readonly context: Context,
    /** A CompCntrType. */
    readonly type: number,
    /** @internal Address of the engine's struct. */
    readonly handle: number,
  ) {
    this.#struct = structAt(context.device.arena.memory, CompletionCounterLayout, handle);
    this.#struct.bytes = type === CompCntrType.BYTES ? 1 : 0;
    context.resources.add(this);
  }

  /** @internal Use `context.createCompCntr()`. */
  static create(context: Context, attributes: CompCntrInitAttributes): CompletionCounter {
    checkKeys('createCompCntr', attributes, 'type');
    const { type = CompCntrType.WRS } = attributes;
    if (type !== CompCntrType.WRS && type !== CompCntrType.BYTES) {
      throw mustBe('type', 'a CompCntrType', type);
    }
    const handle = context.device.arena.heap.alloc(COMPLETION_COUNTER_SIZE);
    return new CompletionCounter(context, type, handle);
  }

  /** `ibv_read_comp_cntr`: completed requests, or their bytes. */
  read(): bigint {
    this.check();
    return this.#struct.value;
  }

  /** `ibv_read_err_comp_cntr`: requests that completed with an error. */
  readErr(): bigint {
    this.check();
    return this.#struct.errors;
  }

  /** `ibv_set_comp_cntr`. Throws MisuseError for what is no u64. */
  set(value: bigint): void {
    this.#struct.value = this.#checked(value);
  }

  /** `ibv_set_err_comp_cntr`. */
  setErr(value: bigint): void {
    this.#struct.errors = this.#checked(value);
  }

  /** `ibv_inc_comp_cntr`: wraps at 2^64. */
  inc(amount: bigint): void {
    this.#struct.value = (this.read() + this.#checked(amount)) & MAX_VALUE;
  }

  /** `ibv_inc_err_comp_cntr`. */
  incErr(amount: bigint): void {
    this.#struct.errors = (this.readErr() + this.#checked(amount)) & MAX_VALUE;
  }

  /** `ibv_destroy_comp_cntr`. Throws RefusalError EBUSY while a queue pair counts with it. */
  destroy(): void {
    this.check();
    if (this.#attached > 0)
      throw new RefusalError('EBUSY', 'destroy: a queue pair uses the counter; destroy it first');
    this.#destroyed = true;
    this.context.resources.delete(this);
    this.context.device.arena.heap.free(this.handle);
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  /** @internal */
  check(): void {
    if (this.#destroyed) throw new MisuseError('completion counter', 'is destroyed');
    this.context.checkOpen();
  }

  /** @internal */
  attached(change: 1 | -1): void {
    this.#attached += change;
  }

  #checked(value: bigint): bigint {
    this.check();
    if (typeof value === 'bigint' && value >= 0n && value <= MAX_VALUE) return value;
    throw mustBe('value', 'a bigint from 0 to 2^64 - 1', value);
  }
}

/** The counters of one queue pair, by operation. */
export class AttachedCounters {
  readonly #qp: QueuePair;
  readonly #table: number;
  readonly #counters: CompletionCounter[] = [];
  #mask = 0;

  constructor(qp: QueuePair) {
    const { arena } = qp.pd.context.device;
    this.#qp = qp;
    this.#table = arena.heap.alloc(COUNTER_TABLE_SIZE);
    arena.exports.setQpCounters(qp.handle, this.#table);
  }

  attach(counter: CompletionCounter, opMask: number): void {
    checkMember('counter', counter, 'attached', 'a counter of context.createCompCntr');
    const { context } = this.#qp.pd;
    counter.check();
    if (counter.context !== context)
      throw new MisuseError('counter', 'must be of the same context');
    if (!Number.isInteger(opMask) || opMask === 0) {
      throw mustBe('opMask', 'made of QpAttachCompCntrOp', opMask);
    }
    if (opMask & ~ALL_OPS) {
      throw new RefusalError(
        'EOPNOTSUPP',
        `attachCompCntr: opMask ${opMask} has an unknown bit; leave it out`,
      );
    }
    if (this.#qp.state > QpState.INIT) {
      throw new RefusalError(
        'EINVAL',
        'attachCompCntr: the queue pair must be in RESET or INIT; reset it first',
      );
    }
    if (opMask & this.#mask) {
      throw new RefusalError(
        'EBUSY',
        'attachCompCntr: another counter has an operation of opMask; leave it out',
      );
    }
    const { words } = context.device.arena.memory;
    for (const bit of Object.values(QpAttachCompCntrOp)) {
      if (opMask & bit) words[(this.#table >>> 2) + Math.log2(bit)] = counter.handle;
    }
    this.#mask |= opMask;
    this.#counters.push(counter);
    counter.attached(1);
  }

  /** The queue pair is gone. */
  release(): void {
    for (const counter of this.#counters) counter.attached(-1);
    this.#qp.pd.context.device.arena.heap.free(this.#table);
  }
}
