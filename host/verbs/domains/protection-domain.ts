/** `ibv_pd`: what belongs together. Regions and queue pairs of one domain may use each other. */
import type { AccessFlags } from '../enums.js';
import { checkKeys } from '../../base/options.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { advise } from '../regions/advise.js';
import { AddressHandle } from '../queues/address-handle.js';
import { addressOfSender, type AddressAttributes } from '../queues/address-attributes.js';
import type { WorkCompletion } from '../queues/work-completion.js';
import type { Context } from '../context.js';
import type { DeviceMemory } from '../regions/device-memory.js';
import { FastMemoryRegion } from '../regions/fast-memory-region.js';
import { ImportedMemoryRegion } from '../regions/imported-memory-region.js';
import { LayoutMemoryRegion } from '../layouts/layout-memory-region.js';
import { MemoryRegion, type RegisterOptions } from '../regions/memory-region.js';
import { MemoryWindow } from '../regions/memory-window.js';
import { NullMemoryRegion } from '../regions/null-memory-region.js';
import {
  DomainHeap,
  checkHeaps,
  endHeaps,
  limitHeaps,
  type HeapOptions,
} from '../heap/domain-heap.js';
import { heapMemory, type QueueMemory } from '../queues/queue-memory.js';
import { checkInit } from '../queues/queue-pair-attributes.js';
import { QueuePair, type QpInitAttributes } from '../queues/queue-pair.js';
import { refuse, taken } from '../refuse.js';
import {
  RegistrableBuffer,
  memoryOf,
  type MrInitAttributes,
} from '../regions/registrable-buffer.js';
import { publishDomain, type NamedDomain, type PublishOptions } from './named-domain.js';
import { allocShpd } from './shared-domain.js';
import { SharedReceiveQueue, type SrqInitAttributes } from '../queues/shared-receive-queue.js';
import type { Sge } from '../queues/sge.js';
import { checkMember } from '../../errors/check-member.js';

const IN_USE = {
  EBUSY: 'regions, windows or queue pairs of this protection domain exist; destroy them first',
  EINVAL: 'the protection domain has ended; allocate another',
};

/** `struct ibv_pd`: what may be used together (`context.allocPd`). IBA 10.2.3. */
export class ProtectionDomain {
  /** @internal Regions, windows, queue pairs, queues and address handles that it has. */
  readonly resources = new Set<Disposable>();
  #parents = 0;
  #gone = false;

  protected constructor(
    readonly context: Context,
    /** The engine's number for it. */
    readonly handle: number,
    /** @internal Where the memory of its queues comes from. */
    readonly queueMemory: QueueMemory,
  ) {}

  /** @internal Use `context.allocPd()`. */
  static alloc(context: Context): ProtectionDomain {
    const { device } = context;
    const handle = device.arena.exports.allocPd(device.engine.context);
    if (handle === 0) {
      throw new RefusalError(
        'ENOMEM',
        `allocPd: ${taken(`${device.limits.protectionDomainsMax} protection domains`)}`,
      );
    }
    return ProtectionDomain.of(context, handle);
  }

  /** @internal Use `context.sharePd()` and `context.importPd()`: this thread takes part already. */
  static of(context: Context, handle: number): ProtectionDomain {
    const pd = new ProtectionDomain(context, handle, heapMemory(context.device.arena.heap));
    context.resources.add(pd);
    context.siblings.addInstance(handle);
    return pd;
  }

  /**
   * `ibv_reg_mr`. `buffer` is a buffer of `context.alloc`, or a part; `access` is made of
   * AccessFlag. Throws MisuseError; RefusalError EINVAL (remote write or atomic without
   * LOCAL_WRITE), EOPNOTSUPP (unknown flag), ENOMEM (no free region).
   */
  regMr(buffer: Uint8Array, access: AccessFlags, options?: RegisterOptions): MemoryRegion;
  /**
   * A region for a memory layout, without memory of its own. With AccessFlag.ZERO_BASED its bytes
   * have addresses from 0 on; without, it is a stencil (`LayoutMemoryRegion`). The other flags are
   * the rights that regions named by the layout must have, too.
   */
  regMr(addr: null, length: 0, access: AccessFlags): LayoutMemoryRegion;
  regMr(
    buffer: Uint8Array | null,
    accessOrLength: number,
    optionsOrAccess: RegisterOptions | number = {},
  ): MemoryRegion | LayoutMemoryRegion {
    this.check('regMr');
    if (buffer !== null) {
      const options = optionsOrAccess as RegisterOptions;
      checkKeys('regMr', options, 'iova invalidatable');
      return MemoryRegion.register(this, buffer, accessOrLength, options);
    }
    if (accessOrLength !== 0 || typeof optionsOrAccess !== 'number') {
      throw new MisuseError('length', 'must be 0 for a region without memory, followed by access');
    }
    return new LayoutMemoryRegion(this, optionsOrAccess);
  }

