/**
 * Work that takes long (Dataset Management, Write Zeroes), in slices: one slice a turn of the event
 * loop, and the owners take turns, so that a command of one host keeps no other host waiting.
 */
import { nextTurn } from '../link/next-turn.js';

interface Slice {
  readonly run: () => Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

export class Slices {
  /** Slices of each owner, in the order in which the owners have their turns. */
  readonly #owners = new Map<object, Slice[]>();
  #isRunning = false;

  /** Runs one slice when it is its turn. Rejects as `run`. */
  run(owner: object, run: () => Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const slices = this.#owners.get(owner);
      if (slices) slices.push({ run, resolve, reject });
      else this.#owners.set(owner, [{ run, resolve, reject }]);
      if (this.#isRunning) return;
      this.#isRunning = true;
      nextTurn(() => void this.#runAll());
    });
  }

  async #runAll(): Promise<void> {
    for (;;) {
      const [first] = this.#owners;
      if (!first) break;
      const [owner, slices] = first;
      const slice = slices.shift()!;
      // The owner goes behind the others.
      this.#owners.delete(owner);
      if (slices.length > 0) this.#owners.set(owner, slices);
      try {
        await slice.run();
        slice.resolve();
      } catch (error) {
        slice.reject(error as Error);
      }
      // Completions of other queues are served here.
      await new Promise<void>((resolve) => nextTurn(resolve));
    }
    this.#isRunning = false;
  }
}

/** Extents without overlap, in order: bytes that are named twice are worked on once. */
export function mergeExtents(extents: readonly (readonly [number, number])[]): [number, number][] {
  const merged: [number, number][] = [];
  for (const [offset, length] of [...extents].sort(([a], [b]) => a - b)) {
    const last = merged[merged.length - 1];
    if (last && offset <= last[0] + last[1]) {
      last[1] = Math.max(last[1], offset + length - last[0]);
    } else merged.push([offset, length]);
  }
  return merged;
}
