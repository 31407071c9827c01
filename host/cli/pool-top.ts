/** `verbena pool top`: the pools of a device that processes share, as they change. */
import { setTimeout as sleep } from 'node:timers/promises';
import { timerMillis } from '../base/timer.js';
import {
  reportPools,
  type PoolReport,
  type PoolUserReport,
} from '../device/sharing/pool-report.js';
import { RefusalError } from '../errors/errors.js';
import { formatCount } from './base/format.js';
import { Exit, outputClosed, printLine } from './base/report.js';

export interface PoolTopOptions {
  readonly directory?: string;
  /** Seconds from one look to the next. */
  readonly interval: number;
  readonly once?: boolean;
  readonly json?: boolean;
}

const CLEAR = '\x1b[H\x1b[2J';

export async function poolTop(name: string, options: PoolTopOptions): Promise<number> {
  const { directory, interval, once, json } = options;
  let before: PoolReport[] | undefined;
  let log: string[] = [];
  while (!outputClosed()) {
    const now = await look(name, directory, before !== undefined);
    if (!now) return Exit.OK;
    const events = before ? now.flatMap((pool) => changes(find(before!, pool.ulp), pool)) : [];
    if (json) await printLine(JSON.stringify({ pools: now, events }));
    else if (process.stdout.isTTY && !once) {
      log = [...log, ...events].slice(-8);
      process.stdout.write(CLEAR);
      await printLine(
        [head(name), ...now.flatMap((pool) => [...describe(pool)]), ...log].join('\n'),
      );
    } else {
      const isNew = before === undefined || events.length > 0;
      for (const line of isNew
        ? [...events, ...now.flatMap((pool) => [...describe(pool)])]
        : now.map(summary)) {
        await printLine(line);
      }
    }
    if (once) break;
    before = now;
    await sleep(timerMillis(interval * 1000));
  }
  return Exit.OK;
}

/** Undefined: all processes of the device have ended. */
async function look(
  name: string,
  directory: string | undefined,
  again: boolean,
): Promise<PoolReport[] | undefined> {
  try {
    return await reportPools(name, directory);
  } catch (error) {
    if (again && error instanceof RefusalError && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

function find(pools: readonly PoolReport[], ulp: string): PoolReport | undefined {
  return pools.find((pool) => pool.ulp === ulp);
}

/** Changes between two reports. */
function changes(before: PoolReport | undefined, now: PoolReport): string[] {
  const { ulp } = now;
  if (!before) return [`${ulp}: a pool of ${formatCount(now.total, 'region')}`];
  const found: string[] = [];
  const made = now.created - before.created;
  const freed = now.freed - before.freed;
  if (made > 0) found.push(`${ulp}: grown by ${made}`);
  if (freed > 0) found.push(`${ulp}: shrunk by ${freed}`);
  const nameOf = ({ name, pid, index }: PoolUserReport): string =>
    `${name || `user ${index}`} of process ${pid}`;
  const key = ({ index, pid, name }: PoolUserReport): string => `${index} ${pid} ${name}`;
  const were = new Map(before.users.map((user) => [key(user), user]));
  for (const user of now.users) {
    const was = were.get(key(user));
    were.delete(key(user));
    if (!was) found.push(`${ulp}: ${nameOf(user)} has come`);
    else if (user.reclaimed > was.reclaimed) {
      found.push(`${ulp}: ${nameOf(user)} lends ${user.reclaimed - was.reclaimed}`);
    }
  }
  for (const user of were.values()) found.push(`${ulp}: ${nameOf(user)} has gone`);
  return found;
}

function head(name: string): string {
  return `pools of ${name}`;
}

function summary(pool: PoolReport): string {
  const inUse = pool.users.reduce((sum, { inUse }) => sum + inUse, 0);
  const shared = pool.buckets.reduce((sum, count) => sum + count, pool.free);
  return (
    `${pool.ulp}: ${inUse} in use, ${pool.held} held, ${shared} shared free, ` +
    `${pool.total} of ${pool.mrsMax}; ${formatCount(pool.users.length, 'user')}`
  );
}

function* describe(pool: PoolReport): Generator<string> {
  yield summary(pool);
  yield (
    `  free ${pool.free}, buckets ${pool.buckets.join(' ')}; low water ${pool.lowWater}, ` +
    `minimum ${pool.mrsMin}; ${pool.created} made, ${pool.freed} freed`
  );
  if (pool.users.length === 0) return;
  yield row(['user', 'process', 'own', 'lent', 'in use', 'peak', 'L1', 'L2', 'pool', 'none']);
  for (const user of pool.users) {
    const { index, name, pid, numMr, lent, inUse, peak, hitsL1, hitsL2, hitsGlobal, misses } = user;
    const hits = [hitsL1, hitsL2, hitsGlobal, misses];
    yield row([name || `${index}`, pid, numMr, lent, inUse, peak, ...hits]);
  }
}

function row([name, ...numbers]: readonly (string | number)[]): string {
  return `  ${`${name}`.padEnd(24)}${numbers.map((one) => `${one}`.padStart(9)).join('')}`;
}
