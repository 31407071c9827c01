/**
 * Queue of ranges of one segment to make durable, from the thread that runs the engine to the one
 * that has the store; in memory that both share: a header, and entries.
 *
 * Indices count up and wrap at 2^32. The engine's side writes entries and moves `head`; the store's
 * side works on all of [done, head) together and moves `done`; the engine's side answers
 * [collected, done) and moves `collected`: only then is a place free again. A store that failed
 * once sets `failed`: no entry from the index `lost` on becomes durable, ever. While the store's
 * thread sleeps (`sleeps`), it is woken only when `head` reaches `wanted`.
 */
import type { EngineMemory } from '../../engine/memory.js';
import type { DurableRange } from './durable-store.js';

const ENTRIES = 1024;
/** Words of the header. */
enum Header {
  HEAD,
  DONE,
  COLLECTED,
  FAILED,
  STOP,
  CALLS,
  WANTED,
  SLEEPS,
  LOST,
}
const HEADER_WORDS = 16;
/** Words of an entry. */
enum Entry {
  QUEUE_PAIR,
  JOB,
  SERIAL,
  OFFSET,
  LENGTH,
}
const ENTRY_WORDS = 8;

export const DURABLE_RING_BYTES = 4 * (HEADER_WORDS + ENTRIES * ENTRY_WORDS);

/** Which FLUSH of the engine's an entry belongs to. */
export interface FlushPart {
  readonly queuePair: number;
  readonly job: number;
  readonly serial: number;
}

export class DurableRing {
  readonly #words: Int32Array;
  readonly #at: number;

  constructor(memory: EngineMemory, address: number) {
    this.#words = new Int32Array(memory.buffer);
    this.#at = address >>> 2;
  }

