/** Copies, tuned for what packets are made of. Addresses and lengths are checked before. */

/**
 * Copies `length` bytes between ranges that do not overlap. Short copies go by vectors: entering
 * memory.copy costs more than it saves below a few hundred bytes.
 */
export function copyBytes(target: usize, source: usize, length: u32): void {
  if (length > 256) {
    memory.copy(target, source, length);
    return;
  }
  if (length < 16) {
    copyShort(target, source, length);
    return;
  }
  // The last vector overlaps the one before it, so there is no tail.
  const end = length - 16;
  for (let at: u32 = 0; at < end; at += 16) v128.store(target + at, v128.load(source + at));
  v128.store(target + end, v128.load(source + end));
}

/** The same for ranges that may overlap. */
export function moveBytes(target: usize, source: usize, length: u32): void {
  const overlap = target - source < <usize>length || source - target < <usize>length;
  if (overlap) memory.copy(target, source, length);
  else copyBytes(target, source, length);
}

function copyShort(target: usize, source: usize, length: u32): void {
  if (length >= 8) {
    const tail = load<u64>(source + length - 8);
    store<u64>(target, load<u64>(source));
    store<u64>(target + length - 8, tail);
    return;
  }
  if (length >= 4) {
    const tail = load<u32>(source + length - 4);
    store<u32>(target, load<u32>(source));
    store<u32>(target + length - 4, tail);
    return;
  }
  for (let at: u32 = 0; at < length; at++) store<u8>(target + at, load<u8>(source + at));
}

/** Rounds up to a multiple of `unit`, a power of two. */
export function roundUp(value: u32, unit: u32): u32 {
  return (value + unit - 1) & ~(unit - 1);
}

/** The smallest power of two that is at least `value`; 1 for 0. */
export function powerOfTwo(value: u32): u32 {
  return value <= 1 ? 1 : 1 << (32 - clz(value - 1));
}
