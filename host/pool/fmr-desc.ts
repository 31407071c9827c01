/** `ib_fmr_desc`: a region of a pool. */
import type { AccessFlags } from '../verbs/enums.js';
import type { FastMemoryRegion, RegMr } from '../verbs/regions/fast-memory-region.js';
import { incRkey } from '../verbs/regions/key.js';

/** The user of a region, known by its pool. */
export interface DescUser {
  readonly pool: object;
}

/** `struct ib_fmr_desc`: a region that `user.getMr` returned. */
export class FmrDesc {
  /** @internal The user to whose L1 it belongs; undefined: shared. */
  home: DescUser | undefined;
  /** @internal The user that holds the region; undefined if it is free. */
  holder: DescUser | undefined;
  /** @internal */
  readonly firstKey: number;

  /** @internal */
  constructor(
    readonly mr: FastMemoryRegion,
    /** @internal Where the arena has it, and the key that it had when it came into view. */
    readonly index: number,
  ) {
    this.firstKey = mr.rkey;
  }

  /** The key of its registration, which peers use. */
  get rkey(): number {
    return this.mr.rkey;
  }

  get lkey(): number {
    return this.mr.lkey;
  }

  /**
   * Arguments of a WrOpcode.REG_MR with the next key. After `putMr` posting them is refused
   * (EACCES).
   */
  regMr(buffer: Uint8Array, access: AccessFlags, iova?: bigint | number): RegMr {
    const { mr, holder } = this;
    const common = { mr, key: incRkey(mr.rkey), buffer, access, ...(holder && { user: holder }) };
    return iova === undefined ? common : { ...common, iova };
  }
}
