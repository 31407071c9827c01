/**
 * Between the packed stream and memory: the walk over a layout's program. To begin somewhere costs
 * divisions, one per dimension, and a binary search over the sources; from there it goes on.
 *
 * Bases are looked up when they are met: what is deregistered meanwhile is refused. A layout below
 * has a lower level, or is refused: nothing goes round in circles, whatever was bound since.
 */
import { Arena } from '../memory/arena';
import { copyBytes } from '../memory/bytes';
import { copyStrided, gatherStrided, scatterStrided } from '../memory/strided';
import { translate } from './key-table';
import {
  LAYOUT_DIMENSION_SIZE,
  Layout,
  LayoutDimension,
  LayoutSource,
  dataIn,
  sourceAt,
} from './layout';
import { findBelow, holds, readSource } from './layout-find';
import { givenIn, placeAt, unevenSource, unevenWithin } from './layout-uneven';

/** A zero-based layout: `offset` counts from the start of its stream. */
export function moveStream(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  offset: u64,
  buffer: usize,
  length: u32,
  write: bool,
): bool {
  if (offset > <u64>layout.packed || length > layout.packed - <u32>offset) return false;
  if (length == 0) return true;
  const source = readSource(arena, layout, 0);
  if (source == null) return false;
  if (layout.count == 1 && source.nested == 0) {
    // A column, or a block: what most layouts are.
    const at = translate(arena, source.key, pd, source.address, source.span, need);
    if (at == 0 || !holds(arena, source, 0, <u32>offset, length)) return false;
    const datum = dataIn(source, <u32>offset);
    moveData(source, at, datum, <u32>offset - datum * source.datum, buffer, length, write);
    return true;
  }
  return move(arena, layout, pd, need, 0, <u32>offset, buffer, length, write);
}

/** A stencil: `offset` counts from the start of the instance at `base`, through those behind it. */
export function moveInstances(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  base: u64,
  offset: u64,
  buffer: usize,
  length: u32,
  write: bool,
): bool {
  if (length == 0) return true;
  const packed = layout.packed;
  let instance: u64 = 0;
  let within = <u32>offset;
  if (offset >= <u64>packed) {
    instance = offset / packed;
    within = <u32>(offset % packed);
  }
  const last = instance + (<u64>within + length - 1) / packed;
  if (!reachesInstance(layout, last)) return false;
  let at = base + instance * layout.extent;
  let to = buffer;
  let left = length;
  while (left > 0) {
    const size = min<u32>(left, packed - within);
    if (!move(arena, layout, pd, need, at, within, to, size, write)) return false;
    to += size;
    left -= size;
    at += layout.extent;
    within = 0;
  }
  return true;
}

/**
 * Is instance `index` within 2^63 bytes of the first one? The address of a more distant instance
 * would wrap to memory between other instances, which the layout does not contain. A base pointer
 * itself may cross 2^64, since it may be a signed distance, and the extent may be negative.
 */
export function reachesInstance(layout: Layout, index: u64): bool {
  // |extent| is below 2^32: the product does not wrap.
  return index <= 0xffffffff && index * <u64>abs<i64>(layout.extent) <= <u64>i64.MAX_VALUE;
}

/** The last source whose data begin at or before byte `rest` of a cycle. */
function sourceOf(layout: Layout, rest: u32): u32 {
  let low: u32 = 0;
  let high = layout.count;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sourceAt(layout, middle).within <= rest) low = middle;
    else high = middle;
  }
  return low;
}

/** The walk: `length` > 0 bytes from `offset`, which lie within one instance. */
function move(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  base: u64,
  offset: u32,
  buffer: usize,
  length: u32,
  write: bool,
): bool {
  if (layout.uneven != 0) {
    return moveUneven(arena, layout, pd, need, base, offset, buffer, length, write);
  }
  let cycle: u32 = 0;
  let rest = offset;
  if (layout.cycles > 1) {
    cycle = offset / layout.cycleBytes;
    rest = offset - cycle * layout.cycleBytes;
  }
  let index = sourceOf(layout, rest);
  let skip = rest - sourceAt(layout, index).within;
  let to = buffer;
  let left = length;
  while (true) {
    const source = readSource(arena, layout, index);
    if (source == null) return false;
    const size = min<u32>(left, source.repeated * source.datum - skip);
    const begin = cycle * source.repeated;
    if (!moveSource(arena, layout, source, pd, need, base, begin, skip, to, size, write)) {
      return false;
    }
    left -= size;
    if (left == 0) return true;
    to += size;
    skip = 0;
    index++;
    if (index == layout.count) {
      index = 0;
      cycle++;
      const whole = left / layout.cycleBytes;
      if (whole > 1) {
        if (!moveCycles(arena, layout, pd, need, base, cycle, whole, to, write)) return false;
        cycle += whole;
        to += whole * layout.cycleBytes;
        left -= whole * layout.cycleBytes;
        if (left == 0) return true;
      }
    }
  }
}

