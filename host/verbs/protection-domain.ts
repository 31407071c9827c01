/** `ibv_pd`: what belongs together. Regions and queue pairs of one domain may use each other. */
import { checkOpen } from '../device/device.js';
import { RefusalError } from '../errors/errors.js';
import { AddressHandle, addressOfSender, type AddressAttributes } from './address-handle.js';
import type { WorkCompletion } from './completion-queue.js';
import type { Context } from './context.js';
import { MemoryRegion, type RegisterOptions } from './memory-region.js';
import { QueuePair, type QpInitAttributes } from './queue-pair.js';
import { refuse } from './refuse.js';
import { SharedReceiveQueue, type SrqInitAttributes } from './shared-receive-queue.js';

export class ProtectionDomain {
  readonly context: Context;
  /** The engine's number for it. */
  readonly handle: number;
  #gone = false;

  private constructor(context: Context, handle: number) {
    this.context = context;
    this.handle = handle;
  }

  /** @internal Use `context.allocPd()`. */
  static alloc(context: Context): ProtectionDomain {
    const { device } = context;
    const handle = device.arena.exports.allocPd(device.engine.context);
    if (handle === 0) {
      throw new RefusalError(
        'ENOMEM',
        `allocPd: all ${device.limits.protectionDomainsMax} protection domains are taken`,
      );
    }
    return new ProtectionDomain(context, handle);
  }

  /**
   * `ibv_reg_mr`. `buffer` is memory of this device (`context.alloc`), or a part of it; `access` is
   * made of AccessFlag. Throws MisuseError; RefusalError EINVAL (remote write or atomic without
   * LOCAL_WRITE), EOPNOTSUPP (unknown flag), ENOMEM (no region is free).
   */
  regMr(buffer: Uint8Array, access: number, options: RegisterOptions = {}): MemoryRegion {
    this.#check('regMr');
    return MemoryRegion.register(this, buffer, access, options);
  }

  /**
   * `ibv_create_qp`. Throws MisuseError; RefusalError ENOMEM (no queue pair is free, or no memory
   * for its queues), EOPNOTSUPP (type).
   */
  createQp(attributes: QpInitAttributes): QueuePair {
    this.#check('createQp');
    return QueuePair.create(this, attributes);
  }

  /** `ibv_create_srq`. Throws MisuseError, RefusalError ENOMEM. */
  createSrq(attributes: SrqInitAttributes = {}): SharedReceiveQueue {
    this.#check('createSrq');
    return SharedReceiveQueue.create(this, attributes);
  }

  /** `ibv_create_ah`: where datagrams go. Throws MisuseError, RefusalError ENOMEM. */
  createAh(address: AddressAttributes): AddressHandle {
    this.#check('createAh');
    return AddressHandle.create(this, address);
  }

  /**
   * `ibv_create_ah_from_wc`: back to the sender of a datagram. `grh`: the first 40 bytes of the
   * buffer that it was received into. `port`: the sender's UDP port where it told another one than
   * its datagrams show. Throws MisuseError without WcFlag.GRH.
   */
  createAhFromWc(wc: WorkCompletion, grh: Uint8Array, port?: number): AddressHandle {
    const address = addressOfSender(wc, grh);
    return this.createAh({ ...address, ...(port === undefined ? {} : { port }) });
  }

  #check(verb: string): void {
    checkOpen(this.context.device);
    if (this.#gone) throw new RefusalError('EINVAL', `${verb}: the protection domain is gone`);
  }

  /** `ibv_dealloc_pd`. Throws RefusalError EBUSY while regions or queue pairs name it. */
  dealloc(): void {
    const { device } = this.context;
    refuse(device.arena.exports.deallocPd(device.engine.context, this.handle), 'dealloc', {
      EBUSY: 'regions or queue pairs of this protection domain exist; destroy them first',
      EINVAL: 'the protection domain is gone already',
    });
    this.#gone = true;
  }

  [Symbol.dispose](): void {
    if (!this.#gone) this.dealloc();
  }
}
