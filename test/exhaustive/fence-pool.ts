/** Checks the pool at the end of a world: every region is in one list, or has one holder. */
import { KeyState, PoolLayout, PoolNodeLayout, POOL_LISTS_SIZE } from '#build/abi.js';
import type { Machine } from './machine.js';
import { Violation } from './violation.js';

/** `slots`: of the pool's regions; `handOf`: 0, or the thread + 1 that holds the region. */
export function auditPool(
  machine: Machine,
  slots: readonly number[],
  handOf: (slot: number) => number,
): void {
  const found = new Set<number>();
  const pools = machine.arena('pools');
  const nodes = machine.arena('poolNodes');
  const node = (slot: number, field: keyof typeof PoolNodeLayout.fields): number =>
    machine.words[(nodes + slot * PoolNodeLayout.size + PoolNodeLayout.fields[field][0]) >> 2]!;
  for (let list = 0; list < POOL_LISTS_SIZE / 64; list++) {
    let top = machine.words[(pools + PoolLayout.size + list * 64) >> 2]!;
    for (let depth = top && node(top - 1, 'depth'); top !== 0; depth--) {
      const slot = top - 1;
      if (found.has(slot)) throw new Violation(`region ${slot} is twice in the pool's lists`);
      found.add(slot);
      if (node(slot, 'holder') !== 0)
        throw new Violation(`region ${slot} is in a list and has a holder`);
      if (node(slot, 'depth') !== depth) throw new Violation(`list ${list} is miscounted`);
      if (machine.note(slot, 'state') !== KeyState.INVALID) {
        throw new Violation(`region ${slot} is in a list and registered`);
      }
      top = node(slot, 'next');
    }
  }
  for (const slot of slots) {
    const held = handOf(slot) !== 0;
    if (held === found.has(slot)) {
      throw new Violation(`region ${slot} is ${held ? 'held and in a list' : 'lost'}`);
    }
    if (held && node(slot, 'holder') === 0) throw new Violation(`region ${slot} has no holder`);
  }
  const total = machine.words[(pools + PoolLayout.fields.total[0]) >> 2];
  if (total !== slots.length) throw new Violation(`the pool counts ${total} regions`);
  const closed = machine.words[(pools + PoolLayout.fields.closed[0]) >> 2];
  if (closed !== 0) throw new Violation('the pool stays closed');
}
