/** The table of named roots, as the heaps of a domain use it. */
import type { RootLayout } from '#build/abi.js';
import type { Struct } from '../../engine/struct.js';

/** @internal Beside RootKind: a domain with an owner (named-domain.ts). */
export const NAMED_DOMAIN = 2;
/** @internal Of a domain: storage that its heaps may have together (verbs/heap). */
export const HEAP_BUDGET = 3;

/** @internal */
export type RootEntry = Struct<typeof RootLayout>;

/** @internal What an entry is written with. */
export type RootValues = Pick<RootEntry, 'pd' | 'address' | 'length' | 'key' | 'kind'>;

/** @internal Roots, without what applications call. */
export interface RootTable {
  entry(name: string, kind: number, pd?: number): RootEntry | undefined;
  entriesOf(kind: number, pd: number): RootEntry[];
  checkRoom(verb: string): RootEntry;
  write(verb: string, name: string, values: RootValues, common: boolean, shpd?: Uint8Array): void;
}
