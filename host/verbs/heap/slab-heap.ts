/**
 * A heap that several processes allocate from. Objects of up to 32 KiB lie in slabs of one size;
 * larger ones are runs of spans. Each process has a cache of free objects of each size: an
 * allocation from the cache is one compare-and-swap, a free another one.
 *
 * The word of an object is the truth (heap-table.ts). A cache only says where to look: if another
 * process took the object meanwhile, the swap fails and the next entry is tried. Spans change under
 * the lock of the heap.
 */
import { checkWhole } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { HeapLock, type HeapMembers } from './heap-lock.js';
import type { Shortage } from './heap-pressure.js';
import { findSegment, storeSegment, storedSpans } from './heap-segments.js';
import { usageOf, usedBy } from './heap-usage.js';
import {
  MEMBER,
  HEAP_MAGIC,
  Header,
  Kind,
  RUN_CLASS,
  SpanKind,
  classOf,
  kindOf,
  objectWord,
  slotOf,
  spanKindOf,
  spanWord,
  type HeapTable,
} from './heap-table.js';
import { repairSpans, retireSlabs, sweepSlot } from './heap-repair.js';
import {
  CLASSES,
  CLASS_OF,
  CLASS_UNITS,
  OBJECT_UNITS_MAX,
  SPAN_BYTES,
  SPAN_UNITS,
  UNIT_BYTES,
  alignedUnits,
  objectsOf,
} from './size-classes.js';

/** Objects that a process takes from slabs at once, and bytes of them at most. */
const BATCH_OBJECTS = 32;
const BATCH_BYTES = 65536;
/** A cache of one size: this many batches at most. */
const CACHE_BATCHES = 2;
const OBJECT_BYTES_MAX = OBJECT_UNITS_MAX * UNIT_BYTES;
/** Spans that the heap grows by. */
const GROW_SPANS = 16;

export interface SlabHeapOptions {
  readonly table: HeapTable;
  readonly members: HeapMembers;
  /** Commits storage of the device's file for these bytes. Throws RefusalError ENOSPC. */
  readonly commit: (address: number, bytes: number) => void;
  /**
   * Called without a lock, if the heap lacks that many spans in a row: gives them storage of other
   * heaps. Returns the reason if it could not. Default: no other heap gives any.
   */
  readonly room?: (spans: number) => Shortage | undefined;
}

/** Free objects of one size that this process found first. */
interface Cache {
  readonly units: Int32Array;
  readonly batch: number;
  /** Words of an object of this size: in this cache, held by this process, free. */
  readonly cached: number;
  readonly held: number;
  readonly free: number;
  count: number;
  /** Where the last search in slabs ended: a span, and an object there. */
  span: number;
  object: number;
}

export class SlabHeap {
  readonly table: HeapTable;
  readonly #members: HeapMembers;
  readonly #commit: (address: number, bytes: number) => void;
  readonly #room: ((spans: number) => Shortage | undefined) | undefined;
  readonly #lock: HeapLock;
  readonly #words: Int32Array;
  readonly #unitTable: number;
  readonly #caches: readonly Cache[];
  readonly #slot: number;
  readonly #units: number;
  /** Bytes that this process may still take before its quota is checked against the table. */
  #credit = 0;
  #shortage: Shortage | undefined;

