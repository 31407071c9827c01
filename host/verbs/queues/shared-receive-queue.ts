/** `ibv_srq`: one receive queue for many queue pairs. */
import { Errno, SharedReceiveQueueLayout } from '#build/abi.js';
import { structAt } from '../../engine/struct.js';
import { checkKeys } from '../../base/options.js';
import { checkWhole } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { MAX_SGE, MAX_SRQ_WR } from '../limits.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import { refuse, taken } from '../refuse.js';
import { ReceiveRing, type ReceiveWorkRequest } from './work-request.js';

/** `ibv_srq_init_attr`. */
export interface SrqInitAttributes {
  /** Requests. Default 128. */
  readonly maxWr?: number;
  /** Default 4. */
  readonly maxSge?: number;
  /** Armed limit: one SRQ_LIMIT_REACHED event when fewer requests are left. Default 0: none. */
  readonly srqLimit?: number;
}

/** `struct ibv_srq`: receives that queue pairs share (`pd.createSrq`). IBA 10.2.9. */
export class SharedReceiveQueue {
  #memory: number;
  #ring: ReceiveRing;
  #destroyed = false;

  private constructor(
    readonly pd: ProtectionDomain,

    /** Address of the engine's struct. */
    readonly handle: number,
    memory: number,

    /** Granted capacity: at least the requested one. */
    public maxWr: number,
    readonly maxSge: number,
  ) {
    this.#memory = memory;
    this.#ring = new ReceiveRing(pd.context.device.arena.memory, memory, maxWr, maxSge, 'maxWr');
  }

  /** @internal Use `pd.createSrq()`. */
  static create(pd: ProtectionDomain, attributes: SrqInitAttributes): SharedReceiveQueue {
    const { arena, engine, limits } = pd.context.device;
    const wanted = attributes.maxWr ?? 128;
    const maxSge = attributes.maxSge ?? 4;
    checkWhole('maxWr', wanted, 1, MAX_SRQ_WR);
    checkWhole('maxSge', maxSge, 1, MAX_SGE);
    const maxWr = 2 ** Math.ceil(Math.log2(wanted));
    checkWhole('srqLimit', attributes.srqLimit ?? 0, 0, maxWr);
    const memory = pd.queueMemory.take(arena.exports.srqBytes(maxWr, maxSge), 'SRQ');
    const handle = arena.exports.createSrq(engine.context, pd.handle, memory, maxWr, maxSge);
    if (handle === 0) {
      pd.queueMemory.giveBack(memory, 'SRQ');
      throw new RefusalError(
        'ENOMEM',
        `createSrq: ${taken(`${limits.sharedReceiveQueuesMax} shared receive queues`)}`,
      );
    }
    arena.exports.setSrqLimit(handle, attributes.srqLimit ?? 0);
    const srq = new SharedReceiveQueue(pd, handle, memory, maxWr, maxSge);
    pd.context.addObject(handle, srq);
    pd.resources.add(srq);
    return srq;
  }

  /** `ibv_post_srq_recv`: as `qp.postRecv`. */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): void {
    this.#check();
    this.#ring.post(requests, ignore);
  }

  /**
   * `ibv_modify_srq`: `maxWr` makes room for that many requests, those that are posted stay;
   * `srqLimit` arms the limit anew, 0 disarms it. Throws MisuseError; RefusalError EINVAL when
   * more requests are posted than would fit, ENOMEM.
   */
  modify(attributes: { readonly maxWr?: number; readonly srqLimit?: number }): void {
    this.#check();
    checkKeys('modify', attributes, 'maxWr srqLimit');
    const { maxWr = this.maxWr, srqLimit } = attributes;
    checkWhole('maxWr', maxWr, 1, MAX_SRQ_WR);
    const entries = 2 ** Math.ceil(Math.log2(maxWr));
    if (srqLimit !== undefined) checkWhole('srqLimit', srqLimit, 0, entries);
    if (entries !== this.maxWr) this.#resize(entries);
    if (srqLimit !== undefined) {
      this.pd.context.device.arena.exports.setSrqLimit(this.handle, srqLimit);
    }
  }

  /** `ibv_query_srq`. `srqLimit` is 0 when none is armed. */
  query(): Required<SrqInitAttributes> {
    this.#check();
    const { memory } = this.pd.context.device.arena;
    const { limit } = structAt(memory, SharedReceiveQueueLayout, this.handle);
    return { maxWr: this.maxWr, maxSge: this.maxSge, srqLimit: limit };
  }

  #resize(entries: number): void {
    const { arena } = this.pd.context.device;
    const { queueMemory } = this.pd;
    const memory = queueMemory.take(arena.exports.srqBytes(entries, this.maxSge), 'SRQ');
    const errno = arena.exports.resizeSrq(this.handle, memory, entries);
    if (errno !== Errno.OK) queueMemory.giveBack(memory, 'SRQ');
    refuse(errno, 'modify', {
      EINVAL: `posted requests do not fit into ${entries}; receive some first`,
    });
    queueMemory.giveBack(this.#memory, 'SRQ');
    this.#memory = memory;
    this.maxWr = entries;
    this.#ring = new ReceiveRing(arena.memory, memory, entries, this.maxSge, 'maxWr');
  }

  /** `ibv_destroy_srq`. Throws RefusalError EBUSY while a queue pair takes from it. */
  destroy(): void {
    this.#check();
    const { arena, engine } = this.pd.context.device;
    refuse(arena.exports.destroySrq(engine.context, this.handle), 'destroy', {
      EBUSY: 'a queue pair takes from this shared receive queue; destroy it first',
    });
    this.#destroyed = true;
    this.pd.context.removeObject(this.handle);
    this.pd.resources.delete(this);
    this.pd.queueMemory.giveBack(this.#memory, 'SRQ');
  }

  /** @internal */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  #check(): void {
    if (this.#destroyed) throw new MisuseError('shared receive queue', 'is destroyed');
    this.pd.context.checkOpen();
  }
}

/** The engine looks into the ring when a message comes. */
const ignore = (): void => {};
