/**
 * Mutants that no test can notice, or none that ends in reasonable time, each with the reason. A
 * row names function and text, so it stays valid when lines or files move; mutants.test.ts demands
 * that its mutant exists.
 */
import type { Mutation } from './operators.js';

/** `becomes`: the text in place of `source`. An empty `source` is any mutant of the function. */
type Row = readonly [where: string, source: string, becomes: string, why: string];

const SPEED = 'speed only: the slower way does the same';
const RACE = 'needs another engine that changes the same entry between two accesses of this one';

export const SURVIVORS: readonly Row[] = [
  ['translate', 'head ^ ((<u64>key) << 32)', 'head | ((<u64>key) << 32)', SPEED],
  ['copyStrided', 'datum > 256', 'true', SPEED],
  ['move', 'whole > 1', 'false', SPEED],
  ['unevenWithin', 'level > 0', 'false', SPEED],
  ['unevenWithin', 'first + (LEAVES << level)', 'first - (LEAVES << level)', SPEED],
  [
    'isEven',
    'total % repeated != 0 || (cycles != 0 && total / repeated != cycles)',
    'true',
    'speed only: tables for uneven sources describe even ones, too',
  ],
  [
    'killOf',
    'endsWith(arena, slot, index)',
    'true',
    'speed only: the entry is seized, and checked again',
  ],
  ['recount', 'count == bound', 'false', 'speed only: the count is replaced by itself'],
  ['recount', 'boundTo(arena, note.key) == count', 'true', RACE],
  ['beginChange', 'atomic.cmpxchg<u32>(sequenceOf(entry), even, even + 1) == even', 'true', RACE],
  ['takeEntry', '!(sequence & 1) && beginChange(entry, sequence)', 'true', RACE],
  ['invalidateWindow', 'sequence & 1', 'false', RACE],
  ['translateSlowly', 'offset <= <u64>size', 'offset < <u64>size', RACE],
  ['allocBlock', 'address <= limit', 'address < limit', 'no block is empty'],
  ['freeBlock', '1', '2', 'a block has at least 64 bytes'],
  ['settled', '0', '1', 'one look less of 10,000'],
  [
    'countAccess',
    'arena.cacheModel == 0',
    'false',
    'the host makes the model before the first lookup',
  ],
  ['widenHull', 'return;', '', 'for the first source the sums below give the same'],
  [
    'compileComposite',
    'count > 0',
    'true',
    'before the first source is the head: where a source has its key it has 0 or 1, no key',
  ],
  [
    'compileDimensions',
    'count > 1',
    'true',
    'before the first dimension the stride is 0: one of stride 0 is made the same way',
  ],
  [
    'add',
    'count > 0',
    'true',
    'before the first range are a serial number and a count: no address is that low',
  ],
  [
    'sort',
    'itemAt(layout, 0, place - 1).until > until',
    'itemAt(layout, 0, place - 1).until >= until',
    'the order of items of one cycle does not change a sum',
  ],
  [
    'locateInstance',
    'length > layout.packed - within',
    'false',
    'an instance ends with a datum, and `locate` checks the end of the datum',
  ],
  [
    'invalidateWindow',
    'markKilled(arena, note);',
    '',
    'only fastRevoked reads this epoch, and not that of a window',
  ],
  ['usersOf', '0', '1', 'only the order of the counts matters'],
  [
    'drainBucket',
    'min<u32>(pool.mrsMax, arena.keyMask + 1)',
    'max<u32>(pool.mrsMax, arena.keyMask + 1)',
    'the end of the list ends the loop; the limit is for a circle that another process writes',
  ],
  ['drainBucket', 'count > 0', 'count >= 0', 'as above'],
  ['detachDead', 'known', 'true', '`known` is checked again before the domain is used'],
  ['row', 'bit < HEADER_COUNT', 'bit <= HEADER_COUNT', 'no opcode has a header of that number'],
];

/** Why this mutant may survive; undefined: it may not. */
export function reasonFor(mutation: Mutation): string | undefined {
  return SURVIVORS.find((row) => matches(row, mutation))?.[3];
}

export function matches([where, source, becomes]: Row, mutation: Mutation): boolean {
  if (where !== mutation.function) return false;
  return source === '' || (source === mutation.source && becomes === mutation.becomes);
}
