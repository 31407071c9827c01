/** Which memory a layout's bytes lie in: what a FLUSH through it has to reach. */
import { Arena } from '../memory/arena';
import { entryAt, slotIndex, translate } from './key-table';
import { Layout, Nesting } from './layout';
import { findBelow, findLayout, readSource } from './layout-find';
import { reachesInstance } from './layout-walk';

/** Ranges of linear memory, 8 bytes each: address, then length. */
export const LAYOUT_PIECES_MAX: u32 = 16;
/** Limit of visited sources: more would take too long for one packet. */
const STEPS_MAX: u32 = 1 << 22;

/**
 * The ranges that hold the bytes of a layout that a peer names, at `pieces` (0: only looks): how
 * many, 0 when the key or one of its bases does not allow it. They may hold other bytes, too:
 * sources are taken as a whole, those of one region that lie in a row become one range, and what is
 * beyond LAYOUT_PIECES_MAX is taken into the last one. `whole`: all that the layout can reach.
 */
export function layoutPieces(
  arena: Arena,
  key: u32,
  pd: u32,
  address: u64,
  length: u32,
  whole: bool,
  need: u32,
  pieces: usize,
): u32 {
  const layout = findLayout(arena, key, pd, need);
  if (layout == null) return 0;
  let base: u64 = 0;
  let reach: u64 = 0;
  if (layout.stencil) {
    const first = address / layout.packed;
    const last = (address + max<u32>(length, 1) - 1) / layout.packed;
    if (address + length < address || !reachesInstance(layout, last)) return 0;
    // Begin at the lowest instance: with a negative extent that is the last one.
    const lowest = layout.extent < 0 ? last : first;
    base = layout.origin + lowest * layout.extent;
    reach = (last - first) * <u64>abs<i64>(layout.extent);
  } else if (!whole) {
    const offset = address - layout.origin;
    if (offset > <u64>layout.packed || length > layout.packed - <u32>offset) return 0;
  }
  const walked = walk(arena, layout, pd, need, base, reach, whole, pieces, packed(0, STEPS_MAX));
  return <u32>walked;
}

/** Result of a walk, and the number of sources that it may still visit in all layouts together. */
function packed(count: u32, steps: u32): u64 {
  return count | ((<u64>steps) << 32);
}

/**
 * Adds the pieces of one layout, from its base to `reach` bytes beyond, to those of `before`
 * (packed); 0: not allowed, or more sources than remaining steps. If several sources refer to the
 * same layout, the whole layout counts for each of them, so it is walked for the first one only.
 */
function walk(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  base: u64,
  reach: u64,
  whole: bool,
  pieces: usize,
  before: u64,
): u64 {
  let count = <u32>before;
  let steps = <u32>(before >> 32);
  if (layout.count > steps) return 0;
  steps -= layout.count;
  for (let index: u32 = 0; index < layout.count; index++) {
    const source = readSource(arena, layout, index);
    if (source == null) return 0;
    if (source.nested == <u32>Nesting.AGAIN) continue;
    if (source.nested) {
      const inner = findBelow(arena, layout, source.key, pd, need);
      if (inner == null || inner.level >= layout.level) return 0;
      // Where a stencil below has been put is not worked out: all that it could reach.
      const all = whole || inner.stencil != 0;
      const walked = walk(arena, inner, pd, need, 0, 0, all, pieces, packed(count, steps));
      if (walked == 0) return 0;
      count = <u32>walked;
      steps = <u32>(walked >> 32);
      continue;
    }
    let first = base + source.address;
    let bytes = reach + source.span;
    if (whole || bytes >> 32 != 0) {
      const entry = entryAt(arena, slotIndex(arena, source.key));
      first = entry.iova;
      bytes = entry.length;
    }
    const linear = translate(arena, source.key, pd, first, <u32>bytes, need);
    if (linear == 0) return 0;
    count = add(pieces, count, <u32>linear, <u32>bytes);
  }
  return packed(count, steps);
}

function add(pieces: usize, count: u32, address: u32, length: u32): u32 {
  if (pieces == 0) return count + 1;
  if (count > 0) {
    const last = pieces + <usize>((count - 1) * 8);
    const start = load<u32>(last);
    const end = start + load<u32>(last, 4);
    const near = address <= end && start <= address + length;
    if (near || count == LAYOUT_PIECES_MAX) {
      const low = min<u32>(start, address);
      store<u32>(last, low);
      store<u32>(last, max<u32>(end, address + length) - low, 4);
      return count;
    }
  }
  const at = pieces + <usize>(count * 8);
  store<u32>(at, address);
  store<u32>(at, length, 4);
  return count + 1;
}
