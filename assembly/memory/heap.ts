/**
 * The heap that all processes of a device share: user memory, at the same address everywhere.
 *
 * The entries of one table alone say which blocks are allocated, and their holders: an entry counts
 * when it has a holder, and that is one store. The lists (blocks by address, free entries) follow
 * from the entries and are rebuilt when a process died while changing them (`rebuildHeap`). A block
 * lives until its last holder has released it or is dead.
 *
 * All functions run under the arena's lock. Another process may have written anything: walks are
 * bounded, indices and ranges are looked at before use.
 */
import { Arena, BLOCK_SIZE } from './arena';
import { roundUp } from './bytes';
import { Errno } from './errno';

/** 64 bytes. */
@unmanaged
export class Block {
  start: u32;
  /** Bytes, a multiple of 64. */
  size: u32;
  /** Index + 1 of the next block by address, or of the next free entry. */
  next: u32;
  /** Requested bytes. */
  length: u32;
  /** One bit for each slot. */
  holders0: u64;
  holders1: u64;
  holders2: u64;
  holders3: u64;
  reserved0: u64;
  reserved1: u64;
}
const HOLDERS: usize = 16;

/** Arguments of an allocation. */
@unmanaged
export class BlockParameters {
  length: u32;
  /** A power of two, at least 64. */
  alignment: u32;
  /** Out. */
  address: u32;
  /** Out: this many bytes from there on were used before and are to be cleared. */
  dirty: u32;
}

const UNIT: u32 = 64;

function blockAt(arena: Arena, index: u32): Block {
  return changetype<Block>(arena.blocks + <usize>((index - 1) * BLOCK_SIZE));
}

/** Index + 1 that another process wrote; 0: invalid. */
function checked(arena: Arena, index: u32): u32 {
  return index <= arena.blocksMax ? index : 0;
}

function isHeld(block: Block): bool {
  return (block.holders0 | block.holders1 | block.holders2 | block.holders3) != 0;
}

/** Does it lie in the heap, as `allocBlock` would have made it? */
function isSound(arena: Arena, block: Block): bool {
  const start = block.start;
  const size = block.size;
  return (
    start >= arena.heapStart &&
    start < arena.heapEnd &&
    size != 0 &&
    size <= arena.heapEnd - start &&
    ((start | size) & (UNIT - 1)) == 0
  );
}

function holdersOf(block: Block, slot: u32): usize {
  return changetype<usize>(block) + HOLDERS + <usize>((slot >>> 5) << 2);
}

function hold(block: Block, slot: u32): void {
  const at = holdersOf(block, slot);
  atomic.store<u32>(at, load<u32>(at) | (1 << (slot & 31)));
}

function letGo(block: Block, slot: u32): void {
  const at = holdersOf(block, slot);
  atomic.store<u32>(at, load<u32>(at) & ~(1 << (slot & 31)));
}

function isHolder(block: Block, slot: u32): bool {
  return ((load<u32>(holdersOf(block, slot)) >>> (slot & 31)) & 1) != 0;
}

/** ENOMEM: no such range is free, or no entry. */
export function allocBlock(arena: Arena, slot: u32, parameters: BlockParameters): u32 {
  const wanted = max<u32>(UNIT, roundUp(parameters.length, UNIT));
  const mask = max<u32>(parameters.alignment, UNIT) - 1;
  const free = checked(arena, arena.state.blockFree);
  if (free == 0 || wanted < parameters.length) return Errno.ENOMEM;
  let before: u32 = 0;
  let at = checked(arena, arena.state.blockFirst);
  let end = arena.heapStart;
  for (let steps: u32 = 0; steps <= arena.blocksMax; steps++) {
    const address = (end + mask) & ~mask;
    const limit = at == 0 ? arena.heapEnd : blockAt(arena, at).start;
    if (address >= end && address <= limit && wanted <= limit - address) {
      take(arena, slot, free, before, at, address, wanted, parameters);
      return Errno.OK;
    }
    if (at == 0) return Errno.ENOMEM;
    const block = blockAt(arena, at);
    if (!isSound(arena, block) || block.start < end) return Errno.ENOMEM;
    end = block.start + block.size;
    before = at;
    at = checked(arena, block.next);
  }
  return Errno.ENOMEM;
}

function take(
  arena: Arena,
  slot: u32,
  index: u32,
  before: u32,
  after: u32,
  address: u32,
  size: u32,
  parameters: BlockParameters,
): void {
  const state = arena.state;
  const block = blockAt(arena, index);
  const fresh = max<u32>(state.heapFresh, address);
  parameters.address = address;
  parameters.dirty = min<u32>(fresh - address, size);
  state.heapFresh = max<u32>(fresh, address + size);
  state.blockFree = block.next;
  block.start = address;
  block.size = size;
  block.length = parameters.length;
  block.next = after;
  // From here on it is taken, whether the list says so or not.
  hold(block, slot);
  if (before == 0) state.blockFirst = index;
  else blockAt(arena, before).next = index;
}

