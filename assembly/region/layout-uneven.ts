/**
 * Where sources of different length interleave: one that has given all it has is passed over, so a
 * cycle's bytes become fewer as cycles go on. To find an offset without walking there:
 *
 * A source gives `repeated` data in each of its whole cycles, and the rest in one more: two items,
 * a weight (bytes a cycle) each until its cycle. Items in the order of those cycles, with the
 * weights behind each summed up, tell which cycle an offset lies in. Within a cycle the sources are
 * leaves of a tree, in their own order: each node has the items of its leaves, sorted and summed
 * up in the same way, so it tells what its leaves give in any cycle by one binary search.
 * ```
 *   level 1   [ items of sources 0..15 ][ items of sources 16..31 ] ...
 *   level 2   [ items of sources 0..31                            ] ...
 *   top       [ items of all sources                                  ] and an offset each
 * ```
 * Below the lowest level 16 sources are simply asked. n sources take 16 n bytes a level.
 */
import { Layout, LayoutSource, sourceAt } from './layout';

/** Entry of a node for one of its items. */
@unmanaged
class Item {
  /** In this cycle, and later, it gives nothing. */
  until: u32;
  /** Bytes that it and the items behind it give in a cycle before. */
  weight: u32;
}
const ITEM_SIZE: u32 = 8;
/** Sources of a node of the lowest level. */
const LEAVES: u32 = 16;

/** More cycles than any source has. */
const NO_CYCLE: u32 = 0xffffffff;

/** Levels of a tree whose top has all sources in one node. */
function levelsOf(count: u32): u32 {
  return 33 - clz((count - 1) / LEAVES);
}

/** Bytes of the tables: items, level by level, then an offset of each item of the top. */
export function unevenBytes(count: u32): u32 {
  return count * 2 * (ITEM_SIZE * levelsOf(count) + 4);
}

/** A u32 per item of the top: where in the stream the cycle `until` begins. */
function offsetsOf(layout: Layout): usize {
  return layout.uneven + <usize>(layout.count * 2 * ITEM_SIZE * levelsOf(layout.count));
}

/** The item `index` of a level; level 0 is the lowest. */
function itemAt(layout: Layout, level: u32, index: u32): Item {
  const at = (level * layout.count * 2 + index) * ITEM_SIZE;
  return changetype<Item>(layout.uneven + <usize>at);
}

/** Bytes that a source gives in a cycle. */
export function givenIn(source: LayoutSource, cycle: u32): u32 {
  const before = <u64>cycle * source.repeated;
  if (before >= source.total) return 0;
  return min<u32>(source.repeated, source.total - <u32>before) * source.datum;
}

/** Fills in the tables at `layout.uneven`, which are zero. */
export function compileUneven(layout: Layout): void {
  const offsets = offsetsOf(layout);
  const items = layout.count * 2;
  const levels = levelsOf(layout.count);
  for (let index: u32 = 0; index < layout.count; index++) {
    const source = sourceAt(layout, index);
    const whole = source.total / source.repeated;
    const rest = source.total - whole * source.repeated;
    put(layout, index * 2, whole, (source.repeated - rest) * source.datum);
    put(layout, index * 2 + 1, rest > 0 ? whole + 1 : whole, rest * source.datum);
  }
  for (let first: u32 = 0; first < items; first += LEAVES * 2) {
    sort(layout, first, min<u32>(first + LEAVES * 2, items));
  }
  for (let level: u32 = 1; level < levels; level++) merge(layout, level);
  for (let level: u32 = 0; level < levels; level++) sumUp(layout, level);
  // The stream's offset at which the cycle of each of the top's items begins.
  const top = levels - 1;
  let offset: u32 = 0;
  let cycle: u32 = 0;
  for (let index: u32 = 0; index < items; index++) {
    const item = itemAt(layout, top, index);
    offset += (item.until - cycle) * item.weight;
    cycle = item.until;
    store<u32>(offsets + <usize>(index << 2), offset);
  }
}

function put(layout: Layout, index: u32, until: u32, weight: u32): void {
  const item = itemAt(layout, 0, index);
  item.until = until;
  item.weight = weight;
}

/** Insertion: a node of the lowest level has 32 items. */
function sort(layout: Layout, first: u32, end: u32): void {
  for (let index = first + 1; index < end; index++) {
    const item = itemAt(layout, 0, index);
    const until = item.until;
    const weight = item.weight;
    let place = index;
    while (place > first && itemAt(layout, 0, place - 1).until > until) {
      const before = itemAt(layout, 0, place - 1);
      put(layout, place, before.until, before.weight);
      place--;
    }
    put(layout, place, until, weight);
  }
}

