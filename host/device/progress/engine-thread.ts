/** The thread that runs the engine beside the application's thread (thread-progress.ts). */
import type { Worker } from 'node:worker_threads';
import { ContextLayout } from '#build/abi.js';
import { timerMillis } from '../../base/timer.js';
import type { ControlBlock } from '../../engine/control-block.js';
import type { EngineMemory } from '../../engine/memory.js';
import { LinkError } from '../../errors/errors.js';
import { nextTurn } from '../../link/next-turn.js';
import type { UdpBatchLink } from '../../link/udp/udp-batch.js';
import type { NativeChannels, NativeThread, RunningNative } from '../lending.js';
import { RealClock } from '../clock.js';
import { FloodFilter } from './flood-filter.js';

export interface EngineThread {
  /** Does it call the application's thread by ControlBlock.call? */
  readonly calls: boolean;
  /** Pipes that it writes events of completion queues to; undefined: none. */
  readonly channels?: NativeChannels | undefined;
  /** Runs the engine of this context from now on. */
  start(context: number): void;
  /** Ends, and closes the link. `stop`: ControlBlock.stop. */
  close(stop: () => void, closeLink: () => Promise<void>): Promise<void>;
  /** The process ends. */
  exit(stop: () => void): void;
}

/** A Worker that has opened the link (progress-thread.ts). */
export class WorkerThread implements EngineThread {
  readonly calls = true;
  readonly #worker: Worker;
  readonly #ended: Promise<unknown>;

  constructor(worker: Worker, ended: Promise<unknown>) {
    this.#worker = worker;
    this.#ended = ended;
  }

  start(context: number): void {
    this.#worker.postMessage(context);
  }

  async close(stop: () => void, closeLink: () => Promise<void>): Promise<void> {
    this.#worker.ref();
    await closeLink();
    this.#worker.postMessage(0);
    stop();
    await this.#ended;
  }

  exit(stop: () => void): void {
    stop();
  }
}

/** A native thread leaves this to the thread of the application. */
export interface NativeCalls {
  failed(error: Error): void;
  /** Takes the events. */
  drain(): void;
  /** A whole turn of this thread. False: another thread or process has the turn. */
  turn(): boolean;
  kick(): void;
}

/**
 * A native thread of the process: it makes turns, and leaves to this thread all that is seldom:
 * events, packets of groups, FLUSHes, floods, and a link that is lost.
 */
export class NativeEngine implements EngineThread {
  readonly calls = false;
  readonly #native: NativeThread;
  readonly #memory: EngineMemory;
  readonly #control: ControlBlock;
  readonly #link: UdpBatchLink;
  readonly #place: NativePlace;
  readonly #clock = new RealClock();
  readonly #owner: NativeCalls;
  #running: RunningNative | undefined;
  #filter: FloodFilter | undefined;
  #looks: NodeJS.Timeout | undefined;
  #hasFailed = false;
  /** Words of the context: FLUSHes, and contexts to be woken. */
  #waiting: readonly number[] = [];

  constructor(
    native: NativeThread,
    memory: EngineMemory,
    control: ControlBlock,
    link: UdpBatchLink,
    place: NativePlace,
    owner: NativeCalls,
  ) {
    this.#native = native;
    this.#memory = memory;
    this.#control = control;
    this.#link = link;
    this.#place = place;
    this.#owner = owner;
  }

  get channels(): NativeChannels | undefined {
    return this.#running?.channels;
  }

  start(context: number): void {
    const [memory, control, link] = [this.#memory, this.#control, this.#link];
    const { flushFirst, wakeCount } = ContextLayout.fields;
    this.#waiting = [flushFirst, wakeCount].map(([offset]) => (context + offset) >>> 2);
    this.#filter = new FloodFilter(memory, context, control, link);
    const { socketOptions = [] } = link.info;
    this.#running = this.#native.start({
      ...this.#place,
      memory: memory.buffer,
      context,
      control: control.address,
      socketDescriptor: link.socketDescriptor,
      groupSet: link.groupSet,
      wakeDescriptor: link.wakeDescriptor,
      canSegment: socketOptions.some(({ name, granted }) => name === 'UDP_SEGMENT' && granted),
      called: () => this.#called(),
    });
  }

  async close(stop: () => void, closeLink: () => Promise<void>): Promise<void> {
    this.exit(stop);
    // The thread uses the socket until it ends.
    await closeLink();
  }

  exit(stop: () => void): void {
    clearTimeout(this.#looks);
    stop();
    this.#running?.join();
    this.#running = undefined;
  }

  #called(): void {
    const control = this.#control;
    if (!this.#running || control.stopped) return;
    // First: the thread calls again for each later event.
    control.takeCall();
    this.#tellFailure(this.#running.failure);
    this.#owner.drain();
    this.#look();
    this.#help();
  }

  /** A turn for what the thread does not do itself. */
  #help(): void {
    const control = this.#control;
    if (!this.#running || control.stopped) return;
    const { words } = this.#memory;
    const hasGroups = control.hasGroups;
    if (!hasGroups && this.#waiting.every((at) => words[at] === 0)) return;
    if (!this.#owner.turn()) {
      nextTurn(() => this.#help());
      return;
    }
    if (!hasGroups) return;
    control.takeGroups();
    this.#owner.kick();
  }

  #tellFailure(code: string | undefined): void {
    if (code === undefined || this.#hasFailed) return;
    this.#hasFailed = true;
    const { local } = this.#link.info;
    const sentence =
      code === 'EFAULT'
        ? `the engine of the device on ${local} has trapped; please report it`
        : `the UDP socket on ${local} is lost: ${code}`;
    this.#owner.failed(new LinkError('EIO', sentence));
  }

  /** While there is a flood, again and again. */
  #look(): void {
    const filter = this.#filter!;
    filter.look(this.#clock.now());
    if (filter.sleepMicros === Infinity) return;
    this.#looks ??= setTimeout(
      () => {
        this.#looks = undefined;
        this.#look();
      },
      timerMillis(filter.sleepMicros / 1000),
    ).unref();
  }
}

/** Of a NativeTask: what is known before the device is. */
export interface NativePlace {
  readonly slots: number;
  readonly spinMicros: number;
  readonly programDescriptor: number;
}
