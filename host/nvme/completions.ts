/** One completion queue for many queue pairs of a context: it grows with them. */
import { WcStatus, WcStatusName } from '#build/abi.js';
import { RefusalError } from '../errors/errors.js';
import type { CompletionQueue } from '../verbs/queues/completion-queue.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { Context } from '../verbs/context.js';
import { MAX_CQE } from '../verbs/limits.js';

const ENTRIES_MIN = 1024;
const BATCH = 64;

/**
 * Kind of a work request, in the high half of its number; the low half is the number of its queue.
 */
export const Work = Object.freeze({ RECEIVE: 0, SEND: 1, READ: 2, REGISTER: 3, INVALIDATE: 4 });
const WHOSE_BITS = 16n;

export function workId(work: number, whose: number): number {
  return work * 65536 + whose;
}

export function workOf({ wrId }: WorkCompletion): {
  readonly work: number;
  readonly whose: number;
} {
  const id = Number(wrId);
  return { work: id >>> Number(WHOSE_BITS), whose: id & 0xffff };
}

/** Why a queue is over, by the first completion that says so. */
export function failureOf(status: number): string {
  // Requests are flushed without a failure of their own when the peer disconnects.
  if (status === WcStatus.WR_FLUSH_ERR) return 'the other side disconnected';
  return `its queue pair has failed: ${WcStatusName[status] ?? `status ${status}`}`;
}

export class Completions {
  readonly cq: CompletionQueue;
  readonly #handlers = new Map<number, (completion: WorkCompletion) => void>();
  #reserved = 0;
  #isClosed = false;

  /** Throws RefusalError ENOMEM. */
  constructor(context: Context) {
    this.cq = context.createCq(ENTRIES_MIN);
    void this.#run();
  }

  /** Grows the queue by `entries`. Throws RefusalError ENOMEM. */
  reserve(entries: number): void {
    const wanted = this.#reserved + entries;
    if (wanted > MAX_CQE)
      throw new RefusalError(
        'ENOMEM',
        `reserve: ${wanted} completions of a target exceed ${MAX_CQE}; allow fewer queues`,
      );
    if (wanted > this.cq.cqe) this.cq.resize(Math.min(MAX_CQE, 2 * wanted));
    this.#reserved = wanted;
  }

  giveBack(entries: number): void {
    this.#reserved -= entries;
  }

  add(qpNum: number, handler: (completion: WorkCompletion) => void): void {
    this.#handlers.set(qpNum, handler);
  }

  remove(qpNum: number): void {
    this.#handlers.delete(qpNum);
  }

  /** No queue pair may be using it. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (!this.cq.context.device.closed && !this.cq.destroyed) this.cq.destroy();
  }

  async #run(): Promise<void> {
    for (;;) {
      let batch: WorkCompletion[];
      try {
        batch = await this.cq.wait(BATCH);
      } catch (error) {
        // It was destroyed while it was waited for.
        if (this.#isClosed || this.cq.destroyed) return;
        throw error;
      }
      if (batch.length === 0) return;
      for (const completion of batch) this.#handlers.get(completion.qpNum)?.(completion);
    }
  }
}
