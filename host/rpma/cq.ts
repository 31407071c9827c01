/** `rpma_cq`: a completion queue, with a channel of its own or one that it shares. */
import { checkWhole } from '../errors/check-whole.js';
import type { CompletionChannel } from '../verbs/queues/completion-channel.js';
import type { CompletionQueue } from '../verbs/queues/completion-queue.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { Context } from '../verbs/context.js';
import { RpmaError } from './errors.js';

/** `struct rpma_cq`: completions of a connection. */
export class Cq {
  /** @internal */
  readonly queue: CompletionQueue;
  readonly #channel: CompletionChannel;
  readonly #isChannelShared: boolean;

  /** @internal Use `conn.getCq()`, `conn.getRcq()`, `srq.getRcq()`. */
  constructor(context: Context, size: number, shared?: CompletionChannel) {
    this.#channel = shared ?? context.createCompChannel();
    this.#isChannelShared = shared !== undefined;
    try {
      this.queue = context.createCq(size, this.#channel);
    } catch (error) {
      if (!shared) this.#channel.destroy();
      throw error;
    }
    this.queue.reqNotify();
  }

  /**
   * `rpma_cq_wait`: until something has completed since the last time. There may be nothing to get
   * all the same: it was got before. Rejects with RpmaError E_SHARED_CHANNEL (`conn.wait` is meant),
   * E_NO_COMPLETION (the connection is deleted).
   */
  async wait(): Promise<void> {
    if (this.#isChannelShared) {
      throw new RpmaError('E_SHARED_CHANNEL', 'wait: the channel is shared; use conn.wait');
    }
    if (!(await this.#channel.getCqEvent())) {
      throw new RpmaError('E_NO_COMPLETION', 'wait: the completion queue is gone');
    }
    this.queue.reqNotify();
  }

  /**
   * `rpma_cq_get_fd`: readable while `wait` would resolve at once. Rejects as `getFd` of a completion
   * channel; RpmaError E_SHARED_CHANNEL (`conn.getComplFd` is meant).
   */
  async getFd(): Promise<number> {
    if (this.#isChannelShared) {
      throw new RpmaError('E_SHARED_CHANNEL', 'getFd: the channel is shared; use conn.getComplFd');
    }
    return this.#channel.getFd();
  }

  /** `rpma_cq_get_wc`: at most `numEntries` completions, oldest first; none: E_NO_COMPLETION. */
  getWc(numEntries = 1): WorkCompletion[] {
    checkWhole('numEntries', numEntries, 1);
    return this.queue.poll(numEntries);
  }

  /** Waits until there is one, and gets it. Rejects as `wait`. */
  async next(): Promise<WorkCompletion> {
    for (;;) {
      const [wc] = this.getWc();
      if (wc) return wc;
      await this.wait();
    }
  }

  /** @internal An event that its reader did not want is for the next one. */
  passOn(): void {
    this.#channel.push(this.queue);
  }

  /** @internal */
  delete(): void {
    this.queue.destroy();
    if (!this.#isChannelShared) this.#channel.destroy();
  }
}
