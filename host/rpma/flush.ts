/**
 * How a flush reaches the other side. `native`: FLUSH, which says what it means. `appliance`: an
 * 8-byte READ behind the WRITEs, the appliance persistency method of librpma: it brings them out of
 * the adapter, and makes them durable only where the adapter writes to persistent memory itself.
 *
 * The method that can flush a region of librpma depends on librpma's build, which the descriptor
 * does not name. With native FLUSH (1.3 on rxe) the usage bits of a flush grant FLUSH access and no
 * READ access; without it (1.2, and every hardware adapter) they grant READ access.
 */
import { AccessFlag, PlacementType, SelectivityLevel, SendFlag, WrOpcode } from '#build/abi.js';
import type { Context } from '../verbs/context.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { SendWorkRequest } from '../verbs/queues/work-request.js';
import { COMPLETION_ON_SUCCESS, FlushType, MrUsage } from './constants.js';
import type { MrRemote } from './mr.js';

/** How a flush is carried out (`conn.flushMethod`; the table in `host/guide/PERSISTENCE.md`). */
export type FlushMethod = 'native' | 'appliance';

/** Bytes that the appliance method reads: where they are read from is all that counts. */
const RAW_SIZE = 8;

/** Known properties of the peer. */
export interface FlushPeer {
  readonly isOwnKind: boolean;
  /** Linux rdma_rxe, an adapter in software. */
  readonly isRxe: boolean;
}

/** @internal A flush as it is posted: FLUSH, or a READ of `length` bytes. */
export type FlushPlan =
  { readonly method: 'native' } | { readonly method: 'appliance'; readonly length: number };

const NATIVE: FlushPlan = { method: 'native' };

/**
 * @internal Selects the method to flush a region of the peer. `usage`: the usage bits of its
 * descriptor.
 *
 * A region with READ access is flushed by a READ, whatever the build. A region of rxe without READ
 * access in its descriptor is made visible by a READ of 0 bytes: that needs no access right (IBA
 * C9-88), and rxe answers it after its processor has written all earlier data. Only FLUSH makes the
 * memory behind rxe persistent. Any other adapter grants READ access.
 */
export function planFlush(
  { isOwnKind, isRxe }: FlushPeer,
  usage: number,
  type: number,
  wanted?: FlushMethod,
): FlushPlan {
  if ((wanted ?? (isOwnKind ? 'native' : 'appliance')) === 'native') return NATIVE;
  const read: FlushPlan = { method: 'appliance', length: RAW_SIZE };
  if (wanted !== undefined || !isRxe || usage & MrUsage.READ_SRC) return read;
  return type === FlushType.PERSISTENT ? NATIVE : { method: 'appliance', length: 0 };
}

/** @internal Where the appliance method reads to. */
export class RawBuffer {
  readonly #context: Context;
  readonly #buffer: Uint8Array;
  readonly #region: MemoryRegion;

  constructor(pd: ProtectionDomain) {
    this.#context = pd.context;
    this.#buffer = pd.context.alloc(RAW_SIZE);
    this.#region = pd.regMr(this.#buffer, AccessFlag.LOCAL_WRITE);
  }

  /** Posts the READ that flushes. `length`: RAW_SIZE or 0 bytes. */
  request(
    dst: MrRemote,
    offset: number,
    length: number,
    flags: number,
    wrId: number | bigint,
  ): SendWorkRequest {
    const { addr, lkey } = this.#region;
    return {
      wrId,
      opcode: WrOpcode.RDMA_READ,
      sendFlags: signalled(flags),
      sgList: length === 0 ? [] : [{ addr, length, lkey }],
      rdma: { remoteAddr: dst.addressOf(offset), rkey: dst.rkey },
    };
  }

  delete(): void {
    this.#region.dereg();
    this.#context.free(this.#buffer);
  }
}

/** @internal The FLUSH of a range. */
export function nativeFlush(
  dst: MrRemote,
  offset: number,
  length: number,
  type: number,
  flags: number,
  wrId: number | bigint,
): SendWorkRequest {
  const isPersistent = type === FlushType.PERSISTENT;
  return {
    wrId,
    opcode: WrOpcode.FLUSH,
    sendFlags: signalled(flags),
    flush: {
      remoteAddr: dst.addressOf(offset),
      rkey: dst.rkey,
      length,
      type: isPersistent ? PlacementType.PERSISTENT : PlacementType.GLOBAL,
      level: SelectivityLevel.RANGE,
    },
  };
}

/** @internal Eight bytes: ATOMIC WRITE, or an inline WRITE behind all READs, as librpma has it. */
export function atomicWrite(
  isNative: boolean,
  dst: MrRemote,
  offset: number,
  bytes: Uint8Array,
  flags: number,
  wrId: number | bigint,
): SendWorkRequest {
  const more = isNative ? 0 : SendFlag.FENCE;
  return {
    wrId,
    opcode: isNative ? WrOpcode.ATOMIC_WRITE : WrOpcode.RDMA_WRITE,
    sendFlags: signalled(flags) | SendFlag.INLINE | more,
    inline: bytes,
    rdma: { remoteAddr: dst.addressOf(offset), rkey: dst.rkey },
  };
}

/** @internal */
export function signalled(flags: number): number {
  return flags & COMPLETION_ON_SUCCESS ? SendFlag.SIGNALED : 0;
}
