/**
 * Set beside AccessFlag: LOCAL_INV and SEND_WITH_INV may kill the key. Regions that peers were not
 * meant to end do not have it.
 */
export const INVALIDATABLE: u32 = 0x80000000;

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
