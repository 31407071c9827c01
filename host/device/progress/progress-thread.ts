/**
 * The thread that runs a device's engine and link: one loop that takes in what was posted and what
 * arrived, lets the engine work, and sends. When nothing comes for a while it sleeps in one poll
 * over its socket and an eventfd, until a packet, a kick or the engine's next deadline. While the
 * application polls without a pause, and so does the work itself, it sleeps as well.
 */
import { availableParallelism } from 'node:os';
import { parentPort } from 'node:worker_threads';
import { ControlBlock } from '../../engine/control-block.js';
import { earlier } from '../../engine/engine.js';
import { EventRing } from '../../engine/event-ring.js';
import { instantiate, type EngineParts } from '../../engine/load.js';
import { EngineMemory } from '../../engine/memory.js';
import { redirectWarnings } from '../../base/warning.js';
import { LinkError } from '../../errors/errors.js';
import { systemRefusal } from '../../errors/system-refusal.js';
import type { LinkMemory, LinkReceiver } from '../../link/link.js';
import { loadPosix, type Posix } from '../../link/posix.js';
import { UdpBatchLink, type LinkShare } from '../../link/udp/udp-batch.js';
import type { UdpOptions } from '../../link/udp/udp-options.js';
import { RealClock } from '../clock.js';
import type { WakeCalls } from '../sharing/context-wakes.js';
import { openPacketInbox, type PacketInbox } from '../sharing/packet-inbox.js';
import { collectGarbage } from './closed-memory.js';
import { FloodFilter } from './flood-filter.js';
import { Runner } from './runner.js';
import { Spin } from './spin.js';
import { collectStrays } from './strays.js';

export interface ThreadTask extends EngineParts {
  /** Address of the ControlBlock. */
  readonly control: number;
  /** Memory for the link. */
  readonly linkArea: number;
  readonly linkBytes: number;
  readonly udp: UdpOptions;
  /** How long to look for work before sleeping. */
  readonly spinMicros: number;
  /** Address of the table of durable segments. */
  readonly durables: number;
  /** Address of the arena. */
  readonly arena: number;
  /** Where several processes share the device: address of our copy of the arena, and our slot. */
  readonly shared: { readonly arena: number; readonly slot: number } | undefined;
  /** Another process posts and polls (lending.ts). */
  readonly isLent: boolean;
  /** A socket to that process, if it makes turns as well. */
  readonly programDescriptor: number | undefined;
}

export type ThreadMessage =
  | { readonly kind: 'started' }
  | { readonly kind: 'opened'; readonly share: LinkShare }
  | { readonly kind: 'failed'; readonly code: LinkError['code']; readonly message: string }
  | { readonly kind: 'warning'; readonly message: string };

/** An application that polls without a pause polls again within this time, unless interrupted. */
const LED_MICROS = 200;
/** An application that took a turn so long ago does so now and then, or not at all. */
const TOUCHED_MICROS = 1000;
/** So often the thread looks whether the application still does the work. */
const LOOK_MICROS = 500;
/** So often the last turn waits for one that another process holds, which may have ended. */
const LAST_ATTEMPTS = 3;
/** The longest sleep. `worker.terminate()` of an application has no other way to end this thread. */
const SLEEP_MICROS = 1_000_000;
/** How long the thread looks for the peer's next request before it yields its processor. */
const KEPT_MICROS = 20;
const CACHE_LINE = 64;

/** A range that is only ever handed out: the link lives as long as the thread. */
function linkMemory(memory: EngineMemory, start: number, bytes: number): LinkMemory {
  let next = start;
  return {
    buffer: memory.buffer,
    alloc(size) {
      const address = next;
      next += Math.ceil(size / CACHE_LINE) * CACHE_LINE;
      if (next > start + bytes)
        throw new LinkError(
          'EIO',
          `open: the link requires more than ${bytes} bytes of the device's memory; ` +
            'raise memoryBytes of openDevice',
        );
      return address;
    },
    free() {},
  };
}

function tell(message: ThreadMessage): void {
  parentPort!.postMessage(message);
}

function tellFailure(error: unknown): void {
  const { code, message } = systemRefusal('openDevice', error) as LinkError;
  tell({ kind: 'failed', code: code ?? 'EIO', message });
}

function nextMessage<Message>(): Promise<Message> {
  return new Promise((resolve) => parentPort!.once('message', resolve));
}

function sleepMicros(deadline: number, now: number, filter: FloodFilter | undefined): number {
  const left = deadline === 0 ? SLEEP_MICROS : Math.max(deadline - now, 0);
  return Math.min(left, SLEEP_MICROS, filter?.sleepMicros ?? SLEEP_MICROS);
}

/** One device, from its task to its end. */
class EngineThread {
  readonly #task: ThreadTask;
  readonly #clock = new RealClock();
  readonly #memory: EngineMemory;
  readonly #link: UdpBatchLink;
  /** Other processes of the device bring packets there. */
  readonly #packetInbox: PacketInbox | undefined;
  /** No spin without koffi: then the link does not open either. */
  readonly #posix: Posix | undefined;
  readonly #control: ControlBlock;
  readonly #spin: Spin;
  readonly #receiver: LinkReceiver;
  #runner: Runner | undefined;

