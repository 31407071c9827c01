/**
 * The program under a layout's key, and its sources, as they may be believed.
 *
 * Of an arena that one process has they are read where they lie. Where several share it, programs
 * lie in memory that all of them may write: then head and source are copied before they are looked
 * at, into a place of this process's own, one for each level of nesting, and what does not fit
 * together is no layout. So whatever a process scribbles over, no walk leaves the regions that it
 * has looked up, divides by zero or goes on for ever; which bytes it finds there is not promised.
 * ```
 *  a place:  | Layout, 80 bytes | LayoutSource, 56 bytes | its dimensions, 64 bytes |
 * ```
 */
import { Arena } from '../memory/arena';
import { KeyKind } from './access-flag';
import { READ_ATTEMPTS, entryAt, noteAt, sequenceOf, slotIndex } from './key-table';
import {
  LAYOUT_DIMENSIONS_MAX,
  LAYOUT_DIMENSION_SIZE,
  LAYOUT_NESTING_MAX,
  LAYOUT_SG_MAX,
  LAYOUT_SIZE,
  LAYOUT_SOURCE_SIZE,
  Layout,
  LayoutDimension,
  LayoutSource,
  mayLieAt,
  noteShift,
  sourceAt,
} from './layout';
import { unevenBytes } from './layout-uneven';

const PLACE_SIZE: u32 =
  LAYOUT_SIZE + LAYOUT_SOURCE_SIZE + LAYOUT_DIMENSIONS_MAX * LAYOUT_DIMENSION_SIZE;
/**
 * Scratch memory of a process for walks over programs that others may write (`arena.layoutPlaces`).
 */
export const LAYOUT_PLACES_BYTES: u32 = LAYOUT_NESTING_MAX * PLACE_SIZE;

/**
 * The program under a key; null: not a layout that this domain may use in this way. `need`: bits of
 * access-flag.ts. The result is valid until the engine call ends, or until the next lookup.
 */
export function findLayout(arena: Arena, key: u32, pd: u32, need: u32): Layout | null {
  return find(arena, key, pd, need, arena.layoutPlaces);
}

/** The same for a source of `above`, which stays. */
export function findBelow(
  arena: Arena,
  above: Layout,
  key: u32,
  pd: u32,
  need: u32,
): Layout | null {
  const places = arena.layoutPlaces;
  if (!isCopy(arena, above)) return find(arena, key, pd, need, places);
  const next = changetype<usize>(above) - places + PLACE_SIZE;
  return next < <usize>LAYOUT_PLACES_BYTES ? find(arena, key, pd, need, places + next) : null;
}

/** A program that is being compiled is private: no other process has it. */
function isCopy(arena: Arena, layout: Layout): bool {
  const places = arena.layoutPlaces;
  return places != 0 && changetype<usize>(layout) - places < <usize>LAYOUT_PLACES_BYTES;
}

/** A source of a layout, until the next one is read; null: it is not sound. */
export function readSource(arena: Arena, layout: Layout, index: u32): LayoutSource | null {
  const source = sourceAt(layout, index);
  return isCopy(arena, layout) ? takeInSource(arena, layout, source) : source;
}

/** Has a source `bytes` bytes, from `skip` bytes behind the datum `begin` on? */
export function holds(arena: Arena, source: LayoutSource, begin: u32, skip: u32, bytes: u64): bool {
  // The compiler has checked it, if no other process can write the program.
  if (arena.layoutPlaces == 0) return true;
  const datum = <u64>source.datum;
  return begin * datum + skip + bytes <= source.total * datum;
}

/** `place`: where the head is copied to; 0: it is read where it lies. */
function find(arena: Arena, key: u32, pd: u32, need: u32, place: usize): Layout | null {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  for (let attempt: u32 = 0; attempt < READ_ATTEMPTS; attempt++) {
    const before = atomic.load<u32>(sequenceOf(entry));
    if (before & 1) continue;
    const granted =
      key != 0 &&
      entry.key == key &&
      (entry.access & KeyKind.LAYOUT) != 0 &&
      note.pd == pd &&
      (entry.access & need) == need;
    const layout = <usize>entry.address;
    if (atomic.load<u32>(sequenceOf(entry)) != before) continue;
    if (!granted) return null;
    return place == 0 ? changetype<Layout>(layout) : takeIn(arena, layout, place);
  }
  return null;
}

function takeIn(arena: Arena, at: usize, place: usize): Layout | null {
  if (!mayLieAt(arena, at, LAYOUT_SIZE)) return null;
  memory.copy(place, at, LAYOUT_SIZE);
  const layout = changetype<Layout>(place);
  layout.sources = at + LAYOUT_SIZE;
  const count = layout.count;
  if (count == 0 || count > LAYOUT_SG_MAX || layout.packed == 0) return null;
  if (!mayLieAt(arena, layout.sources, count * LAYOUT_SOURCE_SIZE)) return null;
  const sound =
    layout.uneven != 0
      ? mayLieAt(arena, layout.uneven, unevenBytes(count))
      : layout.cycleBytes != 0;
  return sound ? layout : null;
}

function takeInSource(arena: Arena, layout: Layout, from: LayoutSource): LayoutSource | null {
  const at = changetype<usize>(layout) + LAYOUT_SIZE;
  memory.copy(at, changetype<usize>(from), LAYOUT_SOURCE_SIZE);
  const source = changetype<LayoutSource>(at);
  if (source.datum == 0 || source.count == 0 || source.repeated == 0) return null;
  noteShift(source);
  if (!takeInDimensions(arena, source, at + LAYOUT_SOURCE_SIZE)) return null;
  if (source.dimensionCount == 0 && source.total > source.count) return null;
  if (!spans(source)) return null;
  if (layout.uneven != 0) return source;
  const end = source.within + <u64>source.repeated * source.datum;
  return end <= layout.cycleBytes ? source : null;
}

function takeInDimensions(arena: Arena, source: LayoutSource, at: usize): bool {
  const count = source.dimensionCount;
  if (count == 0) return true;
  const bytes = count * LAYOUT_DIMENSION_SIZE;
  if (count >= LAYOUT_DIMENSIONS_MAX || !mayLieAt(arena, source.dimensions, bytes)) return false;
  memory.copy(at, source.dimensions, bytes);
  source.dimensions = at;
  return true;
}

/** Do its data lie in the span that is looked up for them? No count is 0, either. */
function spans(source: LayoutSource): bool {
  const span = <u64>source.span;
  let reach = source.datum + <u64>source.stride * (source.count - 1);
  for (let index: u32 = 0; index < source.dimensionCount && reach <= span; index++) {
    const at = source.dimensions + <usize>(index * LAYOUT_DIMENSION_SIZE);
    const dimension = changetype<LayoutDimension>(at);
    if (dimension.count == 0) return false;
    // Each sum is at most 2^64 - 1: what is reached already fits into 32 bits.
    reach += <u64>dimension.stride * (dimension.count - 1);
  }
  return reach <= span;
}
