/**
 * Compiles the arguments of the layout verbs to a program. Both kinds of layouts become one form:
 * sources that supply `repeated` data each, in turn, cycle after cycle. A composite layout is one
 * cycle of its pieces; a strided layout is one cycle of its one source.
 *
 * Adjacent pieces are merged, pieces of one length at equal distances become one source with a
 * stride, and adjacent dimensions become one. So a column is one source in either form.
 *
 * All errors of a single layout are found here and reported with their place. The search for cycles
 * visits the layouts below it, at any depth, and expands each once. One bit per key slot marks a
 * layout as found, a second one as expanded; the search scans the bits in rounds. Usable layouts
 * are at most four deep, so few rounds suffice. Memory and stack are constant, even if another
 * process has written into a program.
 * ```
 *  scratch:  | found, a bit a key slot | expanded, a bit a key slot |
 * ```
 */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { AccessFlag, LOCAL_USE } from './access-flag';
import { KeyState, entryAt, noteAt, slotIndex, translate } from './key-table';
import {
  LAYOUT_DIMENSION_SIZE,
  LAYOUT_NESTING_MAX,
  LAYOUT_SIZE,
  LAYOUT_SOURCE_SIZE,
  Layout,
  LayoutDimension,
  LayoutSource,
  LayoutState,
  Nesting,
  bindLayout,
  noteShift,
  ownsLayout,
  recordLayout,
  sourceAt,
} from './layout';
import { findBelow, findLayout, readSource } from './layout-find';
import {
  COMPOSITE_ENTRY_SIZE,
  CompositeEntry,
  InterleavedEntry,
  LayoutFault,
  LayoutParameters,
  MrSetLayoutFlag,
  U32_MAX,
  checkForm,
  countOf,
  interleavedAt,
  isEven,
  layoutSize,
  refuse,
  repeatedOf,
  strideOf,
  totalOf,
} from './layout-parameters';
import { compileUneven } from './layout-uneven';

const EVERY_RIGHT: u32 =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;

/**
 * Compiles and binds, or records for BIND_MR. An Errno: EINVAL, or EACCES when a base lacks a
 * right; `fault` says what and where. Nothing has changed then. EAGAIN: another engine is changing
 * the region.
 */
export function setLayout(arena: Arena, slot: u32, parameters: LayoutParameters): u32 {
  const form = checkForm(parameters);
  if (form != Errno.OK) return form;
  if (isTooFar(parameters.extent)) return refuse(parameters, LayoutFault.EXTENT, 0);
  const key = parameters.key;
  const index = slotIndex(arena, key);
  const note = noteAt(arena, index);
  if (!ownsLayout(entryAt(arena, index), note, slot, key)) {
    return refuse(parameters, LayoutFault.REGION, 0);
  }
  let layout = changetype<Layout>(parameters.program);
  // After a refusal the host calls again with the same memory.
  memory.fill(parameters.program, 0, LAYOUT_SIZE);
  layout.sources = parameters.program + LAYOUT_SIZE;
  const access = entryAt(arena, index).access;
  layout.pd = note.pd;
  layout.stencil = access & AccessFlag.ZERO_BASED ? 0 : 1;
  layout.level = 1;
  const need = (access & EVERY_RIGHT) | LOCAL_USE;
  const errno = parameters.interleaved
    ? compileInterleaved(arena, parameters, layout, need)
    : compileComposite(arena, parameters, layout, need);
  if (errno != Errno.OK) return errno;
  if (layout.level > 1) {
    const below = checkBelow(arena, parameters, layout, note.key);
    if (below != LayoutFault.NONE) return refuse(parameters, below, 0);
  }
  layout.origin = parameters.origin;
  layout.extent = parameters.extent;
  if (layout.stencil && parameters.extent == 0) {
    layout.extent = spanOf(layout);
    if (isTooFar(layout.extent)) return refuse(parameters, LayoutFault.EXTENT, 0);
  }
  // The first layout has the key that the region was made with. Later ones have the next, so that
  // the old key finds nothing, unless the caller asks for it (AVOID_INVALIDATION).
  const first = note.state == KeyState.INVALID && note.killedAt == 0;
  const keep = first || (parameters.flags & MrSetLayoutFlag.AVOID_INVALIDATION) != 0;
  layout.key = keep ? note.key : (note.key & 0xffffff00) | ((note.key + 1) & 0xff);
  layout.state = LayoutState.RECORDED;
  parameters.bound = layout.key;
  parameters.packed = layout.packed;
  if (parameters.home != 0) layout = moveTo(layout, parameters.home, layoutSize(parameters));
  if (parameters.flags & MrSetLayoutFlag.WITH_POST_WR) recordLayout(arena, key, layout);
  else if (!bindLayout(arena, slot, note.pd, key, layout)) return Errno.EAGAIN;
  return Errno.OK;
}

