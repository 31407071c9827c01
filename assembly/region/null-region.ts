/**
 * The null region (`ibv_alloc_null_mr`): any address and any length, reads as zeros, takes what is
 * written and forgets it. Only work requests of the owner may name it. What stands for it are two
 * pages, one that nobody writes and one that nobody reads.
 */
import { Arena, NULL_PAGE_SIZE } from '../memory/arena';
import { AccessFlag, KeyKind, LOCAL_USE } from './access-flag';
import { READ_ATTEMPTS, entryAt, noteAt, sequenceOf, slotIndex, translate } from './key-table';

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