/** Whole cycles, source by source. */
function moveCycles(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  base: u64,
  cycle: u32,
  cycles: u32,
  buffer: usize,
  write: bool,
): bool {
  for (let index: u32 = 0; index < layout.count; index++) {
    const source = readSource(arena, layout, index);
    if (source == null) return false;
    const size = source.repeated * source.datum;
    let to = buffer + source.within;
    let begin = cycle * source.repeated;
    if (!holds(arena, source, begin, 0, <u64>cycles * size)) return false;
    if (source.nested) {
      for (let turn: u32 = 0; turn < cycles; turn++) {
        if (!moveNested(arena, layout, source, pd, need, base, begin, 0, to, size, write)) {
          return false;
        }
        to += layout.cycleBytes;
        begin += source.repeated;
      }
      continue;
    }
    const at = translate(arena, source.key, pd, base + source.address, source.span, need);
    if (at == 0) return false;
    if (source.dimensionCount == 0 && source.repeated <= cycles) {
      moveColumns(source, at, begin, layout.cycleBytes, cycles, to, write);
      continue;
    }
    for (let turn: u32 = 0; turn < cycles; turn++) {
      moveData(source, at, begin, 0, to, size, write);
      to += layout.cycleBytes;
      begin += source.repeated;
    }
  }
  return true;
}

/** The first datum of each cycle, then the second of each …: few loops, and long ones. */
function moveColumns(
  source: LayoutSource,
  at: usize,
  begin: u32,
  cycleBytes: u32,
  cycles: u32,
  buffer: usize,
  write: bool,
): void {
  const datum = source.datum;
  const distance = <usize>(source.repeated * source.stride);
  let place = at + <usize>(begin * source.stride);
  let to = buffer;
  for (let index: u32 = 0; index < source.repeated; index++) {
    if (write) copyStrided(place, distance, to, cycleBytes, datum, cycles);
    else copyStrided(to, cycleBytes, place, distance, datum, cycles);
    place += source.stride;
    to += datum;
  }
}

/** Sources that end at different cycles: each step finds the next source. */
function moveUneven(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  base: u64,
  offset: u32,
  buffer: usize,
  length: u32,
  write: bool,
): bool {
  let at = offset;
  let to = buffer;
  let left = length;
  let place = placeAt(layout, at);
  let cycle = <u32>(place >> 32);
  const rest = <u32>place;
  let index = unevenSource(layout, cycle, rest);
  let skip = rest - unevenWithin(layout, cycle, index);
  while (true) {
    const source = readSource(arena, layout, index);
    if (source == null) return false;
    const size = min<u32>(left, givenIn(source, cycle) - skip);
    const begin = cycle * source.repeated;
    if (!moveSource(arena, layout, source, pd, need, base, begin, skip, to, size, write)) {
      return false;
    }
    left -= size;
    if (left == 0) return true;
    to += size;
    at += size;
    skip = 0;
    index++;
    if (index == layout.count) {
      index = 0;
      cycle++;
    }
    if (givenIn(sourceAt(layout, index), cycle) == 0) {
      place = placeAt(layout, at);
      cycle = <u32>(place >> 32);
      index = unevenSource(layout, cycle, <u32>place);
    }
  }
}

/** `size` bytes of one source, from `skip` bytes behind the datum `begin` on. */
function moveSource(
  arena: Arena,
  layout: Layout,
  source: LayoutSource,
  pd: u32,
  need: u32,
  base: u64,
  begin: u32,
  skip: u32,
  buffer: usize,
  size: u32,
  write: bool,
): bool {
  // A source with nothing to supply in its turn would make the walk endless.
  if (size == 0 || !holds(arena, source, begin, skip, size)) return false;
  const before = dataIn(source, skip);
  const datum = begin + before;
  const rest = skip - before * source.datum;
  if (source.nested) {
    return moveNested(arena, layout, source, pd, need, base, datum, rest, buffer, size, write);
  }
  const at = translate(arena, source.key, pd, base + source.address, source.span, need);
  if (at == 0) return false;
  moveData(source, at, datum, rest, buffer, size, write);
  return true;
}

/** How far behind the first datum of a source the row of datum `index` begins. */
function rowOffset(source: LayoutSource, index: u32): u32 {
  let at: u32 = 0;
  let outer = index / source.count;
  for (let level: u32 = 0; level < source.dimensionCount; level++) {
    const from = source.dimensions + <usize>(level * LAYOUT_DIMENSION_SIZE);
    const dimension = changetype<LayoutDimension>(from);
    at += (outer % dimension.count) * dimension.stride;
    outer /= dimension.count;
  }
  return at;
}