  /** Places that are free. */
  get room(): number {
    return ENTRIES - ((this.#head - this.#collected) >>> 0);
  }

  /** The engine's side: one more range. The caller has looked at `room`. */
  push(part: FlushPart, offset: number, length: number): void {
    const head = this.#head;
    const at = this.#entry(head);
    const words = this.#words;
    words[at + Entry.QUEUE_PAIR] = part.queuePair;
    words[at + Entry.JOB] = part.job;
    words[at + Entry.SERIAL] = part.serial;
    words[at + Entry.OFFSET] = offset;
    words[at + Entry.LENGTH] = length;
    Atomics.store(words, this.#at + Header.HEAD, (head + 1) | 0);
  }

  /** The engine's side, after it has pushed: wakes the store's, if that waits for no more. */
  announce(): void {
    const words = this.#words;
    if (Atomics.load(words, this.#at + Header.SLEEPS) === 0) return;
    if (((this.#head - Atomics.load(words, this.#at + Header.WANTED)) | 0) >= 0) this.#call();
  }

  /** The engine's side: gives out what is done. Returns how many. */
  collect(answer: (part: FlushPart, failed: boolean) => void): number {
    const done = Atomics.load(this.#words, this.#at + Header.DONE);
    let index = this.#collected;
    const count = (done - index) >>> 0;
    const { failed } = this;
    const firstLost = Atomics.load(this.#words, this.#at + Header.LOST);
    for (; index !== done; index = (index + 1) | 0) {
      const at = this.#entry(index);
      const part = {
        queuePair: this.#words[at + Entry.QUEUE_PAIR]! >>> 0,
        job: this.#words[at + Entry.JOB]! >>> 0,
        serial: this.#words[at + Entry.SERIAL]! >>> 0,
      };
      answer(part, failed && ((index - firstLost) | 0) >= 0);
    }
    if (count === 0) return 0;
    // Indices wrap: a later entry must never compare as older than `lost`.
    if (failed && ((done - firstLost) | 0) > 0)
      Atomics.store(this.#words, this.#at + Header.LOST, done);
    Atomics.store(this.#words, this.#at + Header.COLLECTED, done);
    return count;
  }

  /**
   * The store's side: what is to be made durable now, merged, of `most` entries at most, the oldest
   * ones; undefined: nothing is.
   */
  take(most = ENTRIES): { end: number; count: number; ranges: DurableRange[] } | undefined {
    const start = Atomics.load(this.#words, this.#at + Header.DONE);
    const end = (start + Math.min(most, (this.#head - start) >>> 0)) | 0;
    const ranges: { offset: number; length: number }[] = [];
    if (start === end) return undefined;
    for (let index = start; index !== end; index = (index + 1) | 0) {
      const at = this.#entry(index);
      const offset = this.#words[at + Entry.OFFSET]! >>> 0;
      ranges.push({ offset, length: this.#words[at + Entry.LENGTH]! >>> 0 });
    }
    return { end, count: ranges.length, ranges: mergeRanges(ranges) };
  }

  /** The store's side: everything before `end` is durable. */
  finish(end: number): void {
    Atomics.store(this.#words, this.#at + Header.DONE, end);
  }

  /** The store's side: nothing from `done` on is, up to `end` and beyond. */
  fail(end: number): void {
    if (!this.failed) {
      Atomics.store(
        this.#words,
        this.#at + Header.LOST,
        Atomics.load(this.#words, this.#at + Header.DONE),
      );
      Atomics.store(this.#words, this.#at + Header.FAILED, 1);
    }
    this.finish(end);
  }

  get failed(): boolean {
    return Atomics.load(this.#words, this.#at + Header.FAILED) !== 0;
  }

  /** Is nothing under way? */
  get idle(): boolean {
    return this.#head === this.#collected;
  }

  /** The store's side: how many are not done yet. */
  get pending(): number {
    return (this.#head - Atomics.load(this.#words, this.#at + Header.DONE)) >>> 0;
  }

  /** The store's side, in a thread of its own: sleeps until there is something. False: the end. */
  awaitWork(): boolean {
    while (!this.#stopped) {
      if (this.pending > 0) return true;
      this.#sleep(1);
    }
    return false;
  }

  /** Sleeps on until `count` are pending. False: `mostMicros` are over, or it is the end. */
  gather(count: number, mostMicros: number, now: () => number): boolean {
    const end = now() + mostMicros;
    while (this.pending < count) {
      const left = end - now();
      if (left <= 0 || this.#stopped) return false;
      this.#sleep(count, left / 1000);
    }
    return true;
  }

  /** As `awaitWork`, in a thread that does other things, too. */
  async workComes(): Promise<boolean> {
    while (!this.#stopped) {
      if (this.pending > 0) return true;
      const calls = this.#lieDown(1);
      if (this.pending === 0 && !this.#stopped) {
        const waiting = Atomics.waitAsync(this.#words, this.#at + Header.CALLS, calls);
        if (waiting.async) await waiting.value;
      }
      Atomics.store(this.#words, this.#at + Header.SLEEPS, 0);
    }
    return false;
  }

  stop(): void {
    Atomics.store(this.#words, this.#at + Header.STOP, 1);
    this.#call();
  }

  #call(): void {
    Atomics.add(this.#words, this.#at + Header.CALLS, 1);
    Atomics.notify(this.#words, this.#at + Header.CALLS);
  }

  #sleep(count: number, millis = Infinity): void {
    const calls = this.#lieDown(count);
    if (this.pending < count && !this.#stopped) {
      Atomics.wait(this.#words, this.#at + Header.CALLS, calls, millis);
    }
    Atomics.store(this.#words, this.#at + Header.SLEEPS, 0);
  }

  /** It says that it sleeps, then looks for the last time: one of the two sees the other. */
  #lieDown(count: number): number {
    const words = this.#words;
    const calls = Atomics.load(words, this.#at + Header.CALLS);
    const done = Atomics.load(words, this.#at + Header.DONE);
    Atomics.store(words, this.#at + Header.WANTED, (done + count) | 0);
    Atomics.store(words, this.#at + Header.SLEEPS, 1);
    return calls;
  }

  get #stopped(): boolean {
    return Atomics.load(this.#words, this.#at + Header.STOP) !== 0;
  }

  get #head(): number {
    return Atomics.load(this.#words, this.#at + Header.HEAD);
  }

  get #collected(): number {
    return Atomics.load(this.#words, this.#at + Header.COLLECTED);
  }

  #entry(index: number): number {
    return this.#at + HEADER_WORDS + (index & (ENTRIES - 1)) * ENTRY_WORDS;
  }
}

/** The same bytes in as few ranges as they lie in, in order; those of length 0 are left out. */
export function mergeRanges(ranges: readonly DurableRange[]): DurableRange[] {
  const sorted = ranges.filter(({ length }) => length > 0).sort((a, b) => a.offset - b.offset);
  const merged: { offset: number; length: number }[] = [];
  for (const { offset, length } of sorted) {
    const last = merged.at(-1);
    if (last && offset <= last.offset + last.length) {
      last.length = Math.max(last.length, offset + length - last.offset);
    } else {
      merged.push({ offset, length });
    }
  }
  return merged;
}
