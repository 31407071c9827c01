/**
 * `ibv_comp_channel`: events of armed completion queues, as an async iterator. Taking an event
 * acknowledges it.
 */
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { EventDescriptor } from '../../link/event-descriptor.js';
import type { CompletionQueue } from './completion-queue.js';
import type { Context } from '../context.js';

/**
 * `struct ibv_comp_channel`: says which armed completion queue has something
 * (`context.createCompChannel`).
 */
export class CompletionChannel {
  readonly #events: CompletionQueue[] = [];
  readonly #waiting: ((queue: CompletionQueue | undefined) => void)[] = [];
  /** Queues whose events come here. */
  readonly #queues = new Set<CompletionQueue>();
  readonly #descriptor = new EventDescriptor();
  #closed = false;
  #destroyed = false;

  /** @internal Use `context.createCompChannel()`. */
  constructor(readonly context: Context) {}

  /**
   * `ibv_get_cq_event`: the next queue with an event; undefined when the context is closed, or the
   * channel destroyed.
   */
  getCqEvent(): Promise<CompletionQueue | undefined> {
    const queue = this.#events.shift();
    this.#descriptor.set(this.#events);
    if (queue || this.#closed) return Promise.resolve(queue);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /**
   * `ibv_comp_channel.fd`: a file descriptor that poll(2), epoll or another event loop finds
   * readable while an event is queued; `getCqEvent` takes it. It belongs to the channel, which
   * closes it. The thread of the context signals it, so a poll(2) that blocks that thread waits in
   * vain: poll in another thread or process. Rejects with MisuseError (destroyed, or the context is
   * closed), RefusalError EOPNOTSUPP (no Linux; neither koffi nor node:ffi), EMFILE.
   */
  getFd(): Promise<number> {
    return this.#descriptor.open();
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
    this.#descriptor.set(this.#events);
  }

  /** `ibv_destroy_comp_channel`. Throws RefusalError EBUSY while a queue's events come here. */
  destroy(): void {
    this.check();
    if (this.#queues.size > 0) {
      throw new RefusalError('EBUSY', 'destroy: a queue uses this channel; destroy it first');
    }
    this.#destroyed = true;
    this.close();
    this.context.removeChannel(this);
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }

  /** @internal */
  check(): void {
    if (this.#destroyed) throw new MisuseError('completion channel', 'is destroyed');
  }

  /** @internal */
  add(queue: CompletionQueue): void {
    this.#queues.add(queue);
  }

  /** @internal A queue is gone: its event with it. */
  remove(queue: CompletionQueue): void {
    this.#queues.delete(queue);
    const index = this.#events.indexOf(queue);
    if (index >= 0) this.#events.splice(index, 1);
    this.#descriptor.set(this.#events);
  }

  /** @internal */
  close(): void {
    this.#closed = true;
    this.#descriptor.close();
    for (const resolve of this.#waiting.splice(0)) resolve(undefined);
  }
}