/** Copies a complete program to its place. */
function moveTo(layout: Layout, home: usize, bytes: u32): Layout {
  const distance = home - changetype<usize>(layout);
  for (let index: u32 = 0; index < layout.count; index++) {
    sourceAt(layout, index).dimensions += distance;
  }
  if (layout.uneven != 0) layout.uneven += distance;
  layout.sources += distance;
  memory.copy(home, changetype<usize>(layout), bytes);
  return changetype<Layout>(home);
}

/** True: the distance between two instances exceeds any memory. */
function isTooFar(extent: i64): bool {
  return extent > <i64>U32_MAX || extent < -(<i64>U32_MAX);
}

/**
 * Bytes from the lowest byte of an instance to the one behind its highest. Offsets are signed, or
 * addresses: the sums use distances from the first offset, so that neither kind wraps.
 */
function spanOf(layout: Layout): i64 {
  const first = sourceAt(layout, 0).address;
  let low: i64 = 0;
  let high: i64 = sourceAt(layout, 0).span;
  for (let index: u32 = 1; index < layout.count; index++) {
    const source = sourceAt(layout, index);
    const distance = <i64>(source.address - first);
    // Within this distance no sum can wrap; a larger distance is refused.
    if (isTooFar(distance)) return i64.MAX_VALUE;
    low = min<i64>(low, distance);
    high = max<i64>(high, distance + source.span);
  }
  return high - low;
}

/** Checks whether this layout is among the layouts below it. */
function checkBelow(arena: Arena, parameters: LayoutParameters, layout: Layout, key: u32): u32 {
  const source = sourceAt(layout, 0);
  if (layout.level == 2 && layout.count == 1) {
    // Fast path: a stencil that is bound to a base pointer repeatedly has only one layout below.
    return (source.key ^ key) >>> 8 == 0 ? LayoutFault.CYCLE : LayoutFault.NONE;
  }
  if (parameters.scratch == 0) {
    parameters.scratch = searchBytes(arena);
    return LayoutFault.SCRATCH;
  }
  return reaches(arena, layout, key, parameters.scratch) ? LayoutFault.CYCLE : LayoutFault.NONE;
}

/**
 * Looks the base of a source up. A LayoutFault. Says in `nested` whether it is a layout; raises the
 * level then. The source's address, key and span are set.
 */
function checkBase(arena: Arena, layout: Layout, source: LayoutSource, need: u32): u32 {
  const key = source.key;
  const base = entryAt(arena, slotIndex(arena, key));
  const from = layout.stencil ? base.iova : source.address;
  if (translate(arena, key, layout.pd, from, source.span, need) != 0) return LayoutFault.NONE;
  if (key == 0) return LayoutFault.KEY;
  if (base.key == key && base.pd == layout.pd) {
    return (base.access & need) == need ? LayoutFault.RANGE : LayoutFault.RIGHT;
  }
  if (findBelow(arena, layout, key, layout.pd, 0) == null) return LayoutFault.KEY;
  const inner = findBelow(arena, layout, key, layout.pd, need);
  if (inner == null) return LayoutFault.RIGHT;
  source.nested = Nesting.FIRST;
  if (inner.level >= LAYOUT_NESTING_MAX) return LayoutFault.NESTING;
  layout.level = max<u32>(layout.level, inner.level + 1);
  if (inner.stencil || layout.stencil) return LayoutFault.NONE;
  if (source.address > inner.packed || source.span > inner.packed - <u32>source.address) {
    return LayoutFault.RANGE;
  }
  return LayoutFault.NONE;
}

