/** The fence of invalidations and the pool with one rule removed: the search must detect each. */
import type { Edit } from './build.js';
import { PLAIN, buildProtocol } from './build.js';
import { Explorer } from './explore.js';
import {
  DEAD_BORROWER,
  DEAD_ENGINE,
  LOCAL_INVALIDATION,
  REBOUND,
  RECEIVED_INVALIDATION,
  REVOKED,
  REVOKED_TWICE,
  STOPPED,
  STOPPED_RECEIVE,
  SWAPS,
  TWO_ENGINES,
  type FenceScenario,
} from './fence-scenario.js';
import { fenceVariant } from './fence-sources.js';
import { FenceWorld } from './fence-world.js';

export interface FenceMutant {
  readonly name: string;
  readonly scenario: FenceScenario;
  readonly edits: readonly Edit[];
}

const FENCE = 'transport/shared/invalidation-fence.ts';
const RECEIVE = 'transport/responder/invalidating-receive.ts';
const LOCAL_WORK = 'transport/requester/local-work.ts';
const DOMAINS = 'region/protection-domain.ts';
const KEYS = 'region/key-table.ts';
const REVOKE = 'region/fast-region.ts';
const POOL = 'region/pool.ts';
const REPAIR = 'region/pool-repair.ts';
const REAP = 'region/reap.ts';

function mutant(
  scenario: FenceScenario,
  name: string,
  ...edits: readonly (readonly [file: string, find: string, replace: string])[]
): FenceMutant {
  return { name, scenario, edits: edits.map(([file, find, replace]) => ({ file, find, replace })) };
}

