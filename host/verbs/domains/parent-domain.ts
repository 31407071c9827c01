/**
 * `ibv_parent_domain`: a protection domain for all that is made from it, with the memory of its
 * queues taken from the application's allocators. In C that is host memory of the right NUMA node or
 * page size, here it is a part of what `context.alloc` gave.
 */
import { checkKeys } from '../../base/options.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Context } from '../context.js';
import { ProtectionDomain } from './protection-domain.js';
import type { QueueMemory, ResourceType } from '../queues/queue-memory.js';
import type { ThreadDomain } from './thread-domain.js';

/** `ibv_parent_domain_init_attr`. */
export interface ParentDomainInitAttributes {
  readonly pd: ProtectionDomain;
  readonly td?: ThreadDomain;
  /**
   * Allocates memory of a queue: a Uint8Array of `context.alloc`, or a part, of at least `size`
   * bytes at a multiple of `alignment`, in an allocation without registrations. `undefined` means
   * IBV_ALLOCATOR_USE_DEFAULT, `null` no memory (ENOMEM).
   */
  readonly alloc?: (
    size: number,
    alignment: number,
    resourceType: ResourceType,
  ) => Uint8Array | undefined | null;
  /** Releases a buffer that `alloc` returned. */
  readonly free?: (buffer: Uint8Array, resourceType: ResourceType) => void;
  /**
   * IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC: in a confidential guest, buffers may be
   * memory that the hypervisor sees. A software adapter reads guest memory itself: no difference.
   */
  readonly allowCcUnprotectedAlloc?: boolean;
}

const ALIGNMENT = 64;

/** The allocators of a parent domain, with the device's heap behind them. */
class AllocatorMemory implements QueueMemory {
  readonly #attributes: ParentDomainInitAttributes;
  readonly #buffers = new Map<number, Uint8Array>();
  /** Queues that live in memory taken here. */
  live = 0;

  constructor(attributes: ParentDomainInitAttributes) {
    this.#attributes = attributes;
  }

  take(bytes: number, resourceType: ResourceType): number {
    const buffer = this.#attributes.alloc?.(bytes, ALIGNMENT, resourceType);
    if (buffer === null)
      throw new RefusalError('ENOMEM', `alloc: the allocator has no ${bytes} bytes; free some`);
    const address = buffer ? this.#lend(buffer, bytes) : this.#fallback.take(bytes, resourceType);
    if (buffer) this.#buffers.set(address, buffer);
    this.live++;
    return address;
  }

  giveBack(address: number, resourceType: ResourceType): void {
    this.live--;
    const buffer = this.#buffers.get(address);
    if (!buffer) {
      this.#fallback.giveBack(address, resourceType);
      return;
    }
    this.#buffers.delete(address);
    this.#attributes.pd.context.allocations.giveBack(address);
    this.#attributes.free?.(buffer, resourceType);
  }

  get #fallback(): QueueMemory {
    return this.#attributes.pd.queueMemory;
  }

  #lend(buffer: Uint8Array, bytes: number): number {
    const { context } = this.#attributes.pd;
    const { memory } = context.device.arena;
    const address = buffer.byteOffset;
    if (buffer.buffer !== memory.buffer)
      throw new MisuseError('alloc', 'must return memory of context.alloc');
    if (buffer.length < bytes || address % ALIGNMENT !== 0) {
      throw new MisuseError(
        'alloc',
        `returned ${buffer.length} bytes at ${address}; required are ${bytes} at a multiple of ${ALIGNMENT}`,
      );
    }
    if (!context.allocations.lend(address, bytes)) {
      throw new MisuseError(
        'alloc',
        'must return memory of context.alloc that is neither registered nor in use',
      );
    }
    memory.bytes.fill(0, address, address + bytes);
    return address;
  }
}

/**
 * A protection domain whose queues live in memory of the application’s allocators
 * (`context.allocParentDomain`).
 */
export class ParentDomain extends ProtectionDomain {
  /** Domain that this one extends. */
  readonly pd: ProtectionDomain;
  readonly td: ThreadDomain | undefined;
  readonly #memory: AllocatorMemory;

  private constructor(attributes: ParentDomainInitAttributes, memory: AllocatorMemory) {
    const { pd, td } = attributes;
    super(pd.context, pd.handle, memory);
    this.pd = pd;
    this.td = td;
    this.#memory = memory;
    td?.use();
    pd.addParent();
    pd.context.resources.add(this);
  }

  /** @internal Use `context.allocParentDomain()`. */
  static create(context: Context, attributes: ParentDomainInitAttributes): ParentDomain {
    checkKeys('allocParentDomain', attributes, 'pd td alloc free allowCcUnprotectedAlloc');
    if (attributes.pd?.context !== context) {
      throw new MisuseError('pd', 'must be a protection domain of the same context');
    }
    if (attributes.td && attributes.td.context !== context) {
      throw new MisuseError('td', 'must be a thread domain of the same context');
    }
    if (!attributes.alloc !== !attributes.free) {
      throw new MisuseError('alloc', 'requires free, and free requires alloc');
    }
    return new ParentDomain(attributes, new AllocatorMemory(attributes));
  }

  /** `ibv_dealloc_pd`: EBUSY while queues made from it live. */
  protected override release(): void {
    if (this.#memory.live > 0) {
      throw new RefusalError(
        'EBUSY',
        'dealloc: queues of this parent domain exist; destroy them first',
      );
    }
    this.td?.leave();
    this.pd.removeParent();
    this.context.resources.delete(this);
  }
}
