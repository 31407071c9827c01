/** A ring of bits, numbered as what they stand for; `size` is a power of two, 64 at least. */

function wordOf(ring: usize, size: u32, index: u32): usize {
  return ring + <usize>(((index & (size - 1)) >> 6) << 3);
}

function bitOf(index: u32): u64 {
  const one: u64 = 1;
  const shift: u64 = index & 63;
  return one << shift;
}

export function isBitSet(ring: usize, size: u32, index: u32): bool {
  return (load<u64>(wordOf(ring, size, index)) & bitOf(index)) != 0;
}

export function setBit(ring: usize, size: u32, index: u32): void {
  const word = wordOf(ring, size, index);
  store<u64>(word, load<u64>(word) | bitOf(index));
}

export function clearBit(ring: usize, size: u32, index: u32): void {
  const word = wordOf(ring, size, index);
  store<u64>(word, load<u64>(word) & ~bitOf(index));
}

/** Clears `count` bits from `index` on. */
export function clearBits(ring: usize, size: u32, index: u32, count: u32): void {
  while (count != 0) {
    const word = wordOf(ring, size, index);
    const skipped = index & 63;
    const bits = min<u32>(64 - skipped, count);
    const mask = ((<u64>-1) >> (<u64>(64 - bits))) << (<u64>skipped);
    store<u64>(word, load<u64>(word) & ~mask);
    index += bits;
    count -= bits;
  }
}

/** 64 bits from `index` on, the first of them the least significant. */
export function bitsFrom(ring: usize, size: u32, index: u32): u64 {
  const low = load<u64>(wordOf(ring, size, index));
  const shift = <u64>(index & 63);
  if (shift == 0) return low;
  return (low >> shift) | (load<u64>(wordOf(ring, size, index + 64)) << (64 - shift));
}

/** Bytes of a ring. */
export function bitRingBytes(size: u32): u32 {
  return max<u32>(size, 64) >> 3;
}