/** `size` bytes from byte `skip` of datum `begin` on; the first datum of all lies at `at`. */
function moveData(
  source: LayoutSource,
  at: usize,
  begin: u32,
  skip: u32,
  buffer: usize,
  size: u32,
  write: bool,
): void {
  const length = source.datum;
  const stride = source.stride;
  let datum = begin;
  let rest = skip;
  let to = buffer;
  let left = size;
  while (left > 0) {
    let column = datum;
    let place = at;
    if (source.dimensionCount != 0) {
      column = datum % source.count;
      place += rowOffset(source, datum);
    }
    place += <usize>(column * stride);
    if (rest != 0 || left < length) {
      const piece = min<u32>(left, length - rest);
      copyEither(to, place + rest, piece, write);
      to += piece;
      left -= piece;
      rest = 0;
      datum++;
      continue;
    }
    const count = min<u32>(source.count - column, dataIn(source, left));
    if (stride == length) copyEither(to, place, count * length, write);
    else if (write) scatterStrided(place, stride, to, length, count);
    else gatherStrided(to, place, stride, length, count);
    datum += count;
    to += count * length;
    left -= count * length;
  }
}

function copyEither(buffer: usize, place: usize, length: u32, write: bool): void {
  if (write) copyBytes(place, buffer, length);
  else copyBytes(buffer, place, length);
}

/** The layout below a source; null: it is not there, or was bound to something too deep. */
function below(
  arena: Arena,
  layout: Layout,
  source: LayoutSource,
  pd: u32,
  need: u32,
): Layout | null {
  const inner = findBelow(arena, layout, source.key, pd, need);
  return inner != null && inner.level < layout.level ? inner : null;
}

/** As moveSource, where the base is a layout: datum by datum. */
function moveNested(
  arena: Arena,
  layout: Layout,
  source: LayoutSource,
  pd: u32,
  need: u32,
  base: u64,
  begin: u32,
  skip: u32,
  buffer: usize,
  size: u32,
  write: bool,
): bool {
  const inner = below(arena, layout, source, pd, need);
  if (inner == null) return false;
  let datum = begin;
  let rest = skip;
  let to = buffer;
  let left = size;
  while (left > 0) {
    const at = addressOf(source, base, datum);
    const piece = min<u32>(left, source.datum - rest);
    const moved = inner.stencil
      ? moveInstances(arena, inner, pd, need, at, rest, to, piece, write)
      : moveStream(arena, inner, pd, need, at + rest, to, piece, write);
    if (!moved) return false;
    to += piece;
    left -= piece;
    rest = 0;
    datum++;
  }
  return true;
}

/** Where a datum begins, by the addressing of its base. */
function addressOf(source: LayoutSource, base: u64, datum: u32): u64 {
  const column = source.dimensionCount != 0 ? datum % source.count : datum;
  const row = source.dimensionCount != 0 ? rowOffset(source, datum) : 0;
  return base + source.address + row + column * source.stride;
}

export function locateStream(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  offset: u64,
  length: u32,
): usize {
  if (offset > <u64>layout.packed || length > layout.packed - <u32>offset) return 0;
  return locate(arena, layout, pd, need, 0, <u32>offset, length);
}

export function locateInstance(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  base: u64,
  offset: u64,
  length: u32,
): usize {
  const instance = offset / layout.packed;
  const within = <u32>(offset % layout.packed);
  if (length > layout.packed - within || !reachesInstance(layout, instance)) return 0;
  return locate(arena, layout, pd, need, base + instance * layout.extent, within, length);
}

/** As `move`, for bytes that must lie in one datum. */
function locate(
  arena: Arena,
  layout: Layout,
  pd: u32,
  need: u32,
  base: u64,
  offset: u32,
  length: u32,
): usize {
  let cycle: u32 = 0;
  let rest = offset;
  let index: u32 = 0;
  if (layout.uneven != 0) {
    const place = placeAt(layout, offset);
    cycle = <u32>(place >> 32);
    rest = <u32>place;
    index = unevenSource(layout, cycle, rest);
    rest -= unevenWithin(layout, cycle, index);
  } else {
    cycle = offset / layout.cycleBytes;
    rest = offset % layout.cycleBytes;
    index = sourceOf(layout, rest);
    rest -= sourceAt(layout, index).within;
  }
  const source = readSource(arena, layout, index);
  if (source == null) return 0;
  const datum = cycle * source.repeated + rest / source.datum;
  const skip = rest % source.datum;
  if (length > source.datum - skip) return 0;
  if (!holds(arena, source, datum, skip, length)) return 0;
  const at = addressOf(source, base, datum);
  if (!source.nested) {
    // The whole source must be there, as when it is walked.
    const first = translate(arena, source.key, pd, base + source.address, source.span, need);
    return first == 0 ? 0 : first + <usize>(at - base - source.address) + skip;
  }
  const inner = below(arena, layout, source, pd, need);
  if (inner == null) return 0;
  return inner.stencil
    ? locateInstance(arena, inner, pd, need, at, skip, length)
    : locateStream(arena, inner, pd, need, at + skip, length);
}