  /**
   * A region of this domain for REG_MR (`ib_alloc_mr`), for memory of at most `maxLength` bytes.
   * Throws MisuseError, RefusalError ENOMEM.
   */
  allocMr(maxLength: number): FastMemoryRegion {
    this.check('allocMr');
    return new FastMemoryRegion(this.context, this, maxLength);
  }

  /** `ibv_alloc_null_mr`. Throws RefusalError ENOMEM. */
  allocNullMr(): NullMemoryRegion {
    this.check('allocNullMr');
    return new NullMemoryRegion(this);
  }

  /** `ibv_alloc_mw`: `type` is an MwType. Throws MisuseError, RefusalError ENOMEM. */
  allocMw(type: number): MemoryWindow {
    this.check('allocMw');
    return new MemoryWindow(this, type);
  }

  /**
   * `ibv_create_qp`. Throws MisuseError; RefusalError ENOMEM (no queue pair is free, or no memory
   * for its queues), EOPNOTSUPP (type).
   */
  createQp(attributes: QpInitAttributes): QueuePair {
    checkInit('createQp', attributes);
    this.check('createQp');
    return QueuePair.create(this, attributes);
  }

  /** `ibv_create_srq`. Throws MisuseError, RefusalError ENOMEM. */
  createSrq(attributes: SrqInitAttributes = {}): SharedReceiveQueue {
    checkKeys('createSrq', attributes, 'maxWr maxSge srqLimit');
    this.check('createSrq');
    return SharedReceiveQueue.create(this, attributes);
  }

  /** `ibv_create_ah`: where datagrams go. Throws MisuseError, RefusalError ENOMEM. */
  createAh(address: AddressAttributes): AddressHandle {
    this.check('createAh');
    return AddressHandle.create(this, address);
  }

  /**
   * `ibv_create_ah_from_wc`: back to the sender of a datagram. `grh`: the first 40 bytes of the
   * buffer that it was received into. `port`: the sender's UDP port where it has another one than
   * its datagrams show. Throws MisuseError without WcFlag.GRH.
   */
  createAhFromWc(wc: WorkCompletion, grh: Uint8Array, port?: number): AddressHandle {
    const address = addressOfSender(wc, grh);
    return this.createAh({ ...address, ...(port === undefined ? {} : { port }) });
  }

  /**
   * `ibv_alloc_buf`: zero bytes of the device's memory at a multiple of 4096. Throws MisuseError,
   * RefusalError ENOMEM.
   */
  allocBuf(size: number): RegistrableBuffer {
    this.check('allocBuf');
    return RegistrableBuffer.alloc(this, size);
  }

  /**
   * `ibv_reg_buf_mr`: `length` bytes from `addr` on, which lies in `buf`. Throws as regMr;
   * RefusalError EINVAL for a buffer of another domain, or a range that leaves it.
   */
  regBufMr(
    buf: RegistrableBuffer,
    addr: number,
    length: number,
    access: AccessFlags,
  ): MemoryRegion {
    this.check('regBufMr');
    checkMember('buf', buf, 'slice', 'a buffer of several handles (context.allocBuf)');
    return this.regMr(buf.slice(this, addr, length), access);
  }

  /**
   * `ibv_reg_dm_mr`: device memory, by offsets from its first registered byte. Throws as regMr;
   * RefusalError EINVAL for a range beyond its end, or without AccessFlag.ZERO_BASED.
   */
  regDmMr(dm: DeviceMemory, offset: number, length: number, access: AccessFlags): MemoryRegion {
    this.check('regDmMr');
    checkMember('dm', dm, 'register', 'device memory (context.allocDm)');
    return dm.register(this, offset, length, access);
  }

  /**
   * `ibv_reg_mr_ex`: a buffer (`context.alloc`), or a range of a `buf` that begins at `addr`.
   * Throws as regMr; RefusalError EINVAL with both or neither, EOPNOTSUPP for `fd`.
   */
  regMrEx(attributes: MrInitAttributes): MemoryRegion {
    const known = 'access buffer buf addr length fd dmah iova invalidatable';
    checkKeys('regMrEx', attributes, known);
    this.check('regMrEx');
    return this.regMr(...memoryOf(this, attributes));
  }

  /**
   * `ibv_advise_mr`: the memory will be used soon (AdviseMrAdvice.PREFETCH…). Pages are brought in
   * before it returns, but for PREFETCH_NO_FAULT, which changes nothing. `flags` of AdviseMrFlag.
   * Throws MisuseError; RefusalError ENOENT (no such key in this domain), EINVAL (bytes outside of
   * the region, or write advice for memory that may not be written).
   */
  adviseMr(advice: number, flags: number, sgList: readonly Sge[]): void {
    this.check('adviseMr');
    advise(this, advice, flags, sgList);
  }

