/**
 * A DurableStore over a file. One sync runs at a time, in a Worker; what is asked meanwhile waits
 * and shares the next one (group commit). After the first failure nothing is durable any more: the
 * kernel forgets which pages a failed sync has lost.
 */
import { Worker } from 'node:worker_threads';
import { mergeRanges } from '../device/durable-ring.js';
import type { DurableRange, DurableStore } from '../device/durable-store.js';
import type { SyncAnswer, SyncRequest } from './sync-thread.js';
import { SyncError, type SyncTask } from './sync.js';

interface Waiting {
  readonly ranges: readonly DurableRange[];
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

export class SyncStore implements DurableStore {
  readonly #task: SyncTask;
  /** Made when it is first needed. */
  #worker: Worker | undefined;
  /** Memory that the Worker cannot have: its bytes are sent along. */
  readonly #private: Uint8Array | undefined;
  #waiting: Waiting[] = [];
  #running: readonly Waiting[] = [];
  #syncs = 0;
  #failure: Error | undefined;

  /** `bytes`: the region, where its memory is not shared with threads. */
  constructor(task: SyncTask, bytes?: Uint8Array) {
    this.#private = bytes;
    this.#task = task;
  }

  /** Why nothing can be made durable any more. */
  get failure(): Error | undefined {
    if (!this.#failure && Atomics.load(this.#task.failed, 0) !== 0) {
      this.#failure = new SyncError('EIO', 'a flush of a peer has failed: open the region anew');
    }
    return this.#failure;
  }

  /** Syncs that ended well: fewer than flushes, when these come together. */
  get syncs(): number {
    return this.#syncs;
  }

  flush(ranges: readonly DurableRange[]): Promise<void> {
    const { failure } = this;
    if (failure) return Promise.reject(failure);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ranges, resolve, reject });
      this.#next();
    });
  }

  /** What is under way ends first. */
  async close(): Promise<void> {
    if (!this.#failure && (this.#running.length > 0 || this.#waiting.length > 0)) {
      await this.flush([]).catch(() => {});
    }
    this.#failure ??= new SyncError('EBADF', 'the region is closed');
    await this.#worker?.terminate();
  }

  #start(): Worker {
    const workerData = this.#task;
    const worker = new Worker(new URL('./sync-thread.js', import.meta.url), { workerData });
    worker.on('message', ({ failure }: SyncAnswer) =>
      failure ? this.#fail(new SyncError(failure.code, failure.message)) : this.#done(),
    );
    worker.on('error', (error) => this.#fail(error as Error));
    return worker;
  }

  #next(): void {
    if (this.#running.length > 0 || this.#waiting.length === 0) return;
    this.#running = this.#waiting;
    this.#waiting = [];
    const source = this.#private;
    const ranges = mergeRanges(this.#running.flatMap((waiting) => waiting.ranges));
    const request: SyncRequest = {
      id: this.#syncs,
      ranges: source ? ranges.map((range) => ({ ...range, bytes: copyOf(source, range) })) : ranges,
    };
    this.#worker ??= this.#start();
    // A Worker with work keeps the process; one without does not.
    this.#worker.ref();
    this.#worker.postMessage(request);
  }

  #done(): void {
    const done = this.#running;
    this.#running = [];
    this.#syncs++;
    this.#worker?.unref();
    for (const { resolve } of done) resolve();
    this.#next();
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#worker?.unref();
    const lost = [...this.#running, ...this.#waiting];
    this.#running = [];
    this.#waiting = [];
    for (const { reject } of lost) reject(this.#failure);
  }
}

function copyOf(source: Uint8Array, { offset, length }: DurableRange): Uint8Array {
  return source.slice(offset, offset + length);
}
