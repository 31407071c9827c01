/**
 * The checks that are taken out. One row each; `find` stands exactly once in its file (a test holds
 * the table to that).
 */
import { ADMISSIONS } from './admission.js';
import { AUTHENTICATION } from './authentication.js';
import { AUTH } from './auth.js';
import { BORDER } from './border.js';
import { CONNECTIONS } from './connections.js';
import { DATAGRAMS } from './datagrams.js';
import { ENTROPY } from './entropy.js';
import { FENCES } from './fences.js';
import { FORGERIES } from './forgery.js';
import { HOSTILE_FILES } from './hostile-files.js';
import { KEEP_ALIVES } from './keep-alive.js';
import { LAYOUTS } from './layouts.js';
import { NETWORK } from './network.js';
import { PEERS } from './peers.js';
import { PLACEMENTS } from './placement.js';
import { CHANNELS } from './channels.js';
import { POOLS } from './pools.js';
import { PSK } from './psk.js';
import { REFUSALS } from './refusals.js';
import { RETRIES } from './retries.js';
import { SERVERS } from './servers.js';
import { SERVICES } from './services.js';
import { SHARED } from './shared.js';
import { WINDOWS } from './windows.js';

export interface Mutant {
  /** What is missing, as a sentence about what is broken. */
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** `find` becomes `replace` in `file`; rows are tuples to keep the tables readable. */
export type Row = readonly [name: string, file: string, find: string, replace: string];

export const MUTANTS: readonly Mutant[] = [
  ...ADMISSIONS,
  ...AUTHENTICATION,
  ...BORDER,
  ...AUTH,
  ...PSK,
  ...SHARED,
  ...ENTROPY,
  ...FENCES,
  ...RETRIES,
  ...SERVERS,
  ...SERVICES,
  ...WINDOWS,
  ...LAYOUTS,
  ...PLACEMENTS,
  ...CONNECTIONS,
  ...KEEP_ALIVES,
  ...FORGERIES,
  ...CHANNELS,
  ...POOLS,
  ...DATAGRAMS,
  ...NETWORK,
  ...HOSTILE_FILES,
  ...PEERS,
  ...REFUSALS,
].map(([name, file, find, replace]) => ({ name, file, find, replace }));
