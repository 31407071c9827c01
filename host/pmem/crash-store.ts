/**
 * Persistent memory that models a power cut, for tests: a byte is durable once it was flushed, or
 * when a random write-back came first. A cut keeps any subset of the unflushed cache lines, or of
 * aligned 8-byte words; so an atomic write is either complete or absent.
 */
import { checkKeys } from '../base/options.js';
import type { DurableRange, DurableStore } from '../device/durable/durable-store.js';
import { mergeRanges } from '../device/durable/durable-ring.js';

/** How a crash store behaves. */
export interface CrashStoreOptions {
  /** A number from 0 on, below 1: what is lost is decided by it, so a run can be repeated. */
  readonly random: () => number;
  /** Unit of loss in bytes: 64 (a cache line, the default) or 8 (a word). */
  readonly granularity?: 8 | 64;
  /**
   * When a flush that was begun ends: `complete` must be called. Default: at once. What is written
   * while a flush is under way may or may not be in it.
   */
  readonly isManual?: boolean;
}

interface Pending {
  readonly ranges: readonly DurableRange[];
  readonly contents: readonly Uint8Array[];
  readonly done: (error?: Error) => void;
}

/**
 * A store for tests: what was written and not flushed may be lost in any part when it is cut off.
 */
export class CrashStore implements DurableStore {
  readonly #memory: Uint8Array;
  readonly #durable: Uint8Array;
  readonly #random: () => number;
  readonly #granularity: number;
  readonly #isManual: boolean;
  #pending: Pending[] = [];
  #failure: Error | undefined;

  /** `memory` is what programs see; all that it holds now is durable. */
  constructor(memory: Uint8Array, options: CrashStoreOptions) {
    checkKeys('CrashStore', options, 'random granularity isManual');
    this.#memory = memory;
    // Not slice(): that of a Buffer shares its memory.
    this.#durable = Uint8Array.from(memory);
    this.#random = options.random;
    this.#granularity = options.granularity ?? 64;
    this.#isManual = options.isManual ?? false;
  }

  /** Flushes that have begun and not ended. */
  get pending(): number {
    return this.#pending.length;
  }

  flush(ranges: readonly DurableRange[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.commit(ranges, (error) => (error ? reject(error) : resolve()));
    });
  }

  /** As `flush`; `done` is called once: what a device calls (device/durable/committer.ts). */
  commit(ranges: readonly DurableRange[], done: (error?: Error) => void): void {
    if (this.#failure) return done(this.#failure);
    const merged = mergeRanges(ranges);
    const contents = merged.map(({ offset, length }) =>
      this.#memory.slice(offset, offset + length),
    );
    this.#pending.push({ ranges: merged, contents, done });
    if (!this.#isManual) this.complete();
  }

  /** The oldest flush ends: what its ranges held when it began is durable. */
  complete(): void {
    const ended = this.#pending.shift();
    if (!ended) return;
    ended.ranges.forEach(({ offset }, index) => {
      this.#durable.set(ended.contents[index]!, offset);
    });
    ended.done();
  }

  /** The medium fails: nothing is made durable any more. */
  fail(error: Error): void {
    this.#failure = error;
    for (const { done } of this.#pending.splice(0)) done(error);
  }

  /** A processor writes lines back when it likes: some of what was not flushed becomes durable. */
  evict(share = 0.5): void {
    this.#settle(this.#durable, share);
  }

  /**
   * Contents after a power cut now: `share` of the unflushed bytes has reached the medium. The
   * store itself goes on: other cuts can be tried.
   */
  cut(share = 0.5): Uint8Array {
    const found = Uint8Array.from(this.#durable);
    this.#settle(found, share);
    return found;
  }

  #settle(target: Uint8Array, share: number): void {
    const unit = this.#granularity;
    for (let at = 0; at < target.length; at += unit) {
      const end = Math.min(at + unit, target.length);
      if (isSame(target, this.#memory, at, end) || this.#random() >= share) continue;
      target.set(this.#memory.subarray(at, end), at);
    }
  }
}

function isSame(a: Uint8Array, b: Uint8Array, from: number, to: number): boolean {
  for (let at = from; at < to; at++) if (a[at] !== b[at]) return false;
  return true;
}