/** Nodes of a level from pairs of nodes of the level below, whose weights are not summed up yet. */
function merge(layout: Layout, level: u32): void {
  const items = layout.count * 2;
  const size = (LEAVES * 2) << level;
  for (let first: u32 = 0; first < items; first += size) {
    const middle = min<u32>(first + (size >> 1), items);
    const end = min<u32>(first + size, items);
    let left = first;
    let right = middle;
    for (let index = first; index < end; index++) {
      const fromLeft =
        right == end ||
        (left < middle &&
          itemAt(layout, level - 1, left).until <= itemAt(layout, level - 1, right).until);
      const from = itemAt(layout, level - 1, fromLeft ? left++ : right++);
      const to = itemAt(layout, level, index);
      to.until = from.until;
      to.weight = from.weight;
    }
  }
}

/** In each node of a level: weights to sums of what is behind. */
function sumUp(layout: Layout, level: u32): void {
  const items = layout.count * 2;
  const size = (LEAVES * 2) << level;
  for (let first: u32 = 0; first < items; first += size) {
    let sum: u32 = 0;
    for (let index = min<u32>(first + size, items); index > first; index--) {
      const item = itemAt(layout, level, index - 1);
      sum += item.weight;
      item.weight = sum;
    }
  }
}

/** Bytes that the items first … end - 1 of a node give in a cycle. */
function weightIn(layout: Layout, level: u32, first: u32, end: u32, cycle: u32): u32 {
  let low = first;
  let high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (itemAt(layout, level, middle).until > cycle) high = middle;
    else low = middle + 1;
  }
  return low == end ? 0 : itemAt(layout, level, low).weight;
}

/** The top's first item whose cycle begins behind `offset`. */
function phaseAt(layout: Layout, offset: u32): u32 {
  const offsets = offsetsOf(layout);
  let low: u32 = 0;
  let high = layout.count * 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (load<u32>(offsets + <usize>(middle << 2)) > offset) high = middle;
    else low = middle + 1;
  }
  return low;
}

function phaseStart(layout: Layout, phase: u32): u32 {
  return phase == 0 ? 0 : load<u32>(offsetsOf(layout) + <usize>((phase - 1) << 2));
}

/**
 * Locates an offset below `packed`: its cycle in the upper 32 bits, its byte within that cycle in
 * the lower 32 bits. The cycle is NO_CYCLE if the tables are inconsistent.
 */
export function placeAt(layout: Layout, offset: u32): u64 {
  const top = levelsOf(layout.count) - 1;
  const phase = phaseAt(layout, offset);
  const weight = itemAt(layout, top, phase).weight;
  if (weight == 0) return (<u64>NO_CYCLE) << 32;
  const begin = phase == 0 ? 0 : itemAt(layout, top, phase - 1).until;
  const behind = offset - phaseStart(layout, phase);
  return ((<u64>(begin + behind / weight)) << 32) | (behind % weight);
}

/** The source that gives byte `rest` of a cycle. */
export function unevenSource(layout: Layout, cycle: u32, rest: u32): u32 {
  const items = layout.count * 2;
  let left = rest;
  let first: u32 = 0;
  for (let level = levelsOf(layout.count) - 1; level > 0; level--) {
    const middle = min<u32>(first + (LEAVES << level), items);
    const given = weightIn(layout, level - 1, first, middle, cycle);
    if (left < given) continue;
    left -= given;
    first = middle;
  }
  let index = first >> 1;
  while (index < layout.count - 1 && left >= givenIn(sourceAt(layout, index), cycle)) {
    left -= givenIn(sourceAt(layout, index), cycle);
    index++;
  }
  return index;
}

/** Bytes of the sources before `index` in a cycle. */
export function unevenWithin(layout: Layout, cycle: u32, index: u32): u32 {
  const items = layout.count * 2;
  let sum: u32 = 0;
  let first: u32 = 0;
  for (let level = levelsOf(layout.count) - 1; level > 0; level--) {
    const middle = min<u32>(first + (LEAVES << level), items);
    if (index * 2 < middle) continue;
    sum += weightIn(layout, level - 1, first, middle, cycle);
    first = middle;
  }
  for (let before = first >> 1; before < index; before++) {
    sum += givenIn(sourceAt(layout, before), cycle);
  }
  return sum;
}
