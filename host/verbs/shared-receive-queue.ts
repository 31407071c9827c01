/** `ibv_srq`: one receive queue for many queue pairs. */
import { checkOpen } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { MAX_SGE, MAX_SRQ_WR } from './limits.js';
import type { ProtectionDomain } from './protection-domain.js';
import { refuse } from './refuse.js';
import { ReceiveRing, putAll, type ReceiveWorkRequest } from './work-request.js';

/** `ibv_srq_init_attr`. */
export interface SrqInitAttributes {
  /** Requests. Default 128. */
  readonly maxWr?: number;
  /** Default 4. */
  readonly maxSge?: number;
  /** Armed limit: one SRQ_LIMIT_REACHED event when fewer requests are left. Default 0: none. */
  readonly srqLimit?: number;
}

export class SharedReceiveQueue {
  readonly pd: ProtectionDomain;
  /** Address of the engine's struct. */
  readonly handle: number;
  /** Granted: at least what was asked for. */
  readonly maxWr: number;
  readonly maxSge: number;
  readonly #memory: number;
  readonly #ring: ReceiveRing;
  #destroyed = false;

  private constructor(
    pd: ProtectionDomain,
    handle: number,
    memory: number,
    maxWr: number,
    maxSge: number,
  ) {
    this.pd = pd;
    this.handle = handle;
    this.maxWr = maxWr;
    this.maxSge = maxSge;
    this.#memory = memory;
    this.#ring = new ReceiveRing(pd.context.device.arena.memory, memory, maxWr, maxSge);
  }

  /** @internal Use `pd.createSrq()`. */
  static create(pd: ProtectionDomain, attributes: SrqInitAttributes): SharedReceiveQueue {
    const { arena, engine, limits } = pd.context.device;
    const wanted = attributes.maxWr ?? 128;
    const maxSge = attributes.maxSge ?? 4;
    checkRange('maxWr', wanted, 1, MAX_SRQ_WR);
    checkRange('maxSge', maxSge, 1, MAX_SGE);
    const maxWr = 2 ** Math.ceil(Math.log2(wanted));
    checkRange('srqLimit', attributes.srqLimit ?? 0, 0, maxWr);
    const memory = arena.heap.alloc(arena.exports.srqBytes(maxWr, maxSge));
    const handle = arena.exports.createSrq(engine.context, pd.handle, memory, maxWr, maxSge);
    if (handle === 0) {
      arena.heap.free(memory);
      throw new RefusalError(
        'ENOMEM',
        `createSrq: all ${limits.sharedReceiveQueuesMax} shared receive queues are taken`,
      );
    }
    arena.exports.setSrqLimit(handle, attributes.srqLimit ?? 0);
    const srq = new SharedReceiveQueue(pd, handle, memory, maxWr, maxSge);
    pd.context.addObject(handle, srq);
    return srq;
  }

  /** `ibv_post_srq_recv`: as `qp.postRecv`. */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): void {
    this.#check();
    putAll(
      requests,
      (request) => this.#ring.put(request),
      () => {},
    );
  }

  /** `ibv_modify_srq` with IBV_SRQ_LIMIT: arms the limit anew; 0 disarms it. */
  modify(attributes: { readonly srqLimit: number }): void {
    this.#check();
    checkRange('srqLimit', attributes.srqLimit, 0, this.maxWr);
    this.pd.context.device.arena.exports.setSrqLimit(this.handle, attributes.srqLimit);
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
    arena.heap.free(this.#memory);
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
    checkOpen(this.pd.context.device);
  }
}

function checkRange(name: string, value: number, least: number, most: number): void {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new MisuseError(name, `must be a whole number from ${least} to ${most}, got ${value}`);
  }
}