/** May bytes that follow each other in the base be one datum? Base pointers do not work so. */
function continues(arena: Arena, layout: Layout, source: LayoutSource): bool {
  if (!source.nested) return true;
  const inner = findBelow(arena, layout, source.key, layout.pd, 0);
  return inner != null && !inner.stencil;
}

/** Notes where all bytes lie, as long as one region has them all. */
function widenHull(layout: Layout, source: LayoutSource, first: bool): void {
  if (source.nested || layout.stencil || (!first && layout.hullKey != source.key)) {
    layout.hullKey = 0;
    return;
  }
  if (first) {
    layout.hullKey = source.key;
    layout.hullStart = source.address;
    layout.hullBytes = source.span;
    return;
  }
  const end = max<u64>(layout.hullStart + layout.hullBytes, source.address + source.span);
  layout.hullStart = min<u64>(layout.hullStart, source.address);
  layout.hullBytes = <u32>(end - layout.hullStart);
}

function compileComposite(
  arena: Arena,
  parameters: LayoutParameters,
  layout: Layout,
  need: u32,
): u32 {
  let packed: u64 = 0;
  let count: u32 = 0;
  for (let index: u32 = 0; index < parameters.count; index++) {
    const at = parameters.entries + <usize>(index * COMPOSITE_ENTRY_SIZE);
    const entry = changetype<CompositeEntry>(at);
    const source = sourceAt(layout, count);
    memory.fill(changetype<usize>(source), 0, LAYOUT_SOURCE_SIZE);
    source.address = entry.address;
    source.datum = entry.length;
    source.key = entry.key;
    source.repeated = 1;
    source.total = 1;
    source.count = 1;
    source.span = entry.length;
    source.within = <u32>packed;
    if (entry.length == 0) return refuse(parameters, LayoutFault.ZERO, index);
    const fault = checkBase(arena, layout, source, need);
    if (fault != LayoutFault.NONE) return refuse(parameters, fault, index);
    packed += entry.length;
    if (packed > U32_MAX) return refuse(parameters, LayoutFault.OVERFLOW, index);
    widenHull(layout, source, index == 0);
    const last = count > 0 && join(sourceAt(layout, count - 1), source);
    if (!last && !(count > 0 && extend(arena, layout, sourceAt(layout, count - 1), source))) {
      count++;
    }
  }
  layout.count = count;
  layout.packed = <u32>packed;
  layout.cycleBytes = <u32>packed;
  layout.cycles = 1;
  noteShifts(layout);
  return Errno.OK;
}

function noteShifts(layout: Layout): void {
  for (let index: u32 = 0; index < layout.count; index++) noteShift(sourceAt(layout, index));
}

/** Does a piece have the stride of those before it? Then it is one more of them. */
function join(before: LayoutSource, piece: LayoutSource): bool {
  if (before.key != piece.key || before.datum != piece.datum) return false;
  // Modulo 2^64: the distance to an earlier piece exceeds any memory.
  const distance = piece.address - before.address;
  if (distance == 0 || distance > U32_MAX - piece.datum) return false;
  if (before.count == 1) {
    // A piece that continues the one before it extends that piece instead.
    if (distance == before.datum) return false;
    before.stride = <u32>distance;
  } else if (distance != <u64>before.stride * before.count) return false;
  before.count++;
  before.total++;
  before.repeated++;
  before.span = <u32>distance + piece.datum;
  return true;
}

/** Does a piece continue the one before it? Then that one is longer. */
function extend(arena: Arena, layout: Layout, before: LayoutSource, piece: LayoutSource): bool {
  if (before.key != piece.key || before.count != 1) return false;
  if (before.address + before.datum != piece.address) return false;
  if (!continues(arena, layout, piece)) return false;
  before.datum += piece.datum;
  before.span = before.datum;
  return true;
}

