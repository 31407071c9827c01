/**
 * A heap after a death: what a dead process held becomes free, and spans that the holder of the
 * lock was changing become whole. All functions run with the lock of the heap, and may be repeated:
 * the process that runs them may die, too.
 */
import {
  Kind,
  RUN_CLASS,
  SpanKind,
  classOf,
  kindOf,
  objectWord,
  slotOf,
  spanKindOf,
  spanNumberOf,
  spanWord,
  type HeapTable,
} from './heap-table.js';
import { CLASSES, CLASS_UNITS, SPAN_UNITS, objectsOf } from './size-classes.js';

/** Calls `each` with the first unit of each object of a slab. */
function forObjects(span: number, sizeClass: number, each: (unit: number) => void): void {
  const size = CLASS_UNITS[sizeClass]!;
  for (let object = 0; object < objectsOf(sizeClass); object++) {
    each(span * SPAN_UNITS + object * size);
  }
}

/** Calls `each` with the slabs and runs of the heap; a class that no process wrote is left out. */
function forSpans(
  table: HeapTable,
  each: (span: number, kind: SpanKind, sizeClass: number) => void,
): void {
  const grown = table.grown;
  for (let span = 0; span < grown;) {
    const word = table.span(span);
    // The step first: `each` may free the run.
    const next = span + table.step(span);
    const kind = spanKindOf(word);
    const sizeClass = kind === SpanKind.RUN ? RUN_CLASS : spanNumberOf(word);
    const isUsed = kind !== SpanKind.FREE && kind !== SpanKind.BARE;
    if (isUsed && (kind === SpanKind.RUN || sizeClass < CLASSES)) {
      each(span, kind, sizeClass);
    }
    span = next;
  }
}

/** Frees the objects and the caches of the slot. The hints are counted anew. */
export function sweepSlot(table: HeapTable, slot: number): void {
  const free = CLASS_UNITS.map(() => 0);
  forSpans(table, (span, kind, sizeClass) => {
    if (kind === SpanKind.RUN) {
      if (!isOf(table.unit(span * SPAN_UNITS), slot)) return;
      table.setUnit(span * SPAN_UNITS, 0);
      table.setSpan(span, 0);
      return;
    }
    forObjects(span, sizeClass, (unit) => {
      const word = table.unit(unit);
      if (isOf(word, slot)) table.swapUnit(unit, word, objectWord(Kind.FREE, 0, sizeClass));
      if (kindOf(table.unit(unit)) === Kind.FREE) free[sizeClass]!++;
    });
  });
  free.forEach((count, sizeClass) => table.setFree(sizeClass, count));
}

function isOf(word: number, slot: number): boolean {
  const kind = kindOf(word);
  return (kind === Kind.HELD || kind === Kind.CACHED) && slotOf(word) === slot;
}

/** The last holder of the lock died: its slab becomes whole, its run free. */
export function repairSpans(table: HeapTable): void {
  forSpans(table, (span, kind, sizeClass) => {
    if (kind === SpanKind.CHANGING) completeSlab(table, span, sizeClass);
    else if (kind === SpanKind.RUN && table.unit(span * SPAN_UNITS) === 0) table.setSpan(span, 0);
  });
}

function completeSlab(table: HeapTable, span: number, sizeClass: number): void {
  forObjects(span, sizeClass, (unit) => {
    table.swapUnit(unit, 0, objectWord(Kind.FREE, 0, sizeClass));
  });
  table.setSpan(span, spanWord(SpanKind.SLAB, sizeClass));
}

/** Frees the spans of slabs without an allocation. Returns how many. */
export function retireSlabs(table: HeapTable): number {
  let retired = 0;
  forSpans(table, (span, kind, sizeClass) => {
    if (kind === SpanKind.SLAB && retire(table, span, sizeClass)) retired++;
  });
  return retired;
}

/** Objects in caches count as free: their process finds the word changed. */
function retire(table: HeapTable, span: number, sizeClass: number): boolean {
  const size = CLASS_UNITS[sizeClass]!;
  const objects = objectsOf(sizeClass);
  const isIdle = (word: number): boolean =>
    (kindOf(word) === Kind.FREE || kindOf(word) === Kind.CACHED) && classOf(word) === sizeClass;
  // A look first: most slabs are in use.
  for (let object = 0; object < objects; object++) {
    if (!isIdle(table.unit(span * SPAN_UNITS + object * size))) return false;
  }
  table.setSpan(span, spanWord(SpanKind.CHANGING, sizeClass));
  for (let object = 0; object < objects; object++) {
    const unit = span * SPAN_UNITS + object * size;
    const word = table.unit(unit);
    if (isIdle(word) && table.swapUnit(unit, word, 0)) continue;
    completeSlab(table, span, sizeClass);
    return false;
  }
  table.setSpan(span, 0);
  table.addFree(sizeClass, -objects);
  return true;
}
