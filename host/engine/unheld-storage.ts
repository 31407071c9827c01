/** Memory of a device that no process holds, and its storage in the device's file. */
import { ArenaLayout, BLOCK_SIZE, BlockLayout } from '#build/abi.js';
import type { ArenaMemory } from './arena.js';
import { structAt } from './struct.js';

/** The file system gives back whole pages. */
const PAGE_BYTES = 4096;

/** Storage of the device's file. */
export interface FileStorage {
  /** Gives memory storage before it is used. Throws RefusalError ENOSPC. */
  readonly commit: (address: number, bytes: number) => void;
  /** Gives storage back: the memory is zero, and `commit` comes before its next use. */
  readonly release: (address: number, bytes: number) => void;
  /** False: all memory has storage now, and keeps it. */
  readonly isSparse: boolean;
  /** Works with the tables of the device to itself. */
  readonly locked: <Result>(work: () => Result) => Result;
}

/**
 * With the lock of the tables: gives back the storage of memory that no process holds, of dead ones
 * as well. Returns false if all memory is held.
 */
export function releaseUnheld({ memory, address }: ArenaMemory, storage: FileStorage): boolean {
  if (!storage.isSparse) return false;
  const arena = structAt(memory, ArenaLayout, address);
  const { blocks, blocksMax, heapStart } = arena;
  // Memory behind it has never had storage.
  const used = Math.min(structAt(memory, ArenaLayout, arena.state).heapFresh, arena.heapEnd);
  const held: [start: number, size: number][] = [];
  for (let index = 0; index < blocksMax; index++) {
    const block = structAt(memory, BlockLayout, blocks + index * BLOCK_SIZE);
    const { start, size, holders0, holders1, holders2, holders3 } = block;
    if ((holders0 | holders1 | holders2 | holders3) !== 0n) held.push([start, size]);
  }
  held.sort(([one], [other]) => one - other);
  let [end, released] = [heapStart, false];
  for (const [start, size] of [...held, [used, 0] as const]) {
    const first = Math.ceil(end / PAGE_BYTES) * PAGE_BYTES;
    const last = Math.floor(Math.min(start, used) / PAGE_BYTES) * PAGE_BYTES;
    if (last > first) {
      storage.release(first, last - first);
      released = true;
    }
    end = Math.max(end, start + size);
  }
  return released;
}

/** Does a process besides that of the slot hold the memory at an address? */
export function isHeldBesides(
  { memory, address: arena }: ArenaMemory,
  address: number,
  slot: number,
): boolean {
  const { blocks, blocksMax } = structAt(memory, ArenaLayout, arena);
  for (let index = 0; index < blocksMax; index++) {
    const block = structAt(memory, BlockLayout, blocks + index * BLOCK_SIZE);
    const { start, size, holders0, holders1, holders2, holders3 } = block;
    const all = holders0 | (holders1 << 64n) | (holders2 << 128n) | (holders3 << 192n);
    const isThere = all !== 0n && address >= start && address < start + size;
    if (isThere && (all & ~(1n << BigInt(slot))) !== 0n) return true;
  }
  return false;
}
