/**
 * Finds the layouts below a layout, at any depth: the search for a cycle.
 *
 * Each layout is expanded once, however many sources refer to it, so the search reads every program
 * below once. One bit per key slot marks a layout as found, a second one as expanded. The search
 * scans the bits in rounds; usable layouts are at most four deep, so it ends after a few rounds.
 * Memory and stack are constant, whatever the depth of nesting, and whatever another process has
 * written into a program.
 * ```
 *  scratch:  | found, a bit a key slot | expanded, a bit a key slot |
 * ```
 */
import { Arena } from '../memory/arena';
import { entryAt, slotIndex } from './key-table';
import { Layout, Nesting } from './layout';
import { findLayout, readSource } from './layout-find';

/** Limit of steps (sources and words of bits): above the number that any memory can hold. */
const BYTES_A_STEP: u64 = 32;

/** Bytes of one bit row. */
function rowBytes(arena: Arena): u32 {
  return ((arena.keyMask + 32) >>> 5) << 2;
}

/** Bytes of scratch memory for `reaches`. */
export function searchBytes(arena: Arena): u32 {
  return 2 * rowBytes(arena);
}

/**
 * Is the region of `key` among the layouts below, at any depth? `scratch`: searchBytes. Notes in
 * `nested` of each source whether an earlier one refers to the same layout (Nesting.AGAIN): a walk
 * over all layouts below visits it once. True also if the search exceeds its limit, which happens
 * only with programs that are being rewritten, or chains of layouts that could never be used.
 */
export function reaches(arena: Arena, layout: Layout, key: u32, scratch: usize): bool {
  const bytes = rowBytes(arena);
  const expanded = scratch + bytes;
  memory.fill(scratch, 0, 2 * bytes);
  let steps = ((<u64>memory.size()) << 16) / BYTES_A_STEP;
  let at: usize = 0;
  let next: Layout | null = layout;
  while (true) {
    if (next != null) {
      if (next.count > steps) return true;
      steps -= next.count;
      if (expand(arena, scratch, next, key, next == layout)) return true;
    }
    let waiting: u32 = 0;
    for (let words = bytes >>> 2; words > 0; words--) {
      waiting = load<u32>(scratch + at) & ~load<u32>(expanded + at);
      if (waiting != 0) break;
      if (steps-- == 0) return true;
      at += 4;
      if (at == bytes) at = 0;
    }
    if (waiting == 0) return false;
    const slot = ((<u32>at) << 3) + ctz(waiting);
    store<u32>(expanded + at, load<u32>(expanded + at) | (waiting & -waiting));
    next = findLayout(arena, entryAt(arena, slot).key, layout.pd, 0);
  }
}

/** Marks the layouts of all sources as found. True: the layout of `key` is one of them. */
function expand(arena: Arena, found: usize, layout: Layout, key: u32, notes: bool): bool {
  for (let index: u32 = 0; index < layout.count; index++) {
    const source = readSource(arena, layout, index);
    if (source == null || !source.nested) continue;
    // Compare the upper 24 bits: the low byte of a key repeats after 256 changes.
    if ((source.key ^ key) >>> 8 == 0) return true;
    const slot = slotIndex(arena, source.key);
    if ((entryAt(arena, slot).key ^ source.key) >>> 8 != 0) continue;
    const word = found + <usize>((slot >>> 5) << 2);
    const bits = load<u32>(word);
    const bit = (<u32>1) << (slot & 31);
    store<u32>(word, bits | bit);
    if (notes && bits & bit) source.nested = Nesting.AGAIN;
  }
  return false;
}
