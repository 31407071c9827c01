/** Names of the words of attachments, domains and pools; each access to them is a step. */
import {
  AttachmentLayout,
  POOL_LISTS_SIZE,
  PoolLayout,
  PoolNodeLayout,
  ProtectionDomainLayout,
} from '#build/abi.js';
import type { FenceScenario } from './fence-scenario.js';
import { PARAMETERS, WordClass, type Machine } from './machine.js';

/** Fences read attachments without the lock, and pools have tables of their own. */
export function nameTables(machine: Machine, scenario: FenceScenario): void {
  const { ATOMIC } = WordClass;
  const count = machine.arena('attachmentsMax');
  machine.nameTable(machine.arena('attachments'), count, AttachmentLayout, 'attachment', ATOMIC);
  const domains = machine.arena('protectionDomains');
  const { protectionDomainsMax, poolUsersMax = 0 } = scenario.config;
  machine.nameTable(domains, protectionDomainsMax, ProtectionDomainLayout, 'domain', ATOMIC);
  const lone = { size: 4, fields: { attachmentFree: [0, 'u32'] } } as const;
  machine.nameTable(machine.field('attachmentFree'), 1, lone, 'arena', ATOMIC);
  if (poolUsersMax === 0) return;
  const pools = machine.arena('pools');
  machine.nameTable(pools, 1, PoolLayout, 'pool', ATOMIC);
  const list = { size: 64, fields: { head: [0, 'u64'] } } as const;
  const lists = pools + PoolLayout.size;
  machine.nameTable(lists, POOL_LISTS_SIZE / 64, list, 'list', ATOMIC);
  const nodes = machine.arena('poolNodes');
  machine.nameTable(nodes, machine.keySlots, PoolNodeLayout, 'node', ATOMIC);
}

/** Writes fields of a struct of parameters. */
export function setter<F extends string>(
  machine: Machine,
  fields: Readonly<Record<F, readonly [number, string]>>,
): (values: Partial<Record<F, number>>) => void {
  return (values) => {
    for (const [field, value] of Object.entries(values) as [F, number][]) {
      machine.words[(PARAMETERS + fields[field][0]) >> 2] = value;
    }
  };
}
