/**
 * One engine at work on one context, and the run loop: after any input drain packets, then events,
 * then read the deadline. No other class calls the exports that take input or give output.
 */
import {
  ContextLayout,
  CountersLayout,
  RECEIVE_DESCRIPTOR_SIZE,
  ReceiveDescriptorLayout,
  SEND_BUFFER_PACKETS,
  SEND_DESCRIPTOR_SIZE,
  SendDescriptorLayout,
} from '#build/abi.js';
import { EventRing, type EventOutput } from './event-ring.js';
import type { EngineExports } from './load.js';
import type { EngineMemory } from './memory.js';
import { structAt, type Struct } from './struct.js';

const RECEIVE = ReceiveDescriptorLayout.fields;
const SEND = SendDescriptorLayout.fields;
/** Sent to us alone. */
const NO_GROUP = new Uint32Array(4);

/** Where a packet came from, as the engine's memory holds it. */
export interface PacketSource {
  readonly gid: { readonly words: Uint32Array };
  readonly port: number;
}

/** Output of an engine. `Destination`: the host's type for a path. */
export interface EngineOutput<Destination> {
  /** Takes over a buffer of packets; calls `release` when it has sent them. */
  send(batch: SendBatch<Destination>): void;
  /** Where packets of the path at this address go. */
  destinationOf(path: number): Destination;
  /** FLUSHes wait that the host has not taken yet (`nextFlush`). */
  flushes?(): void;
  /** Contexts of the arena have messages, and their threads sleep (sharing/context-wakes.ts). */
  wakeContexts?(): void;
  /** Takes events; undefined: another thread does. */
  readonly events: EventOutput | undefined;
  /**
   * When `advance` is to be called: microseconds on the clock, 0 for never; and when it is to be
   * called by and by: a millisecond or two later does no harm.
   */
  deadline(micros: number, delayedAck: number): void;
}

/** The earlier of two moments, of which 0 is never. */
export function earlier(one: number, other: number): number {
  if (one === 0 || other === 0) return one + other;
  return Math.min(one, other);
}

/** Packets that lie in one send buffer; the shape of link.ts `PacketBatch`. */
export class SendBatch<Destination> {
  readonly buffer: ArrayBufferLike;
  count = 0;
  readonly #engine: Engine<Destination>;
  readonly #index: number;
  readonly #words: Uint32Array;
  readonly #descriptors: number;
  readonly #destinations: Destination[] = [];
  #held = false;

  constructor(engine: Engine<Destination>, index: number, descriptors: number) {
    this.#engine = engine;
    this.#index = index;
    this.#words = engine.memory.words;
    this.#descriptors = descriptors >>> 2;
    this.buffer = engine.memory.buffer;
  }

  addressOf(index: number): number {
    return this.#words[this.#at(index) + (SEND.address[0] >>> 2)]!;
  }

  lengthOf(index: number): number {
    return this.#words[this.#at(index) + (SEND.length[0] >>> 2)]!;
  }

  destinationOf(index: number): Destination {
    return this.#destinations.length === 1 ? this.#destinations[0]! : this.#destinations[index]!;
  }

  bytesOf(index: number): Uint8Array {
    return new Uint8Array(this.buffer, this.addressOf(index), this.lengthOf(index));
  }

