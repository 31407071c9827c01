/** Checks of pools of regions. */
import type { Row } from './mutants.js';

const POOL = 'assembly/region/pool.ts';
const VERBS = 'assembly/region/pool-verbs.ts';
const REPAIR = 'assembly/region/pool-repair.ts';
const REAP = 'assembly/region/reap.ts';

export const POOLS: readonly Row[] = [
  [
    'a region that is registered goes back to its pool',
    POOL,
    'if (note.state != KeyState.INVALID) return Errno.EBUSY;',
    '',
  ],
  [
    'anybody gives a region back',
    POOL,
    'if (atomic.load<u32>(holder) != hand(slot, user) || poolOf(arena, node) != pool) {',
    'if (poolOf(arena, node) != pool) {',
  ],
  [
    'what a list names is taken from who has it',
    POOL,
    'if (atomic.cmpxchg<u32>(changetype<usize>(node) + HOLDER, 0, holder) != 0) continue;',
    'atomic.store<u32>(changetype<usize>(node) + HOLDER, holder);',
  ],
  [
    'what a list names is taken alive, or from another pool',
    POOL,
    'if (note.state != KeyState.INVALID || poolOf(arena, node) != pool) continue;',
    '',
  ],
  [
    'lists change while they are made anew',
    POOL,
    "if (atomic.load<u32>(changetype<usize>(pool) + offsetof<Pool>('closed')) == 0) return true;",
    'return true;',
  ],
  [
    'who has more than its share gets more of what is scarce',
    POOL,
    'if (free <= pool.lowWater) return true;',
    'if (free <= pool.lowWater) return false;',
  ],
  [
    'who has less than its share is refused',
    POOL,
    'if (<u64>borrowed * pool.weights < shared * weight) return false;',
    '',
  ],
  [
    'who came first keeps what it has, whatever its weight',
    POOL,
    'return <u64>borrowed * WEIGHT_ONE >= GREED * weight * <u64>(free - pool.lowWater);',
    'return false;',
  ],
  [
    'weights are kept to while regions can be made',
    POOL,
    'const isFull = pool.total >= pool.mrsMax;',
    'const isFull = true;',
  ],
  [
    'a bucket keeps any number',
    POOL,
    'user != 0 && depthOf(arena, pool, bucket + 1) < pool.bucketMrs',
    'user != 0',
  ],
  [
    'a pool takes any number of regions',
    POOL,
    'if (atomic.add<u32>(total, 1) < pool.mrsMax) {',
    'atomic.add<u32>(total, 1);\n  if (true) {',
  ],
  [
    'users have what is for bursts',
    VERBS,
    'if (<u64>pool.own + p.numMr + pool.mrsMin > pool.mrsMax) return Errno.ENOSPC;',
    '',
  ],
  [
    'a process takes part in a pool twice',
    VERBS,
    'if (load<u32>(word) & bit || (pool.pd | p.pd) != 0) return Errno.EBUSY;',
    '',
  ],
  [
    'a pool ends with users in it',
    VERBS,
    'if (user.slot == slot + 1 && user.pool == index + 1) errno = Errno.EBUSY;',
    '',
  ],
  [
    'what the dead had of a pool stays theirs',
    REPAIR,
    'if (node.holder >>> 16 == dead + 1) node.holder = 0;',
    '',
  ],
  ['users of the dead stay', REPAIR, 'user.slot != dead + 1 && at', 'at'],
  [
    'a key that the dead had of a pool stays alive',
    REAP,
    "    entry.key = 0;\n    // A pool's region",
    "    // A pool's region",
  ],
];