  constructor({ table, members, commit, room }: SlabHeapOptions) {
    this.table = table;
    this.#members = members;
    this.#commit = commit;
    this.#room = room;
    this.#words = table.words;
    this.#unitTable = table.unitTable;
    this.#slot = members.slot;
    this.#units = table.spans * SPAN_UNITS;
    this.#caches = CLASS_UNITS.map((_, sizeClass) => cacheOf(sizeClass, members.slot));
    this.#lock = new HeapLock(table.words, table.header + Header.LOCK, members, () =>
      repairSpans(table),
    );
  }

  /** Slots of the device. */
  get slotsMax(): number {
    return this.#members.slotsMax;
  }

  /** This process takes part; the memory of a dead process in its slot becomes free. */
  join(): void {
    this.#lock.run(() => {
      const { words, header } = this.table;
      Atomics.store(words, header + Header.MAGIC, HEAP_MAGIC);
      const member = this.table.member(this.#slot);
      const incarnation = this.#members.incarnation(this.#slot) | 0;
      const before = Atomics.load(words, member + MEMBER.joined);
      const isSame =
        before !== 0 && Atomics.load(words, member + MEMBER.incarnation) === incarnation;
      if (before !== 0 && !isSame) sweepSlot(this.table, this.#slot);
      if (!isSame) this.table.setQuotaOf(this.#slot, 0);
      Atomics.store(words, member + MEMBER.incarnation, incarnation);
      Atomics.store(words, member + MEMBER.joined, 1);
    });
  }

  /**
   * The address of `length` bytes that this process holds. `isCommon`: they become common next, so
   * its quota does not count them. Throws MisuseError; RefusalError ENOMEM.
   */
  malloc(length: number, isCommon = false): number {
    // Also NaN and what passes 2^32 go the long way.
    if (!(length > 0 && length <= OBJECT_BYTES_MAX) || !Number.isInteger(length)) {
      return this.#mallocRun(length, isCommon);
    }
    const units = (length + UNIT_BYTES - 1) >>> 6;
    const cache = this.#caches[CLASS_OF[units]!]!;
    while (cache.count > 0) {
      const unit = cache.units[--cache.count]!;
      const at = this.#unitTable + unit;
      const found = Atomics.compareExchange(this.#words, at, cache.cached, cache.held);
      if (found === cache.cached) return this.table.data + unit * UNIT_BYTES;
    }
    return this.#mallocSlow(cache, CLASS_OF[units]!, length, isCommon);
  }

  /** The same at a multiple of `alignment`, a power of two up to 65536. */
  mallocAligned(length: number, alignment: number, isCommon = false): number {
    // It refuses what is no length.
    if (!Number.isInteger(length)) return this.#mallocRun(length, isCommon);
    const units = Math.ceil(length / UNIT_BYTES);
    return this.malloc(alignedUnits(units, alignment / UNIT_BYTES) * UNIT_BYTES, isCommon);
  }

  /** Frees an allocation of any process. Throws MisuseError if no allocation begins there. */
  free(address: number): void {
    const unit = (address - this.table.data) / UNIT_BYTES;
    if (!(unit >= 0 && unit < this.#units) || unit !== Math.floor(unit)) {
      throw this.#unknown(address);
    }
    const at = this.#unitTable + unit;
    const word = Atomics.load(this.#words, at);
    const kind = kindOf(word);
    const cache = this.#caches[classOf(word)];
    if (kind !== Kind.HELD && kind !== Kind.COMMON) throw this.#unknown(address);
    if (!cache) return this.#freeRun(address, unit, word);
    if (Atomics.compareExchange(this.#words, at, word, cache.cached) !== word) {
      throw this.#unknown(address);
    }
    if (cache.count === cache.units.length) this.#flush(cache, cache.batch);
    cache.units[cache.count++] = unit;
  }

  /** Bytes of the allocation that begins there; 0: none does. */
  sizeOf(address: number): number {
    const unit = this.#unitOf(address);
    if (unit === undefined) return 0;
    const word = this.table.unit(unit);
    if (kindOf(word) !== Kind.HELD && kindOf(word) !== Kind.COMMON) return 0;
    if (classOf(word) < CLASSES) return CLASS_UNITS[classOf(word)]! * UNIT_BYTES;
    const span = Math.floor(unit / SPAN_UNITS);
    return this.table.step(span) * SPAN_BYTES;
  }

  /** Makes an allocation common, or this process's. Throws MisuseError. */
  assign(address: number, isCommon: boolean): void {
    const unit = this.#unitOf(address);
    const word = unit === undefined ? 0 : this.table.unit(unit);
    const kind = kindOf(word);
    if (kind !== Kind.HELD && kind !== Kind.COMMON) throw this.#unknown(address);
    if (!isCommon && !(kind === Kind.HELD && slotOf(word) === this.#slot)) {
      const bytes = this.sizeOf(address);
      this.#admit(bytes, 1, bytes);
    }
    const kindNow = isCommon ? Kind.COMMON : Kind.HELD;
    const next = objectWord(kindNow, isCommon ? 0 : this.#slot, classOf(word));
    if (!this.table.swapUnit(unit!, word, next)) throw this.#unknown(address);
  }

  /** Returns this process's caches to the heap. */
  flush(): void {
    for (const cache of this.#caches) this.#flush(cache, cache.count);
  }

  /** This process takes part no more: what it holds and caches becomes free. */
  leave(): void {
    for (const cache of this.#caches) cache.count = 0;
    this.#lock.run(() => {
      sweepSlot(this.table, this.#slot);
      Atomics.store(this.#words, this.table.member(this.#slot) + MEMBER.joined, 0);
    });
  }

  /**
   * Reclaims what processes had that have ended. Returns how many had something. `isTried`: not if
   * another process has the lock; for callers with the lock of the device's tables.
   */
  sweepDead(isTried = false): number {
    let swept = 0;
    for (let slot = 0; slot < this.#members.slotsMax; slot++) {
      if (!this.#isDead(slot)) continue;
      const sweep = (): void => {
        if (!this.#isDead(slot)) return;
        sweepSlot(this.table, slot);
        Atomics.store(this.#words, this.table.member(slot) + MEMBER.joined, 0);
      };
      if (isTried) this.#lock.tryRun(sweep);
      else this.#lock.run(sweep);
      swept++;
    }
    return swept;
  }

  /** Returns when no process has the lock of the heap. Throws RefusalError EBUSY. */
  awaitLock(): void {
    this.#lock.run(() => undefined);
  }

  #isDead(slot: number): boolean {
    const member = this.table.member(slot);
    if (Atomics.load(this.#words, member + MEMBER.joined) === 0) return false;
    return (
      Atomics.load(this.#words, member + MEMBER.incarnation) !==
      (this.#members.incarnation(slot) | 0)
    );
  }

  #unitOf(address: number): number | undefined {
    const offset = address - this.table.data;
    const inside = offset >= 0 && offset < this.table.spans * SPAN_BYTES;
    return inside && offset % UNIT_BYTES === 0 ? offset / UNIT_BYTES : undefined;
  }

  #unknown(address: number): MisuseError {
    const number = Number.isInteger(address) ? `0x${address.toString(16)}` : String(address);
    return new MisuseError(
      'address',
      `${number} is not allocated in this heap; it was freed before, or the allocation begins ` +
        'elsewhere',
    );
  }

  /** The cache is empty: objects of slabs, a new slab, what others have cached. */
  #mallocSlow(cache: Cache, sizeClass: number, length: number, isCommon: boolean): number {
    this.sweepDead();
    const bytes = CLASS_UNITS[sizeClass]! * UNIT_BYTES;
    const batch = this.#admit(bytes, cache.batch, length, isCommon);
    let reason: RefusalError | undefined;
    const ways = [
      (): boolean =>
        this.table.free(sizeClass) > 0 && this.#refill(cache, sizeClass, Kind.FREE, batch),
      (): boolean => this.#makeSlab(cache, sizeClass, batch),
      (): boolean => this.#refill(cache, sizeClass, Kind.FREE, batch),
      (): boolean => this.#retire() && this.#makeSlab(cache, sizeClass, batch),
      (): boolean => this.#refill(cache, sizeClass, Kind.CACHED, batch),
      (): boolean => this.#getRoom(1) && this.#makeSlab(cache, sizeClass, batch),
    ];
    for (const way of ways) {
      try {
        if (way()) return this.malloc(length);
      } catch (error) {
        if (!(error instanceof RefusalError) || error.code !== 'ENOSPC') throw error;
        reason = error;
      }
    }
    throw this.#full(length, reason);
  }

  #full(length: number, cause: RefusalError | undefined): RefusalError {
    const { spans, grown } = this.table;
    const { commonBytes, processes } = usageOf(this.table);
    const used = processes.reduce((sum, { heldBytes }) => sum + heldBytes, commonBytes);
    const budget = this.table.get(Header.BUDGET);
    if (this.#shortage === 'budget') {
      const stored = storedSpans(this.table) * SPAN_BYTES;
      return new RefusalError(
        'ENOMEM',
        `heap: ${length} bytes exceed what the heaps of the domain may have together: ` +
          `${budget * SPAN_BYTES} bytes, of which this heap has ${stored} (${used} in use), and ` +
          'no heap above its minimum has a free segment; free some, or raise the budget ' +
          '(pd.limitHeaps)',
      );
    }
    const lack = `heap: no ${length} bytes are free of its ${spans * SPAN_BYTES} (${used} in use)`;
    if (cause) {
      const why = `it cannot grow beyond ${grown * SPAN_BYTES}: ${cause.message}`;
      return new RefusalError('ENOMEM', `${lack}; ${why}`, { cause });
    }
    return new RefusalError('ENOMEM', `${lack}; free some, or create it with a larger reserve`);
  }

  /** Other heaps give storage for spans in a row. */
  #getRoom(spans: number): boolean {
    if (!this.#room) return false;
    this.#shortage = this.#room(spans);
    return this.#shortage === undefined;
  }

  /**
   * How many objects of `bytes`, up to `wanted`, the quota of this process permits. What it holds
   * is counted from the table only when that might be too much, so there is no count to repair.
   * Throws RefusalError ENOMEM.
   */
  #admit(bytes: number, wanted: number, length: number, isCommon = false): number {
    const quota = this.table.quotaOf(this.#slot);
    if (quota === 0) return wanted;
    // No object more than the one that becomes common: the quota counts the cache.
    if (isCommon) return 1;
    if (this.#credit < bytes * wanted) {
      this.flush();
      this.#credit = quota - usedBy(this.table, this.#slot);
    }
    const permitted = Math.min(wanted, Math.floor(this.#credit / bytes));
    if (permitted < 1) {
      throw new RefusalError(
        'ENOMEM',
        `heap: ${length} bytes exceed the quota of this process: ${quota - this.#credit} of ` +
          `${quota} bytes are in use; free some, or raise the quota (heap.setQuota)`,
      );
    }
    this.#credit -= permitted * bytes;
    return permitted;
  }

  /** Takes a batch of objects of the slabs into the cache. False: found none. */
  #refill(cache: Cache, sizeClass: number, kind: Kind, batch: number): boolean {
    const { table } = this;
    const grown = table.grown;
    const before = cache.count;
    const wanted = before + batch;
    // One more: the rest of the first span comes last.
    for (let turn = 0; turn <= grown && cache.count < wanted; turn++) {
      if (cache.span >= grown) cache.span = cache.object = 0;
      if (table.span(cache.span) === spanWord(SpanKind.SLAB, sizeClass)) {
        this.#search(cache, sizeClass, kind, wanted);
        if (cache.object < objectsOf(sizeClass)) break;
      }
      cache.span++;
      cache.object = 0;
    }
    const found = cache.count - before;
    if (kind === Kind.FREE) table.addFree(sizeClass, found > 0 ? -found : -table.free(sizeClass));
    return found > 0;
  }

  #search(cache: Cache, sizeClass: number, kind: Kind, wanted: number): void {
    const objects = objectsOf(sizeClass);
    const size = CLASS_UNITS[sizeClass]!;
    for (; cache.object < objects && cache.count < wanted; cache.object++) {
      const unit = cache.span * SPAN_UNITS + cache.object * size;
      const word = this.table.unit(unit);
      if (kindOf(word) !== kind || classOf(word) !== sizeClass || word === cache.cached) continue;
      if (this.table.swapUnit(unit, word, cache.cached)) cache.units[cache.count++] = unit;
    }
  }

  /** Divides a free span into objects. False: no span is free. */
  #makeSlab(cache: Cache, sizeClass: number, batch: number): boolean {
    const { table } = this;
    return this.#lock.run(() => {
      const span = this.#freeSpans(1);
      if (span < 0) return false;
      table.setSpan(span, spanWord(SpanKind.CHANGING, sizeClass));
      const size = CLASS_UNITS[sizeClass]!;
      const objects = objectsOf(sizeClass);
      const own = Math.min(batch, objects);
      for (let object = 0; object < objects; object++) {
        const unit = span * SPAN_UNITS + object * size;
        table.setUnit(unit, object < own ? cache.cached : cache.free);
        if (object < own) cache.units[cache.count++] = unit;
      }
      table.setSpan(span, spanWord(SpanKind.SLAB, sizeClass));
      table.addFree(sizeClass, objects - own);
      return true;
    });
  }

  /** Spans of slabs without an allocation are free for other sizes. False: all have allocations. */
  #retire(): boolean {
    this.flush();
    return this.#lock.run(() => retireSlabs(this.table) > 0);
  }

  /** With the lock: the first of `count` free spans in a row; -1: there are not that many. */
  #freeSpans(count: number): number {
    const { table } = this;
    const segment = findSegment(table, count);
    if (!segment) return -1;
    const { first, missing } = segment;
    if (missing === 0) return first;
    // Of a domain with a budget: `room` decides, with the other heaps in view.
    if (table.get(Header.BUDGET) > 0) return -1;
    const { grown, spans } = table;
    const end = first + count;
    const grownEnd = end > grown ? Math.min(Math.max(end, grown + GROW_SPANS), spans) : end;
    return storeSegment(table, first, grownEnd - first, this.#commit) ? first : -1;
  }

  #mallocRun(length: number, isCommon: boolean): number {
    checkWhole('length', length, 1, 0xffffffff - SPAN_BYTES);
    const count = Math.ceil(length / SPAN_BYTES);
    this.sweepDead();
    this.#admit(count * SPAN_BYTES, 1, length, isCommon);
    const take = (): number => this.#lock.run(() => this.#takeRun(count));
    let reason: RefusalError | undefined;
    const ways = [
      take,
      (): number => (this.#retire() ? take() : -1),
      (): number => (this.#getRoom(count) ? take() : -1),
    ];
    for (const way of ways) {
      try {
        const span = way();
        if (span >= 0) return this.table.data + span * SPAN_BYTES;
      } catch (error) {
        if (!(error instanceof RefusalError) || error.code !== 'ENOSPC') throw error;
        reason = error;
      }
    }
    throw this.#full(length, reason);
  }

  #takeRun(count: number): number {
    const span = this.#freeSpans(count);
    if (span < 0) return span;
    // A run without a holder is free: repairSpans.
    this.table.setSpan(span, spanWord(SpanKind.RUN, count));
    this.table.setUnit(span * SPAN_UNITS, objectWord(Kind.HELD, this.#slot, RUN_CLASS));
    return span;
  }

  #freeRun(address: number, unit: number, word: number): void {
    const span = Math.floor(unit / SPAN_UNITS);
    const isRun = unit % SPAN_UNITS === 0 && spanKindOf(this.table.span(span)) === SpanKind.RUN;
    const mine = objectWord(Kind.CACHED, this.#slot, RUN_CLASS);
    if (classOf(word) !== RUN_CLASS || !isRun || !this.table.swapUnit(unit, word, mine)) {
      throw this.#unknown(address);
    }
    this.#lock.run(() => {
      this.table.setUnit(unit, 0);
      this.table.setSpan(span, 0);
    });
  }

  /** The last `count` objects of the cache are free for all processes. */
  #flush(cache: Cache, count: number): void {
    let freed = 0;
    for (let turn = 0; turn < count && cache.count > 0; turn++) {
      const unit = cache.units[--cache.count]!;
      if (this.table.swapUnit(unit, cache.cached, cache.free)) freed++;
    }
    if (freed > 0) this.table.addFree(classOf(cache.free), freed);
  }
}

function cacheOf(sizeClass: number, slot: number): Cache {
  const bytes = CLASS_UNITS[sizeClass]! * UNIT_BYTES;
  const batch = Math.max(1, Math.min(BATCH_OBJECTS, Math.floor(BATCH_BYTES / bytes)));
  return {
    units: new Int32Array((CACHE_BATCHES + 1) * batch),
    batch,
    cached: objectWord(Kind.CACHED, slot, sizeClass),
    held: objectWord(Kind.HELD, slot, sizeClass),
    free: objectWord(Kind.FREE, 0, sizeClass),
    count: 0,
    span: 0,
    object: 0,
  };
}