  tooLong(index: number): void {
    const { exports, context } = this.#engine;
    exports.receiveRefusal(context, this.#words[this.#at(index) + (SEND.qpn[0] >>> 2)]!);
  }

  release(): void {
    if (!this.#held) throw new Error('a packet batch was released twice');
    this.#held = false;
    this.#engine.released(this.#index);
  }

  #at(index: number): number {
    return this.#descriptors + ((index * SEND_DESCRIPTOR_SIZE) >>> 2);
  }

  /**
   * Resolves destinations now: a link may ask later, when the queue pair is gone. Most batches
   * have a single one, which is kept once.
   */
  fill(count: number, destinationOf: (path: number) => Destination): this {
    this.count = count;
    this.#held = true;
    this.#destinations.length = 0;
    const field = SEND.path[0] >>> 2;
    const first = this.#words[this.#at(0) + field]!;
    let same = true;
    for (let index = 1; index < count && same; index++) {
      same = this.#words[this.#at(index) + field] === first;
    }
    for (let index = 0; index < (same ? 1 : count); index++) {
      this.#destinations.push(destinationOf(this.#words[this.#at(index) + field]!));
    }
    return this;
  }
}

export class Engine<Destination> {
  /** Live view of what the context counts. */
  readonly counters: Readonly<Struct<typeof CountersLayout>>;
  readonly #output: EngineOutput<Destination>;
  readonly #destinationOf: (path: number) => Destination;
  readonly #now: () => number;
  readonly #batches: SendBatch<Destination>[] = [];
  readonly #free: number[] = [];
  readonly #descriptors: number;
  readonly #area: number;
  readonly #areaEnd: number;
  readonly #receiveMax: number;
  readonly #events: EventRing | undefined;
  readonly #flushFirst: number;
  readonly #wakeCount: number;
  #received = 0;
  #receivedEnd: number;
  #draining = false;
  #again = false;
  #owes = false;
  #starved = false;
  #deadline = 0;
  #delayedAck = 0;

  /** `now`: monotonic microseconds. */
  constructor(
    readonly memory: EngineMemory,
    readonly exports: EngineExports,

    /** Address of the context. */
    readonly context: number,
    output: EngineOutput<Destination>,
    now: () => number,
  ) {
    this.#output = output;
    this.#destinationOf = (path) => output.destinationOf(path);
    this.#now = now;
    const struct = structAt(memory, ContextLayout, context);
    this.counters = structAt(memory, CountersLayout, struct.counters);
    this.#descriptors = struct.receiveDescriptors >>> 2;
    this.#area = struct.receiveArea;
    this.#areaEnd = struct.receiveArea + struct.receiveBytes;
    this.#receivedEnd = this.#area;
    this.#receiveMax = struct.receivePackets;
    this.#events = output.events && new EventRing(memory, context, output.events);
    this.#wakeCount = (context + ContextLayout.fields.wakeCount[0]) >>> 2;
    this.#flushFirst = (context + ContextLayout.fields.flushFirst[0]) >>> 2;
    for (let index = 0; index < struct.sendBuffers; index++) {
      const at = struct.sendDescriptors + index * SEND_BUFFER_PACKETS * SEND_DESCRIPTOR_SIZE;
      this.#batches.push(new SendBatch<Destination>(this, index, at));
      this.#free.push(index);
    }
  }

