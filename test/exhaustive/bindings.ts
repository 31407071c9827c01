/** At the end of a world with windows: every count is that of what is bound. */
import { KeyState } from '#build/abi.js';
import type { Machine } from './machine.js';
import { Violation } from './violation.js';

export function checkBindings(machine: Machine): void {
  const slotOf = (key: number): number => (key >>> 8) & (machine.keySlots - 1);
  const expected = new Map<number, number>();
  for (let slot = 0; slot < machine.keySlots; slot++) {
    const base = machine.note(slot, 'base');
    if (base !== 0) expected.set(slotOf(base), (expected.get(slotOf(base)) ?? 0) + 1);
  }
  for (let slot = 0; slot < machine.keySlots; slot++) {
    const bound = machine.note(slot, 'bound');
    const count = expected.get(slot) ?? 0;
    if (bound !== count) throw new Violation(`at the end ${count} are bound, counted are ${bound}`);
    if (machine.entry(slot, 'sequence') & 1) throw new Violation('at the end a slot is odd');
    const free = machine.note(slot, 'state') === KeyState.FREE;
    if (free && count > 0) throw new Violation('at the end a window is bound to a free slot');
  }
  if (machine.arena('lock') !== 0) throw new Violation('at the end the lock is taken');
}
