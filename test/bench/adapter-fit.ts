/**
 * From what two adapters looked up to the seed's tables. The adapter's numbers are those that fit
 * the rows of 100 clients best; the rows of 2,000 clients follow.
 *
 * Misses a second are misses a fetch (of the replayed traces) times fetches a second, which the
 * seed does not have: fetches under way, divided by the time to receive (Little's law). That time
 * is a base, plus a number of microseconds for each miss, on either side. Everything else that
 * makes a machine slow (processors, queues before the servers) is not in it: the residuals show
 * that. The sum of all waits is not modelled: with a fixed number under way it is a constant.
 */
import { replay, type Adapter } from './cache-replay.js';
import type { BlockServiceResult } from './block-service.js';
import { CLIENTS, DOMAINS, SEED, type ModelRow, type ModelTables } from './seed-tables.js';

/** Runs of the protocol, by clients and kind of domain. */
export type Runs = Readonly<Record<100 | 2000, Readonly<Record<'own' | 'shared', Run>>>>;
export type Run = Pick<BlockServiceResult, 'server' | 'client'>;

export interface Fit {
  readonly adapter: Adapter;
  readonly baseMicros: number;
  readonly missMicros: number;
}

/** How much was run: fetches that count, and how many at a time. */
export interface Load {
  readonly fetches: number;
  readonly underWay: number;
}

/** Misses a fetch. */
type Misses = Omit<ModelRow, 'receiveMicros'>;

const COLUMNS = ['serverMpt', 'serverMtt', 'clientMpt', 'clientMtt'] as const;
/** A figure of the seed below this many misses a second counts as if it were that large. */
const FLOOR = 1000;

const PAGES = [4096, 8192, 16384];
const WAYS = [4, 8, 16];
const MPT_ENTRIES = steps(192, 576, 16);
const MTT_ENTRIES = steps(256, 1024, 32);

function steps(first: number, last: number, by: number): number[] {
  return Array.from({ length: (last - first) / by + 1 }, (_, index) => first + index * by);
}

export function missesOf({ server, client }: Run, adapter: Adapter, fetches: number): Misses {
  const [there, here] = [server, client].map(({ trace, from }) => replay(trace, adapter, from)) as [
    ReturnType<typeof replay>,
    ReturnType<typeof replay>,
  ];
  return {
    serverMpt: there.mptMisses / fetches,
    serverMtt: there.mttMisses / fetches,
    clientMpt: here.mptMisses / fetches,
    clientMtt: here.mttMisses / fetches,
  };
}

/** How wrong these columns are, on the rows of 100 clients. */
function wrongness(
  misses: readonly Misses[],
  columns: readonly (typeof COLUMNS)[number][],
  { underWay }: Load,
): number {
  let sum = 0;
  for (const [index, domain] of DOMAINS.entries()) {
    const seed = SEED[100][domain];
    for (const column of columns) {
      const ours = (misses[index]![column] * underWay * 1e6) / seed.receiveMicros;
      sum += Math.log(Math.max(ours, FLOOR) / Math.max(seed[column], FLOOR)) ** 2;
    }
  }
  return sum;
}

/** Sees the runs of 100 clients, and of the seed's tables the rows of 100 clients. */
export function fit(runs: Runs[100], load: Load): Fit {
  const replayed = (adapter: Adapter): Misses[] =>
    DOMAINS.map((domain) => missesOf(runs[domain], adapter, load.fetches));
  const candidates = PAGES.flatMap((pageBytes) =>
    WAYS.flatMap((ways) =>
      MTT_ENTRIES.map((mttEntries, index) => {
        const mptEntries = MPT_ENTRIES[index]!;
        const adapter = { mptEntries, mptWays: ways, mttEntries, mttWays: ways, pageBytes };
        return { adapter, misses: replayed(adapter) };
      }),
    ),
  );
  // The two caches are independent: each is searched by itself.
  const best = (...columns: (typeof COLUMNS)[number][]): Adapter => {
    const wrongs = candidates.map(({ misses }) => wrongness(misses, columns, load));
    return candidates[wrongs.indexOf(Math.min(...wrongs))]!.adapter;
  };
  const { mptEntries, mptWays } = best('serverMpt', 'clientMpt');
  const adapter = { ...best('serverMtt', 'clientMtt'), mptEntries, mptWays };
  const [own, shared] = replayed(adapter).map(total) as [number, number];
  const seed = SEED[100];
  const missMicros = (seed.own.receiveMicros - seed.shared.receiveMicros) / (own - shared);
  return {
    adapter,
    missMicros,
    baseMicros: seed.own.receiveMicros - missMicros * own,
  };
}

function total(misses: Misses): number {
  return COLUMNS.reduce((sum, column) => sum + misses[column], 0);
}

/** The seed's tables as the model has them. */
export function tablesOf(runs: Runs, fitted: Fit, load: Load): ModelTables {
  const rowOf = (run: Run): ModelRow => {
    const misses = missesOf(run, fitted.adapter, load.fetches);
    const receiveMicros = fitted.baseMicros + fitted.missMicros * total(misses);
    const perSecond = (load.underWay * 1e6) / receiveMicros;
    return {
      receiveMicros,
      serverMpt: misses.serverMpt * perSecond,
      serverMtt: misses.serverMtt * perSecond,
      clientMpt: misses.clientMpt * perSecond,
      clientMtt: misses.clientMtt * perSecond,
    };
  };
  const tables = CLIENTS.map((clients) => [
    clients,
    Object.fromEntries(DOMAINS.map((domain) => [domain, rowOf(runs[clients][domain])])),
  ]);
  return Object.fromEntries(tables) as ModelTables;
}
