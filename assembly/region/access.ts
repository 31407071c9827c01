/**
 * Translation of keys to linear addresses for local work requests (`translateLocal`) and for peers
 * (`translateRemote`). Both return 0 for a layout, which has no single address; the functions below
 * them copy to and from layouts.
 *
 * The null region (`ibv_alloc_null_mr`) has every address: it reads as zeros and discards writes.
 * Only work requests of its owner may name it. Two pages implement it: one is never written, one
 * never read.
 */
import { Arena, NULL_PAGE_SIZE } from '../memory/arena';
import { AccessFlag, KeyKind, LOCAL_USE } from './access-flag';
import { READ_ATTEMPTS, entryAt, noteAt, sequenceOf, slotIndex, translate } from './key-table';
import { findLayout } from './layout-find';
import { locateInstance, locateStream, moveInstances, moveStream } from './layout-walk';
import { translateWindow } from './memory-window';

/**
 * Copies between a row at `buffer` and what an SGE of our own names: `skip` bytes behind its
 * `address`, which is a stencil's base pointer. `need`: 0 to read it, LOCAL_WRITE to write it.
 * False: no such layout, or it does not allow it; earlier bytes may have been copied.
 */
export function moveLocal(
  arena: Arena,
  key: u32,
  pd: u32,
  address: u64,
  skip: u32,
  buffer: usize,
  length: u32,
  need: u32,
): bool {
  const rights = LOCAL_USE | need;
  const layout = findLayout(arena, key, pd, rights);
  if (layout == null) return false;
  const write = need != 0;
  if (layout.stencil) {
    return moveInstances(arena, layout, pd, rights, address, skip, buffer, length, write);
  }
  const offset = address - layout.origin + skip;
  return moveStream(arena, layout, pd, rights, offset, buffer, length, write);
}

/** The same for what a peer names. `write`: to memory. */
export function moveRemote(
  arena: Arena,
  key: u32,
  pd: u32,
  address: u64,
  buffer: usize,
  length: u32,
  need: u32,
  write: bool,
): bool {
  const layout = findLayout(arena, key, pd, need);
  if (layout == null) return false;
  if (layout.stencil) {
    return moveInstances(arena, layout, pd, need, layout.origin, address, buffer, length, write);
  }
  const offset = address - layout.origin;
  return moveStream(arena, layout, pd, need, offset, buffer, length, write);
}

/** May a peer name these bytes, as far as the layout itself can tell? */
export function allowsRemote(
  arena: Arena,
  key: u32,
  pd: u32,
  address: u64,
  length: u32,
  need: u32,
): bool {
  const layout = findLayout(arena, key, pd, need);
  if (layout == null) return false;
  if (layout.stencil) return address + length >= address;
  const offset = address - layout.origin;
  return offset <= <u64>layout.packed && length <= layout.packed - <u32>offset;
}

/**
 * The linear address of `length` bytes that a peer names, when they lie in one piece; 0: they do
 * not, or the key does not allow it.
 */
export function locateRemote(
  arena: Arena,
  key: u32,
  pd: u32,
  address: u64,
  length: u32,
  need: u32,
): usize {
  const layout = findLayout(arena, key, pd, need);
  if (layout == null) return 0;
  const offset = address - layout.origin;
  if (!layout.stencil) return locateStream(arena, layout, pd, need, offset, length);
  return locateInstance(arena, layout, pd, need, layout.origin, address, length);
}

/** Bytes that an atomic or an ATOMIC WRITE reaches. */
export const WORD: u32 = 8;

/**
 * The linear address of a word that a peer names; 0: not allowed, or not at a multiple of 8, where
 * a Wasm atomic would trap. Registration makes both addresses agree modulo 8, layouts do not.
 */
export function locateWord(
  arena: Arena,
  key: u32,
  pd: u32,
  binding: u32,
  address: u64,
  need: u32,
): usize {
  let linear = translateRemote(arena, key, pd, binding, address, WORD, need);
  if (linear == 0) linear = locateRemote(arena, key, pd, address, WORD, need);
  return linear & 7 ? 0 : linear;
}

/** First linear address of a layout's bytes; 0: no layout, or no source is alive. */
export function hullStart(arena: Arena, key: u32, pd: u32): usize {
  const layout = findLayout(arena, key, pd, 0);
  if (layout == null) return 0;
  // Several regions, or other layouts: anywhere.
  if (layout.hullKey == 0) return 1;
  return translate(arena, layout.hullKey, pd, layout.hullStart, layout.hullBytes, 0);
}

/** Bytes from hullStart on. */
export function hullBytes(arena: Arena, key: u32, pd: u32): u32 {
  const layout = findLayout(arena, key, pd, 0);
  if (layout == null) return 0;
  return layout.hullKey == 0 ? <u32>-2 : layout.hullBytes;
}

/**
 * `translate` for a key that a work request of our own names in an SGE. `need`: 0 or LOCAL_WRITE.
 * Of a null region at most NULL_PAGE_SIZE bytes at once.
 */
export function translateLocal(
  arena: Arena,
  key: u32,
  pd: u32,
  virtualAddress: u64,
  length: u32,
  need: u32,
): usize {
  const address = translate(arena, key, pd, virtualAddress, length, LOCAL_USE | need);
  return address != 0 ? address : translateNull(arena, key, pd, length, need);
}

function translateNull(arena: Arena, key: u32, pd: u32, length: u32, need: u32): usize {
  const index = slotIndex(arena, key);
  const entry = entryAt(arena, index);
  const note = noteAt(arena, index);
  for (let attempt: u32 = 0; attempt < READ_ATTEMPTS; attempt++) {
    const before = atomic.load<u32>(sequenceOf(entry));
    if (before & 1) continue;
    const granted =
      key != 0 &&
      entry.key == key &&
      (entry.access & KeyKind.NULL_REGION) != 0 &&
      note.pd == pd &&
      length <= NULL_PAGE_SIZE;
    if (atomic.load<u32>(sequenceOf(entry)) != before) continue;
    if (!granted) return 0;
    return arena.nullPages + (need & AccessFlag.LOCAL_WRITE ? <usize>NULL_PAGE_SIZE : 0);
  }
  return 0;
}

/**
 * `translate` for a key that a peer names: a region's, or a window's. `binding`: that of the queue
 * pair on which the peer asks.
 */
export function translateRemote(
  arena: Arena,
  key: u32,
  pd: u32,
  binding: u32,
  virtualAddress: u64,
  length: u32,
  need: u32,
): usize {
  const address = translate(arena, key, pd, virtualAddress, length, need);
  if (address != 0) return address;
  return translateWindow(arena, key, pd, binding, virtualAddress, length, need);
}
