/**
 * The engine runs in a thread of its own (progress-thread.ts), which serves peers while the
 * application computes. Posting writes a ring and rings a doorbell; completions are read from
 * rings; control verbs run in this thread, under the lock that the other thread takes for each of
 * its calls.
 *
 * Waking a thread costs more than most work. So a call that posts, or that finds a completion queue
 * empty, takes a turn of the engine's work in this thread if the turn is free.
 */
import { AsyncResource } from 'node:async_hooks';
import { Worker } from 'node:worker_threads';
import { ContextLayout, CountersLayout, QUEUE_PAIR_SIZE, RING_HEADER_SIZE } from '#build/abi.js';
import type { ArenaMemory } from '../../engine/arena.js';
import { CONTROL_BLOCK_BYTES, ControlBlock } from '../../engine/control-block.js';
import { EventRing } from '../../engine/event-ring.js';
import { forgetEvents } from '../../engine/forget-events.js';
import { engineModule } from '../../engine/load.js';
import { structAt } from '../../engine/struct.js';
import { warn } from '../../base/warning.js';
import { LinkError } from '../../errors/errors.js';
import type { Gid } from '../../link/endpoint.js';
import type { LinkInfo, LinkMemory, LinkReceiver } from '../../link/link.js';
import { nextTurn } from '../../link/next-turn.js';
import { loadPosix, type Posix } from '../../link/posix.js';
import { UdpBatchLink } from '../../link/udp/udp-batch.js';
import type { UdpOptions } from '../../link/udp/udp-options.js';
import { RealClock } from '../clock.js';
import type { NativeChannels, NativeThread } from '../lending.js';
import { Committer, type Commit } from '../durable/committer.js';
import { DURABLE_TABLE_BYTES } from '../durable/durable-exchange.js';
import { DurableRing } from '../durable/durable-ring.js';
import type { DurableThreadTask } from '../durable/durable-thread.js';
import type { WakeCalls } from '../sharing/context-wakes.js';
import { openPacketInbox, type PacketInbox } from '../sharing/packet-inbox.js';
import { noteClosedMemory } from './closed-memory.js';
import { NativeEngine, WorkerThread, type EngineThread } from './engine-thread.js';
import { endOfTask, hear, waitingThread, type WaitingThread } from './idle-threads.js';
import type {
  DeviceEvents,
  DurableTask,
  Progress,
  RunningEngine,
  StopDurable,
} from './progress.js';
import type { ThreadMessage, ThreadTask } from './progress-thread.js';
import { Runner } from './runner.js';
import { Spin } from './spin.js';

/** This number of fast empty polls in a row means that the application does nothing but poll. */
const RAPID_POLLS = 8;
const RAPID_MICROS = 100;
/** So soon the other thread looks after a leader that has gone (progress-thread.ts). */
const LOOK_MICROS = 500;
/** So long, at most, it waits for the other thread's turn to end. */
const TURN_MICROS = 50;
/** Attempts to take the turn before a waiting answer is left to the next turn. */
const TAKE_ATTEMPTS = 1000;
/** The same for what a native thread leaves to this one, which looks again later. */
const HELP_ATTEMPTS = 20;
/** Events of a native thread, which passes them on while this one has no processor to take them. */
const PASSED_EVENTS_MAX = 65_536;
/** Memory of a device that has room for these. */
const PASSED_EVENTS_MEMORY = 32 * 2 ** 20;

export interface ThreadProgressOptions {
  readonly udp: UdpOptions;
  readonly spinMicros: number;
  /** Does the thread keep the process from ending? Default true. */
  readonly keepsAlive?: boolean;
  readonly isLent?: boolean;
  /** A socket to the process that makes turns as well (lending.ts). */
  readonly programDescriptor?: number | undefined;
  /** Runs the engine in place of the Worker, with `programDescriptor`. */
  readonly nativeThread?: NativeThread | undefined;
}

const RESOLVED = Promise.resolve();

/** Devices with a running thread: a process that exits without closing would wait for its sleep. */
const running = new Set<() => void>();
process.on('exit', () => {
  for (const stop of running) stop();
});

/** A WaitingThread: the types of a page name no module of Node. */
interface StartedThread {
  terminate(): Promise<void>;
}

/**
 * A thread that waits for its task: `terminate` it, or open a device with it. Meanwhile this thread
 * gets what it needs then, and others wait for.
 */