export const FENCE_MUTANTS: readonly FenceMutant[] = [
  mutant(LOCAL_INVALIDATION, 'a fence passes at once', [
    FENCE,
    'if (holderOf(context, qp, epoch) == 0) return true;',
    'return true;',
  ]),
  mutant(LOCAL_INVALIDATION, 'a fence passes at its second check', [
    FENCE,
    'if (holder == 0) return Fence.PASSED;',
    'if (holder < 1000) return Fence.PASSED;',
  ]),
  mutant(REBOUND, 'a fence waits for the previous epoch only', [
    FENCE,
    'return nextEpoch(context.arena);',
    'return nextEpoch(context.arena) - 1;',
  ]),
  mutant(LOCAL_INVALIDATION, 'a LOCAL_INV is no fence', [
    LOCAL_WORK,
    'if (request.opcode == <u32>WrOpcode.LOCAL_INV || request.opcode',
    'if (request.opcode',
  ]),
  mutant(RECEIVED_INVALIDATION, 'a received SEND_WITH_INV is no fence', [
    RECEIVE,
    'if (passesAtOnce(context, qp, epoch)) return Invalidation.PASSED;',
    'return Invalidation.PASSED;',
  ]),
  mutant(REBOUND, 'a bind over a binding is no fence', [
    LOCAL_WORK,
    'return (entryAt(arena, index).access & KeyKind.WINDOW_TYPE_1) != 0;',
    'return false;',
  ]),
  mutant(STOPPED, 'an expired fence passes', [
    FENCE,
    'if (waited >= FENCE_MICROS_MAX) return Fence.EXPIRED;',
    'if (waited >= FENCE_MICROS_MAX) return Fence.PASSED;',
  ]),
  mutant(STOPPED_RECEIVE, 'a received message with an expired fence succeeds', [
    RECEIVE,
    'const late: u32 = WcStatus.RESP_TIMEOUT_ERR;',
    'const late: u32 = WcStatus.SUCCESS;',
  ]),
  mutant(TWO_ENGINES, 'a fence waits for one engine of a domain', [
    DOMAINS,
    'if (isAttached(arena, pd, slot)) return slot + 1;',
    'return isAttached(arena, pd, slot) && slot == 1 ? slot + 1 : 0;',
  ]),
  mutant(TWO_ENGINES, 'a fence checks the first attachment only', [
    DOMAINS,
    'if (node.pd == pd && node.slot == slot) return true;',
    'return node.pd == pd && node.slot == slot;',
  ]),
  mutant(DEAD_ENGINE, 'a fence passes after its checks although an engine is still in its call', [
    FENCE,
    'if (holderOf(context, qp, epoch) == 0) return true;',
    'if (holderOf(context, qp, epoch) == 0 || look == LOOKS - 1) return true;',
  ]),
  mutant(REVOKED, 'a revoke waits for no other engine', [
    REVOKE,
    'domainQuiesced(arena, note.pd, note.killedAt);',
    'note.killedAt != 0;',
  ]),
  mutant(REVOKED_TWICE, 'an invalidation becomes visible before its epoch', [
    KEYS,
    `    markKilled(arena, note);
    note.state = KeyState.INVALID;
    unbind(arena, note);
    if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;
    endChange(entry, sequence);
`,
    `    note.state = KeyState.INVALID;
    unbind(arena, note);
    if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;
    endChange(entry, sequence);
    markKilled(arena, note);
`,
  ]),
  mutant(
    SWAPS,
    'the heads of the pool’s lists have no counters',
    [
      POOL,
      'const next = (((head >> 32) + 1) << 32) | (index + 1);',
      'const next: u64 = (head & 0xffffffff00000000) | (index + 1);',
    ],
    [
      POOL,
      'const next = (((head >> 32) + 1) << 32) | checked(arena, nodeAt(arena, top - 1).next);',
      'const next: u64 = (head & 0xffffffff00000000) | checked(arena, nodeAt(arena, top - 1).next);',
    ],
  ),
  mutant(SWAPS, 'a region is popped without a swap', [
    POOL,
    'if (atomic.cmpxchg<u64>(list, head, next) == head) return top;',
    'atomic.store<u64>(list, next);\n    return top;',
  ]),
  mutant(
    SWAPS,
    'a region is in a list before its holder is cleared',
    [
      POOL,
      '  // From now on the region has no holder, whether it is in a list or not.\n  atomic.store<u32>(holder, 0);\n',
      '',
    ],
    [
      POOL,
      'push(arena, listOf(pool, fits ? bucket + 1 : 0), at);\n  end(place);',
      'push(arena, listOf(pool, fits ? bucket + 1 : 0), at);\n  atomic.store<u32>(holder, 0);\n  end(place);',
    ],
  ),
  mutant(DEAD_BORROWER, 'regions are taken while the lists are rebuilt', [
    POOL,
    "offsetof<Pool>('closed')) == 0) return true;",
    "offsetof<Pool>('closed')) < 2) return true;",
  ]),
  mutant(DEAD_BORROWER, 'the lists are rebuilt while regions are taken', [
    REPAIR,
    'if (!allOut(arena)) {',
    'if (false) {',
  ]),
  mutant(DEAD_BORROWER, 'the regions of a dead holder are not reclaimed', [
    REPAIR,
    'if (node.holder >>> 16 == dead + 1) node.holder = 0;',
    '',
  ]),
  mutant(DEAD_BORROWER, 'the pools of a dead process are not repaired', [
    REAP,
    'if (!recount(arena) || !repairPools(arena, slot)) return Errno.EAGAIN;',
    'if (!recount(arena)) return Errno.EAGAIN;',
  ]),
];

/** The violation, found with as few preemptions as possible; undefined: not detected. */
export async function findFenceFailure(
  { name, scenario, edits }: FenceMutant,
  statesMax: number,
): Promise<string | undefined> {
  const protocol = await buildProtocol(fenceVariant({ ...PLAIN, name: `mutant-${name}`, edits }));
  const kills = scenario === DEAD_BORROWER ? 1 : 0;
  for (const preemptions of [0, 1, 2, 3]) {
    const world = new FenceWorld(protocol, scenario);
    const { failure } = new Explorer(world, { kills, preemptions, statesMax }).run();
    if (failure) return `${failure.message} (${preemptions} preemptions)`;
  }
  return undefined;
}
