/**
 * The engine runs in a thread of its own (progress-thread.ts): what peers ask of us is served while
 * the application computes. Posting writes a ring and rings a doorbell; completions are read from
 * rings; control verbs run here, under the lock that the other thread takes for each of its calls.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { ContextLayout, CountersLayout, QUEUE_PAIR_SIZE, RING_HEADER_SIZE } from '#build/abi.js';
import type { ArenaMemory } from '../engine/arena.js';
import { CONTROL_BLOCK_BYTES, ControlBlock } from '../engine/control-block.js';
import { EventRing } from '../engine/event-ring.js';
import { engineModule } from '../engine/load.js';
import { structAt } from '../engine/struct.js';
import { LinkError } from '../errors/errors.js';
import { Endpoint } from '../link/endpoint.js';
import type { LinkInfo } from '../link/link.js';
import { loadPosix, type Posix } from '../link/posix.js';
import { UdpBatchLink } from '../link/udp-batch.js';
import type { UdpOptions } from '../link/udp.js';
import type { DeviceEvents, Progress, RunningEngine } from './progress.js';
import type { ThreadMessage, ThreadTask } from './progress-thread.js';

export class ThreadProgress implements Progress {
  readonly info: LinkInfo;
  readonly socketDescriptor: number;
  readonly callPort: number;
  readonly #arena: ArenaMemory;
  readonly #worker: Worker;
  readonly #control: ControlBlock;
  readonly #posix: Posix;
  readonly #wakeDescriptor: number;
  readonly #exited: Promise<unknown>;
  #events: DeviceEvents | undefined;
  #closing: Promise<void> | undefined;

  private constructor(
    arena: ArenaMemory,
    worker: Worker,
    control: ControlBlock,
    posix: Posix,
    info: LinkInfo,
    descriptors: Pick<ThreadProgress, 'socketDescriptor' | 'callPort'> & { wakeDescriptor: number },
  ) {
    this.#arena = arena;
    this.#worker = worker;
    this.#control = control;
    this.#posix = posix;
    this.info = info;
    this.#wakeDescriptor = descriptors.wakeDescriptor;
    this.socketDescriptor = descriptors.socketDescriptor;
    this.callPort = descriptors.callPort;
    this.#exited = new Promise((resolve) => worker.once('exit', resolve));
    worker.on('message', (message: ThreadMessage) => {
      if (message.kind === 'failed') this.#events?.failed(errorOf(message));
    });
    worker.on('error', (error) => this.#events?.failed(error));
  }

  /**
   * Opens the link in the new thread. `slot`: of this process, where several share the device.
   * Rejects with what it refuses with (LinkError).
   */
  static async open(
    arena: ArenaMemory,
    udp: UdpOptions,
    spinMicros: number,
    slot?: number,
  ): Promise<ThreadProgress> {
    const { posix, reason } = await loadPosix();
    if (!posix) throw new LinkError('EOPNOTSUPP', `a progress thread needs koffi: ${reason}`);
    // Misuse is told by this thread: the link itself is made in the other one.
    new UdpBatchLink(udp);
    const control = arena.heap.alloc(CONTROL_BLOCK_BYTES);
    const linkArea = arena.heap.alloc(UdpBatchLink.MEMORY_BYTES);
    const { memory } = arena.memory;
    const workerData: ThreadTask = {
      memory,
      module: engineModule(true),
      control,
      linkArea,
      linkBytes: UdpBatchLink.MEMORY_BYTES,
      udp,
      spinMicros,
      shared: slot === undefined ? undefined : { arena: arena.address, slot },
    };
    const worker = new Worker(new URL('./progress-thread.js', import.meta.url), { workerData });
    const [message] = (await once(worker, 'message')) as [ThreadMessage];
    if (message.kind !== 'opened') throw errorOf(message);
    const { info, address, port } = message;
    const whole: LinkInfo = { ...info, local: Endpoint.parse(address, port) };
    const block = new ControlBlock(arena.memory, control);
    return new ThreadProgress(arena, worker, block, posix, whole, message);
  }

  start(context: number, events: DeviceEvents): RunningEngine {
    const { memory } = this.#arena;
    this.#events = events;
    const ring = new EventRing(memory, context, events);
    const struct = structAt(memory, ContextLayout, context);
    const counters = structAt(memory, CountersLayout, struct.counters);
    const doorbell = this.#doorbell(struct);
    this.#arena.exports = {
      ...this.#control.guard(this.#arena.exports),
      postSend: (_context, qp) => doorbell(qp),
      postRecv: (_context, qp) => doorbell(qp),
    };
    void this.#listen(ring);
    this.#worker.postMessage(context);
    return {
      context,
      counters,
      drain: () => {
        this.#kick();
        ring.drain();
      },
    };
  }

  poll(): void {
    // The other thread does.
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#control.stop();
    this.#control.call();
    this.#worker.postMessage(0);
    this.#kick();
    await this.#exited;
  }

  /** Asynchronous events, and completions of armed queues, until the end. */
  async #listen(ring: EventRing): Promise<void> {
    while (!this.#control.stopped) {
      await this.#control.called();
      ring.drain();
    }
  }

  #kick(): void {
    if (this.#control.kick()) this.#posix.signalEvent(this.#wakeDescriptor);
  }

  /** Rings for a queue pair (assembly/transport/doorbell.ts). */
  #doorbell({ doorbells, queuePairs, queuePairsMax }: ContextStruct): (qp: number) => void {
    const { words } = this.#arena.memory;
    // The last place is queue pair 1's.
    const entries = 2 ** Math.ceil(Math.log2(queuePairsMax + 1));
    const head = doorbells >> 2;
    const first = (doorbells + RING_HEADER_SIZE) >> 2;
    const flags = first + entries;
    return (qp) => {
      const index = (qp - queuePairs) / QUEUE_PAIR_SIZE;
      if (Atomics.exchange(words, flags + index, 1) !== 0) return;
      const at = words[head]!;
      words[first + (at & (entries - 1))] = index;
      Atomics.store(words, head, (at + 1) >>> 0);
    };
  }
}

interface ContextStruct {
  readonly doorbells: number;
  readonly queuePairs: number;
  readonly queuePairsMax: number;
}

function errorOf(message: ThreadMessage): Error {
  if (message.kind === 'failed') return new LinkError(message.code, message.message);
  return new LinkError('EIO', `the progress thread said ${message.kind}`);
}
