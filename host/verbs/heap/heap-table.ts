/**
 * The table of a heap in shared memory, before its data and outside its key: no peer reaches it.
 * ```
 *  | header | members | spans, a word each | units of 64 bytes, a word each |
 * ```
 * A word of the last part says everything about the object that begins there: free, in the cache of
 * a process, held by a process, or common. Each change is one compare-and-swap, so a process
 * may die at any instruction: what it had is found by its number, and there are no lists to repair.
 *
 * Sizes and places follow from the size of the heap, which each process keeps for itself. What is
 * read here was written by other processes: numbers are bounded before use.
 */
import { indicesOf, layoutOf } from '../../engine/struct.js';
import { SPAN_BYTES, SPAN_UNITS } from './size-classes.js';

/** Words of the header. */
export enum Header {
  MAGIC = 0,
  LOCK = 1,
  /** Spans whose storage is committed. */
  GROWN = 2,
  /** Spans with storage that all heaps of the domain may have; 0: no limit. */
  BUDGET = 3,
  /** Bytes that each process may hold and cache; 0: no limit. */
  QUOTA = 4,
  /** Heaps of a low number give back segments first. */
  PRIORITY = 5,
  /** Spans that keep their storage. */
  MINIMUM = 6,
  /** How often another heap found no storage, and bytes that it lacked the last time. */
  PRESSURE = 7,
  LACKING = 8,
  /** Free objects of each class in slabs, nearly: a hint. */
  FREE_OF_CLASS = 16,
}
const HEADER_WORDS = 64;
export const HEAP_MAGIC = 0x70616568;
/** Of each slot. */
const MemberLayout = layoutOf(
  {
    /** 1 while its process takes part. */
    joined: 'u32',
    /** Of that process. */
    incarnation: 'u32',
    /** Bytes that it may hold and cache; 0: as the header says. */
    quota: 'u32',
  },
  16,
);
const MEMBER_WORDS = MemberLayout.size / 4;
export const MEMBER = indicesOf(MemberLayout);
export const MEMBERS_MAX = 256;

/** Of the word of an object, in its upper 4 bits. Below: slot and class, 8 bits each. */
export enum Kind {
  /** No object begins here. */
  NONE = 0,
  FREE = 1,
  /** In the cache of a process, or about to be freed by one. */
  CACHED = 2,
  /** Private: it is free when the process ends. */
  HELD = 3,
  /** No process's: it stays until a process frees it. */
  COMMON = 4,
}
const KIND_SHIFT = 28;
const SLOT_SHIFT = 8;
/** In place of a class: the first unit of a run of spans. */
export const RUN_CLASS = 0xff;

export function objectWord(kind: Kind, slot: number, sizeClass: number): number {
  return (kind << KIND_SHIFT) | (slot << SLOT_SHIFT) | sizeClass;
}

export function kindOf(word: number): Kind {
  return word >>> KIND_SHIFT;
}

export function slotOf(word: number): number {
  return (word >>> SLOT_SHIFT) & 0xff;
}

export function classOf(word: number): number {
  return word & 0xff;
}

/** Of the word of a span, in its upper 4 bits; below: the class, or the number of spans. */
export enum SpanKind {
  FREE = 0,
  SLAB = 1,
  /** A slab that the holder of the lock is making, or taking apart. */
  CHANGING = 2,
  /** The first span of an allocation; the words of the others stay 0. */
  RUN = 3,
  /** Free, and without storage (heap-segments.ts). */
  BARE = 4,
}

export function spanWord(kind: SpanKind, number: number): number {
  return (kind << KIND_SHIFT) | number;
}

export function spanKindOf(word: number): SpanKind {
  return word >>> KIND_SHIFT;
}

export function spanNumberOf(word: number): number {
  return word & 0xfffffff;
}

