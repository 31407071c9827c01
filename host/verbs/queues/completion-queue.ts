/** `ibv_cq` and `ibv_wc`. Completions are read where the engine wrote them. */
import {
  CqNotify,
  Errno,
  RING_HEADER_SIZE,
  WORK_COMPLETION_SIZE,
  WorkCompletionLayout,
} from '#build/abi.js';
import { MAX_CQE, NUM_COMP_VECTORS } from '../limits.js';
import { checkWhole, mustBe, shown } from '../../errors/check-whole.js';
import { checkObject } from '../../base/options.js';
import { checkWait, watchLimits, type WaitLimits } from '../../base/wait-limits.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { nextTurn } from '../../link/next-turn.js';
import type { CompletionChannel } from './completion-channel.js';
import type { Context } from '../context.js';
import type { Device } from '../../device/device.js';
import { heapMemory, type QueueMemory } from './queue-memory.js';
import { refuse, taken } from '../refuse.js';
import { WaitLooks } from './wait-looks.js';
import type { WorkCompletion } from './work-completion.js';

const FIELD = WorkCompletionLayout.fields;
const RING_TAIL = 64;
const WORD = (field: keyof typeof FIELD): number => FIELD[field][0] >>> 2;
const WR_ID = WORD('wrId');
const TIMESTAMP = WORD('timestamp');
const STATUS = WORD('status');
const OPCODE = WORD('opcode');
const BYTE_LENGTH = WORD('byteLength');
const QPN = WORD('qpn');
const SOURCE_QP = WORD('sourceQp');
const SOURCE_PORT = WORD('sourcePort');
const FLAGS = WORD('flags');
const IMMEDIATE = WORD('immediate');
const VENDOR_ERROR = WORD('vendorError');

/** A woken waiter takes up to this number, and its posts leave together. */
const WAIT_COUNT = 64;
/** A wait that always succeeds yields to the event loop at this interval. */
const TURN_MICROS = 2000;

/** Of a wait with limits: the reason of its end. */
interface EndedWait {
  failure: { readonly reason: unknown } | undefined;
}

/** `struct ibv_cq`: where work completes (`context.createCq`). IBA 10.8. */
export class CompletionQueue {
  readonly #memory: QueueMemory;
  readonly #device: Device;
  #ring: number;
  readonly #words: Uint32Array;
  readonly #waiting: (() => void)[] = [];
  /** @internal Called at once, inside the run loop, when the armed queue has something. */
  onEvent: (() => void) | undefined;
  /** Of the event loop, as far as `wait` knows. */
  #turnedAt = 0;
  #destroyed = false;

  protected constructor(
    readonly context: Context,

    /** Address of the engine's struct. */
    readonly handle: number,
    ring: number,

    /** Capacity: at least the requested number of completions. */
    public cqe: number,
    readonly channel: CompletionChannel | undefined,
    memory: QueueMemory,
  ) {
    this.#memory = memory;
    this.#device = context.device;
    this.#ring = ring;
    this.#words = context.device.arena.memory.words;
  }

  /** @internal Use `context.createCq()`. */
  static create(
    context: Context,
    cqe: number,
    channel?: CompletionChannel,
    compVector = 0,
    memory: QueueMemory = heapMemory(context.device.arena.heap),
  ): CompletionQueue {
    const { arena, engine, limits } = context.device;
    const entries = cqEntries(cqe);
    if (channel && channel.context !== context) {
      throw new MisuseError('channel', 'must be a completion channel of the same context');
    }
    channel?.check();
    if (!Number.isInteger(compVector) || compVector < 0 || compVector >= NUM_COMP_VECTORS) {
      throw new RefusalError('EINVAL', `createCq: compVector must be 0, got ${shown(compVector)}`);
    }
    const ring = memory.take(arena.exports.cqBytes(entries), 'CQ');
    const handle = arena.exports.createCq(engine.context, ring, entries);
    if (handle === 0) {
      memory.giveBack(ring, 'CQ');
      throw new RefusalError(
        'ENOMEM',
        `createCq: ${taken(`${limits.completionQueuesMax} completion queues`)}`,
      );
    }
    const queue = new this(context, handle, ring, entries, channel, memory);
    channel?.add(queue);
    return queue;
  }

  /** `ibv_poll_cq`: up to `count` completions, oldest first. */
  poll(count: number): WorkCompletion[] {
    return this.#poll(count, false);
  }

