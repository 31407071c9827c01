/**
 * The engine runs in the thread that calls it: when the link hands packets over, when something is
 * posted, when the clock's timer fires.
 */
import { ArenaLayout } from '#build/abi.js';
import { Engine, earlier } from '../../engine/engine.js';
import type { ArenaMemory } from '../../engine/arena.js';
import { structAt } from '../../engine/struct.js';
import type { Endpoint, Gid } from '../../link/endpoint.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../../link/link.js';
import { nextTurn } from '../../link/next-turn.js';
import { RealClock, type CancelTimer, type Clock } from '../clock.js';
import { Destinations } from '../destinations.js';
import { Committer, type Commit } from '../durable/committer.js';
import { DURABLE_TABLE_BYTES, DurableExchange } from '../durable/durable-exchange.js';
import type { DurableRing } from '../durable/durable-ring.js';
import { ContextWakes, type WakeCalls } from '../sharing/context-wakes.js';
import type { PacketInbox } from '../sharing/packet-inbox.js';
import { pollLink, type LinkPoller } from './link-poller.js';
import type { DeviceEvents, Progress, RunningEngine, StopDurable } from './progress.js';

/** A moment on the clock, 0 for never, and what makes it never come. */
interface Timer {
  readonly micros: number;
  readonly cancel?: CancelTimer;
}

const NEVER: Timer = { micros: 0 };

export class InlineProgress implements Progress, LinkReceiver {
  readonly spin = undefined;
  readonly #arena: ArenaMemory;
  readonly #link: Link;
  readonly #clock: Clock;
  readonly #packetInbox: PacketInbox | undefined;
  // Packets that arrive before the engine runs are lost, as on any network.
  #engine: Engine<Endpoint> | undefined;
  #events: DeviceEvents | undefined;
  /** Timers for deadlines that must be exact, and for delayed ACKs, which may be a little late. */
  #timer: Timer = NEVER;
  #delayedAckTimer: Timer = NEVER;
  readonly #durables: number;
  readonly #committers = new Set<Committer>();
  #exchange: DurableExchange | undefined;
  /** Messages between contexts of the arena. */
  #wakes: ContextWakes | undefined;
  readonly #calls: WakeCalls | undefined;
  /** Of a link with `poll` whose clock is the machine's. */
  #poller: LinkPoller | undefined;
  #closed = false;
  #polling = false;
  #isSettling = false;

  private constructor(
    arena: ArenaMemory,
    link: Link,
    clock: Clock,
    packetInbox?: PacketInbox,
    calls?: WakeCalls,
  ) {
    this.#packetInbox = packetInbox;
    this.#calls = packetInbox ? { datagram: (port) => packetInbox.wake(port) } : calls;
    this.#arena = arena;
    this.#link = link;
    this.#clock = clock;
    this.#durables = arena.heap.alloc(DURABLE_TABLE_BYTES);
  }

  /**
   * Opens the link. `packetInbox`: where several processes share the device; `calls`: where threads
   * do. Rejects with what the link refuses with (LinkError).
   */
  static async open(
    arena: ArenaMemory,
    link: Link,
    clock: Clock,
    packetInbox?: PacketInbox,
    calls?: WakeCalls,
  ): Promise<InlineProgress> {
    const progress = new InlineProgress(arena, link, clock, packetInbox, calls);
    const { heap, memory } = arena;
    await link.open(packetInbox ? packetInbox.sorted(progress) : progress, {
      buffer: memory.buffer,
      alloc: (bytes) => heap.alloc(bytes),
      free: (address) => heap.free(address),
    });
    return progress;
  }

  get info(): LinkInfo {
    return this.#link.info;
  }

