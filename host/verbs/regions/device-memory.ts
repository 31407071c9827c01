/**
 * `ibv_dm`: memory that lies with the adapter. All memory of this device does; what is left of the
 * idea is that the application reaches it by copying alone, in units of 4 bytes.
 */
import { mustBe, shown } from '../../errors/check-whole.js';
import type { AccessFlags } from '../enums.js';
import { AccessFlag } from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Context } from '../context.js';
import type { MemoryRegion } from './memory-region.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';

/** `ibv_alloc_dm_attr`. */
export interface AllocDmAttributes {
  /** Bytes, at most `maxDmSize`. */
  readonly length: number;
}

/** Offsets and lengths are multiples of this. */
const UNIT_BYTES = 4;

/** `struct ibv_dm`: memory of the device that is reached by copying (`context.allocDm`). */
export class DeviceMemory {
  readonly context: Context;
  /** Bytes. */
  readonly length: number;
  readonly #memory: Uint8Array;
  #freed = false;

  private constructor(context: Context, memory: Uint8Array) {
    this.context = context;
    this.length = memory.length;
    this.#memory = memory;
  }

  /** @internal Use `context.allocDm()`. */
  static alloc(context: Context, attributes: AllocDmAttributes): DeviceMemory {
    checkKeys('allocDm', attributes, 'length');
    const { length } = attributes;
    const { maxDmSize } = context.queryDeviceEx();
    if (!Number.isInteger(length) || length < 1) {
      throw mustBe('length', 'a whole number of bytes above 0', length);
    }
    if (length > maxDmSize) {
      throw new RefusalError(
        'EINVAL',
        `allocDm: length must be at most maxDmSize, ${maxDmSize}, got ${length}`,
      );
    }
    return new DeviceMemory(context, context.alloc(length));
  }

  /** @internal Where it lies in the device's memory. */
  get address(): number {
    return this.#memory.byteOffset;
  }

  /** `ibv_memcpy_to_dm`. Throws RefusalError EINVAL for what is not aligned, or outside. */
  memcpyTo(offset: number, data: Uint8Array): void {
    this.#check('memcpyTo', offset, data.length);
    this.#memory.set(data, offset);
  }

  /** `ibv_memcpy_from_dm`: a copy. Throws RefusalError EINVAL for what is not aligned, or outside. */
  memcpyFrom(offset: number, length: number): Uint8Array {
    this.#check('memcpyFrom', offset, length);
    return this.#memory.slice(offset, offset + length);
  }

  /**
   * `ibv_dm_export_dmabuf_fd`. Throws RefusalError EOPNOTSUPP: the kernel does not know this
   * memory.
   */
  exportDmabufFd(): never {
    throw new RefusalError(
      'EOPNOTSUPP',
      'exportDmabufFd: the kernel does not know this memory; copy it',
    );
  }

  /** `ibv_free_dm`. Throws RefusalError EBUSY while it is registered. */
  free(): void {
    if (this.#freed) throw new MisuseError('device memory', 'is freed already');
    this.context.free(this.#memory);
    this.#freed = true;
  }

  [Symbol.dispose](): void {
    if (!this.#freed) this.free();
  }

  /** @internal Use `pd.regDmMr()`. */
  register(
    pd: ProtectionDomain,
    offset: number,
    length: number,
    access: AccessFlags,
  ): MemoryRegion {
    if (this.#freed) throw new MisuseError('dm', 'is freed');
    if (pd.context !== this.context) throw new MisuseError('dm', 'must be of the same context');
    if (!(access & AccessFlag.ZERO_BASED)) {
      throw new RefusalError(
        'EINVAL',
        `regDmMr: access must include ZERO_BASED, got ${shown(access)}`,
      );
    }
    if (!this.#holds(offset, length) || length === 0) {
      throw new RefusalError(
        'EINVAL',
        `regDmMr: ${length} bytes at ${offset} must lie within ${this.length} bytes`,
      );
    }
    return pd.regMr(this.#memory.subarray(offset, offset + length), access);
  }

  #holds(offset: number, length: number): boolean {
    const whole = Number.isInteger(offset) && Number.isInteger(length);
    return whole && offset >= 0 && length >= 0 && length <= this.length - offset;
  }

  #check(verb: string, offset: number, length: number): void {
    if (this.#freed) throw new MisuseError('device memory', 'is freed');
    if (!this.#holds(offset, length) || offset % UNIT_BYTES !== 0 || length % UNIT_BYTES !== 0) {
      throw new RefusalError(
        'EINVAL',
        `${verb}: ${length} bytes at ${offset} must be multiples of 4 within ${this.length} bytes`,
      );
    }
  }
}