  /**
   * `ibv_alloc_shpd` (seed 000): lets other contexts of the device share this domain, in this
   * process or another one. Writes the handle that `context.sharePd` takes, 32 bytes that mean the
   * same wherever they lie, to `area` (default: new memory), and returns it. `shareKey`: 64 bits
   * that are to be known besides. Possible once per domain. Throws MisuseError; RefusalError
   * EOPNOTSUPP (the device has no name), EBUSY (done before).
   */
  allocShpd(shareKey: bigint | number, area?: Uint8Array): Uint8Array {
    this.check('allocShpd');
    return allocShpd(this, shareKey, area);
  }

  /**
   * Names this domain (1 to 64 bytes), for `context.openDomain` of other threads and processes;
   * this process is its owner. As `allocShpd`, it is possible once per domain. Throws MisuseError;
   * RefusalError EEXIST (the name is taken), EBUSY (it has a handle or name), ENOMEM (no root).
   */
  publish(name: string, options: PublishOptions): NamedDomain {
    this.check('publish');
    return publishDomain(this, name, options);
  }

  /**
   * A heap of this domain (seed 000): creates it, or opens the one of that name that another thread
   * or process of the device has created. One key for all its memory, the same addresses in all
   * processes; it ends with the last process that has opened it. Throws MisuseError; RefusalError
   * ENOMEM (no memory of the device, regions or roots are left), ENOSPC (the file system of a
   * device that grows is full), EBUSY (the tables are locked).
   */
  heap(options: HeapOptions = {}): DomainHeap {
    this.check('heap');
    return DomainHeap.open(this, options);
  }

  /**
   * Bytes with storage that all heaps of this domain may have together, at least 65536; 0: no limit
   * any more. A heap that lacks storage then gets that of free segments of the others
   * (`HeapOptions.priority`). Segments in use stay, and later heaps are limited as well. Throws
   * MisuseError; RefusalError ENOMEM (no root is free).
   */
  limitHeaps(bytes: number): void {
    this.check('limitHeaps');
    limitHeaps(this, bytes);
  }

  /**
   * `ibv_import_mr`: a region of this domain that another context registered, by its `handle`.
   * Throws RefusalError ENOENT.
   */
  importMr(handle: number): ImportedMemoryRegion {
    this.check('importMr');
    return new ImportedMemoryRegion(this, handle);
  }

  /**
   * `ibv_unimport_pd`: this context takes part in the domain no more; the domain stays. Throws
   * RefusalError EBUSY while regions, windows or queue pairs made from this object exist.
   */
  unimport(): void {
    this.check('unimport');
    const { device } = this.context;
    this.#leave('unimport', () =>
      device.arena.exports.detachPd(device.engine.context, this.handle),
    );
    this.#gone = true;
  }

  /** @internal A parent domain stands on this one. */
  addParent(): void {
    this.#parents++;
  }

  /** @internal */
  removeParent(): void {
    this.#parents--;
  }

  /** @internal */
  check(verb: string): void {
    this.context.checkOpen();
    if (this.#gone)
      throw new RefusalError(
        'EINVAL',
        `${verb}: the protection domain has ended; allocate another`,
      );
  }

  /**
   * `ibv_dealloc_pd`. Throws RefusalError EBUSY while regions, windows or queue pairs name it. A
   * shared domain lives on as long as another context shares it; one that was imported ends for
   * all of them.
   */
  dealloc(): void {
    if (this.#parents > 0) {
      throw new RefusalError(
        'EBUSY',
        'dealloc: parent domains use the protection domain; dealloc them first',
      );
    }
    checkHeaps(this);
    this.release();
    this.#gone = true;
    endHeaps(this);
  }

  /** Deallocation of this kind of domain. */
  protected release(): void {
    const { device, siblings } = this.context;
    const end = (): number => device.arena.exports.deallocPd(device.engine.context, this.handle);
    if (siblings.isSharable(this.handle)) {
      this.#leave('dealloc', end);
      return;
    }
    refuse(end(), 'dealloc', IN_USE);
    // The domain ends for the contexts that imported it.
    siblings.removeInstance(this.handle, true);
    this.context.resources.delete(this);
  }

  /** This instance ends; `detach`, when it is the thread's last one. */
  #leave(verb: string, detach: () => number): void {
    const { siblings, resources } = this.context;
    if (this.resources.size > 0) throw new RefusalError('EBUSY', `${verb}: ${IN_USE.EBUSY}`);
    if (siblings.instancesOf(this.handle) <= 1) refuse(detach(), verb, IN_USE);
    siblings.removeInstance(this.handle);
    resources.delete(this);
  }

  [Symbol.dispose](): void {
    if (!this.#gone) this.dealloc();
  }
}
