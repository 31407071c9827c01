/**
 * Segments of a heap, spans of 64 KiB: which have storage, and which give it back. A free span
 * without storage is BARE. Its word changes before the storage goes, and after it is there, so a
 * process may die in between. All functions run with the lock of the heap.
 */
import { SpanKind, spanKindOf, spanWord, type HeapTable } from './heap-table.js';
import { retireSlabs } from './heap-repair.js';
import { SPAN_BYTES } from './size-classes.js';

/** Does something with a range of the device's memory. Commit throws RefusalError ENOSPC. */
export type OnRange = (address: number, bytes: number) => void;

/** Where `count` free spans lie in a row, and how many of them have no storage. */
export interface Segment {
  readonly first: number;
  readonly missing: number;
}

/** Calls `each` with the free spans that have had storage. */
function forFree(table: HeapTable, each: (span: number, isBare: boolean) => void): void {
  const { grown } = table;
  for (let span = 0; span < grown; span += table.step(span)) {
    const kind = spanKindOf(table.span(span));
    if (kind === SpanKind.FREE || kind === SpanKind.BARE) each(span, kind === SpanKind.BARE);
  }
}

/**
 * `count` free spans in a row: the first that have storage, or those that lack the least. Spans
 * behind `grown` are free and bare. Undefined: there are not that many.
 */
export function findSegment(table: HeapTable, count: number): Segment | undefined {
  const { grown, spans } = table;
  let best: Segment | undefined;
  // Of the free spans in a row that end at `span`, up to `count` of them: which ones are bare.
  let row: boolean[] = [];
  let missing = 0;
  for (let span = 0; span < grown;) {
    const kind = spanKindOf(table.span(span));
    const step = table.step(span);
    span += step;
    if (kind !== SpanKind.FREE && kind !== SpanKind.BARE) {
      [row, missing] = [[], 0];
      continue;
    }
    row.push(kind === SpanKind.BARE);
    missing += Number(kind === SpanKind.BARE);
    if (row.length > count) missing -= Number(row[row.length - 1 - count]);
    if (row.length < count || (best && best.missing <= missing)) continue;
    best = { first: span - count, missing };
    if (missing === 0) return best;
  }
  const held = Math.min(row.length, count);
  const behind = missing + count - held;
  if (grown - held + count > spans || (best && best.missing <= behind)) return best;
  return { first: grown - held, missing: behind };
}

/** Gives free spans storage. False: they are not free any more. */
export function storeSegment(
  table: HeapTable,
  first: number,
  count: number,
  commit: OnRange,
): boolean {
  const { grown } = table;
  for (let span = first; span < Math.min(first + count, grown); span++) {
    const kind = spanKindOf(table.span(span));
    if (kind !== SpanKind.FREE && kind !== SpanKind.BARE) return false;
  }
  if (first > grown || first + count > table.spans) return false;
  commit(table.data + first * SPAN_BYTES, count * SPAN_BYTES);
  for (let span = first; span < Math.min(first + count, grown); span++) table.setSpan(span, 0);
  if (first + count > grown) table.grown = first + count;
  return true;
}

/** Spans with storage, free or not. */
export function storedSpans(table: HeapTable): number {
  let stored = table.grown;
  forFree(table, (_, isBare) => (stored -= Number(isBare)));
  return stored;
}

/** Free spans with storage, slabs without an allocation not counted. */
export function idleSpans(table: HeapTable): number {
  let idle = 0;
  forFree(table, (_, isBare) => (idle += Number(!isBare)));
  return idle;
}

/**
 * Gives back the storage of up to `wanted` free spans, the last ones first, while more than
 * `minimum` spans have storage. Returns how many.
 */
export function releaseSpans(
  table: HeapTable,
  wanted: number,
  minimum: number,
  release: OnRange,
): number {
  if (idleSpans(table) < wanted) retireSlabs(table);
  const free: number[] = [];
  forFree(table, (span, isBare) => {
    if (!isBare) free.push(span);
  });
  const most = Math.min(wanted, storedSpans(table) - minimum);
  const given = free.reverse().slice(0, Math.max(most, 0));
  for (const span of given) {
    table.setSpan(span, spanWord(SpanKind.BARE, 0));
    release(table.data + span * SPAN_BYTES, SPAN_BYTES);
  }
  return given.length;
}
