/**
 * Memory layouts (`ibv_mr_set_layout_sg`, `ibv_mr_set_layout_interleaved`): a key under which
 * scattered bytes are one row. The row, the packed stream, has addresses from its origin on, mostly
 * 0; layouts above it name offsets in it. If pieces overlap, the result of a write there is
 * undefined.
 *
 * A layout is compiled (layout-compile.ts) into a program that lies in memory of the host's; the
 * key's entry names the program, layout-walk.ts walks it. The key stands in the table with domain
 * 0, as windows do: a lookup of a region does not find it, and costs what it cost without layouts.
 *
 * A stencil is a layout whose region is not zero-based: its sources are named relative to a base
 * pointer, which a work request of our own brings along as its address. For peers addresses run
 * on: instance k begins at k times the packed size, and lies `extent` bytes behind instance k - 1.
 * Base pointers are addresses modulo 2^64; offsets from them and the extent are signed. So their
 * sums wrap intentionally, and only differences of sums are compared.
 *
 * Bases are looked up by their keys whenever the layout is used. So a base that is deregistered,
 * invalidated or registered anew is a wrong key at the next packet, without a notification.
 *
 * Programs are memory that others may be reading. One that is replaced, or loses its key, is
 * retired with an epoch; the host takes its memory back when that has passed. Where processes share
 * the arena programs lie in the heap of all, so that each of them walks them (layout-find.ts).
 */
import { Arena, nextEpoch } from '../memory/arena';
import { KeyKind } from './access-flag';
import {
  KeyEntry,
  KeyNote,
  KeyState,
  abandonChange,
  endChange,
  entryAt,
  noteAt,
  slotIndex,
  takeEntry,
} from './key-table';
import { domainQuiesced } from './protection-domain';

/** Pieces of a composite layout. */
export const LAYOUT_SG_MAX: u32 = 65536;
/** Sources of an interleaved layout. */
export const LAYOUT_SOURCES_MAX: u32 = 4096;
/** Strides of a source. */
export const LAYOUT_DIMENSIONS_MAX: u32 = 8;
/** How deep layouts may stand on layouts; one on regions alone has level 1. */
export const LAYOUT_NESTING_MAX: u32 = 4;

export enum LayoutState {
  /** Compiled; BIND_MR will bind it. */
  RECORDED = 0,
  BOUND = 1,
  /** No key leads to it any more. */
  RETIRED = 2,
}

export enum Nesting {
  /** The base is a region. */
  NONE = 0,
  /** The base is a layout, and no earlier source refers to it. */
  FIRST = 1,
  /** The base is a layout, and an earlier source refers to it as well. */
  AGAIN = 2,
}

/** The head of a program, 80 bytes; sources follow. */
@unmanaged
export class Layout {
  /** Stencils: bytes from one instance to the next, signed, |extent| below 2^32. */
  extent: i64;
  /** Stencils: the base pointer of instance 0. Others: the address of the stream's first byte. */
  origin: u64;
  /** Where the bytes lie, by the addressing of the one region `hullKey`. */
  hullStart: u64;
  hullBytes: u32;
  /** 0: several regions, or layouts. */
  hullKey: u32;
  /** Bytes of the stream; stencils: of one instance. */
  packed: u32;
  /** 1, and one more than the deepest layout below. */
  level: u32;
  /** 1: a stencil. */
  stencil: u32;
  /** Number of sources. */
  count: u32;
  /** Bytes that the sources give in turn, and how often they all do; 0: they end unevenly. */
  cycleBytes: u32;
  cycles: u32;
  /** Address of an Uneven (layout-uneven.ts), when they do. */
  uneven: usize;
  /** The key that it has, or will get. */
  key: u32;
  pd: u32;
  /** A LayoutState. */
  state: u32;
  /** RETIRED: the epoch that has to pass; 0: it was never published. */
  retiredAt: u32;
  /** Address of the first source. */
  sources: usize;
}
export const LAYOUT_SIZE: u32 = 80;

/** Where data come from, one after the other: 56 bytes. */
@unmanaged
export class LayoutSource {
  /** Address of the first datum in its base; stencils: signed offset from the base pointer. */
  address: u64;
  /** Where its data begin in a cycle. */
  within: u32;
  /** Bytes of a datum. */
  datum: u32;
  /** The base: a region's key, or a layout's. */
  key: u32;
  /** A Nesting: the kind of base. */
  nested: u32;
  /** Data in a cycle. */
  repeated: u32;
  /** Data in all. */
  total: u32;
  /** The fastest dimension: bytes from one datum to the next, and how many. */
  stride: u32;
  count: u32;
  /** Address of the LayoutDimensions beyond it, and how many. */
  dimensions: usize;
  dimensionCount: u32;
  /** From the first byte to behind the last one. */
  span: u32;
  /** Binary logarithm of `datum`, where that is a power of two; 32: it is not. */
  shift: u32;
}
export const LAYOUT_SOURCE_SIZE: u32 = 56;

