/**
 * A DurableStore over a file. One sync runs at a time, in a thread of its own; requests that arrive
 * meanwhile share the next one (group commit). After the first failure nothing is durable any more:
 * the kernel forgets which pages a failed sync has lost.
 */
import { mergeRanges } from '../device/durable/durable-ring.js';
import type { DurableRange, DurableStore } from '../device/durable/durable-store.js';
import { SyncError } from './sync-error.js';

/** A range, and its bytes where the thread has no memory to take them from. */
export interface SyncRange extends DurableRange {
  readonly bytes?: Uint8Array<ArrayBuffer>;
}

/** To the thread that blocks in the sync. */
export interface SyncRequest {
  readonly id: number;
  readonly ranges: readonly SyncRange[];
}

/** From it. */
export interface SyncAnswer {
  readonly id: number;
  /** Why it is not durable. */
  readonly failure?: { readonly code: string; readonly message: string };
}

/** The thread of one region, whatever threads are here. */
export interface SyncWorker {
  post(request: SyncRequest): void;
  /** With work it keeps the process, without it does not. */
  keep(isBusy: boolean): void;
  /** It lets go of the file. */
  end(): Promise<unknown>;
}

export type StartSyncWorker = (
  answered: (answer: SyncAnswer) => void,
  failed: (error: Error) => void,
) => SyncWorker;

interface Waiting {
  readonly ranges: readonly DurableRange[];
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

export class SyncStore implements DurableStore {
  readonly #start: StartSyncWorker;
  /** Made when it is first needed. */
  #worker: SyncWorker | undefined;
  /** State that all threads share that sync the region (sync.ts). */
  readonly #state: Int32Array;
  /** Memory that the thread cannot have: its bytes are sent along. */
  readonly #private: Uint8Array | undefined;
  #waiting: Waiting[] = [];
  #running: readonly Waiting[] = [];
  #syncs = 0;
  #failure: Error | undefined;

  /** `bytes`: the region, where its memory is not shared with threads. */
  constructor(start: StartSyncWorker, state: Int32Array, bytes?: Uint8Array) {
    this.#start = start;
    this.#state = state;
    this.#private = bytes;
  }

  /** Why nothing can be made durable any more. */
  get failure(): Error | undefined {
    if (!this.#failure && Atomics.load(this.#state, 0) !== 0) {
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

  /** Completes syncs in flight, then closes. */
  async close(): Promise<void> {
    if (!this.#failure && (this.#running.length > 0 || this.#waiting.length > 0)) {
      await this.flush([]).catch(() => {});
    }
    this.#failure ??= new SyncError('EBADF', 'the region is closed');
    await this.#worker?.end();
  }

  #started(): SyncWorker {
    return this.#start(
      ({ failure }) =>
        failure ? this.#fail(new SyncError(failure.code, failure.message)) : this.#done(),
      (error) => this.#fail(error),
    );
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
    try {
      this.#worker ??= this.#started();
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    this.#worker.keep(true);
    this.#worker.post(request);
  }

  #done(): void {
    const done = this.#running;
    this.#running = [];
    this.#syncs++;
    this.#worker?.keep(false);
    for (const { resolve } of done) resolve();
    this.#next();
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#worker?.keep(false);
    const lost = [...this.#running, ...this.#waiting];
    this.#running = [];
    this.#waiting = [];
    for (const { reject } of lost) reject(this.#failure);
  }
}

function copyOf(source: Uint8Array, { offset, length }: DurableRange): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(source.subarray(offset, offset + length));
}