export class HeapTable {
  /** All memory of the device, as words. */
  readonly words: Int32Array;
  readonly header: number;
  readonly spans: number;
  readonly spanTable: number;
  readonly unitTable: number;
  /** Address of the first byte that the heap hands out. */
  readonly data: number;

  /** `address`: a multiple of 64; the heap has room for `spans` spans. */
  constructor(words: Int32Array, address: number, spans: number) {
    this.words = words;
    this.spans = spans;
    this.header = address >>> 2;
    this.spanTable = this.header + HEADER_WORDS + MEMBERS_MAX * MEMBER_WORDS;
    this.unitTable = this.spanTable + spans;
    this.data = Math.ceil((address + tableBytes(spans)) / SPAN_BYTES) * SPAN_BYTES;
  }

  get grown(): number {
    const grown = Atomics.load(this.words, this.header + Header.GROWN) >>> 0;
    return Math.min(grown, this.spans);
  }

  set grown(spans: number) {
    Atomics.store(this.words, this.header + Header.GROWN, spans);
  }

  /** A word of the header. */
  get(field: Header): number {
    return Atomics.load(this.words, this.header + field) >>> 0;
  }

  set(field: Header, value: number): void {
    Atomics.store(this.words, this.header + field, value);
  }

  /** Bytes that the process of a slot may hold and cache; 0: no limit. */
  quotaOf(slot: number): number {
    const own = Atomics.load(this.words, this.member(slot) + MEMBER.quota) >>> 0;
    return own === 0 ? this.get(Header.QUOTA) : own;
  }

  setQuotaOf(slot: number, bytes: number): void {
    Atomics.store(this.words, this.member(slot) + MEMBER.quota, bytes);
  }

  /** Index of the first word of a slot's member. */
  member(slot: number): number {
    return this.header + HEADER_WORDS + slot * MEMBER_WORDS;
  }

  span(index: number): number {
    return Atomics.load(this.words, this.spanTable + index);
  }

  setSpan(index: number, word: number): void {
    Atomics.store(this.words, this.spanTable + index, word);
  }

  unit(index: number): number {
    return Atomics.load(this.words, this.unitTable + index);
  }

  setUnit(index: number, word: number): void {
    Atomics.store(this.words, this.unitTable + index, word);
  }

  /** False: the word was another one, and nothing has changed. */
  swapUnit(index: number, from: number, to: number): boolean {
    return Atomics.compareExchange(this.words, this.unitTable + index, from, to) === from;
  }

  addFree(sizeClass: number, count: number): void {
    Atomics.add(this.words, this.header + Header.FREE_OF_CLASS + sizeClass, count);
  }

  setFree(sizeClass: number, count: number): void {
    Atomics.store(this.words, this.header + Header.FREE_OF_CLASS + sizeClass, count);
  }

  free(sizeClass: number): number {
    return Atomics.load(this.words, this.header + Header.FREE_OF_CLASS + sizeClass);
  }

  /** Number of spans from this one on that belong together; what a process wrote is bounded. */
  step(index: number): number {
    const word = this.span(index);
    if (spanKindOf(word) !== SpanKind.RUN) return 1;
    const count = spanNumberOf(word);
    return count < 1 || count > this.spans - index ? 1 : count;
  }
}

/** Bytes of the table of a heap of that many spans. */
export function tableBytes(spans: number): number {
  return 4 * (HEADER_WORDS + MEMBERS_MAX * MEMBER_WORDS + spans + spans * SPAN_UNITS);
}

/** Bytes of the table and of that many spans, at any multiple of 64. */
export function heapBytes(spans: number): number {
  return tableBytes(spans) + SPAN_BYTES + spans * SPAN_BYTES;
}

/** The most spans of a heap that takes `bytes` in all. */
export function spansIn(bytes: number): number {
  let spans = Math.floor(bytes / (SPAN_BYTES + 4 + 4 * SPAN_UNITS));
  while (spans > 0 && heapBytes(spans) > bytes) spans--;
  return spans;
}
