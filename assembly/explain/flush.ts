/** The bits of a FETH (memory placement extensions): what a FLUSH has to reach, and for what. */

/** Bits of the placement type, FETH 3:0. */
export enum Placement {
  GLOBAL = 1,
  PERSISTENT = 2,
}

/** Selectivity level, FETH 5:4. */
export enum Selectivity {
  RANGE = 0,
  MR = 1,
}

/** FETH 3:0. */
export function placementOf(flush: u32): u32 {
  return flush & 0x0f;
}

/** FETH 5:4. */
export function selectivityOf(flush: u32): u32 {
  return (flush >> 4) & 3;
}

/** `globally visible and persistent`. */
export function placementPhrase(placement: u32): string {
  const known = placement & (Placement.GLOBAL | Placement.PERSISTENT);
  if (known == (Placement.GLOBAL | Placement.PERSISTENT)) return 'globally visible and persistent';
  if (known == Placement.GLOBAL) return 'globally visible';
  if (known == Placement.PERSISTENT) return 'persistent';
  return '';
}
