/**
 * Poly1305 (RFC 8439, 2.5) in words of 32 bits with products of 64: of the clamped multiplier the
 * two low bits of its three upper words are 0, so that 5/4 of a word is a whole number, and a
 * product that leaves 130 bits returns without a shift. Constant time: no branch and no address
 * depends on the key or on the data.
 */

/** State of one computation. `begin` fills it; then whole blocks; then `finish`. */
@unmanaged
export class Poly1305 {
  /** Accumulator: 130 bits and a little. */
  h0: u32;
  h1: u32;
  h2: u32;
  h3: u32;
  h4: u32;
  /** Multiplier, clamped. */
  r0: u32;
  r1: u32;
  r2: u32;
  r3: u32;
  /** Addend of the tag. */
  s0: u32;
  s1: u32;
  s2: u32;
  s3: u32;
}
export const POLY1305_BYTES: u32 = 64;
export const TAG_SIZE: u32 = 16;

/** `key`: 32 bytes that are used for this one message. */
export function polyBegin(state: Poly1305, key: usize): void {
  state.h0 = 0;
  state.h1 = 0;
  state.h2 = 0;
  state.h3 = 0;
  state.h4 = 0;
  state.r0 = load<u32>(key) & 0x0fffffff;
  state.r1 = load<u32>(key, 4) & 0x0ffffffc;
  state.r2 = load<u32>(key, 8) & 0x0ffffffc;
  state.r3 = load<u32>(key, 12) & 0x0ffffffc;
  state.s0 = load<u32>(key, 16);
  state.s1 = load<u32>(key, 20);
  state.s2 = load<u32>(key, 24);
  state.s3 = load<u32>(key, 28);
}

/** `count` blocks of 16 bytes at `from`. */
export function polyBlocks(state: Poly1305, from: usize, count: u32): void {
  const r0: u64 = state.r0;
  const r1: u64 = state.r1;
  const r2: u64 = state.r2;
  const r3: u64 = state.r3;
  const t1 = r1 + (r1 >> 2);
  const t2 = r2 + (r2 >> 2);
  const t3 = r3 + (r3 >> 2);
  let h0: u64 = state.h0;
  let h1: u64 = state.h1;
  let h2: u64 = state.h2;
  let h3: u64 = state.h3;
  let h4: u64 = state.h4;
  const end = from + ((<usize>count) << 4);
  for (let at = from; at < end; at += 16) {
    // The block and a bit above it. Words of the sum may have 33 bits: their carries come along.
    let d0 = h0 + <u64>load<u32>(at);
    let d1 = h1 + <u64>load<u32>(at, 4) + (d0 >> 32);
    let d2 = h2 + <u64>load<u32>(at, 8) + (d1 >> 32);
    let d3 = h3 + <u64>load<u32>(at, 12) + (d2 >> 32);
    h4 += (d3 >> 32) + 1;
    h0 = d0 & 0xffffffff;
    h1 = d1 & 0xffffffff;
    h2 = d2 & 0xffffffff;
    h3 = d3 & 0xffffffff;
    d0 = h0 * r0 + h1 * t3 + h2 * t2 + h3 * t1;
    d1 = h0 * r1 + h1 * r0 + h2 * t3 + h3 * t2 + h4 * t1;
    d2 = h0 * r2 + h1 * r1 + h2 * r0 + h3 * t3 + h4 * t2;
    d3 = h0 * r3 + h1 * r2 + h2 * r1 + h3 * r0 + h4 * t3;
    h4 *= r0;
    d1 += d0 >> 32;
    d2 += d1 >> 32;
    d3 += d2 >> 32;
    h4 += d3 >> 32;
    // Bits from 130 on return, five times.
    const above = (h4 >> 2) + (h4 & ~(<u64>3));
    h4 &= 3;
    d0 = (d0 & 0xffffffff) + above;
    d1 = (d1 & 0xffffffff) + (d0 >> 32);
    d2 = (d2 & 0xffffffff) + (d1 >> 32);
    d3 = (d3 & 0xffffffff) + (d2 >> 32);
    h4 += d3 >> 32;
    h0 = d0 & 0xffffffff;
    h1 = d1 & 0xffffffff;
    h2 = d2 & 0xffffffff;
    h3 = d3 & 0xffffffff;
  }
  state.h0 = <u32>h0;
  state.h1 = <u32>h1;
  state.h2 = <u32>h2;
  state.h3 = <u32>h3;
  state.h4 = <u32>h4;
}

/** The tag of 16 bytes, to `tag`. */
export function polyFinish(state: Poly1305, tag: usize): void {
  const h0: u64 = state.h0;
  const h1: u64 = state.h1;
  const h2: u64 = state.h2;
  const h3: u64 = state.h3;
  // The accumulator less 2^130 - 5, if that is not negative.
  let g = h0 + 5;
  const g0 = g & 0xffffffff;
  g = h1 + (g >> 32);
  const g1 = g & 0xffffffff;
  g = h2 + (g >> 32);
  const g2 = g & 0xffffffff;
  g = h3 + (g >> 32);
  const g3 = g & 0xffffffff;
  const takes: u64 = 0 - ((<u64>state.h4 + (g >> 32)) >> 2);
  let sum = (h0 ^ ((h0 ^ g0) & takes)) + <u64>state.s0;
  store<u32>(tag, <u32>sum);
  sum = (h1 ^ ((h1 ^ g1) & takes)) + <u64>state.s1 + (sum >> 32);
  store<u32>(tag, <u32>sum, 4);
  sum = (h2 ^ ((h2 ^ g2) & takes)) + <u64>state.s2 + (sum >> 32);
  store<u32>(tag, <u32>sum, 8);
  sum = (h3 ^ ((h3 ^ g3) & takes)) + <u64>state.s3 + (sum >> 32);
  store<u32>(tag, <u32>sum, 12);
}
