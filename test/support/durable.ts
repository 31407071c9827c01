/** Durable memory under the test's hand: nothing is durable before the test says so. */
import type { DurableRange } from '../../host/device/durable/durable-store.js';
import type { KeptSegment } from '../../host/device/durable/durables.js';
import { AccessFlag, type Context } from '../../host/index.js';
import { FULL_ACCESS } from './wire.js';

export const FLUSH_ACCESS = FULL_ACCESS | AccessFlag.FLUSH_GLOBAL | AccessFlag.FLUSH_PERSISTENT;

interface Commit {
  readonly ranges: readonly DurableRange[];
  readonly done: (error?: unknown) => void;
}

export class HandStore {
  readonly buffer: Uint8Array;
  /** Commits that the store has not answered; at most one at a time. */
  readonly commits: Commit[] = [];
  segment!: KeptSegment;

  private constructor(buffer: Uint8Array) {
    this.buffer = buffer;
  }

  /** `bytes` of memory that this store keeps. `answers`: at once, every time. */
  static async keep(context: Context, bytes: number, answers = false): Promise<HandStore> {
    const store = new HandStore(context.alloc(bytes));
    const { byteOffset, length } = store.buffer;
    store.segment = context.device.durables.addCommit(byteOffset, length, (ranges, done) => {
      if (answers) done();
      else store.commits.push({ ranges, done });
    });
    return store;
  }

  /** The ranges of these commits, as `[offset, length]`. */
  get asked(): number[][] {
    return this.commits.flatMap(({ ranges }) =>
      ranges.map((range) => [range.offset, range.length]),
    );
  }

  /** It is done, or with an `error` it is not. */
  answer(error?: unknown): void {
    const commit = this.commits.shift();
    if (!commit) throw new Error('the store has no pending commit');
    commit.done(error);
  }
}
