/**
 * What work requests and peers ask of a layout's key. They ask when a region's look-up found
 * nothing: `translateLocal` and `translateRemote` answer 0 for a layout, which has no one address.
 */
import { Arena } from '../memory/arena';
import { LOCAL_USE } from './access-flag';
import { translate } from './key-table';
import { findLayout } from './layout-find';
import { locateInstance, locateStream, moveInstances, moveStream } from './layout-walk';

/**
 * Copies between a row at `buffer` and what an SGE of our own names: `skip` bytes behind its
 * `address`, which is a stencil's base pointer. `need`: 0 to read it, LOCAL_WRITE to write it.
 * False: no such layout, or it does not allow it; what comes before may be copied.
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
  return moveStream(arena, layout, pd, rights, address + skip, buffer, length, write);
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
  return moveStream(arena, layout, pd, need, address, buffer, length, write);
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
  return address <= <u64>layout.packed && length <= layout.packed - <u32>address;
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
  if (!layout.stencil) return locateStream(arena, layout, pd, need, address, length);
  return locateInstance(arena, layout, pd, need, layout.origin, address, length);
}

/** Where a layout's bytes lie: from this linear address … 0: it is no layout, or none is alive. */
export function hullStart(arena: Arena, key: u32, pd: u32): usize {
  const layout = findLayout(arena, key, pd, 0);
  if (layout == null) return 0;
  // Several regions, or other layouts: anywhere.
  if (layout.hullKey == 0) return 1;
  return translate(arena, layout.hullKey, pd, layout.hullStart, layout.hullBytes, 0);
}

/** … so many bytes. */
export function hullBytes(arena: Arena, key: u32, pd: u32): u32 {
  const layout = findLayout(arena, key, pd, 0);
  if (layout == null) return 0;
  return layout.hullKey == 0 ? <u32>-2 : layout.hullBytes;
}
