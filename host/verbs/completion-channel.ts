/**
 * `ibv_comp_channel`: events of armed completion queues, as an async iterator. Taking an event
 * acknowledges it.
 */
import type { CompletionQueue } from './completion-queue.js';
import type { Context } from './context.js';

export class CompletionChannel {
  readonly context: Context;
  readonly #events: CompletionQueue[] = [];
  readonly #waiting: ((queue: CompletionQueue | undefined) => void)[] = [];
  #closed = false;

  /** @internal Use `context.createCompChannel()`. */
  constructor(context: Context) {
    this.context = context;
  }

  /** `ibv_get_cq_event`: the next queue with an event; undefined when the context is closed. */
  getCqEvent(): Promise<CompletionQueue | undefined> {
    const queue = this.#events.shift();
    if (queue || this.#closed) return Promise.resolve(queue);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Queues with events until the context is closed. Arm a queue again before you poll it. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CompletionQueue, void, undefined> {
    for (let queue = await this.getCqEvent(); queue; queue = await this.getCqEvent()) yield queue;
  }

  /** @internal */
  push(queue: CompletionQueue): void {
    const resolve = this.#waiting.shift();
    if (resolve) resolve(queue);
    // One event of a queue stands for all it has.
    else if (!this.#events.includes(queue)) this.#events.push(queue);
  }

  /** @internal A queue is gone: its event with it. */
  remove(queue: CompletionQueue): void {
    const index = this.#events.indexOf(queue);
    if (index >= 0) this.#events.splice(index, 1);
  }

  /** @internal */
  close(): void {
    this.#closed = true;
    for (const resolve of this.#waiting.splice(0)) resolve(undefined);
  }
}
