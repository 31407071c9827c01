/**
 * An engine and a batching link in the thread that calls: what the threads of a device do in turn
 * (thread-progress.ts). Its thread holds the turn while it is at work.
 */
import { Engine, earlier } from '../../engine/engine.js';
import type { EngineExports } from '../../engine/load.js';
import type { EngineMemory } from '../../engine/memory.js';
import type { Endpoint, Gid } from '../../link/endpoint.js';
import type { LinkReceiver } from '../../link/link.js';
import type { UdpBatchLink } from '../../link/udp/udp-batch.js';
import type { Clock } from '../clock.js';
import { Destinations } from '../destinations.js';
import { DurableExchange } from '../durable/durable-exchange.js';
import { ContextWakes, type WakeCalls } from '../sharing/context-wakes.js';
import type { PacketInbox } from '../sharing/packet-inbox.js';
import { SocketRest } from './socket-rest.js';

export class Runner {
  /** Messages between contexts of the arena. */
  readonly wakes: ContextWakes;
  readonly #engine: Engine<Endpoint>;
  readonly #link: UdpBatchLink;
  readonly #clock: Clock;
  readonly #packetInbox: PacketInbox | undefined;
  readonly #exchange: DurableExchange;
  readonly #socketRest = new SocketRest();
  #deadline = 0;
  #later = false;
  #stores = false;

  constructor(
    memory: EngineMemory,
    exports: EngineExports,
    context: number,
    link: UdpBatchLink,
    clock: Clock,
    durables: number,
    arena: number,
    calls: WakeCalls,
    packetInbox?: PacketInbox,
  ) {
    this.wakes = new ContextWakes(memory, arena, context, calls);
    this.#packetInbox = packetInbox;
    const destinations = new Destinations(memory, (peer) => link.setPeerSegments(peer, true));
    this.#link = link;
    this.#clock = clock;
    this.#exchange = new DurableExchange(memory, exports, context, durables);
    this.#engine = new Engine<Endpoint>(
      memory,
      exports,
      context,
      {
        send: (batch) => link.send(batch),
        destinationOf: (path) => destinations.of(path),
        wakeContexts: () => this.wakes.wakeOthers(),
        flushes: () => this.#giveFlushes(),
        // The application's thread takes them.
        events: undefined,
        deadline: (micros, delayedAck) => (this.#deadline = earlier(micros, delayedAck)),
      },
      () => clock.now(),
    );
  }

  #giveFlushes(): void {
    this.#stores = true;
    if (this.#exchange.give()) this.#engine.drain();
  }

  /** When `turn` has to be called at the latest, as of the last turn; 0: never. */
  get deadline(): number {
    return this.#deadline;
  }

  /** Receiver for the link's packets; before there is a runner they are lost. */
  static receiver(
    runner: () => Runner | undefined,
    failed: (error: Error) => void,
    packetInbox?: PacketInbox,
  ): LinkReceiver {
    const receiver: LinkReceiver = {
      packet: (bytes, source, group) => runner()?.packet(bytes, source, group),
      segments: (at, length, size, source) => runner()?.segments(at, length, size, source),
      flush: () => runner()?.flush(),
      failed,
    };
    return packetInbox ? packetInbox.sorted(receiver) : receiver;
  }

  packet(bytes: Uint8Array, source: Endpoint, group?: Gid): void {
    this.#engine.addReceived(bytes, source, group);
  }

  segments(address: number, length: number, segmentSize: number, source: Endpoint): void {
    this.#engine.addSegments(address, length, segmentSize, source);
  }

  flush(): void {
    this.#engine.flushReceived(this.#later);
  }

  /**
   * Takes in what was posted and what arrived, lets time pass, gives out what there is. `later`:
   * what answers to arrivals waits for the next turn. Returns how many doorbells, packets and
   * timers there were.
   */
  turn(later = false): number {
    const engine = this.#engine;
    engine.settle();
    const answers = this.#exchange.collect();
    this.#stores = answers > 0;
    if (answers > 0) engine.drain();
    const messages = this.wakes.arrived ? 1 : 0;
    let done = answers + messages + engine.exports.postDoorbells(engine.context, this.#clock.now());
    if (done > 0 && later) engine.drain();
    this.#later = later;
    try {
      if (messages > 0) this.#socketRest.begin(this.#clock.now());
      if (!this.#socketRest.leavesOut()) {
        done += this.#link.poll();
        if (this.#packetInbox) done += this.#packetInbox.collect(this);
      }
    } finally {
      this.#later = false;
    }
    // The other thread's turn may have moved it.
    const { exports, context } = engine;
    this.#deadline = earlier(exports.nextDeadline(context), exports.nextDelayedAck(context));
    if (this.#deadline !== 0 && this.#clock.now() >= this.#deadline) {
      engine.advance();
      done++;
    } else if (!later) {
      engine.drain();
    }
    return done;
  }

  /** Takes in what was posted and gives out what there is. */
  post(): void {
    const engine = this.#engine;
    this.#exchange.collect();
    engine.exports.postDoorbells(engine.context, this.#clock.now());
    engine.drain();
  }

  /** Answers that wait leave now. */
  settle(): void {
    this.#engine.settle();
  }

  /** Was the last turn about FLUSHes that a store makes durable? */
  get stores(): boolean {
    return this.#stores;
  }

  /** Does an answer wait? */
  get owes(): boolean {
    return this.#engine.owes;
  }
}
