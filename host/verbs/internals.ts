/**
 * The members of a context and of a protection domain that the files below them use. They take
 * these in place of the public objects, so that they do not import the files that import them.
 */
import type { Device } from '../device/device.js';
import type { Endpoint } from '../link/endpoint.js';
import type { PersistentMemory } from '../pmem/persistent-memory.js';
import type { RootTable } from './domains/root-table.js';
import type { Allocations } from './regions/allocations.js';
import type { Siblings } from './siblings.js';

export interface ContextInternals {
  readonly device: Device;
  readonly local: Endpoint;
  readonly failure: Error | undefined;
  readonly siblings: Siblings<unknown>;
  readonly allocations: Allocations;
  readonly roots: RootTable;
  readonly pmems: Set<PersistentMemory>;
  checkOpen(): void;
}

export interface DomainInternals {
  readonly context: ContextInternals;
  readonly handle: number;
}
