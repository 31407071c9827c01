/**
 * Waits for a change of a word of the shared memory, across threads and processes. `Atomics.notify`
 * wakes threads of its own process only: the process that writes the word raises the number
 * `notice` of each context that waits, and wakes that one's device thread, which wakes the waits
 * there (packet-inbox.ts). A wait also looks by itself at intervals: its writer may be dead, or
 * have written without a wake-up.
 */
import { ArenaLayout, WORD_WAIT_SIZE, WordWaitLayout } from '#build/abi.js';
import { timerMillis } from '../../base/timer.js';
import { nextTurn } from '../../link/next-turn.js';
import { checkLimits, watchLimits, type WaitLimits } from '../../base/wait-limits.js';
import type { ArenaMemory } from '../../engine/arena.js';
import { structAt } from '../../engine/struct.js';

/** How often a wait looks by itself; and where no thread receives wake-ups. */
const LOOK_MILLIS = 20;
const UNWOKEN_LOOK_MILLIS = 1;

export interface WordWaitsOptions {
  readonly arena: ArenaMemory;
  readonly slot: number;
  /** Wakes the device's thread of another process. */
  readonly wake: (slot: number) => void;
  /** Does a thread of the device receive wake-ups? */
  readonly isWoken: boolean;
}

export class WordWaits {
  readonly #words: Int32Array;
  readonly #table: number;
  readonly #slotsMax: number;
  readonly #slot: number;
  readonly #wake: (slot: number) => void;
  readonly #lookMillis: number;
  readonly #isShared: boolean;

  constructor({ arena, slot, wake, isWoken }: WordWaitsOptions) {
    const struct = structAt(arena.memory, ArenaLayout, arena.address);
    this.#words = new Int32Array(arena.memory.buffer);
    this.#table = struct.wordWaits >>> 2;
    this.#slotsMax = struct.contextsMax;
    this.#slot = slot;
    this.#wake = wake;
    this.#isShared = arena.memory.shared;
    this.#lookMillis = isWoken && this.#isShared ? LOOK_MILLIS : UNWOKEN_LOOK_MILLIS;
    // A process that died here may have been waiting.
    Atomics.store(this.#words, this.#field(slot, 'waiting'), 0);
  }

  /** Does a wait of this context have to be woken? */
  isWaiting(slot: number): boolean {
    return Atomics.load(this.#words, this.#field(slot, 'waiting')) !== 0;
  }

  /** Index of the word that is not 0 while that context waits. */
  waitingWord(slot: number): number {
    return this.#field(slot, 'waiting');
  }

  /** Wakes all waits of the device's threads and processes, which look again. */
  wakeAll(): void {
    for (let slot = 0; slot < this.#slotsMax; slot++) if (this.isWaiting(slot)) this.wake(slot);
  }

  /** Wakes the waits of one of them. */
  wake(slot: number): void {
    const notice = this.#field(slot, 'notice');
    Atomics.add(this.#words, notice, 1);
    if (this.#isShared) Atomics.notify(this.#words, notice);
    if (slot !== this.#slot) this.#wake(slot);
  }

  /**
   * Resolves when `test` returns true. `lookMillis`: how often it is called without a wake-up.
   * Rejects with `late()` after the timeout, with the reason of the signal, and with what `test`
   * throws.
   */
  async until(
    test: () => boolean,
    limits: WaitLimits,
    late: () => Error,
    lookMillis = this.#lookMillis,
  ): Promise<void> {
    checkLimits(limits);
    if (test()) return;
    const notice = this.#field(this.#slot, 'notice');
    let failure: { readonly reason: unknown } | undefined;
    const cleanUp = watchLimits(limits, late, (reason) => {
      failure = { reason };
      if (this.#isShared) Atomics.notify(this.#words, notice);
    });
    Atomics.add(this.#words, this.#field(this.#slot, 'waiting'), 1);
    try {
      for (;;) {
        // The number first: a change after the test ends the wait at once.
        const seen = Atomics.load(this.#words, notice);
        if (failure) throw failure.reason;
        if (test()) return;
        await this.#sleep(notice, seen, lookMillis);
      }
    } finally {
      Atomics.sub(this.#words, this.#field(this.#slot, 'waiting'), 1);
      cleanUp();
    }
  }

  async #sleep(notice: number, seen: number, millis: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    // The timer keeps the process alive, which a wait for a word does not.
    const pause = new Promise<void>(
      (resolve) => (timer = setTimeout(resolve, timerMillis(millis))),
    );
    const waiting = this.#isShared && Atomics.waitAsync(this.#words, notice, seen, millis);
    if (!waiting) await pause;
    else if (waiting.async) await Promise.race([waiting.value, pause]);
    // The number has changed already; timers and signals have their turn all the same.
    else await new Promise<void>(nextTurn);
    clearTimeout(timer);
  }

  #field(slot: number, name: 'waiting' | 'notice'): number {
    return this.#table + ((slot * WORD_WAIT_SIZE + WordWaitLayout.fields[name][0]) >>> 2);
  }
}
