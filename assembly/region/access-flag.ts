/**
 * Set beside AccessFlag: LOCAL_INV and SEND_WITH_INV may kill the key. Regions that peers were not
 * meant to end do not have it.
 */
export const INVALIDATABLE: u32 = 0x80000000;
/** Set beside AccessFlag: work requests of the owner may name the key. Windows do not have it. */
export const LOCAL_USE: u32 = 0x40000000;

/** Kind of the object under a key; set beside AccessFlag, too. */
export enum KeyKind {
  /** `ibv_reg_mr`. */
  REGION = 0,
  /** `ibv_reg_mr` without memory: opens what its layout names (layout.ts). */
  LAYOUT = 0x00800000,
  /** Memory that REG_MR may take from. Opens nothing by itself. */
  AREA = 0x01000000,
  /** `ibv_alloc_null_mr`. */
  NULL_REGION = 0x02000000,
  /** Registered by REG_MR, in the domain of the queue pair that does it. */
  MOBILE_REGION = 0x04000000,
  /** Registered by REG_MR, in one domain. */
  FAST_REGION = 0x08000000,
  WINDOW_TYPE_2 = 0x10000000,
  WINDOW_TYPE_1 = 0x20000000,
}
export const KIND_BITS: u32 = 0x3f800000;

/** `ibv_mw_type`. */
export enum MwType {
  TYPE_1 = 1,
  TYPE_2 = 2,
}

/** `ibv_access_flags`. */
export enum AccessFlag {
  LOCAL_WRITE = 1,
  REMOTE_WRITE = 2,
  REMOTE_READ = 4,
  REMOTE_ATOMIC = 8,
  MW_BIND = 16,
  ZERO_BASED = 32,
  ON_DEMAND = 64,
  HUGETLB = 128,
  FLUSH_GLOBAL = 256,
  FLUSH_PERSISTENT = 512,
  RELAXED_ORDERING = 0x100000,
}