  start(context: number, events: DeviceEvents): RunningEngine {
    const { memory, exports } = this.#arena;
    const link = this.#link;
    const destinations = new Destinations(memory, (peer) => link.setPeerSegments?.(peer, true));
    this.#events = events;
    this.#engine = new Engine<Endpoint>(
      memory,
      exports,
      context,
      {
        send: (batch) => {
          this.#poller?.touch();
          this.#link.send(batch);
        },
        destinationOf: (path) => destinations.of(path),
        wakeContexts: () => this.#wakes?.wakeOthers(),
        flushes: () => this.#giveFlushes(),
        events,
        deadline: (micros, delayedAck) => {
          // Where a round trip takes milliseconds no moment is worth waiting for in turns.
          const mayBeLate = link.info.paced === true;
          this.#timer = this.#set(this.#timer, micros, mayBeLate, () => (this.#timer = NEVER));
          this.#delayedAckTimer = this.#set(
            this.#delayedAckTimer,
            delayedAck,
            true,
            () => (this.#delayedAckTimer = NEVER),
          );
        },
      },
      () => this.#clock.now(),
    );
    this.#exchange = new DurableExchange(memory, exports, context, this.#durables);
    this.#startWakes(context);
    if (link.poll) this.#poller = pollLink(() => this.#receive(), this.#clock);
    return this.#engine;
  }

  #startWakes(context: number): void {
    const { memory, address } = this.#arena;
    if (structAt(memory, ArenaLayout, address).localMessagesMax === 0) return;
    this.#wakes = new ContextWakes(memory, address, context, this.#calls);
    // The owner of a virtual clock calls `poll`.
    const waits = !this.#link.poll && memory.shared && this.#clock instanceof RealClock;
    if (waits) void this.#listen(this.#wakes);
  }

  /** Messages of other contexts, until the end. */
  async #listen(wakes: ContextWakes): Promise<void> {
    while (!this.#closed) {
      await wakes.announced();
      if (!this.#closed && wakes.arrived) this.#engine!.advance();
      // A flood of messages must not keep the event loop from its other work.
      await new Promise<void>(nextTurn);
    }
  }

  get durables(): number {
    return this.#durables;
  }

  keepDurable(ring: DurableRing, commit: Commit): StopDurable {
    const committer = new Committer(ring, commit, () => {
      this.#exchange?.collect();
      if (!this.#closed) this.#engine?.drain();
    });
    this.#committers.add(committer);
    return () => {
      this.#committers.delete(committer);
      return undefined;
    };
  }

  #giveFlushes(): void {
    if (this.#exchange!.give()) this.#engine!.drain();
    for (const committer of this.#committers) committer.work();
  }

  get hasMessages(): boolean {
    return this.#wakes?.arrived ?? false;
  }

  poll(): void {
    const engine = this.#engine;
    if (this.#closed || !engine) return;
    const hasMessages = this.hasMessages;
    if (hasMessages) engine.advance();
    if (!this.#link.poll) return;
    engine.settle();
    if (this.#poller?.notePoll(hasMessages)) return;
    this.#polling = true;
    try {
      this.#link.poll();
      this.#packetInbox?.collect(this);
    } finally {
      this.#polling = false;
    }
    const deadline = earlier(this.#timer.micros, this.#delayedAckTimer.micros);
    if (deadline !== 0 && this.#clock.now() >= deadline) engine.advance();
    // The next poll or post settles; this timer covers the case that neither follows.
    if (!engine.owes || this.#isSettling) return;
    this.#isSettling = true;
    nextTurn(() => {
      this.#isSettling = false;
      this.settle();
    });
  }

  /** Packets and messages that nothing of the application waits for. Returns how many. */
  #receive(): number {
    if (this.#wakes?.arrived) this.#engine!.advance();
    const own = this.#link.poll!();
    return own + (this.#packetInbox?.collect(this) ?? 0);
  }

  wakeWaits(slot: number): void {
    this.#packetInbox?.wakeWaits(slot);
  }

  settle(): void {
    if (!this.#closed) this.#engine?.settle();
  }

  packet(bytes: Uint8Array, source: Endpoint, group?: Gid): void {
    if (!this.#closed) this.#engine?.addReceived(bytes, source, group);
  }

  packets(batch: PacketBatch, source: Endpoint): void {
    if (!this.#closed) this.#engine?.addBatch(batch, source);
  }

  segments(address: number, length: number, segmentSize: number, source: Endpoint): void {
    if (!this.#closed) this.#engine?.addSegments(address, length, segmentSize, source);
  }

  flush(): void {
    if (!this.#closed) this.#engine?.flushReceived(this.#polling);
  }

  failed(reason: Error): void {
    this.#events?.failed(reason);
  }

  peerGone(peer: Endpoint): void {
    if (!this.#closed) this.#events?.peerGone?.(peer);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#timer.cancel?.();
    this.#delayedAckTimer.cancel?.();
    this.#wakes?.stop();
    this.#poller?.stop();
    await this.#link.close();
  }

  #set(timer: Timer, micros: number, mayBeLate: boolean, fired: () => void): Timer {
    if (micros === timer.micros) return timer;
    timer.cancel?.();
    if (micros === 0 || this.#closed) return NEVER;
    const fire = (): void => {
      fired();
      if (this.#closed) return;
      // Packets that have arrived are processed before the deadline: one may be the packet it waits
      // for.
      if (this.#link.poll) this.#receive();
      this.#engine?.flushReceived();
      this.#engine?.advance();
    };
    return { micros, cancel: this.#clock.at(micros, fire, mayBeLate) };
  }
}