export async function startThread(): Promise<StartedThread> {
  const both = Promise.all([waitingThread(), loadPosix()]);
  engineModule(true);
  const [thread] = await both;
  return thread;
}

/** How threads of one process wake each other (context-wakes.ts). */
export async function eventCalls(): Promise<WakeCalls> {
  const { posix } = await loadPosix();
  return { datagram: () => {}, event: (descriptor) => posix?.signalEvent(descriptor) };
}

/** Rejects with what the thread refuses with (LinkError). */
async function openedBy(
  worker: Worker,
  task: ThreadTask,
): Promise<Extract<ThreadMessage, { readonly kind: 'opened' }>> {
  worker.postMessage(task);
  const message = await hear<ThreadMessage>(worker);
  if (message.kind !== 'opened') throw errorOf(message);
  return message;
}

export class ThreadProgress implements Progress {
  readonly spin: Spin;
  info: LinkInfo;
  readonly socketDescriptor: number;
  readonly callPort: number;
  readonly durables: number;
  /** The doorbell ring has one producer: this thread posts under the lock if it is another's. */
  readonly isLent: boolean;
  readonly #arena: ArenaMemory;
  readonly #thread: EngineThread;
  readonly #control: ControlBlock;
  readonly #posix: Posix;
  /** The eventfd that wakes the thread. */
  readonly wakeDescriptor: number;
  readonly #link: UdpBatchLink;
  readonly #packetInbox: PacketInbox | undefined;
  readonly #clock = new RealClock();
  #runner: Runner | undefined;
  #ring: EventRing | undefined;
  #events: DeviceEvents | undefined;
  #polledAt = 0;
  #polls = 0;
  #drains = false;
  #closing: Promise<void> | undefined;
  readonly #stores = new Set<StopDurable>();

  private constructor(
    { arena, options, posix, link, control, durables }: OpenParts,
    makeThread: (progress: ThreadProgress) => EngineThread,
    packetInbox?: PacketInbox,
  ) {
    this.#packetInbox = packetInbox;
    this.spin = new Spin(options.spinMicros, this.#clock, () => posix.yieldProcessor());
    this.durables = durables;
    this.isLent = options.isLent ?? false;
    this.#arena = arena;
    this.#control = control;
    this.#posix = posix;
    this.#link = link;
    this.info = link.info;
    this.wakeDescriptor = link.wakeDescriptor;
    this.socketDescriptor = link.socketDescriptor;
    this.callPort = link.callPort;
    this.#thread = makeThread(this);
    running.add(this.#exit);
  }

  /**
   * Opens the link in the thread. `isLent`: another process rings the doorbells. `slot`: of this
   * process, where several share the device. `started`: a thread that `startThread` made. Rejects
   * with what it refuses with (LinkError).
   */
  static async open(
    arena: ArenaMemory,
    options: ThreadProgressOptions,
    slot?: number,
    started?: StartedThread,
  ): Promise<ThreadProgress> {
    const { udp, programDescriptor } = options;
    const { posix, reason } = await loadPosix();
    if (!posix) throw new LinkError('EOPNOTSUPP', `a progress thread needs koffi: ${reason}`);
    const control = arena.heap.alloc(CONTROL_BLOCK_BYTES);
    const isGone = (): boolean =>
      programDescriptor !== undefined && posix.hasHungUp(programDescriptor);
    const parts: OpenParts = {
      arena,
      options,
      posix,
      // This thread throws the misuse; a Worker creates the socket.
      link: new UdpBatchLink(udp),
      control: new ControlBlock(arena.memory, control, isGone),
      durables: arena.heap.alloc(DURABLE_TABLE_BYTES),
    };
    const { nativeThread: native } = options;
    const isNative = native !== undefined && native.refusal(arena.memory.buffer) === undefined;
    if (isNative && programDescriptor !== undefined && slot === undefined) {
      return ThreadProgress.#openNative(parts, native, programDescriptor);
    }
    return ThreadProgress.#openWorker(parts, slot, started);
  }

  /** Of this thread's link, and the place for the ThreadProgress that it is of. */
  static #receiver(
    packetInbox?: PacketInbox,
  ): [receiver: LinkReceiver, made: { progress?: ThreadProgress }] {
    const made: { progress?: ThreadProgress } = {};
    const receiver = Runner.receiver(
      () => made.progress && made.progress.#runner,
      (error) => made.progress && made.progress.#events?.failed(error),
      packetInbox,
    );
    return [receiver, made];
  }

  /** The link is this thread's, and the native thread uses its socket. */
  static async #openNative(
    parts: OpenParts,
    native: NativeThread,
    programDescriptor: number,
  ): Promise<ThreadProgress> {
    const { arena, link, control } = parts;
    const { spinMicros } = parts.options;
    const slots = arena.heap.alloc(native.slotsBytes);
    const [receiver, made] = ThreadProgress.#receiver();
    await link.open(receiver, linkMemory(arena));
    const place = { slots, spinMicros, programDescriptor };
    const { memory } = arena;
    return (made.progress = new ThreadProgress(
      parts,
      (progress) =>
        new NativeEngine(native, memory, control, link, place, {
          failed: (error) => progress.#events?.failed(error),
          drain: () => progress.#ring!.drain(),
          turn: () => progress.#take((runner) => runner.turn(), HELP_ATTEMPTS),
          kick: () => progress.#kick(),
        }),
    ));
  }

