/** Names of protection domains: the processes that take part in one. */
import { ATTACHMENT_SIZE, ArenaLayout, AttachmentLayout } from '#build/abi.js';
import { structAt } from '../../engine/struct.js';
import type { ContextInternals } from '../internals.js';

/** @internal Slots of the processes that take part in a domain. */
export function slotsOf({ device }: ContextInternals, pd: number): number[] {
  const { memory, address } = device.arena;
  const { attachments, attachmentsMax } = structAt(memory, ArenaLayout, address);
  const slots: number[] = [];
  for (let index = 0; index < attachmentsMax; index++) {
    const at = attachments + index * ATTACHMENT_SIZE;
    const node = structAt(memory, AttachmentLayout, at);
    if (node.pd === pd) slots.push(node.slot);
  }
  return slots.sort((a, b) => a - b);
}

/** @internal Why a domain does not get the name. */
export function takenDomain(name: string): string {
  return `a domain with the name "${name}" exists; its owner may retire it, or choose another name`;
}