/** Index + 1 of the block that holds [address, address + length), or 0. `before`: out. */
function findBlock(arena: Arena, address: u32, length: u32): u32 {
  let at = checked(arena, arena.state.blockFirst);
  for (let steps: u32 = 0; steps < arena.blocksMax && at != 0; steps++) {
    const block = blockAt(arena, at);
    const offset = address - block.start;
    if (isSound(arena, block) && offset < block.size) {
      return length <= block.size - offset ? at : 0;
    }
    at = checked(arena, block.next);
  }
  return 0;
}

/** One more holder of the block that has all of these bytes. EINVAL: no such block. */
export function holdBlock(arena: Arena, slot: u32, parameters: BlockParameters): u32 {
  const index = findBlock(arena, parameters.address, parameters.length);
  if (index == 0) return Errno.EINVAL;
  const block = blockAt(arena, index);
  if (isHolder(block, slot)) return Errno.EBUSY;
  hold(block, slot);
  parameters.address = block.start;
  parameters.length = block.length;
  return Errno.OK;
}

/** Lets go of the block that begins at `address`. EINVAL: this slot does not hold it. */
export function freeBlock(arena: Arena, slot: u32, address: u32): u32 {
  const index = findBlock(arena, address, 1);
  if (index == 0) return Errno.EINVAL;
  const block = blockAt(arena, index);
  if (block.start != address || !isHolder(block, slot)) return Errno.EINVAL;
  letGo(block, slot);
  if (!isHeld(block)) unlink(arena, index);
  return Errno.OK;
}

function unlink(arena: Arena, index: u32): void {
  const state = arena.state;
  const block = blockAt(arena, index);
  let before: u32 = 0;
  let at = checked(arena, state.blockFirst);
  for (let steps: u32 = 0; steps < arena.blocksMax && at != index && at != 0; steps++) {
    before = at;
    at = checked(arena, blockAt(arena, at).next);
  }
  if (at != index) return;
  if (before == 0) state.blockFirst = block.next;
  else blockAt(arena, before).next = block.next;
  block.next = state.blockFree;
  state.blockFree = index;
}

/** Does another slot hold the block of that byte? From the entries: the lists may be incomplete. */
export function isHeldBesides(arena: Arena, address: u32, slot: u32): bool {
  for (let index: u32 = 1; index <= arena.blocksMax; index++) {
    const block = blockAt(arena, index);
    if (!isSound(arena, block) || address - block.start >= block.size || !isHeld(block)) continue;
    for (let other: u32 = 0; other < arena.contextsMax; other++) {
      if (other != slot && isHolder(block, other)) return true;
    }
  }
  // Threads of one process: the memory is that of the thread that opened the device.
  return arena.blocksMax == 0;
}

/** A dead slot holds nothing any more. The lists are to be made anew afterwards. */
export function letGoOfAll(arena: Arena, slot: u32): void {
  for (let index: u32 = 1; index <= arena.blocksMax; index++) letGo(blockAt(arena, index), slot);
}

/** Makes both lists anew from the entries. Unsound and overlapping blocks are dropped. */
export function rebuildHeap(arena: Arena): void {
  const state = arena.state;
  state.blockFirst = 0;
  state.blockFree = 0;
  let fresh = arena.heapStart;
  for (let index: u32 = arena.blocksMax; index > 0; index--) {
    const block = blockAt(arena, index);
    if (isHeld(block) && isSound(arena, block) && insert(arena, index)) {
      fresh = max<u32>(fresh, block.start + block.size);
      continue;
    }
    block.holders0 = 0;
    block.holders1 = 0;
    block.holders2 = 0;
    block.holders3 = 0;
    block.next = state.blockFree;
    state.blockFree = index;
  }
  // A block that is gone may have been used: only what lay behind all of them ever is fresh.
  state.heapFresh = max<u32>(fresh, min<u32>(state.heapFresh, arena.heapEnd));
}

function insert(arena: Arena, index: u32): bool {
  const state = arena.state;
  const block = blockAt(arena, index);
  const end = block.start + block.size;
  let before: u32 = 0;
  let at = state.blockFirst;
  while (at != 0 && blockAt(arena, at).start < block.start) {
    before = at;
    at = blockAt(arena, at).next;
  }
  if (at != 0 && blockAt(arena, at).start < end) return false;
  if (before != 0) {
    const other = blockAt(arena, before);
    if (other.start + other.size > block.start) return false;
  }
  block.next = at;
  if (before == 0) state.blockFirst = index;
  else blockAt(arena, before).next = index;
  return true;
}

/** Free bytes; the largest range may be smaller. */
export function heapBytesFree(arena: Arena): u32 {
  let free = arena.heapEnd - arena.heapStart;
  let at = checked(arena, arena.state.blockFirst);
  for (let steps: u32 = 0; steps < arena.blocksMax && at != 0; steps++) {
    const block = blockAt(arena, at);
    if (isSound(arena, block)) free -= min<u32>(free, block.size);
    at = checked(arena, block.next);
  }
  return free;
}