  static async #openWorker(
    parts: OpenParts,
    slot: number | undefined,
    started: StartedThread | undefined,
  ): Promise<ThreadProgress> {
    const { arena, options, link, control, durables } = parts;
    const { udp, spinMicros, keepsAlive = true, isLent = false, programDescriptor } = options;
    const linkBytes = UdpBatchLink.bytes(arena.memory.bytes.length);
    const shared = slot === undefined ? undefined : { arena: arena.address, slot };
    const task: ThreadTask = {
      memory: arena.memory.memory,
      module: engineModule(true, arena.cacheModel !== undefined),
      control: control.address,
      linkArea: arena.heap.alloc(linkBytes),
      linkBytes,
      udp,
      spinMicros,
      durables,
      arena: arena.address,
      shared,
      isLent,
      programDescriptor,
    };
    const worker = ((started ?? (await startThread())) as WaitingThread).take();
    const [ended, message] = [endOfTask(worker), await openedBy(worker, task)];
    const packetInbox = shared && (await openPacketInbox(arena.memory, shared, link));
    const [receiver, made] = ThreadProgress.#receiver(packetInbox);
    try {
      await link.openShared(message.share, receiver, linkMemory(arena));
    } catch (error) {
      // It has the socket, and gives it back.
      worker.postMessage(0);
      control.stop(() => {});
      throw error;
    }
    made.progress = new ThreadProgress(
      parts,
      (progress) => new WorkerThread(worker, progress.#listenTo(worker, ended)),
      packetInbox,
    );
    // Its listener for messages refers to it again.
    if (!keepsAlive) worker.unref();
    return made.progress;
  }

  /** Takes the messages of a Worker until it has `ended`. */
  #listenTo(worker: Worker, ended: Promise<void>): Promise<void> {
    const onMessage = (message: ThreadMessage): void => {
      if (message.kind === 'failed') this.#events?.failed(errorOf(message));
      else if (message.kind === 'warning') warn(message.message);
    };
    const onError = (error: Error): void => this.#events?.failed(error);
    worker.on('message', onMessage);
    worker.on('error', onError);
    return ended.then(() => {
      worker.off('message', onMessage);
      worker.off('error', onError);
    });
  }

  get channels(): NativeChannels | undefined {
    return this.#thread.channels;
  }

  get eventsMax(): number | undefined {
    const { length } = this.#arena.memory.bytes;
    return this.#thread.calls || length < PASSED_EVENTS_MEMORY ? undefined : PASSED_EVENTS_MAX;
  }

  get controlAddress(): number {
    return this.#control.address;
  }

  start(context: number, events: DeviceEvents): RunningEngine {
    const { memory } = this.#arena;
    this.#events = events;
    const ring = new EventRing(memory, context, events);
    const struct = structAt(memory, ContextLayout, context);
    const counters = structAt(memory, CountersLayout, struct.counters);
    const doorbell = this.#doorbell(struct);
    this.#ring = ring;
    // The turn excludes all other calls, so the lock is not needed.
    this.#runner = this.#newRunner(context);
    const guarded = this.#control.guard(this.#arena.exports);
    const posts = {
      postSend: (_context: number, qp: number) => doorbell(qp),
      postRecv: (_context: number, qp: number) => doorbell(qp),
    };
    this.#arena.exports = {
      ...guarded,
      ...(this.isLent ? {} : posts),
      reqNotifyCq: (cq, flags) => {
        guarded.reqNotifyCq(cq, flags);
        this.#follow();
      },
    };
    if (this.#thread.calls) void this.#listen(ring);
    this.#thread.start(context);
    return {
      context,
      counters,
      drain: () => {
        if (!this.#take((runner) => runner.post())) this.#kick();
        this.#passEvents();
        ring.drain();
      },
      forget: (object) => forgetEvents(memory, context, object),
    };
  }

  #newRunner(context: number): Runner {
    const { memory, exports } = this.#arena;
    const { durables } = this;
    const inbox = this.#packetInbox;
    const calls: WakeCalls = inbox
      ? { datagram: (port) => inbox.wake(port) }
      : { datagram: () => {}, event: (descriptor) => this.#posix.signalEvent(descriptor) };
    const { address } = this.#arena;
    const [link, clock] = [this.#link, this.#clock];
    return new Runner(memory, exports, context, link, clock, durables, address, calls, inbox);
  }

  keepDurable(ring: DurableRing, commit: Commit): StopDurable {
    let finished = (): void => {};
    const committer = new Committer(ring, commit, () => {
      finished();
      if (!this.#take((runner) => runner.post())) this.#kick();
    });
    const run = async (): Promise<void> => {
      while (await ring.workComes()) {
        await new Promise<void>((resolve) => {
          finished = resolve;
          committer.work();
        });
      }
    };
    const ended = run();
    return () => {
      ring.stop();
      return ended;
    };
  }

  async keepDurableApart(task: DurableTask): Promise<StopDurable> {
    const workerData: DurableThreadTask = {
      memory: this.#arena.memory.memory,
      control: this.#control.address,
      wakeDescriptor: this.wakeDescriptor,
      ring: task.ring,
      address: task.address,
      length: task.length,
      module: task.module.href,
      data: task.data,
    };
    const file = new URL('../durable/durable-thread.js', import.meta.url);
    const worker = new Worker(file, { workerData, execArgv: [] });
    const exited = new Promise((resolve) => worker.once('exit', resolve));
    const refusal = await hear<Error | undefined>(worker);
    if (refusal) {
      await exited;
      throw refusal;
    }
    const ring = new DurableRing(this.#arena.memory, task.ring);
    // Ranges that the thread did not sync are not durable, and are not acknowledged.
    const fail: Commit = (_, done) => done(new Error('the store’s thread ended'));
    let stopping = false;
    worker.on('error', () => undefined);
    void exited.then(() => {
      if (stopping) return;
      task.ended?.();
      this.keepDurable(ring, fail);
    });
    worker.unref();
    const stop = async (): Promise<void> => {
      this.#stores.delete(stop);
      stopping = true;
      worker.ref();
      ring.stop();
      await exited;
    };
    this.#stores.add(stop);
    return stop;
  }

  poll(again = false): void {
    const now = this.#clock.now();
    if (again) this.#polls = RAPID_POLLS;
    else this.#polls = now - this.#polledAt < RAPID_MICROS ? this.#polls + 1 : 0;
    const leads = this.#leads;
    if (leads) this.#control.lead(now);
    if (!this.#take((runner) => runner.turn(leads))) this.#control.awaitTurn(TURN_MICROS);
    this.#polledAt = this.#clock.now();
  }

  wakeWaits(slot: number): void {
    this.#packetInbox?.wakeWaits(slot);
  }

  get hasMessages(): boolean {
    return this.#runner?.wakes.arrived ?? false;
  }

  settle(): void {
    // The other thread's answers as well: what it took in may be seen before they have left.
    this.#take((runner) => runner.settle(), TAKE_ATTEMPTS);
  }

  /** Does the other thread sleep, because we do its work? */
  get #leads(): boolean {
    return this.#polls >= RAPID_POLLS;
  }

  /** Arming a queue precedes sleeping: the other thread runs the engine again. */
  #follow(): void {
    if (!this.#leads) return;
    this.#polls = 0;
    this.#control.follow();
    this.#kick();
  }

  /**
   * A turn of the calling thread. False: the other thread has the turn, after `attempts` to wait for
   * it, or the device is closing.
   */
  #take(work: (runner: Runner) => void, attempts = 0): boolean {
    const control = this.#control;
    const runner = this.#runner;
    if (!runner || !control.waitForTurn(attempts, TURN_MICROS)) return false;
    try {
      work(runner);
    } finally {
      control.endTurn();
    }
    control.touch(this.#clock.now());
    // Only the other thread handles timers and answers if this thread does not return. It may sleep
    // without a deadline, unaware that this thread had the turn.
    const due = runner.owes ? this.#clock.now() + LOOK_MICROS : runner.deadline;
    if (due !== 0 && !control.wakesBy(due)) this.#kick();
    this.#passEvents();
    if (this.#ring!.pending) this.#drainSoon();
    return true;
  }

  join(group: Gid): void {
    this.#link.join(group);
  }

  leave(group: Gid): void {
    this.#link.leave(group);
  }

  notePeer(): void {
    this.#control.notePeer(() => this.#link.setSourceFilter(undefined));
  }

  async moveTo(address: string, port: number, apply: (info: LinkInfo) => void): Promise<void> {
    const info = await this.#link.moveTo(address, port);
    const work = (): void => apply((this.info = info));
    while (!this.#closing && !this.#take(work, TAKE_ATTEMPTS)) await new Promise<void>(nextTurn);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#runner = undefined;
    for (const stop of [...this.#stores]) await stop();
    const closeLink = async (): Promise<void> => {
      await this.#link.close();
      this.#control.call();
    };
    await this.#thread.close(() => this.#stop(), closeLink);
    running.delete(this.#exit);
    const { memory, userHeap } = this.#arena;
    noteClosedMemory(memory.buffer, memory.bytes.length - userHeap.bytesFree);
  }

  readonly #exit = (): void => this.#thread.exit(() => this.#stop());

  #stop(): void {
    this.#control.stop(() => this.#posix.signalEvent(this.wakeDescriptor));
  }

  /** This thread made events itself: to be woken for them would cost a turn of the event loop. */
  readonly #drainSoon = AsyncResource.bind(() => {
    if (this.#drains) return;
    this.#drains = true;
    void RESOLVED.then(() => {
      this.#drains = false;
      if (!this.#control.stopped) this.#ring!.drain();
    });
  });

  /** Asynchronous events, and completions of armed queues, until the end. */
  async #listen(ring: EventRing): Promise<void> {
    while (!this.#control.stopped) {
      await this.#control.called();
      ring.drain();
    }
  }

  /** This thread has made events: a native thread writes them to its pipes. */
  #passEvents(): void {
    if (this.#thread.channels && this.#ring!.pending) this.#kick();
  }

  #kick(): void {
    if (this.#control.kick()) this.#posix.signalEvent(this.wakeDescriptor);
  }

  /** Rings for a queue pair (assembly/transport/queue/doorbell.ts). */
  #doorbell({ doorbells, queuePairs, queuePairsMax }: ContextStruct): (qp: number) => void {
    const { words } = this.#arena.memory;
    // The last place is queue pair 1's.
    const entries = 2 ** Math.ceil(Math.log2(queuePairsMax + 1));
    const head = doorbells >>> 2;
    const first = (doorbells + RING_HEADER_SIZE) >>> 2;
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

/** Parts of a device that both kinds of threads need. */
interface OpenParts {
  readonly arena: ArenaMemory;
  readonly options: ThreadProgressOptions;
  readonly posix: Posix;
  readonly link: UdpBatchLink;
  readonly control: ControlBlock;
  readonly durables: number;
}

function linkMemory({ memory, heap }: ArenaMemory): LinkMemory {
  return {
    buffer: memory.buffer,
    alloc: (bytes) => heap.alloc(bytes),
    free: (address) => heap.free(address),
  };
}

interface ContextStruct {
  readonly doorbells: number;
  readonly queuePairs: number;
  readonly queuePairsMax: number;
}

function errorOf(message: ThreadMessage): Error {
  if (message.kind === 'failed') {
    // Its sentence ends with its code already.
    return new LinkError(message.code, message.message.replace(/ \(\w+\)$/, ''));
  }
  return new LinkError(
    'EIO',
    `openDevice: unexpected message of the progress thread: ${message.kind}; ` +
      'install one version of Verbena',
  );
}
