/**
 * A region that work requests register (`ib_alloc_mr` of the kernel; libibverbs has none): it is
 * made once, gets memory by REG_MR in the order of a send queue, and loses it by LOCAL_INV or the
 * peer's SEND_WITH_INV, as often as one likes.
 */
import { checkWhole } from '../../errors/check-whole.js';
import type { AccessFlags } from '../enums.js';
import { KeyKind, KeyState } from '#build/abi.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Context } from '../context.js';
import { Key, awaitRelease, retryChange } from './key.js';
import { checkBuffer, checkDurable, iovaOf, type RegionCounters } from './memory-region.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import { refuse } from '../refuse.js';
import { areaOf } from './user-memory.js';
import type { Invalidator, PooledRegion } from '../queues/pooled-regions.js';
import type { Binding } from '../queues/work-request.js';

/** Of a WrOpcode.REG_MR (`ib_reg_wr`). */
export interface RegMr {
  readonly mr: FastMemoryRegion;
  /** The key that it gets: `mr.rkey`, or that with another low byte (`incRkey`). */
  readonly key: number;
  /** A buffer of `context.alloc`, or a part; at most `mr.maxLength` bytes. */
  readonly buffer: Uint8Array;
  /** The address of its first byte. Default: its address in the device's memory. */
  readonly iova?: bigint | number;
  /** Made of AccessFlag, as in `pd.regMr()`. */
  readonly access: AccessFlags;
  /** The current pool user of the region (`desc.regMr()` sets it). */
  readonly user?: object;
}

/**
 * A region that work requests register and invalidate (`pd.allocMr`, `WrOpcode.REG_MR`). IBA 10.6.
 */
export class FastMemoryRegion implements PooledRegion {
  /** @internal The only user that may register it; undefined: any. */
  holder: object | undefined;
  #invalidator: Invalidator | undefined;
  #invalidatorIncarnation = 0;
  readonly #key: Key;

  /**
   * @internal Use `pd.allocMr()` or `context.allocMr()`. `taken`: the key of a region that another
   * context made, and that a pool has brought here.
   */
  constructor(
    readonly context: Context,

    /** Its domain; undefined: that of the queue pair whose work request registers it. */
    readonly pd: ProtectionDomain | undefined,

    /** The longest memory that it takes, in bytes. */
    readonly maxLength: number,
    taken?: number,
  ) {
    checkWhole('maxLength', maxLength, 1);
    const kind = pd ? KeyKind.FAST_REGION : KeyKind.MOBILE_REGION;
    this.#key = new Key(context, taken ?? { kind, pd: pd?.handle ?? 0 }, 'allocMr');
    if (taken === undefined) (pd ?? context).resources.add(this);
  }

  /** The key of its last registration; opens nothing while it is not registered. */
  get lkey(): number {
    return this.#key.value;
  }

  get rkey(): number {
    return this.#key.value;
  }

  /** Has a REG_MR been executed, and no invalidation since? */
  get registered(): boolean {
    return this.#key.live && this.#key.note.state === KeyState.LIVE;
  }

  /**
   * `ibv_dereg_mr`, registered or not. Throws RefusalError EBUSY while a window is bound to the
   * region, while it belongs to a pool, or if another thread does not leave the memory: call again.
   */
  dereg(): void {
    if (this.#key.gone) throw new MisuseError('memory region', 'is deregistered already');
    if (this.holder)
      throw new RefusalError('EBUSY', 'dereg: the region is in a pool; call removeMr first');
    this.#key.release('dereg', 'a memory window is bound to the region; unbind it first');
    (this.pd ?? this.context).resources.delete(this);
  }

  /**
   * Invalidates the region without a queue pair, as LOCAL_INV does: for a dead connection, which
   * executes no more work requests. Returns when no engine uses the memory; has no effect on a
   * region that is not registered. Throws MisuseError (deregistered), RefusalError EINVAL (another
   * process holds the region), EBUSY (an engine does not leave the memory: call again).
   */
  revoke(): void {
    if (!this.#key.live) throw new MisuseError('memory region', 'is deregistered');
    const { arena, engine } = this.context.device;
    const key = this.#key.value;
    refuse(
      retryChange(() => arena.exports.killFastMr(engine.context, key)),
      'revoke',
      {
        EINVAL: 'another process or thread holds the region; revoke it there',
        EAGAIN: 'another thread is changing the region; call again',
      },
    );
    if (!awaitRelease(() => arena.exports.mrRevoked(engine.context, key))) {
      throw new RefusalError('EBUSY', 'revoke: an engine still uses the memory; call again');
    }
    this.#invalidator = undefined;
  }

  /** @internal A queue pair posts a LOCAL_INV of the region. */
  noteInvalidator(queuePair: Invalidator): void {
    this.#invalidator = queuePair;
    this.#invalidatorIncarnation = queuePair.incarnation;
  }

  /**
   * @internal Will the last posted LOCAL_INV be executed? False if its queue pair has been in ERR
   * since then, or was destroyed.
   */
  get isBeingInvalidated(): boolean {
    const incarnation = this.#invalidator?.incarnation ?? 0;
    return incarnation !== 0 && incarnation === this.#invalidatorIncarnation;
  }

  /**
   * @internal A queue pair posts a REG_MR. If the region is still registered, only the queue pair
   * that executes its LOCAL_INV before may post it. Throws RefusalError EBUSY.
   */
  checkPost(queuePair: Invalidator): void {
    if (this.holder === undefined || !this.registered) return;
    if (this.#invalidator === queuePair && this.isBeingInvalidated) return;
    throw new RefusalError(
      'EBUSY',
      'REG_MR: the region is registered; wait for the completion of its LOCAL_INV, or pool.revoke it',
    );
  }

  /** Operations of peers on this region, on any memory that it had. */
  counters(): RegionCounters {
    if (!this.#key.live) throw new MisuseError('memory region', 'is deregistered');
    return this.#key.counters();
  }

  /** @internal What a REG_MR puts into the ring. */
  binding(request: RegMr): Binding {
    const { buffer, access, key } = request;
    if (!this.#key.live) throw new MisuseError('regMr.mr', 'is deregistered');
    if (this.holder !== undefined && this.holder !== request.user) {
      throw new RefusalError(
        'EACCES',
        'REG_MR: the region belongs to another user of its pool; get another',
      );
    }
    const allocation = checkBuffer(this.context, buffer);
    if (buffer.length > this.maxLength) {
      const rule = `has ${buffer.length} bytes, the region was made for ${this.maxLength}`;
      throw new MisuseError('regMr.buffer', rule);
    }
    checkDurable(this.context, buffer, access, 'REG_MR');
    return {
      target: this.#key.value,
      key,
      base: areaOf(this.context, allocation),
      address: iovaOf(buffer, access, request.iova),
      memory: buffer.byteOffset,
      length: buffer.length,
      access,
    };
  }

  [Symbol.dispose](): void {
    if (!this.#key.gone) this.dereg();
  }
}