  /** `again`: the caller does nothing else until there is something, or it arms the queue. */
  #poll(count: number, again: boolean): WorkCompletion[] {
    this.#check();
    if (!Number.isInteger(count) || count < 0) {
      throw mustBe('count', 'a whole number from 0 on', count);
    }
    const completions: WorkCompletion[] = [];
    const words = this.#words;
    const tail = (this.#ring + RING_TAIL) >>> 2;
    let index = words[tail]!;
    let head = Atomics.load(words, this.#ring >>> 2);
    if (head === index && count > 0) {
      const device = this.#device;
      device.poll(again);
      head = Atomics.load(words, this.#ring >>> 2);
      if (head === index) device.settle();
    }
    // Another thread wrote the tail: the ring never holds more than its capacity.
    if ((head - index) >>> 0 > this.cqe) index = (head - this.cqe) >>> 0;
    while (completions.length < count && index !== head) {
      const offset = RING_HEADER_SIZE + (index & (this.cqe - 1)) * WORK_COMPLETION_SIZE;
      const at = (this.#ring + offset) >>> 2;
      // Number 0: its queue pair was reset or destroyed, and the completion with it.
      if (words[at + QPN] !== 0) completions.push(this.#read(at));
      index = (index + 1) >>> 0;
    }
    Atomics.store(words, tail, index);
    return completions;
  }

  /** @internal The oldest completion's place in memory (in words), which it keeps; -1: none. */
  protected oldest(): number {
    this.#check();
    const words = this.#words;
    const tail = (this.#ring + RING_TAIL) >>> 2;
    const head = words[this.#ring >>> 2]!;
    if ((head - words[tail]!) >>> 0 > this.cqe) words[tail] = head - this.cqe;
    for (; words[tail] !== head; words[tail]! += 1) {
      const index = words[tail]! & (this.cqe - 1);
      const at = (this.#ring + RING_HEADER_SIZE + index * WORK_COMPLETION_SIZE) >>> 2;
      // Of a queue pair that was reset or destroyed meanwhile.
      if (words[at + QPN] !== 0) return at;
    }
    return -1;
  }

  /** @internal The oldest completion is taken. */
  protected takeOldest(): void {
    this.#words[(this.#ring + RING_TAIL) >>> 2]! += 1;
  }

  /**
   * `ibv_modify_cq`: moderation, that is fewer events than completions. Throws RefusalError
   * EOPNOTSUPP for any: an event of this device is no interrupt, and `cqModCaps` says 0.
   */
  modify(moderation: { readonly cqCount: number; readonly cqPeriodMicros: number }): void {
    this.#check();
    checkObject('modify', moderation, 'moderation');
    const { cqCount, cqPeriodMicros } = moderation;
    if (cqCount === 0 && cqPeriodMicros === 0) return;
    throw new RefusalError('EOPNOTSUPP', 'modify: this device has no event moderation; pass 0');
  }

  /**
   * `ibv_req_notify_cq`: the next completion (or, `solicitedOnly`, the next solicited receive or
   * error) wakes `wait`. One shot; a completion that came before does not count, so poll again
   * after arming.
   */
  reqNotify(solicitedOnly = false): void {
    this.#check();
    const { arena } = this.context.device;
    arena.exports.reqNotifyCq(this.handle, solicitedOnly ? CqNotify.SOLICITED : CqNotify.ANY);
  }

  /**
   * At least one completion, at most `count` (default 64); waits for it. An empty list means that
   * the context was closed, or its link failed (`context.failure`). A wait that ends by a limit has
   * taken no completion. Rejects with MisuseError, also when the queue is destroyed meanwhile (by
   * `close` of its connection); RefusalError ETIMEDOUT; the reason of `signal`.
   */
  async wait(count = WAIT_COUNT, limits?: WaitLimits): Promise<WorkCompletion[]> {
    let completions: WorkCompletion[] = [];
    const take = (taken: WorkCompletion[]): void => void (completions = taken);
    checkWhole('count', count, 1);
    if (limits === undefined) await this.waitInto(count, take);
    else await this.#waitWithin(count, limits, take);
    return completions;
  }

  #waitWithin(
    count: number,
    limits: WaitLimits,
    take: (completions: WorkCompletion[]) => void,
  ): Promise<void> {
    checkWait('wait', limits);
    const ended: EndedWait = { failure: undefined };
    const late = (): RefusalError =>
      new RefusalError(
        'ETIMEDOUT',
        `wait: no completion within ${limits.timeout} ms; raise timeout, or check the peer`,
      );
    const cleanUp = watchLimits(limits, late, (reason) => {
      ended.failure = { reason };
      this.notify();
    });
    return this.waitInto(count, take, ended).finally(cleanUp);
  }

  /**
   * @internal The same; `take` receives the completions as they are removed. A promise resolves a
   * moment later, and code that polls the queue meanwhile finds later completions. Rejects with the
   * failure of `ended`.
   */
  async waitInto(
    count: number,
    take: (completions: WorkCompletion[]) => void,
    ended?: EndedWait,
  ): Promise<void> {
    const { device } = this.context;
    const waitLooks = new WaitLooks(device);
    for (;;) {
      const now = device.clock.now();
      // Before anything is taken: it would be old by the time it is heard of.
      if (now - this.#turnedAt > TURN_MICROS) {
        await this.#turn();
        continue;
      }
      const looks = waitLooks.goOn(now);
      let completions = this.#poll(count, looks);
      if (completions.length > 0) {
        waitLooks.found(now);
        return take(completions);
      }
      if (device.closed || this.context.failure) return take(completions);
      if (ended?.failure) throw ended.failure.reason;
      if (device.polled || looks) {
        if (looks && waitLooks.pause(now, this.#turnedAt)) continue;
        // No event wakes this thread: the waiter looks again in the next turn of the event loop.
        await this.#turn();
        continue;
      }
      const woken = new Promise<void>((resolve) => this.#waiting.push(resolve));
      this.reqNotify();
      completions = this.poll(count);
      if (completions.length > 0) return take(completions);
      await woken;
    }
  }

  async #turn(): Promise<void> {
    await new Promise<void>(nextTurn);
    this.#turnedAt = this.#device.clock.now();
  }

  /** Yields completions one by one until the context is closed or the queue is destroyed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<WorkCompletion, void, undefined> {
    try {
      for (let batch = await this.wait(); batch.length > 0; batch = await this.wait()) yield* batch;
    } catch (error) {
      // The queue was destroyed during the wait: the loop ends without an error.
      if (!this.#destroyed) throw error;
    }
  }

  /**
   * `ibv_resize_cq`: what was not polled stays, in order. Throws MisuseError; RefusalError EINVAL
   * when more is unpolled than would fit, or the queue has overflowed; ENOMEM.
   */
  resize(cqe: number): void {
    this.#check();
    const entries = cqEntries(cqe);
    const { arena } = this.context.device;
    const ring = this.#memory.take(arena.exports.cqBytes(entries), 'CQ');
    const errno = arena.exports.resizeCq(this.handle, ring, entries);
    if (errno !== Errno.OK) this.#memory.giveBack(ring, 'CQ');
    refuse(errno, 'resize', {
      EINVAL: `unpolled completions do not fit into ${entries}, or the queue has overflowed; poll first`,
    });
    this.#memory.giveBack(this.#ring, 'CQ');
    this.#ring = ring;
    this.cqe = entries;
  }

  /** `ibv_destroy_cq`. Throws RefusalError EBUSY while a queue pair uses it. */
  destroy(): void {
    this.#check();
    const { arena, engine } = this.context.device;
    refuse(arena.exports.destroyCq(engine.context, this.handle), 'destroy', {
      EBUSY: 'a queue pair uses this completion queue; destroy it first',
    });
    this.#destroyed = true;
    this.context.removeQueue(this);
    this.channel?.remove(this);
    this.#memory.giveBack(this.#ring, 'CQ');
    this.notify();
  }

  #check(): void {
    if (!this.#destroyed) return;
    throw new MisuseError('completion queue', 'is destroyed, as by close of its connection');
  }

  /** @internal */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  /** @internal An armed queue has a completion. */
  event(): void {
    this.onEvent?.();
    this.channel?.push(this);
    this.notify();
  }

  /** @internal Wakes the waiters. */
  notify(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** @internal The context is closed. */
  closed(): void {
    this.notify();
  }

  #read(at: number): WorkCompletion {
    const words = this.#words;
    const flags = words[at + FLAGS]!;
    const immediate = words[at + IMMEDIATE]!;
    return {
      wrId: BigInt(words[at + WR_ID]!) | (BigInt(words[at + WR_ID + 1]!) << 32n),
      status: words[at + STATUS]!,
      opcode: words[at + OPCODE]!,
      byteLen: words[at + BYTE_LENGTH]!,
      qpNum: words[at + QPN]!,
      srcQp: words[at + SOURCE_QP]!,
      srcPort: words[at + SOURCE_PORT]!,
      wcFlags: flags,
      immData: immediate,
      invalidatedRkey: immediate,
      vendorErr: words[at + VENDOR_ERROR]!,
      timestampMicros: words[at + TIMESTAMP]! + words[at + TIMESTAMP + 1]! * 2 ** 32,
    };
  }
}

/** Entries of a ring with room for `cqe` completions. */
function cqEntries(cqe: number): number {
  checkWhole('cqe', cqe, 1, MAX_CQE);
  return 2 ** Math.ceil(Math.log2(cqe));
}
