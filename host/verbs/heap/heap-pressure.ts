/**
 * Memory moves between the heaps of a domain: a heap that lacks storage gets that of free segments
 * of others. The heap of the lowest priority gives first, of several the one with most free
 * segments, and none falls below its minimum. The lock of the device's tables orders all moves;
 * the locks of heaps are taken one at a time, and a heap whose lock is held gives nothing.
 */
import { RefusalError } from '../../errors/errors.js';
import { HeapLock, type HeapMembers } from './heap-lock.js';
import { repairSpans } from './heap-repair.js';
import {
  findSegment,
  idleSpans,
  releaseSpans,
  storeSegment,
  storedSpans,
  type OnRange,
} from './heap-segments.js';
import { Header, type HeapTable } from './heap-table.js';
import { SPAN_BYTES } from './size-classes.js';

export interface PressureOptions {
  /** All heaps of the domain. */
  readonly tables: readonly HeapTable[];
  readonly members: HeapMembers;
  /** Gives a range of a heap, and its part of the table, storage. */
  readonly commit: (table: HeapTable, address: number, bytes: number) => void;
  /** Gives storage of the device's file back, if it can. */
  readonly release: OnRange;
  /** Gives back storage of memory that no process holds. False: all memory is held. */
  readonly releaseUnheld: () => boolean;
}

/** Why a heap got no storage. */
export type Shortage = 'reserve' | 'budget' | 'storage';
/** Another process has the lock of the heap: wait for it without the lock of the tables. */
export type Busy = 'busy';

function lockOf(table: HeapTable, members: HeapMembers): HeapLock {
  return new HeapLock(table.words, table.header + Header.LOCK, members, () => repairSpans(table));
}

/**
 * With the lock of the device's tables: gives `count` spans in a row of the heap at `own` storage.
 * Returns the reason if it has none; the other heaps learn of that (`Header.PRESSURE`). It waits
 * for no lock: if the holder of the heap's lock died, a process that opens the device may need the
 * tables before the dead one is reclaimed.
 */
export function makeRoom(
  own: HeapTable,
  count: number,
  options: PressureOptions,
): Shortage | Busy | undefined {
  const { tables, members, commit } = options;
  const others = tables.filter((table) => table.header !== own.header);
  const lock = lockOf(own, members);
  const commitOwn: OnRange = (address, bytes) => commit(own, address, bytes);
  // A process may allocate in between: a few attempts.
  for (let attempt = 0; attempt < 4; attempt++) {
    const found = lock.tryRun(() => ({ segment: findSegment(own, count) }));
    if (!found) return 'busy';
    const { segment } = found;
    if (!segment) return 'reserve';
    const budget = own.get(Header.BUDGET);
    const stored = tables.reduce((sum, table) => sum + storedSpans(table), 0);
    const excess = budget === 0 ? 0 : stored + segment.missing - budget;
    if (excess > 0 && takeFrom(others, excess, options) < excess) {
      return announce(others, excess, 'budget');
    }
    try {
      const stored = lock.tryRun(() => storeSegment(own, segment.first, count, commitOwn));
      if (stored === undefined) return 'busy';
      if (stored) return undefined;
    } catch (error) {
      if (!(error instanceof RefusalError) || error.code !== 'ENOSPC') throw error;
      if (attempt === 0 && options.releaseUnheld()) continue;
      if (takeFrom(others, count, options) === 0) return announce(others, count, 'storage');
    }
  }
  return 'storage';
}

/** Gives back segments until the heaps fit the budget, as far as segments are free. */
export function fitBudget(budget: number, options: PressureOptions): void {
  const { tables } = options;
  const stored = tables.reduce((sum, table) => sum + storedSpans(table), 0);
  if (stored > budget) takeFrom(tables, stored - budget, options);
}

/** Gives back all free segments of a heap but its minimum. Returns the bytes. */
export function trimHeap(table: HeapTable, options: PressureOptions): number {
  return takeFrom([table], table.spans, options) * SPAN_BYTES;
}

/** Takes free segments of these heaps, in the order of the policy. Returns how many spans. */
function takeFrom(tables: readonly HeapTable[], wanted: number, options: PressureOptions): number {
  const ranked = tables
    .map((table) => ({ table, rank: table.get(Header.PRIORITY), idle: idleSpans(table) }))
    .sort((a, b) => a.rank - b.rank || b.idle - a.idle);
  let taken = 0;
  for (const { table } of ranked) {
    if (taken >= wanted) break;
    const minimum = table.get(Header.MINIMUM);
    taken +=
      lockOf(table, options.members).tryRun(() =>
        releaseSpans(table, wanted - taken, minimum, options.release),
      ) ?? 0;
  }
  return taken;
}

function announce(tables: readonly HeapTable[], spans: number, reason: Shortage): Shortage {
  for (const table of tables) {
    table.set(Header.LACKING, Math.min(spans * SPAN_BYTES, 0xffffffff));
    Atomics.add(table.words, table.header + Header.PRESSURE, 1);
  }
  return reason;
}
