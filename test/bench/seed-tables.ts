/**
 * The tables of seed 000 ("User Verbs for Scaled Performance with Shared Memory", 2017): 30 serving
 * processes with 100 GB, 100 and 2,000 clients with 1 GB, ConnectX-3 adapters, without and with
 * shared protection domains. All 24 figures.
 */

export const CLIENTS = [100, 2000] as const;
export const DOMAINS = ['own', 'shared'] as const;

/** One column of the tables, for one number of clients. */
export interface Row {
  /** Round trip to fetch a block, microseconds. */
  readonly receiveMicros: number;
  /** Of all clients together, seconds. */
  readonly waitSeconds: number;
  /** A second: of the servers' adapter (LMS), and of the clients'. */
  readonly serverMpt: number;
  readonly serverMtt: number;
  readonly clientMpt: number;
  readonly clientMtt: number;
}

export type Column = keyof Row;
/**
 * Columns of the model: without the waits, which a fixed number of fetches in flight makes
 * constant.
 */
export type ModelRow = Omit<Row, 'waitSeconds'>;
export type ModelTables = Readonly<
  Record<100 | 2000, Readonly<Record<'own' | 'shared', ModelRow>>>
>;
export type Tables = Readonly<Record<100 | 2000, Readonly<Record<'own' | 'shared', Row>>>>;

export const SEED: Tables = {
  100: {
    own: {
      receiveMicros: 159.97,
      waitSeconds: 2639,
      serverMpt: 813.4,
      serverMtt: 302594.6,
      clientMpt: 71049.6,
      clientMtt: 420346.4,
    },
    shared: {
      receiveMicros: 156.01,
      waitSeconds: 2634,
      serverMpt: 15.6,
      serverMtt: 267421.4,
      clientMpt: 1235,
      clientMtt: 11803.8,
    },
  },
  2000: {
    own: {
      receiveMicros: 265.01,
      waitSeconds: 2933,
      serverMpt: 454.2,
      serverMtt: 198924.6,
      clientMpt: 486088.2,
      clientMtt: 494301.8,
    },
    shared: {
      receiveMicros: 134.28,
      waitSeconds: 1445,
      serverMpt: 45.2,
      serverMtt: 176391.2,
      clientMpt: 173697,
      clientMtt: 385486.8,
    },
  },
};
