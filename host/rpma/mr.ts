/** `rpma_mr_local` and `rpma_mr_remote`: regions, and their descriptors for the peer. */
import { checkBytes } from '../errors/check-bytes.js';
import { AccessFlag } from '#build/abi.js';
import { checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { Sge } from '../verbs/queues/sge.js';
import { MR_DESCRIPTOR_SIZE, MR_USAGE_ALL, MrUsage } from './constants.js';

const FLUSH_TYPES = MrUsage.FLUSH_TYPE_VISIBILITY | MrUsage.FLUSH_TYPE_PERSISTENT;

/** `struct rpma_mr_local`: registered memory (`peer.mrReg`). */
export class MrLocal {
  readonly #region: MemoryRegion;
  readonly #usage: number;

  private constructor(region: MemoryRegion, usage: number) {
    this.#region = region;
    this.#usage = usage;
  }

  /** @internal Use `peer.mrReg()`. */
  static reg(pd: ProtectionDomain, buffer: Uint8Array, usage: number): MrLocal {
    checkWhole('usage', usage, 1, MR_USAGE_ALL);
    return new MrLocal(pd.regMr(buffer, accessOf(usage)), usage);
  }

  /** `rpma_mr_dereg`. Throws as `mr.dereg`. */
  dereg(): void {
    this.#region.dereg();
  }

  [Symbol.dispose](): void {
    this.#region[Symbol.dispose]();
  }

  /** `rpma_mr_get_descriptor`: 21 bytes, for the other side's application. */
  getDescriptor(): Uint8Array {
    const bytes = new Uint8Array(MR_DESCRIPTOR_SIZE);
    const view = new DataView(bytes.buffer);
    view.setBigUint64(0, this.#region.addr, true);
    view.setBigUint64(8, BigInt(this.#region.length), true);
    view.setUint32(16, this.#region.rkey, true);
    bytes[20] = this.#usage;
    return bytes;
  }

  /** `rpma_mr_get_descriptor_size`. */
  getDescriptorSize(): number {
    return MR_DESCRIPTOR_SIZE;
  }

  /** `rpma_mr_get_ptr`: the memory itself. */
  getPtr(): Uint8Array {
    return this.#region.buffer;
  }

  /** `rpma_mr_get_size`, bytes. */
  getSize(): number {
    return this.#region.length;
  }

  /** `rpma_mr_advise`: `advice` of AdviseMrAdvice, `flags` of AdviseMrFlag. Throws as `pd.adviseMr`. */
  advise(offset: number, length: number, advice: number, flags: number): void {
    this.#region.pd.adviseMr(advice, flags, [this.sge(offset, length)]);
  }

  /** @internal Throws MisuseError for what lies outside of the region. */
  sge(offset: number, length: number): Sge {
    checkWhole('length', length);
    checkWhole('offset', offset, 0, this.#region.length);
    if (length > this.#region.length - offset) {
      const rule = `${length} bytes at ${offset} leave the region's ${this.#region.length}`;
      throw new MisuseError('length', rule);
    }
    return { addr: this.#region.addr + BigInt(offset), length, lkey: this.#region.lkey };
  }
}

/** `rpma_mr_remote`: a region of the other side. What it says is checked there, at every use. */
export class MrRemote {
  readonly #addr: bigint;
  readonly #size: bigint;
  /** @internal Bits of MrUsage from the region's descriptor. */
  readonly usage: number;
  /** The key that opens it. */
  readonly rkey: number;

  /** @internal Use `mrRemoteFromDescriptor`. */
  constructor(addr: bigint, size: bigint, rkey: number, usage: number) {
    this.#addr = addr;
    this.#size = size;
    this.rkey = rkey;
    this.usage = usage;
  }

  /** `rpma_mr_remote_get_size`, bytes. */
  getSize(): number {
    return Number(this.#size);
  }

  /** `rpma_mr_remote_get_flush_type`: MrUsage.FLUSH_TYPE_… that the other side allows. */
  getFlushType(): number {
    return this.usage & FLUSH_TYPES;
  }

  /** @internal By the region's addressing. */
  addressOf(offset: number): bigint {
    checkWhole('offset', offset, 0, Number.MAX_SAFE_INTEGER);
    return BigInt.asUintN(64, this.#addr + BigInt(offset));
  }
}

/** `rpma_mr_remote_from_descriptor`. Throws MisuseError: too short, or for no use. */
export function mrRemoteFromDescriptor(descriptor: Uint8Array): MrRemote {
  checkBytes('descriptor', descriptor);
  if (descriptor.length < MR_DESCRIPTOR_SIZE) {
    const rule = `must have at least ${MR_DESCRIPTOR_SIZE} bytes, got ${descriptor.length}`;
    throw new MisuseError('descriptor', rule);
  }
  const { buffer, byteOffset } = descriptor;
  const view = new DataView(buffer, byteOffset, MR_DESCRIPTOR_SIZE);
  const usage = view.getUint8(20);
  if (usage === 0)
    throw new MisuseError('descriptor', `must declare at least one usage, got ${shown(usage)}`);
  const [addr, size] = [view.getBigUint64(0, true), view.getBigUint64(8, true)];
  if (size > BigInt(Number.MAX_SAFE_INTEGER)) {
    const rule = `a region of ${size} bytes exceeds the largest integer`;
    throw new RefusalError('EINVAL', `mrRemoteFromDescriptor: ${rule}; register a smaller one`);
  }
  return new MrRemote(addr, size, view.getUint32(16, true), usage);
}

/**
 * Rights of a region. A peer without native FLUSH flushes by reading (the appliance method), so
 * what may be flushed may be read: as librpma has it where its own adapter has no FLUSH.
 */
function accessOf(usage: number): number {
  const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, FLUSH_GLOBAL, FLUSH_PERSISTENT } = AccessFlag;
  const rights: readonly (readonly [number, number])[] = [
    [MrUsage.READ_SRC, REMOTE_READ],
    [MrUsage.READ_DST, LOCAL_WRITE],
    [MrUsage.WRITE_SRC, LOCAL_WRITE],
    [MrUsage.WRITE_DST, REMOTE_WRITE | LOCAL_WRITE],
    [MrUsage.RECV, LOCAL_WRITE],
    [MrUsage.FLUSH_TYPE_VISIBILITY, FLUSH_GLOBAL | REMOTE_READ],
    [MrUsage.FLUSH_TYPE_PERSISTENT, FLUSH_PERSISTENT | REMOTE_READ],
  ];
  return rights.reduce((access, [use, right]) => (usage & use ? access | right : access), 0);
}
