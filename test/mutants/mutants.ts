/**
 * The checks that are taken out. One row each; `find` stands exactly once in its file (a test holds
 * the table to that).
 */
import { BORDER } from './border.js';
import { CONNECTIONS } from './connections.js';
import { DATAGRAMS } from './datagrams.js';
import { LAYOUTS } from './layouts.js';
import { PLACEMENTS } from './placement.js';
import { CHANNELS } from './channels.js';
import { POOLS } from './pools.js';
import { REFUSALS } from './refusals.js';
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
  ...BORDER,
  ...SHARED,
  ...SERVICES,
  ...WINDOWS,
  ...LAYOUTS,
  ...PLACEMENTS,
  ...CONNECTIONS,
  ...CHANNELS,
  ...POOLS,
  ...DATAGRAMS,
  ...REFUSALS,
].map(([name, file, find, replace]) => ({ name, file, find, replace }));
