/**
 * `ibv_mw`: a key of its own for a part of a region, with rights of its own, which a work request
 * gives and takes away.
 */
import { mustBe } from '../../errors/check-whole.js';
import type { AccessFlags, SendFlags } from '../enums.js';
import { AccessFlag, KeyKind, KeyState, MwType, QpType } from '#build/abi.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { FastMemoryRegion } from './fast-memory-region.js';
import { Key, incRkey } from './key.js';
import { MemoryRegion, type RegionCounters } from './memory-region.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import type { QueuePair } from '../queues/queue-pair.js';
import type { Binding } from '../queues/work-request.js';

/** `ibv_mw_bind_info`. */
export interface MwBindInfo {
  /** Registered with AccessFlag.MW_BIND, and not zero-based. */
  readonly mr: MemoryRegion | FastMemoryRegion;
  /** Where the window begins, by the region's addressing. */
  readonly addr: number | bigint;
  /** Bytes. 0 unbinds a window of type 1; one of type 2 is invalidated instead. */
  readonly length: number;
  /** Made of AccessFlag.REMOTE_…; type 2 also ZERO_BASED: peers count from the window's start. */
  readonly mwAccessFlags: AccessFlags;
}

/** `ibv_mw_bind`: what `qp.bindMw()` takes. */
export interface MwBind {
  readonly wrId?: number | bigint;
  /** Made of SendFlag: FENCE, SIGNALED. */
  readonly sendFlags?: SendFlags;
  /** Length 0 needs no region. */
  readonly bindInfo: Omit<MwBindInfo, 'mr'> & { readonly mr?: MwBindInfo['mr'] };
}

/** Of a WrOpcode.BIND_MW. */
export interface BindMw {
  /** Of type 2. */
  readonly mw: MemoryWindow;
  /** The key that it gets: `mw.rkey`, or that with another low byte (`incRkey`). */
  readonly rkey: number;
  readonly bindInfo: MwBindInfo;
}

const WINDOW_ACCESS =
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC |
  AccessFlag.ZERO_BASED;

/** `struct ibv_mw`: a key for a part of a region (`pd.allocMw`). IBA 10.6.7. */
export class MemoryWindow {
  readonly #key: Key;
  /** The key that `qp.bindMw()` asked for last. */
  #asked: number;

  /** @internal Use `pd.allocMw()`. */
  constructor(
    readonly pd: ProtectionDomain,
    /** An MwType. */
    readonly type: number,
  ) {
    if (type !== MwType.TYPE_1 && type !== MwType.TYPE_2) {
      throw mustBe('type', 'an MwType', type);
    }
    const kind = type === MwType.TYPE_1 ? KeyKind.WINDOW_TYPE_1 : KeyKind.WINDOW_TYPE_2;
    this.#key = new Key(pd.context, { kind, pd: pd.handle }, 'allocMw');
    this.#asked = this.#key.value;
    pd.resources.add(this);
  }

  /**
   * The key of its last bind; opens nothing while it is not bound. A bind that is posted changes it
   * when it is executed; one that fails leaves it.
   */
  get rkey(): number {
    return this.#key.value;
  }

  /** Is it bound? Whether it opens anything is also up to its region. */
  get bound(): boolean {
    return this.#key.live && this.#key.note.state === KeyState.LIVE;
  }

  /**
   * `ibv_dealloc_mw`, bound or not: its key is dead at once. Throws RefusalError EBUSY when another
   * thread does not leave the memory: call again later.
   */
  dealloc(): void {
    if (this.#key.gone) throw new MisuseError('memory window', 'is deallocated already');
    this.#key.release('dealloc');
    this.pd.resources.delete(this);
  }

  /** Operations of peers on this window, on any memory that it was bound to. */
  counters(): RegionCounters {
    this.#check();
    return this.#key.counters();
  }

  /** @internal What a BIND_MW of type 2 puts into the ring. */
  binding(request: BindMw): Binding {
    this.#check();
    if (this.type !== MwType.TYPE_2) {
      throw new MisuseError('bindMw.mw', 'is not valid with type 1: use qp.bindMw()');
    }
    return this.#binding(request.rkey, request.bindInfo);
  }

  /** @internal The same for a window of type 1, whose next key is ours to choose. */
  nextBinding(qp: QueuePair, info: MwBind['bindInfo']): Binding {
    this.#check();
    if (qp.qpType === QpType.UD) {
      throw new RefusalError('EOPNOTSUPP', 'bindMw: UD queue pairs cannot bind windows; use RC');
    }
    if (this.pd !== qp.pd || (info.mr?.pd ?? this.pd) !== this.pd) {
      const sentence = 'bindMw: window, region and queue pair must be of one protection domain';
      throw new RefusalError('EPERM', sentence);
    }
    if (this.type !== MwType.TYPE_1) {
      throw new RefusalError('EINVAL', 'bindMw: the window is of type 2; post a WrOpcode.BIND_MW');
    }
    if (info.mwAccessFlags & AccessFlag.ZERO_BASED) {
      throw new RefusalError(
        'EINVAL',
        'bindMw: a window of type 1 cannot be zero-based; leave ZERO_BASED out',
      );
    }
    return this.#binding(incRkey(this.#asked), info);
  }

  /** @internal A bind of type 1 was posted. */
  asked(key: number): void {
    this.#asked = key;
  }

  #binding(key: number, info: MwBind['bindInfo']): Binding {
    const { mr, addr, length, mwAccessFlags } = info;
    if (!Number.isSafeInteger(length) || length < 0) {
      throw mustBe('length', 'a whole number of bytes', length);
    }
    if (!Number.isInteger(mwAccessFlags) || (mwAccessFlags & ~WINDOW_ACCESS) !== 0) {
      throw mustBe('mwAccessFlags', 'made of REMOTE_* and, for type 2, ZERO_BASED', mwAccessFlags);
    }
    const isRegion = mr instanceof MemoryRegion || mr instanceof FastMemoryRegion;
    if (!isRegion && (length !== 0 || mr !== undefined)) {
      throw new MisuseError('bindInfo.mr', 'must be a region with AccessFlag.MW_BIND');
    }
    return {
      target: this.#key.value,
      key,
      base: mr?.lkey ?? 0,
      address: addr,
      memory: 0,
      length,
      access: mwAccessFlags,
    };
  }

  #check(): void {
    if (!this.#key.live) throw new MisuseError('memory window', 'is deallocated');
  }

  [Symbol.dispose](): void {
    if (!this.#key.gone) this.dealloc();
  }
}
