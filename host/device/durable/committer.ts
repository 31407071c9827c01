/**
 * The store's side of a durable segment: takes all that waits, merges it, has it made durable at
 * once, and only then looks again. So the FLUSHes of all queue pairs that come while the disk is at
 * work share its next turn.
 */
import type { DurableRing } from './durable-ring.js';
import type { DurableRange, DurableStore } from './durable-store.js';

/** Makes ranges durable and says so once; `error`: they are not. */
export type Commit = (ranges: readonly DurableRange[], done: (error?: unknown) => void) => void;

export function commitTo(store: DurableStore): Commit {
  return (ranges, done) => {
    const failed = (error: unknown): void => done(error ?? new Error('the store gave no reason'));
    try {
      store.flush(ranges).then(() => done(), failed);
    } catch (error) {
      failed(error);
    }
  };
}

export class Committer {
  readonly #ring: DurableRing;
  readonly #commit: Commit;
  readonly #finished: () => void;
  #busy = false;

  /** `finished`: there is something to collect. */
  constructor(ring: DurableRing, commit: Commit, finished: () => void) {
    this.#ring = ring;
    this.#commit = commit;
    this.#finished = finished;
  }

  /** Begins with what waits, unless it is at work. After a failure nothing more is tried. */
  work(): void {
    if (this.#busy) return;
    const taken = this.#ring.take();
    if (!taken) return;
    const { end, ranges } = taken;
    if (this.#ring.failed) {
      this.#end(end, true);
      return;
    }
    this.#busy = true;
    this.#commit(ranges, (error) => {
      this.#busy = false;
      this.#end(end, error !== undefined);
    });
  }

  #end(end: number, failed: boolean): void {
    if (failed) this.#ring.fail(end);
    else this.#ring.finish(end);
    this.#finished();
    this.work();
  }
}