  private constructor(
    task: ThreadTask,
    memory: EngineMemory,
    link: UdpBatchLink,
    packetInbox: PacketInbox | undefined,
    posix: Posix | undefined,
  ) {
    this.#task = task;
    this.#memory = memory;
    this.#link = link;
    this.#packetInbox = packetInbox;
    this.#posix = posix;
    const { programDescriptor } = task;
    const isGone = (): boolean =>
      programDescriptor !== undefined && (posix?.hasHungUp(programDescriptor) ?? false);
    this.#control = new ControlBlock(memory, task.control, isGone);
    this.#spin = new Spin(
      task.spinMicros,
      this.#clock,
      () => posix?.yieldProcessor(),
      KEPT_MICROS,
      availableParallelism(),
    );
    this.#receiver = Runner.receiver(() => this.#runner, tellFailure, packetInbox);
  }

  static async make(task: ThreadTask): Promise<EngineThread> {
    const memory = new EngineMemory(task.memory);
    const link = new UdpBatchLink(task.udp);
    const packetInbox = task.shared && (await openPacketInbox(memory, task.shared, link));
    const { posix } = await loadPosix();
    return new EngineThread(task, memory, link, packetInbox, posix);
  }

  /** Resolves when the device has ended, or could not be opened. */
  async serve(): Promise<void> {
    const { linkArea, linkBytes } = this.#task;
    const link = this.#link;
    try {
      await link.open(this.#receiver, linkMemory(this.#memory, linkArea, linkBytes));
      tell({ kind: 'opened', share: link.share });
    } catch (error) {
      tellFailure(error);
      return;
    }
    try {
      const context = await nextMessage<number>();
      if (context !== 0) this.#run(context);
    } catch (error) {
      tellFailure(error);
    }
    // Its eventfd is not to be another's when it is written to.
    this.#control.awaitStop();
    await link.close();
  }

  /**
   * One turn; undefined: the application has the turn, also after `attempts`. That one may be past
   * the doorbells, and a kick since is for this thread.
   */
  #turn(running: Runner, attempts = 0): number | undefined {
    const control = this.#control;
    control.yieldToWaiters();
    if (!control.waitForTurn(attempts, LOOK_MICROS)) {
      control.awaitTurn(LOOK_MICROS);
      return undefined;
    }
    try {
      return collectStrays(this.#memory, control, this.#receiver) + running.turn();
    } finally {
      control.endTurn();
    }
  }

  #run(context: number): void {
    const [task, memory, link, control] = [this.#task, this.#memory, this.#link, this.#control];
    const [clock, spin, posix, packetInbox] = [
      this.#clock,
      this.#spin,
      this.#posix,
      this.#packetInbox,
    ];
    const exports = control.guard(instantiate(memory, task.module));
    const { durables, arena } = task;
    const calls: WakeCalls = packetInbox
      ? { datagram: (port) => packetInbox.wake(port) }
      : { datagram: () => {}, event: (descriptor) => posix?.signalEvent(descriptor) };
    const running = new Runner(
      memory,
      exports,
      context,
      link,
      clock,
      durables,
      arena,
      calls,
      packetInbox,
    );
    this.#runner = running;
    const discard = { completion: () => {}, asyncEvent: () => {}, reorderShort: () => {} };
    const events = new EventRing(memory, context, discard);
    // The socket of a device that processes share receives for all of them.
    const filter = packetInbox ? undefined : new FloodFilter(memory, context, control, link);
    const turns = posix && task.isLent ? posix.addressOf(memory.buffer) + control.turnsAddress : 0;
    const wakePollers = (): void => posix?.wakeWaiters(turns);
    let eventsSeen = 0;
    let [busyUntil, busySince] = [0, 0];
    while (!control.stopped) {
      const kicks = control.kicks;
      // The application does not receive packets of groups.
      const isLed = control.isLed(clock.now(), LED_MICROS) && !link.hasGroupPackets;
      const turn = isLed ? 0 : this.#turn(running);
      const done = turn ?? 0;
      if (done > 0 && turns !== 0) control.countTurn(wakePollers);
      if (events.head !== eventsSeen) {
        eventsSeen = events.head;
        control.call();
      }
      const now = clock.now();
      filter?.look(now);
      if (done > 0) {
        spin.waited(now - busySince);
        busySince = now;
        busyUntil = spin.until(now, control.isTouched(now, TOUCHED_MICROS) || running.stores);
      }
      if (isLed) {
        if (control.fallAsleep(kicks, now + LOOK_MICROS)) link.waitForWake(LOOK_MICROS);
        control.awake();
      } else if (now >= busyUntil && turn !== undefined) {
        // The application may have moved it in its turn.
        const deadline = earlier(exports.nextDeadline(context), exports.nextDelayedAck(context));
        if (control.fallAsleep(kicks, deadline)) {
          const isQuiet = (packetInbox?.fallAsleep() ?? true) && running.wakes.fallAsleep();
          link.wait(isQuiet ? sleepMicros(deadline, now, filter) : 0);
          running.wakes.awake();
          control.awake();
        }
      } else if (turn === 0) spin.yield();
    }
    // Sends requests posted before the end: often they include the last message of a connection.
    this.#turn(running, LAST_ATTEMPTS);
  }
}

redirectWarnings((message) => tell({ kind: 'warning', message }));
// Other processes of a device wait while it opens a link.
await loadPosix();
tell({ kind: 'started' });
// One device after the other (idle-threads.ts).
for (;;) {
  const task = await nextMessage<ThreadTask | number>();
  // The end of the device before, which had ended already.
  if (typeof task === 'number') continue;
  try {
    await (await EngineThread.make(task)).serve();
  } catch (error) {
    tellFailure(error);
  }
  // This thread allocates little, so V8 would not free the memory of the device for a long time.
  setImmediate(collectGarbage);
  tell({ kind: 'started' });
}
