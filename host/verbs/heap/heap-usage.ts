/** Use of a heap per process; counted from the words of its objects, so it is exact. */
import { storedSpans } from './heap-segments.js';
import {
  Header,
  Kind,
  SpanKind,
  kindOf,
  slotOf,
  spanKindOf,
  spanNumberOf,
  type HeapTable,
} from './heap-table.js';
import { CLASS_UNITS, SPAN_BYTES, SPAN_UNITS, UNIT_BYTES } from './size-classes.js';

/** Of `heap.usage()`. Bytes of objects, as their sizes are rounded up. */
export interface HeapUsage {
  readonly reserveBytes: number;
  /** Bytes that have storage. */
  readonly grownBytes: number;
  /** Bytes with storage that all heaps of the domain may have; 0: no limit (`pd.limitHeaps`). */
  readonly budgetBytes: number;
  readonly commonBytes: number;
  readonly commonObjects: number;
  readonly processes: readonly HeapProcessUsage[];
}

/** Part of `HeapUsage`: one process. */
export interface HeapProcessUsage {
  readonly slot: number;
  /** Bytes of objects that are freed when the process ends. */
  readonly heldBytes: number;
  /** Free bytes that the process keeps at hand; another one takes them if it finds no others. */
  readonly cachedBytes: number;
  /** Bytes that it may hold and cache; 0: no limit (`heap.setQuota`). */
  readonly quotaBytes: number;
  /** Number of allocations. */
  readonly objects: number;
}

/** Calls `each` with the word and the bytes of each object. */
function forEachObject(table: HeapTable, each: (word: number, bytes: number) => void): void {
  const grown = table.grown;
  for (let span = 0; span < grown;) {
    const word = table.span(span);
    const step = table.step(span);
    const kind = spanKindOf(word);
    const first = span * SPAN_UNITS;
    if (kind === SpanKind.RUN) each(table.unit(first), step * SPAN_BYTES);
    else if (kind !== SpanKind.FREE && kind !== SpanKind.BARE) {
      const size = CLASS_UNITS[spanNumberOf(word)] ?? SPAN_UNITS;
      for (let unit = 0; unit + size <= SPAN_UNITS; unit += size) {
        each(table.unit(first + unit), size * UNIT_BYTES);
      }
    }
    span += step;
  }
}

/** Bytes that the process of a slot holds and has cached. */
export function usedBy(table: HeapTable, slot: number): number {
  let used = 0;
  forEachObject(table, (word, bytes) => {
    const kind = kindOf(word);
    if ((kind === Kind.HELD || kind === Kind.CACHED) && slotOf(word) === slot) used += bytes;
  });
  return used;
}

export function usageOf(table: HeapTable): HeapUsage {
  const bySlot = new Map<number, { held: number; cached: number; objects: number }>();
  let [commonBytes, commonObjects] = [0, 0];
  forEachObject(table, (word, bytes) => {
    const kind = kindOf(word);
    if (kind === Kind.COMMON) {
      commonBytes += bytes;
      commonObjects++;
    }
    if (kind !== Kind.HELD && kind !== Kind.CACHED) return;
    const entry = bySlot.get(slotOf(word)) ?? { held: 0, cached: 0, objects: 0 };
    bySlot.set(slotOf(word), entry);
    if (kind === Kind.CACHED) entry.cached += bytes;
    else {
      entry.held += bytes;
      entry.objects++;
    }
  });
  const processes = [...bySlot].map(([slot, { held, cached, objects }]) => ({
    slot,
    heldBytes: held,
    cachedBytes: cached,
    quotaBytes: table.quotaOf(slot),
    objects,
  }));
  return {
    reserveBytes: table.spans * SPAN_BYTES,
    grownBytes: storedSpans(table) * SPAN_BYTES,
    budgetBytes: table.get(Header.BUDGET) * SPAN_BYTES,
    commonBytes,
    commonObjects,
    processes: processes.sort((a, b) => a.slot - b.slot),
  };
}