function compileInterleaved(
  arena: Arena,
  parameters: LayoutParameters,
  layout: Layout,
  need: u32,
): u32 {
  const sources = changetype<usize>(layout) + LAYOUT_SIZE;
  let free = sources + <usize>(parameters.count * LAYOUT_SOURCE_SIZE);
  let within: u64 = 0;
  let packed: u64 = 0;
  layout.count = parameters.count;
  for (let index: u32 = 0; index < parameters.count; index++) {
    const entry = interleavedAt(parameters, index);
    const source = sourceAt(layout, index);
    memory.fill(changetype<usize>(source), 0, LAYOUT_SOURCE_SIZE);
    source.address = entry.address;
    source.datum = entry.length;
    source.key = entry.key;
    source.total = <u32>totalOf(entry);
    source.repeated = repeatedOf(parameters, entry, source.total);
    source.within = <u32>within;
    const bytes = <u64>source.total * entry.length;
    if (bytes > U32_MAX || packed + bytes > U32_MAX) {
      return refuse(parameters, LayoutFault.OVERFLOW, index);
    }
    packed += bytes;
    within += <u64>source.repeated * entry.length;
    const end = compileDimensions(source, entry, free);
    if (end == 0) return refuse(parameters, LayoutFault.OVERFLOW, index);
    const fault = checkBase(arena, layout, source, need);
    if (fault != LayoutFault.NONE) return refuse(parameters, fault, index);
    free = end;
    widenHull(layout, source, index == 0);
  }
  layout.packed = <u32>packed;
  if (parameters.count == 1) {
    const source = sourceAt(layout, 0);
    if (continues(arena, layout, source)) mergeDatum(source);
  }
  noteShifts(layout);
  if (isEven(parameters)) {
    layout.cycleBytes = <u32>within;
    layout.cycles = <u32>(packed / within);
    return Errno.OK;
  }
  layout.uneven = free;
  compileUneven(layout);
  return Errno.OK;
}

/**
 * Sets stride, count, span and the dimensions beyond the first, at `free`; those of one datum are
 * left out, and one that continues the dimension before it makes that one longer. Returns what
 * is free behind them; 0: the span does not fit into 32 bits.
 */
function compileDimensions(source: LayoutSource, entry: InterleavedEntry, free: usize): usize {
  let span: u64 = entry.length;
  let stride: u64 = 0;
  let count: u64 = 1;
  let end = free;
  source.dimensions = free;
  for (let index: u32 = 0; index < entry.dimensions; index++) {
    const nextStride = strideOf(entry, index);
    const nextCount = countOf(entry, index);
    if (nextCount == 1) continue;
    if (nextStride > U32_MAX / (nextCount - 1)) return 0;
    span += nextStride * (nextCount - 1);
    if (span > U32_MAX) return 0;
    if (count > 1 && nextStride == stride * count) {
      count *= nextCount;
    } else {
      if (count > 1) end = putDimension(source, end, stride, count);
      stride = nextStride;
      count = nextCount;
    }
  }
  end = putDimension(source, end, stride, count);
  source.span = <u32>span;
  return end;
}

/** The first one lies in the source itself. */
function putDimension(source: LayoutSource, end: usize, stride: u64, count: u64): usize {
  if (source.count == 0) {
    source.stride = <u32>stride;
    source.count = <u32>count;
    return end;
  }
  const dimension = changetype<LayoutDimension>(end);
  dimension.stride = <u32>stride;
  dimension.count = <u32>count;
  source.dimensionCount++;
  return end + LAYOUT_DIMENSION_SIZE;
}

/** Data without gaps, from a source that is alone, are one datum. */
function mergeDatum(source: LayoutSource): void {
  if (source.count == 1 || source.stride != source.datum) return;
  source.datum *= source.count;
  source.total /= source.count;
  source.repeated = source.total;
  if (source.dimensionCount == 0) {
    source.stride = 0;
    source.count = 1;
    return;
  }
  const next = changetype<LayoutDimension>(source.dimensions);
  source.stride = next.stride;
  source.count = next.count;
  source.dimensions += LAYOUT_DIMENSION_SIZE;
  source.dimensionCount--;
}

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
