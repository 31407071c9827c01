/**
 * Packet sequence numbers: 24 bits, compared over a window of 2^23 (IBA 9.7.2). A plain `<` is
 * wrong at the wrap, so nothing outside this file compares PSNs by hand.
 */

export const PSN_MASK: u32 = 0xffffff;

/** a + n, modulo 2^24. */
export function psnAdd(a: u32, n: u32): u32 {
  return (a + n) & PSN_MASK;
}

/** How many steps lead from `from` forward to `to`: 0 .. 2^24 - 1. */
export function psnDistance(from: u32, to: u32): u32 {
  return (to - from) & PSN_MASK;
}

/** Negative when a comes before b, 0 when they are equal, positive when a comes after b. */
export function psnCompare(a: u32, b: u32): i32 {
  return <i32>((a - b) << 8);
}
