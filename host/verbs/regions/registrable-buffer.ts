/** `ibv_buf`: memory that is there to be registered with the domain that allocated it. */
import { mustBe } from '../../errors/check-whole.js';
import type { AccessFlags } from '../enums.js';
import { AccessFlag } from '#build/abi.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { DmaHandle } from './dma-handle.js';
import type { RegisterOptions } from './memory-region.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';

const PAGE_BYTES = 4096;

/** `struct ibv_buf`: memory made to be registered (`pd.allocBuf`). */
export class RegistrableBuffer {
  readonly pd: ProtectionDomain;
  /** Its address in the device's memory, a multiple of 4096. */
  readonly addr: number;
  /** The memory itself. */
  readonly bytes: Uint8Array;
  readonly #whole: Uint8Array;
  #freed = false;

  private constructor(pd: ProtectionDomain, whole: Uint8Array, addr: number, size: number) {
    this.pd = pd;
    this.#whole = whole;
    this.addr = addr;
    this.bytes = whole.subarray(addr - whole.byteOffset, addr - whole.byteOffset + size);
  }

  /** @internal Use `pd.allocBuf()`. */
  static alloc(pd: ProtectionDomain, size: number): RegistrableBuffer {
    if (!Number.isInteger(size) || size < 1) {
      throw mustBe('size', 'a whole number of bytes above 0', size);
    }
    const whole = pd.context.alloc(size + PAGE_BYTES - 1);
    const addr = Math.ceil(whole.byteOffset / PAGE_BYTES) * PAGE_BYTES;
    return new RegistrableBuffer(pd, whole, addr, size);
  }

  /** @internal The part that is to be registered. */
  slice(pd: ProtectionDomain, addr: number, length: number): Uint8Array {
    if (this.#freed) throw new MisuseError('buf', 'is freed');
    if (pd !== this.pd) {
      throw new RefusalError(
        'EINVAL',
        'regBufMr: another protection domain allocated the buffer; use that',
      );
    }
    const whole = Number.isInteger(addr) && Number.isInteger(length);
    const offset = addr - this.addr;
    if (!whole || offset < 0 || length < 1 || length > this.bytes.length - offset) {
      throw new RefusalError(
        'EINVAL',
        `regBufMr: ${length} bytes at ${addr} must lie within ${this.bytes.length} bytes at ${this.addr}`,
      );
    }
    return this.bytes.subarray(offset, offset + length);
  }

  /**
   * `ibv_export_buf_dmabuf_fd`. Throws RefusalError ENODATA: the memory is the process's own, no
   * DMA buffer of the kernel stands behind it.
   */
  exportDmabufFd(): never {
    throw new RefusalError(
      'ENODATA',
      'exportDmabufFd: the kernel does not know this memory; copy it',
    );
  }

  /** `ibv_free_buf`. Throws RefusalError EBUSY while it is registered. */
  free(): void {
    if (this.#freed) throw new MisuseError('buf', 'is freed already');
    this.pd.context.free(this.#whole);
    this.#freed = true;
  }

  [Symbol.dispose](): void {
    if (!this.#freed) this.free();
  }
}

/** `ibv_mr_init_attr`. */
export interface MrInitAttributes extends RegisterOptions {
  /** Made of AccessFlag. */
  readonly access: AccessFlags;
  /** Memory of `context.alloc`. */
  readonly buffer?: Uint8Array;
  /** In place of `buffer`: `length` bytes from `addr` on (default: the whole buffer). */
  readonly buf?: RegistrableBuffer;
  readonly addr?: number;
  readonly length?: number;
  /** A DMA buffer of the kernel: refused. */
  readonly fd?: number;
  /** Hints. Not with AccessFlag.ON_DEMAND. */
  readonly dmah?: DmaHandle;
}

/** @internal The arguments of `regMr` for those of `regMrEx`. */
export function memoryOf(
  pd: ProtectionDomain,
  attributes: MrInitAttributes,
): [buffer: Uint8Array, access: AccessFlags, options: RegisterOptions] {
  const { buffer, buf, fd, addr, length, access, dmah, ...options } = attributes;
  const sources = [buffer, buf, fd].filter((source) => source !== undefined).length;
  if (sources !== 1) {
    throw new RefusalError('EINVAL', 'regMrEx: exactly one of buffer, buf and fd is required');
  }
  if (fd !== undefined) {
    throw new RefusalError('EOPNOTSUPP', 'regMrEx: fd (DMA buffers) is not available; pass buffer');
  }
  dmah?.check();
  if (dmah && dmah.context !== pd.context)
    throw new MisuseError('dmah', 'must be of the same context');
  if (dmah && access & AccessFlag.ON_DEMAND) {
    throw new RefusalError('EINVAL', 'regMrEx: dmah is not valid with ON_DEMAND; leave one out');
  }
  if (buf) {
    const from = addr ?? buf.addr;
    return [buf.slice(pd, from, length ?? buf.bytes.length), access, options];
  }
  const all = buffer!;
  if (length !== undefined && (!Number.isInteger(length) || length < 1 || length > all.length)) {
    throw new RefusalError('EINVAL', `regMrEx: length must be 1 to ${all.length}, got ${length}`);
  }
  return [all.subarray(0, length ?? all.length), access, options];
}