  /** Something was posted or changed: packets may be due. */
  drain(): void {
    if (this.#draining) {
      // A callback posted something: the loop below takes it up.
      this.#again = true;
      return;
    }
    this.#draining = true;
    this.#owes = false;
    try {
      do {
        this.#again = false;
        this.#drainPackets();
        if (this.memory.words[this.#wakeCount] !== 0) this.#output.wakeContexts?.();
        if (this.memory.words[this.#flushFirst] !== 0) this.#output.flushes?.();
        this.#events?.drain();
      } while (this.#again);
    } finally {
      this.#draining = false;
    }
    const deadline = this.exports.nextDeadline(this.context);
    const delayedAck = this.exports.nextDelayedAck(this.context);
    if (deadline !== this.#deadline || delayedAck !== this.#delayedAck) {
      this.#deadline = deadline;
      this.#delayedAck = delayedAck;
      this.#output.deadline(deadline, delayedAck);
    }
  }

  /** The clock has reached the deadline. */
  advance(): void {
    // The next deadline is reported, whatever its value.
    this.#deadline = -1;
    this.exports.advance(this.context, this.#now());
    this.drain();
  }

  /**
   * Copies a received packet in. Packets are worked on when `flushReceived` is called, or when
   * there is no room for another one.
   */
  addReceived(bytes: Uint8Array, source: PacketSource, group?: PacketSource['gid']): void {
    const size = bytes.length;
    if (size > this.#areaEnd - this.#area) return;
    if (this.#received === this.#receiveMax || this.#receivedEnd + size > this.#areaEnd) {
      this.flushReceived();
    }
    this.memory.bytes.set(bytes, this.#receivedEnd);
    this.#describe(this.#receivedEnd, size, source, group);
    // Packets begin at multiples of 8, so that headers are aligned.
    this.#receivedEnd = (this.#receivedEnd + size + 7) & ~7;
  }

  /**
   * Packets that lie in the engine's memory already: `length` bytes at `address`, in segments of
   * `segmentSize` bytes (0: one packet). They are left alone until `flushReceived` has returned.
   */
  addSegments(address: number, length: number, segmentSize: number, source: PacketSource): void {
    if (this.#received === this.#receiveMax) this.flushReceived();
    this.#describe(address, length, source, undefined, segmentSize);
  }

  /** Copies a whole batch of another engine's packets in, in as few runs as they lie in. */
  addBatch(
    batch: {
      readonly buffer: ArrayBufferLike;
      readonly count: number;
      addressOf(index: number): number;
      lengthOf(index: number): number;
    },
    source: PacketSource,
  ): void {
    const from = new Uint8Array(batch.buffer);
    for (let first = 0; first < batch.count;) {
      const start = batch.addressOf(first);
      let end = start;
      let last = first;
      if (this.#received === this.#receiveMax) this.flushReceived();
      const room = this.#areaEnd - this.#receivedEnd;
      const limit = Math.min(batch.count, first + this.#receiveMax - this.#received);
      while (last < limit && batch.addressOf(last) === end) {
        const length = batch.lengthOf(last);
        if (end - start + length > room) break;
        end += length;
        last++;
      }
      if (last === first) {
        // No room for even one: work on what is there, unless that is nothing.
        if (this.#received === 0) return;
        this.flushReceived();
        continue;
      }
      this.memory.bytes.set(from.subarray(start, end), this.#receivedEnd);
      for (let at = this.#receivedEnd; first < last; first++) {
        const length = batch.lengthOf(first);
        this.#describe(at, length, source, undefined);
        at += length;
      }
      this.#receivedEnd += end - start;
    }
  }

  /** `later`: answers wait for the next `drain` or `settle`, which is to come soon. */
  flushReceived(later = false): void {
    const count = this.#received;
    if (count === 0) return;
    this.#received = 0;
    this.#receivedEnd = this.#area;
    this.exports.receivePackets(this.context, count, this.#now());
    if (later) this.#owes = true;
    else this.drain();
  }

  /** Does an answer wait? */
  get owes(): boolean {
    return this.#owes;
  }

  /** Gives out what waits. */
  settle(): void {
    if (this.#owes) this.drain();
  }

  /** Called by a batch: its buffer may be filled again. */
  released(index: number): void {
    this.#free.push(index);
    if (this.#starved) this.drain();
  }

  #describe(
    address: number,
    length: number,
    source: PacketSource,
    group: PacketSource['gid'] | undefined,
    segmentSize = 0,
  ): void {
    const words = this.memory.words;
    const at = this.#descriptors + ((this.#received++ * RECEIVE_DESCRIPTOR_SIZE) >>> 2);
    const gid = source.gid.words;
    const to = at + (RECEIVE.sourceGid0[0] >>> 2);
    words[to] = gid[0]!;
    words[to + 1] = gid[1]!;
    words[to + 2] = gid[2]!;
    words[to + 3] = gid[3]!;
    const target = at + (RECEIVE.targetGid0[0] >>> 2);
    const groupWords = group?.words ?? NO_GROUP;
    words[target] = groupWords[0]!;
    words[target + 1] = groupWords[1]!;
    words[target + 2] = groupWords[2]!;
    words[target + 3] = groupWords[3]!;
    words[at + (RECEIVE.address[0] >>> 2)] = address;
    words[at + (RECEIVE.length[0] >>> 2)] = length;
    words[at + (RECEIVE.sourcePort[0] >>> 2)] = source.port;
    words[at + (RECEIVE.segmentSize[0] >>> 2)] = segmentSize;
  }

  #drainPackets(): void {
    this.#starved = false;
    for (;;) {
      const index = this.#free.pop();
      if (index === undefined) {
        // The link still holds every buffer; `released` comes back here.
        this.#starved = true;
        return;
      }
      const count = this.exports.nextPackets(this.context, index);
      if (count === 0) {
        this.#free.push(index);
        return;
      }
      this.#output.send(this.#batches[index]!.fill(count, this.#destinationOf));
    }
  }
}
