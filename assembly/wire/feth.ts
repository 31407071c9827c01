/**
 * FETH, 4 bytes (memory placement extensions, IBA annex A19): what a FLUSH has to reach, and for
 * what.
 * ```
 *  31                                      6   5 : 4         3 : 0
 *  | reserved                              | selectivity | placement |
 * ```
 */

/** `ibv_placement_type`: a mask, and neither bit implies the other. */
export enum PlacementType {
  GLOBAL = 1,
  PERSISTENT = 2,
}

/** `ibv_selectivity_level`. */
export enum SelectivityLevel {
  RANGE = 0,
  MR = 1,
}

/** Bits of PlacementType, and those that nobody has given a meaning. */
export function placementOf(feth: u32): u32 {
  return feth & 0x0f;
}

/** A SelectivityLevel, or 2 or 3. */
export function selectivityOf(feth: u32): u32 {
  return (feth >> 4) & 3;
}