@unmanaged
export class LayoutDimension {
  stride: u32;
  count: u32;
}
export const LAYOUT_DIMENSION_SIZE: u32 = 8;

/** Whole data in `bytes` bytes. */
export function dataIn(source: LayoutSource, bytes: u32): u32 {
  return source.shift < 32 ? bytes >>> source.shift : bytes / source.datum;
}

/** When its datum will not change its length any more. */
export function noteShift(source: LayoutSource): void {
  source.shift = popcnt(source.datum) == 1 ? ctz(source.datum) : 32;
}

export function sourceAt(layout: Layout, index: u32): LayoutSource {
  return changetype<LayoutSource>(layout.sources + <usize>(index * LAYOUT_SOURCE_SIZE));
}

/** Can a part of a program lie there? Other processes may have written any address. */
export function mayLieAt(arena: Arena, at: usize, bytes: u32): bool {
  if (arena.layoutPlaces == 0) return true;
  const start = <usize>arena.heapStart;
  return at >= start && <u64>at + bytes <= <u64>arena.heapEnd;
}

/** No engine reads the program once `epoch` has passed. */
function retire(arena: Arena, at: usize, epoch: u32): void {
  if (at == 0 || !mayLieAt(arena, at, LAYOUT_SIZE)) return;
  const layout = changetype<Layout>(at);
  layout.retiredAt = epoch;
  layout.state = LayoutState.RETIRED;
}

/** Is it a layout's region of that context? `key`: its low byte does not count. */
export function ownsLayout(entry: KeyEntry, note: KeyNote, slot: u32, key: u32): bool {
  const held = note.state == KeyState.LIVE || note.state == KeyState.INVALID;
  const kind = (entry.access & KeyKind.LAYOUT) != 0;
  return held && kind && (note.key ^ key) >>> 8 == 0 && note.owner == slot;
}

/**
 * Records the program that BIND_MR will bind; an earlier one that was not bound is dropped. The
 * caller has looked at `ownsLayout`.
 */
export function recordLayout(arena: Arena, key: u32, layout: Layout): void {
  const note = noteAt(arena, slotIndex(arena, key));
  retire(arena, note.binding, 0);
  note.binding = <u32>changetype<usize>(layout);
}

/**
 * The program takes the place of what was bound to the region. False: not the region of that
 * context and domain, or another engine is changing the entry; nothing has changed.
 */
export function bindLayout(arena: Arena, slot: u32, pd: u32, key: u32, layout: Layout): bool {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  const sequence = takeEntry(entry);
  if (sequence & 1) return false;
  if (!ownsLayout(entry, note, slot, key) || note.pd != pd) {
    abandonChange(entry, sequence);
    return false;
  }
  const former = <usize>entry.address;
  const recorded = <usize>note.binding;
  layout.state = LayoutState.BOUND;
  entry.address = <u32>changetype<usize>(layout);
  entry.length = layout.packed;
  entry.key = layout.key;
  note.key = layout.key;
  note.state = KeyState.LIVE;
  note.binding = 0;
  endChange(entry, sequence);
  if (recorded != changetype<usize>(layout)) retire(arena, recorded, 0);
  if (former != 0) retire(arena, former, nextEpoch(arena));
  return true;
}

/** Executes BIND_MR: binds what was recorded. False: nothing was, or as `bindLayout`. */
export function bindRecorded(arena: Arena, slot: u32, pd: u32, key: u32): bool {
  const index = slotIndex(arena, key);
  const note = noteAt(arena, index);
  // The other side of a ring names any key: in other kinds of slots the word means something else.
  if (!ownsLayout(entryAt(arena, index), note, slot, key)) return false;
  const recorded = <usize>note.binding;
  if (recorded == 0 || !mayLieAt(arena, recorded, LAYOUT_SIZE)) return false;
  return bindLayout(arena, slot, pd, key, changetype<Layout>(recorded));
}

/** LOCAL_INV and SEND_WITH_INV: the key is dead, and the region has no layout. */
export function invalidateLayout(arena: Arena, key: u32, pd: u32): bool {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  if (key == 0) return false;
  const sequence = takeEntry(entry);
  if (sequence & 1) return false;
  if (entry.key != key || !(entry.access & KeyKind.LAYOUT) || note.pd != pd) {
    abandonChange(entry, sequence);
    return false;
  }
  const former = <usize>entry.address;
  entry.key = 0;
  entry.address = 0;
  entry.length = 0;
  const epoch = nextEpoch(arena);
  note.killedAt = epoch;
  note.state = KeyState.INVALID;
  endChange(entry, sequence);
  retire(arena, former, epoch);
  return true;
}

/** May the memory of a program be used for something else? */
export function layoutReleased(arena: Arena, layout: Layout): bool {
  if (layout.state != LayoutState.RETIRED) return false;
  return layout.retiredAt == 0 || domainQuiesced(arena, layout.pd, layout.retiredAt);
}
