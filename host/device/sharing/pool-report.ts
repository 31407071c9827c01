/** The pools of a device that processes share, from outside: a picture of a moment. */
import {
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  POOL_USER_SIZE,
  PoolLayout,
  PoolNodeLayout,
  PoolUserLayout,
} from '#build/abi.js';
import { lookAt, type DeviceTables } from './device-report.js';

/** Counters of users are those that their processes last reported, some 20 ms ago. */
export interface PoolReport {
  readonly ulp: string;
  /** Regions of the pool, and those in use or kept by users. */
  readonly total: number;
  readonly held: number;
  /** In the global pool, in each bucket. */
  readonly free: number;
  readonly buckets: readonly number[];
  readonly mrsMin: number;
  readonly mrsMax: number;
  readonly lowWater: number;
  readonly created: number;
  readonly freed: number;
  readonly users: readonly PoolUserReport[];
}

export interface PoolUserReport {
  readonly index: number;
  readonly name: string;
  readonly slot: number;
  readonly pid: number;
  readonly bucket: number;
  readonly weight: number;
  /** Its own; of those others have `lent`. */
  readonly numMr: number;
  readonly lent: number;
  readonly inUse: number;
  readonly peak: number;
  readonly hitsL1: number;
  readonly hitsL2: number;
  readonly hitsGlobal: number;
  readonly misses: number;
  /** Lent so far. */
  readonly reclaimed: number;
}

/**
 * Throws RefusalError: ENOENT (no process has the device), and as `openDevice` does for invalid
 * files.
 */
export function reportPools(name: string, directory?: string): Promise<PoolReport[]> {
  return lookAt(name, directory, (tables, path, alive) => {
    const { processes } = tables.report(path, alive);
    const pids = new Map(processes.map(({ slot, pid }) => [slot, pid]));
    return [...pools(tables, pids)];
  });
}

function* pools(tables: DeviceTables, pids: ReadonlyMap<number, number>): Generator<PoolReport> {
  const { base, arena } = tables;
  const stride = POOL_SIZE + POOL_LISTS_SIZE;
  const { poolNodes, keyMask } = arena;
  const nodes = [...tables.all(PoolNodeLayout, poolNodes - base, keyMask + 1, POOL_NODE_SIZE)];
  const depth = (head: number): number => {
    const top = new DataView(tables.bytes(head, 8).slice().buffer).getUint32(0, true);
    return top === 0 ? 0 : (nodes[top - 1]?.depth ?? 0);
  };
  let index = -1;
  for (const pool of tables.all(PoolLayout, arena.pools - base, arena.poolsMax, stride)) {
    index++;
    if (pool.state !== 1) continue;
    const at = arena.pools - base + index * stride;
    const { total, mrsMin, mrsMax, lowWater, created, freed } = pool;
    const of = index;
    yield {
      ulp: text(tables.bytes(at, 32)),
      total,
      held: nodes.filter((node) => (node.pool & 0xffff) === of + 1 && node.holder !== 0).length,
      free: depth(at + POOL_SIZE),
      buckets: Array.from({ length: Math.min(pool.buckets, 8) }, (_, bucket) =>
        depth(at + POOL_SIZE + 64 * (bucket + 1)),
      ),
      mrsMin,
      mrsMax,
      lowWater,
      created,
      freed,
      users: [...users(tables, index, pids)],
    };
  }
}

function* users(
  tables: DeviceTables,
  pool: number,
  pids: ReadonlyMap<number, number>,
): Generator<PoolUserReport> {
  const start = tables.arena.poolUsers - tables.base;
  const { poolUsersMax } = tables.arena;
  let index = -1;
  for (const user of tables.all(PoolUserLayout, start, poolUsersMax, POOL_USER_SIZE)) {
    index++;
    if (user.slot === 0 || user.pool !== pool + 1) continue;
    const { bucket, numMr, lent, inUse, peak } = user;
    const name = start + index * POOL_USER_SIZE + PoolUserLayout.fields.name0[0];
    yield {
      index,
      name: text(tables.bytes(name, 24)),
      slot: user.slot - 1,
      pid: pids.get(user.slot - 1) ?? 0,
      bucket,
      weight: user.weight / 1000,
      numMr,
      lent,
      inUse,
      peak,
      hitsL1: Number(user.hitsL1),
      hitsL2: Number(user.hitsL2),
      hitsGlobal: Number(user.hitsGlobal),
      misses: Number(user.misses),
      reclaimed: Number(user.reclaimed),
    };
  }
}

/** UTF-8 up to the first zero; another process may have written anything. */
function text(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  // A copy: in a browser a decoder reads no shared memory.
  const words = new TextDecoder().decode(bytes.slice(0, end < 0 ? bytes.length : end));
  return words.replace(/\p{C}/gu, '?');
}
