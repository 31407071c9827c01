/**
 * The engine's side of all durable segments: passes FLUSHes of the engine to the rings of their
 * segments, and the results back. Called by the turn holder: the table is in memory that both
 * threads of a device use.
 * ```
 *  | entries: address, length (0: free), ring, reserved | a FlushRequest |
 * ```
 */
import {
  ContextLayout,
  FLUSH_MEMORY_SIZE,
  FlushRequestLayout,
  LAYOUT_PIECES_MAX,
} from '#build/abi.js';
import type { EngineExports } from '../../engine/load.js';
import type { EngineMemory } from '../../engine/memory.js';
import { DurableRing, type FlushPart } from './durable-ring.js';

/** Durable segments of a device. */
export const DURABLE_SEGMENTS_MAX = 64;
const ENTRY_WORDS = 4;
const REQUEST_AT = DURABLE_SEGMENTS_MAX * ENTRY_WORDS * 4;
export const DURABLE_TABLE_BYTES = REQUEST_AT + FLUSH_MEMORY_SIZE;

const REQUEST = FlushRequestLayout.fields;

interface Segment {
  readonly address: number;
  readonly length: number;
  readonly ring: DurableRing;
}

export class DurableExchange {
  readonly #memory: EngineMemory;
  readonly #exports: EngineExports;
  readonly #context: number;
  readonly #table: number;
  readonly #words: Uint32Array;
  readonly #request: number;
  readonly #flushFirst: number;
  readonly #rings = new Map<number, DurableRing>();
  readonly #answer: (part: FlushPart, failed: boolean) => void;

  /** `context`, `table`: addresses. */
  constructor(memory: EngineMemory, exports: EngineExports, context: number, table: number) {
    this.#memory = memory;
    this.#exports = exports;
    this.#context = context;
    this.#table = table >>> 2;
    this.#words = memory.words;
    this.#request = table + REQUEST_AT;
    this.#flushFirst = (context + ContextLayout.fields.flushFirst[0]) >>> 2;
    this.#answer = ({ queuePair, job, serial }, failed) =>
      exports.advanceFlush(context, queuePair, job, serial, failed ? 1 : 0);
  }

  /** Reports durable and failed ranges to the engine. Returns the number of answers. */
  collect(): number {
    let count = 0;
    for (let index = 0; this.#lengthOf(index) !== 0; index++) {
      const segment = this.#segmentAt(index);
      if (segment) count += segment.ring.collect(this.#answer);
    }
    // Rings that were full have room again.
    if (count > 0) this.give();
    return count;
  }

  /**
   * Gives out what the engine has; what finds no room in a ring stays with the engine. True: some
   * it has answered itself, and the engine has something to say.
   */
  give(): boolean {
    const at = this.#request >>> 2;
    const words = this.#words;
    if (words[this.#flushFirst] === 0) return false;
    let answered = false;
    const segments = this.#segments();
    while (words[this.#flushFirst] !== 0) {
      if (segments.some(({ ring }) => ring.room < LAYOUT_PIECES_MAX)) break;
      if (this.#exports.nextFlush(this.#context, this.#request) === 0) {
        // The engine has refused FLUSHes whose layout is gone: their NAKs are to be sent.
        answered = true;
        break;
      }
      const part = {
        queuePair: words[at + (REQUEST.queuePair[0] >>> 2)]!,
        job: words[at + (REQUEST.job[0] >>> 2)]!,
        serial: words[at + (REQUEST.serial[0] >>> 2)]!,
      };
      if (!this.#divide(part, words[at + (REQUEST.count[0] >>> 2)]!, segments)) answered = true;
    }
    for (const { ring } of segments) ring.announce();
    return answered;
  }

  /** A range that lies in no segment cannot become durable, and so its FLUSH cannot: false. */
  #divide(part: FlushPart, count: number, segments: readonly Segment[]): boolean {
    const first = (this.#request + REQUEST.ranges[0]) >>> 2;
    const pieces: { ring: DurableRing; offset: number; length: number }[] = [];
    for (let index = 0; index < count; index++) {
      const start = this.#words[first + 2 * index]!;
      const end = start + this.#words[first + 2 * index + 1]!;
      let found = start;
      for (const { address, length, ring } of segments) {
        const from = Math.max(start, address);
        const to = Math.min(end, address + length);
        if (from < to) pieces.push({ ring, offset: from - address, length: to - from });
        found += Math.max(0, to - from);
      }
      // Bytes that no store keeps are not durable, even if all other bytes of the range are.
      if (found !== end || start === end) {
        this.#answer(part, true);
        return false;
      }
    }
    if (pieces.length !== count) {
      const { queuePair, job, serial } = part;
      this.#exports.setFlushAnswers(queuePair, job, serial, pieces.length);
    }
    for (const { ring, offset, length } of pieces) ring.push(part, offset, length);
    return true;
  }

  #lengthOf(index: number): number {
    if (index >= DURABLE_SEGMENTS_MAX) return 0;
    // The end of the table is the first entry that was never taken: its ring is 0, too.
    const at = this.#table + index * ENTRY_WORDS;
    return Atomics.load(this.#words, at + 1) || this.#words[at + 2]!;
  }

  #segmentAt(index: number): Segment | undefined {
    const at = this.#table + index * ENTRY_WORDS;
    const length = Atomics.load(this.#words, at + 1);
    if (length === 0) return undefined;
    const address = this.#words[at + 2]!;
    let ring = this.#rings.get(address);
    if (!ring) {
      ring = new DurableRing(this.#memory, address);
      this.#rings.set(address, ring);
    }
    return { address: this.#words[at]!, length, ring };
  }

  #segments(): Segment[] {
    const segments: Segment[] = [];
    for (let index = 0; this.#lengthOf(index) !== 0; index++) {
      const segment = this.#segmentAt(index);
      if (segment) segments.push(segment);
    }
    return segments;
  }
}

/** The application's side of the table: which segments there are. */
export class DurableTable {
  readonly #words: Uint32Array;
  readonly #at: number;

  constructor(memory: EngineMemory, table: number) {
    this.#words = memory.words;
    this.#at = table >>> 2;
  }

  /** Takes a place; undefined: all are taken. */
  take(address: number, length: number, ring: number): number | undefined {
    for (let index = 0; index < DURABLE_SEGMENTS_MAX; index++) {
      const at = this.#at + index * ENTRY_WORDS;
      if (this.#words[at + 1] !== 0) continue;
      this.#words[at] = address;
      this.#words[at + 2] = ring;
      Atomics.store(this.#words, at + 1, length);
      return index;
    }
    return undefined;
  }

  release(index: number): void {
    Atomics.store(this.#words, this.#at + index * ENTRY_WORDS + 1, 0);
  }
}
